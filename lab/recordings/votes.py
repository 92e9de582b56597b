"""Texts side by side, and which of them goes on or is the answer: REBASE, weighted voting, SPEC-RL's cut of old texts."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from lab.recordings import Case
from lab.recordings.tables import Stream, untied
from lab.recordings.upstream import Upstream

END = 0


def spelled(tokens: Sequence[int]) -> str:
    """Their letters."""
    return "".join(chr(97 + x) for x in tokens)


def reward(text: str) -> float:
    """Between 0 and 1, and not the same for two texts."""
    return sum(7**i * (ord(c) - 96) for i, c in enumerate(text)) % 9973 / 9973


def step_ends(text: str) -> bool:
    """Where a step of reasoning does."""
    return text.endswith(("b", "d"))


def same_answer(a: str, b: str) -> bool:
    """Of texts."""
    return len(a) % 3 == len(b) % 3


AGGREGATES: dict[str, Callable[[list[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "prod": math.prod,
    "mean": lambda scores: sum(scores) / len(scores),
}
"""What a text is worth by the scores of its steps."""


def scores(text: str) -> list[float]:
    """Of the steps of a text, a letter each."""
    return [reward(text[: i + 1]) for i in range(len(text))]


class Writer:
    """A table, texts that it writes side by side, a token of each at a time, and the noise of that."""

    def __init__(self, case: Case) -> None:
        self.table, self.stream = untied(5, case["seed"], window=None, sharp=case.get("sharp", 0.5)), Stream(case["seed"])
        self.prompt, self.limit = tuple(case["prompt"]), case["limit"]

    def token(self, text: tuple[int, ...]) -> tuple[int, ...]:
        """A text with one token more."""
        weights = self.table.eval([(*self.prompt, *text)])[0].weights
        assert weights is not None
        return (*text, self.stream.draw(np.array([float(w) for w in weights])))

    def over(self, text: tuple[int, ...]) -> bool:
        """Whether it has ended."""
        return text[-1:] == (END,) or len(text) == self.limit


class State:
    """A text of SGLang's language. What is asked of it, a step or a score, is written when a score is looked at, of all that
    wait at once, as a server with a batch does."""

    def __init__(self, writer: Writer, waiting: list[State], tokens: tuple[int, ...] = ()) -> None:
        self.writer, self.waiting, self.tokens, self.new = writer, waiting, tokens, 0

    def fork(self, n: int) -> list[State]:
        """As many texts that begin with this one."""
        return [State(self.writer, self.waiting, self.tokens) for _ in range(n)]

    def __iadd__(self, asked: Any) -> State:
        if asked == "step":
            self.waiting.append(self)
        return self

    def set_score_backend(self, _: Any) -> None:
        """It is here."""

    def scores(self) -> list[float]:
        """What this text is worth, after all that wait have been written."""
        going = self.waiting
        while going:
            for state in going:
                state.tokens, state.new = self.writer.token(state.tokens), state.new + 1
            going = [s for s in going if not (self.writer.over(s.tokens) or step_ends(spelled(s.tokens)))]
        self.waiting.clear()
        return [reward(spelled(self.tokens))]

    def text(self) -> str:
        """With the words that its authors look for, of a text that has ended."""
        return spelled(self.tokens) + ("The answer is" if self.writer.over(self.tokens) else "")

    def get_meta_info(self, _: str) -> dict[str, int]:
        """How many tokens the step has."""
        return {"completion_tokens": self.new}


def judged(upstream: Upstream, name: str, answers: Any, aggregate: str | None) -> str:
    """The text that a function of math_evaluate.py finds the best; aggregate None: every text has one vote."""
    asked: list[str] = []

    def grade(a: str, b: str) -> bool:
        asked.append(a)
        return same_answer(a, b)

    functions = upstream.names(
        "math_evaluate.py", "evaluate", "majority_vote", *(f"agg_{a}" for a in AGGREGATES), json=json, grade_answer=grade
    )
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
        path = Path(folder) / "answers.json"
        path.write_text(json.dumps([{"model_answer": answers, "ground_truth_answer": ""}]))
        value = None if aggregate is None else functions[f"agg_{aggregate}"]
        given = (value,) if name == "evaluate" else (aggregate is not None, value)
        functions[name](path, *given, lambda text: text.removesuffix("The answer is"))
    return asked[-1]


def rebase(upstream: Upstream, case: Case) -> dict[str, Any]:
    stub = SimpleNamespace(function=lambda f: f, gen=lambda name, *_, **__: name, RuntimeEndpoint=None)
    with mock.patch.dict("sys.modules", {"sglang": stub}):
        module: Any = upstream.module("rebase.py")
    levels: dict[int, list[Any]] = {}

    class Watched(module.Tree):
        """Its tree, whose shares are noted."""

        def expand(self, node: Any, n: int) -> None:
            levels.setdefault(node.get_depth(), []).append((node.get_state().tokens, n))
            super().expand(node, n)

    module.Tree = Watched
    with tempfile.TemporaryDirectory() as folder:
        paras = {"width": case["width"], "softmax_temperature": case["tau"], "select_method": "softmax", "store_path": folder}
        paras |= {"policy_model_type": "llemma", "max_step_tokens": 256, "max_tokens": 10**6, "temperature": 1.0}
        found = module.reward_guided_search(State(Writer(case), []), 0, "", {"answer": ""}, paras, None)
    shares = [sorted(levels[depth]) for depth in sorted(levels)]
    return {"shares": shares, "answer": judged(upstream, "evaluate", found["model_answer"], "last")}


def voting(upstream: Upstream, case: Case) -> dict[str, Any]:
    writer, texts = Writer(case), list[tuple[int, ...]]()
    live: list[tuple[int, ...]] = [()] * case["n"]
    while live:
        live = [writer.token(text) for text in live]
        texts, live = [*texts, *(t for t in live if writer.over(t))], [t for t in live if not writer.over(t)]
    answers = [{"text": spelled(t), "step_scores": scores(spelled(t))} for t in texts]
    return {"answer": judged(upstream, "majority_vote", answers, case["aggregate"])}


def old(case: Case) -> Any:
    """The policy of the last epoch."""
    return untied(6, case["seed"], window=None, name="drafter", blend=(case["seed"] + 1, case["apart"]))


def spec_rl(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The coins are read where the odds are below one, and there alone."""
    module = upstream.module("verl/utils/speculative_decoding.py")
    stream, before, n = Stream(case["seed"]), list(case["before"]), len(case["prompt"])
    text = [*case["prompt"], *before]

    def probabilities(table: Any) -> torch.Tensor:
        rows = table.eval([tuple(text[: n + i]) for i in range(len(before))])
        return torch.tensor([[math.log(float(r.weights[x])) for r, x in zip(rows, before, strict=True)]])

    new, then = probabilities(untied(6, case["seed"], window=None)), probabilities(old(case))
    bias = -math.log(case["lenience"])

    def coins(of: torch.Tensor) -> torch.Tensor:
        certain = (new - then - bias >= 0)[0].tolist()
        return torch.tensor([[0.5 if sure else stream.coin() for sure in certain]], dtype=of.dtype)

    with mock.patch.object(torch, "rand_like", coins):
        cut = module.spec_cut_with_knobs(then, new, torch.ones_like(new), bias=bias)
    prompt = torch.tensor([case["prompt"]])
    ones, places = torch.ones_like(prompt), torch.arange(n)[None]
    kept = prompt
    if int(cut["cut_idx"]):  # it cannot take a batch of which nothing is kept
        kept, seen, *_ = module.build_ctx(prompt, ones, places, torch.tensor([before]), cut["cut_idx"], -1)
        assert seen.bool().all()
    return {"kept": kept[0], "accepted": int(cut["cut_idx"]), "goes on": bool(len(cut["idx_need"]))}


RECORDINGS = {
    "rebase": rebase,
    "weighted_voting": voting,
    "spec_rl": spec_rl,
}
