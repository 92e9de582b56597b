"""Searches over whole texts: best-first beam search, MCTS over tokens, LiteSearch."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from fractions import Fraction
from io import StringIO
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from decgraph.errors import DecError
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.scores import table
from lab.recordings.tables import Stream, TableLM
from lab.recordings.upstream import Upstream


def row(model: TableModel, text: Sequence[Any]) -> np.ndarray:
    """float64[V]: the probabilities after a text."""
    weights = model.eval([tuple(text)])[0].weights
    assert weights is not None
    return np.array([float(w) for w in weights])


@contextmanager
def elsewhere(*folders: str) -> Iterator[None]:
    """In an empty folder with these ones, and with nothing printed."""
    with tempfile.TemporaryDirectory() as here, contextlib.chdir(here), redirect_stdout(StringIO()):
        for folder in folders:
            Path(folder).mkdir(parents=True)
        yield


def spelled(tokens: Sequence[int]) -> str:
    """Their letters; 0 ends a line."""
    return "".join("\n" if x == 0 else chr(96 + x) for x in tokens)


def value(text: str) -> float:
    """What a text is worth, between 0 and 1."""
    return sum((5 * ord(c) + 3 * i) * (i + 1) % 17 for i, c in enumerate(text)) * 7 % 101 / 101


def promise(text: str) -> float:
    """As `value`; of the empty text it is not 0."""
    return round(101 * value(text) + 37) % 101 / 101


class Predictor:
    """A table as a predictor of their interface; a state is the text so far. calls: the texts after which it was asked."""

    def __init__(self, case: Case) -> None:
        self.model, self.prompt, self.calls = table(case), tuple(case["prompt"]), list[Any]()
        self.text: tuple[int, ...] = ()

    def set_current_sen_id(self, _: int) -> None:
        """There is one."""

    def initialize(self, _: Any) -> None:
        """Nothing was written."""
        self.text = ()

    def predict_next(self) -> np.ndarray:
        """The logarithms of the next token's probabilities."""
        self.calls.append(self.text)
        return np.asarray(np.log(row(self.model, (*self.prompt, *self.text))))

    def consume(self, word: int) -> None:
        """A token is written."""
        self.text = (*self.text, word)

    def get_state(self) -> Any:
        """The text."""
        return self.text

    def set_state(self, state: Any) -> None:
        """See get_state."""
        self.text = state

    def get_unk_probability(self, _: Any) -> float:
        """Every token is known."""
        return -math.inf


def log_of_sum(x: Any, b: Any = 1) -> Any:
    """scipy's."""
    return np.log(np.sum(b * np.exp(x)))


def best_first(upstream: Upstream, case: Case) -> dict[str, Any]:
    with mock.patch.dict("sys.modules"), upstream.importable(absent=("scipy", "datastructures.sum_heap")):
        import utils  # type: ignore[import-not-found]
        from decoding.dijkstra_time_sync import DijkstraTSDecoder  # type: ignore[import-not-found]
    utils.EOS_ID, utils.logsumexp = case["eos"][0], log_of_sum
    arguments = SimpleNamespace(
        nbest=1, beam=case["k"], early_stopping=True, memory_threshold_coef=0, max_len_factor=case["limit"], gumbel=False,
        allow_unk_in_output=True, temperature=1.0, add_incomplete=False, reward_coefficient=0, reward_type=None,
        bounded_reward_factor=1.0, length_normalization=False, heuristic_search=False,
    )  # fmt: skip
    decoder, predictor = DijkstraTSDecoder(arguments), Predictor(case)
    decoder.add_predictor("table", predictor)
    found = decoder.decode([0])
    return {"texts": found[0].trgt_sentence if found else [], "calls": [[c] for c in predictor.calls]}


class Ensemble:
    """A table as the models of fairseq's generator. asked: by call, the texts after which it was asked."""

    def __init__(self, case: Case) -> None:
        self.model, self.case, self.asked = table(case), case, list[Any]()

    def forward_decoder(self, tokens: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
        """float32[B, V + 1]: the logarithms of the next token's probabilities; the last token is the padding."""
        texts = [tuple(text[1:]) for text in tokens.tolist()]
        self.asked.append(sorted(set(texts)))
        rows = np.array([[*np.log(row(self.model, (*self.case["prompt"], *text))), -math.inf] for text in texts])
        return torch.from_numpy(rows).float(), None

    def max_decoder_positions(self) -> int:
        """More than are needed."""
        return 512

    def __getattr__(self, name: str) -> Any:
        return lambda *given: given[0] if given else None  # it has no encoder and no state


def poisson(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Of the uniforms of a sample those are read that its loop looks at, from the last candidate on. The sampler itself is a
    compiled extension, `fairseq.cps_dp`: it must have been built from the snapshot before, and its
    folder named by EXTENSIONS in the environment."""
    extensions = os.environ.get("EXTENSIONS", "")
    if not extensions:
        raise DecError("fairseq.cps_dp is a compiled extension", hint="EXTENSIONS=FOLDER, where it was built from the snapshot")
    package = ModuleType("fairseq")
    package.__path__ = [str(upstream.folder / "fairseq"), extensions]
    with mock.patch.dict("sys.modules", {"fairseq": package}), upstream.importable(absent=("fairseq.models", "fairseq.utils")):
        from fairseq import search, sequence_generator  # type: ignore[import-not-found]
    stream, sample, model = Stream(case["seed"]), search.sample, Ensemble(case)

    def sampled(logits: np.ndarray, candidates: np.ndarray, k: int) -> Any:
        ahead = copy.deepcopy(stream)
        uniforms = np.array([ahead.coin() for _ in logits])[::-1].copy()
        with mock.patch.object(np.random, "uniform", lambda size: uniforms):
            picked, odds = sample(logits, candidates, k)
        for _ in range(len(logits) - [*candidates].index(picked[-1])):
            stream.coin()
        return picked, odds

    search.sample = sampled
    sequence_generator.EnsembleModel = lambda _: model
    size = case["size"]

    class Tokens:
        """A dictionary of theirs: every token is known."""

        pad, unk, eos = (staticmethod(lambda x=x: x) for x in (size, 0, case["eos"][0]))

        def __len__(self) -> int:
            return size + 1

    generator = sequence_generator.SequenceGenerator(
        Tokens(), case["k"], max_len_b=case["limit"], min_len=0, stop_early=False, normalize_scores=False, cps=True,
        sampling_temperature=case["heat"], nucleus_p=case["mass"],
    )  # fmt: skip
    with redirect_stdout(StringIO()):
        (found,) = generator.generate([], {"net_input": {"src_tokens": torch.tensor([[size - 1]])}})
    texts = [f["tokens"].tolist() for f in found]
    return {"texts": [t[: case["limit"]] for t in texts], "calls": model.asked[: case["limit"]]}


class Ending(TableModel):
    """A table whose texts end in time: before the limit's last token the end token is certain."""

    case: Case

    def eval(self, paths: Sequence[Any], memory: Any = None) -> list[Scores]:
        """See Model."""
        last = len(self.case["prompt"]) + self.case["limit"] - 1
        certain = Scores(weights=tuple(Fraction(v == self.case["eos"][0]) for v in range(self.case["size"])))
        return [certain if len(path) >= last else super(Ending, self).eval([path])[0] for path in paths]


def ending(case: Case) -> Ending:
    """A target whose texts end in time."""
    made = Ending(case["size"], case["seed"], window=None, vocab="t", name="target")
    made._table, made.case = table(case)._table, case
    return made


def constrained(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Their tokens 0 to 3 are of their own, the end token is 3; ours stand behind them."""
    package = ModuleType("sockeye")
    package.__path__ = [str(upstream.folder / "sockeye")]
    absent = tuple(f"sockeye.{name}" for name in ("data_io", "vocab", "lexicon", "model", "utils"))
    with mock.patch.dict("sys.modules", {"sockeye": package}), upstream.importable(absent=absent):
        import mxnet as mx  # type: ignore[import-not-found]
        from sockeye import beam_search as module  # type: ignore[import-not-found]
    size, eos, k, model = case["size"], case["eos"][0], case["k"], ending(case)
    asked, idle = list[Any](), [0] * k
    choose = module.constrained.topk

    def chosen(step: int, sentences: int, width: int, inactive: Any, *given: Any) -> Any:
        if step == 1 and case["first"] == "one":
            inactive[1:] = 1
        found = choose(step, sentences, width, inactive, *given)
        idle[:] = [int(x) for x in found[-1].asnumpy()]
        return found

    module.constrained.topk = chosen

    class Inference:
        """A table as what the search asks; a state is the texts so far, behind how long they are."""

        def state_structure(self) -> Any:
            return [["s"]]

        def encode_and_initialize(self, *_: Any) -> Any:
            return [mx.nd.zeros((1, case["limit"] + 2), dtype="int32")], mx.nd.ones((k, 1))

        def decode_step(self, step: Any, states: Any, _: Any) -> Any:
            texts, costs, live = states[0].asnumpy(), list[Any](), list[Any]()
            for text, token, off in zip(texts, step.asnumpy()[:, 0], idle, strict=True):
                if token > 2:
                    text[0] += 1
                    text[text[0]] = token
                said = tuple(eos if x == 3 else int(x) - 4 for x in text[1 : 1 + text[0]])
                if eos not in said and token > 0 and not off:
                    live.append(said)
                p = np.zeros(size + 4)
                p[4:] = row(model, (*case["prompt"], *said))
                p[3], p[4 + eos] = p[4 + eos], 0
                with np.errstate(divide="ignore"):
                    costs.append(-np.log(p))
            asked.append(sorted(set(live)))
            return mx.nd.array(costs), [mx.nd.array(texts, dtype="int32")], None

    search = module.BeamSearch(
        beam_size=k, dtype="float32", bos_id=2, eos_id=3, context=mx.cpu(), output_vocab_size=size + 4,
        scorer=module.CandidateScorer(length_penalty_alpha=case["alpha"]), num_source_factors=1, num_target_factors=1,
        inference=Inference(),
    )  # fmt: skip
    search.initialize()
    phrases = [[x + 4 for x in phrase] for phrase in case["phrases"]]
    one, limit = mx.nd.ones((1, 1, 1)), mx.nd.array([case["limit"]], dtype="int32")
    rows, words, costs, *_ = search.forward(one, mx.nd.ones((1,)), None, [phrases], [None], limit)
    texts = []
    for i, cost in zip(rows[:, -1], costs[:, 0], strict=True):
        text: list[int] = []
        for t in range(words.shape[2] - 1, -1, -1):
            text, i = [int(words[i, 0, t]), *text], rows[i, t]
        if np.isfinite(cost):
            texts.append(tuple(eos if x == 3 else x - 4 for x in text if x))
    return {"texts": list(dict.fromkeys(texts)), "calls": [a for a in asked if a]}


class Verilog:
    """A tokenizer of letters, whose end token reads as the word that they look for."""

    def __init__(self, case: Case) -> None:
        self.case = case

    def __call__(self, text: str, **_: Any) -> Any:
        return SimpleNamespace(input_ids=torch.tensor([list(self.case["prompt"])]))

    def decode(self, tokens: Any, **_: Any) -> str:
        """A text."""
        return "".join("endmodule" if int(x) in self.case["eos"] else spelled([int(x)]) for x in tokens)


def sticks(stream: Stream, seen: list[int]) -> Any:
    """numpy's Dirichlet draws, stick by stick."""

    def dirichlet(alpha: Sequence[float]) -> np.ndarray:
        n, rest, parts = len(alpha), 1.0, list[float]()
        seen.append(n)
        for i in range(n):
            share = stream.beta(alpha[0], alpha[0] * max(1, n - 1 - i))
            parts.append(rest * (share if i < n - 1 else 1.0))
            rest -= parts[-1]
        return np.array(parts)

    return dirichlet


def mcts(upstream: Upstream, case: Case) -> dict[str, Any]:
    gym, static = SimpleNamespace(Env=type("Env", (), {})), SimpleNamespace(StaticEnv=type("StaticEnv", (), {}))
    with mock.patch.dict("sys.modules", {"gym": gym, "static_env": static}), upstream.importable(absent=("pandas",)):
        import LLMQueryEnv_og as env  # type: ignore[import-not-found]
        import mcts_og as search  # type: ignore[import-not-found]
    asked, n = list[tuple[int, ...]](), len(case["prompt"])

    class Env(env.LLMQueryEnv):
        """Its environment, with a reward of texts in the place of what compiles and tests them."""

        def verilogFunctionalityCheck(self, state: np.ndarray) -> None:
            asked.append(tuple(int(x) for x in state[0, n:]))
            self.row_data["verilog"] = ""

        def get_best_terminal_state(self, state: np.ndarray, depth: int) -> np.ndarray:
            """Its own fails for a text that is over: it prints what it has not looked up."""
            over = self.is_done_state(state, depth)
            return state if over else np.asarray(super().get_best_terminal_state(state, depth))

        def getPromptScore(self, _: Any = "") -> float:
            return value(spelled(asked[-1]))

    search.c_PUCT = case["c"]
    with (
        elsewhere("mcts_vgen16b_real"),
        mock.patch.object(env, "seed_everything", lambda _: None),
        mock.patch.object(np.random, "dirichlet", sticks(Stream(case["seed"]), [])),
    ):
        game = Env(task_name="task", row_data={}, tokenizer=Verilog(case), model=TableLM(table(case)))
        game.n_actions, game.depth = case["k"], case["limit"]
        search.execute_episode(search.initialize_MCTS_tree(game), case["rolls"] - 1)
    best = max(asked, key=lambda text: value(spelled(text)))
    return {"text": best, "asked": [spelled(text) for text in dict.fromkeys(asked)]}


def litesearch(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Its script, with a service that writes steps and values texts: a text is looked up by its spelling."""
    model, noise, prompt, limit, eos = table(case), Stream(case["seed"]), case["prompt"], case["limit"], case["eos"]
    asked, texts = list[str](), dict[str, tuple[int, ...]]({"": ()})

    def over(text: tuple[int, ...]) -> bool:
        return len(text) == limit or text[-1:] in [(e,) for e in eos]

    def worth(text: tuple[int, ...]) -> float:
        asked.append(spelled(text))
        return promise(spelled(text))

    def written(text: tuple[int, ...], temperature: float, whole: bool) -> tuple[int, ...]:
        start = len(text)
        while not over(text) and (whole or (len(text) - start < case["reach"] and (len(text) == start or text[-1] != 0))):
            p = row(model, (*prompt, *text))
            q = p ** (1 / (temperature or 1))
            text = (*text, noise.draw(q / q.sum()) if temperature else int(p.argmax()))
        return text

    def call(questions: Any, paths: Any, temperatures: Any, stops: Any) -> Any:
        steps, values = list[str](), list[float]()
        for path, temperature, stop in zip(paths, temperatures, stops, strict=True):
            before = texts[path or ""]
            if stop is None:
                steps, values = [*steps, ""], [*values, worth(before)]
                continue
            text = written(before, temperature, "\n" not in stop)
            step = ("####" if over(text) else "") + spelled(text[len(before) :]).removesuffix("\n")
            texts.setdefault("\n".join([*([path] if path else []), step]), text)
            steps, values = [*steps, step], [*values, worth(text)]
        return steps, values

    names = {"LIMIT": "rounds", "MAX_BUDGET": "most", "EXPECTED": "sure", "MIN_VALUE": "goal", "END_LEAF_NUM": "ends"}
    service = SimpleNamespace(call=call)
    lines = SimpleNamespace(open=lambda *_: contextlib.nullcontext(SimpleNamespace(write_all=lambda _: None)))
    script = upstream.text("LiteSearch/search_batch.py")
    tree: Any = upstream.module("LiteSearch/search_tree.py")
    code = compile(script, "search_batch.py", "exec")
    settings = {name: case[of] for name, of in names.items()} | {"TEMPERATURE": case["temperature"]}

    class Settings(dict[str, Any]):
        """The script's names: of its settings, those of the case."""

        def __setitem__(self, name: str, given: Any) -> None:
            super().__setitem__(name, settings.get(name, given))

    space: Mapping[str, Any] = Settings(__name__="__main__")
    with (
        elsewhere("path/to/proc", "path/to/out"),
        mock.patch.dict("sys.modules", {"call_joint_service": service, "jsonlines": lines, "search_tree": tree}),
    ):
        Path("path/to/data").write_text(json.dumps({"question": "", "answer": ""}))
        exec(code, {}, space)
    found, _ = space["problems"][0].return_best_path()
    return {"text": spelled(texts[found]), "asked": list(dict.fromkeys([*sorted(asked[:2]), *asked[2:]]))}


RECORDINGS = {
    "constrained_beam": constrained,
    "poisson_beam": poisson,
    "best_first_beam": best_first,
    "mcts": mcts,
    "litesearch": litesearch,
}
