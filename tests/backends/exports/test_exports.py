"""Exported drafters: their signatures are the seams', their drafts are decgraph's, and an engine that verifies them gets the
tokens of autoregressive decoding."""

from __future__ import annotations

import abc
import ast
import inspect
import random
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from lib.engines.published_seams import (
    SGLANG_METHODS,
    SGLANG_REGISTER,
    SGLANG_SPEC_ARGUMENTS,
    SGLANG_WORKER_ARGUMENTS,
    VLLM_DEFAULTS,
    VLLM_METHODS,
    VLLM_V2_KEYWORDS,
    VLLM_V2_METHODS,
    VLLM_V2_POSITIONAL,
)
from lib.repository import python

import decgraph
from decgraph.backends.exports.drafter import Drafter, carried
from decgraph.backends.exports.file import Exported, exported
from decgraph.backends.exports.fits import misfits
from decgraph.backends.exports.sglang import SGLANG
from decgraph.backends.exports.vllm import VLLM
from decgraph.check.worlds import models_for
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params
from decgraph.runtime.trace import Committed, Drafted

LOOKUP = decgraph.load("prompt_lookup").text
FIT = ("anpd", "prompt_lookup")
PROMPTS = ((1, 2, 3, 1, 2), (4, 4, 0), (5, 1, 5, 1, 5, 1, 5, 1), (2,))


class Target:
    """A greedy target: the likeliest next token of a table model."""

    def __init__(self) -> None:
        self.algorithm = decgraph.load("autoregressive")
        self.models: dict[str, Any] = models_for(self.algorithm.function, 8, 3)

    def next(self, text: Sequence[int]) -> int:
        (row,) = self.models["target"].eval([tuple(text)])
        return int(np.argmax(row.to_float().logits))

    def continued(self, prompt: tuple[int, ...], max_tokens: int) -> list[int]:
        session = self.algorithm.session(self.models, backend="reference")
        return list(session.run(Request(prompt=prompt, max_tokens=max_tokens, temperature=0)).tokens)


@pytest.fixture(scope="module")
def target() -> Target:
    return Target()


def export_of(seam: Any, name: str, **params: object) -> Exported:
    chosen = decgraph.load(name)
    values = check_params(chosen.function, params)
    return exported(seam, optimise(chosen.module, values, only=("simplify",))[0], values)


EITHER = """algorithm either(target: causal, k: int in 2..64 = 10):
    refines autoregressive(target) in tokens
    state seen: suffixes(3) per sequence = prompt

    while not done:
        draft t:
            if seen.matched(ctx) > 1:
                grow chain(seen.path(ctx, at_least = 1, at_most = 2 * k - 2, pick = "first"))
            else:
                grow chain(seen.path(ctx, at_least = 1, at_most = 1, pick = "first"))
        verify t by match against target(t)
        commit t.accepted
"""


@pytest.mark.parametrize("name", [*FIT, "either"])
@pytest.mark.parametrize("k", [6, 3, None])
def test_an_engine_is_started_with_as_many_tokens_as_are_drafted(name: str, k: int | None, tmp_path: Path) -> None:
    """The number of the start line is the longest draft that comes: the text goes back to its beginning, and is known."""
    algorithm = name
    if name == "either":
        algorithm = str(tmp_path / "either.dec")
        Path(algorithm).write_text(EITHER)
    params = {} if k is None else {"k": k}
    for seam, words, more in ((VLLM, '"num_speculative_tokens": ', 0), (SGLANG, "--speculative-num-draft-tokens ", 1)):
        file = export_of(seam, algorithm, **params)
        (said,) = re.findall(rf"{words}(\d+)", file.text)
        carried_ = ast.literal_eval(file.text.partition("PARAMS = ")[2].partition("\n")[0])
        program = file.text.partition('PROGRAM = r"""')[2].partition('"""')[0]
        found = Drafter(program, carried_).propose([*range(100), 0, 1, 2], 1000)
        assert int(said) == len(found) + more == file.most + more  # type: ignore[operator]
        assert f"at most {len(found)} tokens" in file.text
        assert name == "either" or k is None or len(found) == k


def test_a_draft_of_no_fixed_length_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "either.dec").write_text(EITHER.replace("2 * k - 2", "1 + seen.matched(ctx)"))
    file = export_of(VLLM, str(tmp_path / "either.dec"))
    assert file.most is None and "of no fixed length" in file.text


def loaded(file: Exported) -> ModuleType:
    module = ModuleType(file.name)
    exec(compile(file.text, f"{file.name}.py", "exec"), module.__dict__)
    return module


# -- vLLM
def config(most: int, longest: int) -> Any:
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=most), model_config=SimpleNamespace(max_model_len=longest)
    )


@pytest.mark.parametrize("name", FIT)
def test_the_class_has_the_signatures_of_vllms_seam(name: str) -> None:
    file = export_of(VLLM, name)
    made = getattr(loaded(file), file.class_name)
    for method, parameters in VLLM_METHODS.items():
        found = inspect.signature(getattr(made, method)).parameters
        assert tuple(found) == parameters
        for parameter, default in VLLM_DEFAULTS.items():
            assert parameter not in found or found[parameter].default is default
    assert "vLLM 0.33.0" in file.text and "run inside vLLM 0.32.0 on a CPU" in file.text


def verified(target: Target, text: list[int], drafts: Sequence[int]) -> list[int]:
    """What a greedy engine commits: drafts as long as they are the target's own tokens, and one token of the target's."""
    out: list[int] = []
    for draft in drafts:
        token = target.next([*text, *out])
        out.append(token)
        if token != draft:
            return out
    return [*out, target.next([*text, *out])]


@pytest.mark.parametrize("name", FIT)
def test_an_engine_with_vllms_loop_gets_autoregressive_tokens(name: str, target: Target) -> None:
    file = export_of(VLLM, name)
    longest, limits = 48, [30, 12, 21, 25]
    proposer = getattr(loaded(file), file.class_name)(config(4, longest))
    texts = [list(p) for p in PROMPTS]
    rows = list(range(len(texts)))
    drafts: list[list[int]] = [[] for _ in rows]
    accepted = 0
    while rows:
        sampled = []
        for place, r in enumerate(rows):
            new = verified(target, texts[r], drafts[place])
            accepted += len(new) - 1
            texts[r] += new
            sampled.append(new)
        rows = [r for r in rows if len(texts[r]) - len(PROMPTS[r]) < limits[r]]  # rows move up as others end
        table = np.zeros((len(rows), longest + 8), dtype=np.int32)
        for place, r in enumerate(rows):
            table[place, : len(texts[r])] = texts[r]
        lengths = np.array([len(texts[r]) for r in rows], dtype=np.int32)
        drafts = proposer.propose([[texts[r][-1]] for r in rows], lengths, table, slot_mappings=None)
        assert len(drafts) == len(rows)
        assert all(len(d) <= 4 for d in drafts)
    for r, prompt in enumerate(PROMPTS):
        assert texts[r][len(prompt) :][: limits[r]] == target.continued(prompt, limits[r])
    assert accepted > 0


def test_no_drafts_where_nothing_was_sampled_and_none_past_the_context() -> None:
    file = export_of(VLLM, "prompt_lookup")
    proposer = getattr(loaded(file), file.class_name)(config(8, 10))
    table = np.array([[1, 2, 1, 2, 1, 2, 1, 2, 1, 0], [1, 2, 1, 2, 1, 2, 1, 2, 1, 0]])
    still_prefilling, last = proposer.propose([[], [1]], np.array([9, 9]), table)
    assert still_prefilling == [] and last == [2]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Modules with the names of vLLM's that the second runner's part imports: the runner's own."""
    base = abc.ABCMeta("BaseSpeculator", (), {m: abc.abstractmethod(lambda self: None) for m in VLLM_V2_METHODS})
    parts = "vllm", "vllm.v1", "vllm.v1.worker", "vllm.v1.worker.gpu", "vllm.v1.worker.gpu.spec_decode"
    made = {name: ModuleType(name) for name in (*parts, f"{parts[-1]}.speculator", f"{parts[3]}.model_runner")}
    made[f"{parts[-1]}.speculator"].BaseSpeculator = base  # type: ignore[attr-defined]
    made[parts[3]].model_runner = own = made[f"{parts[3]}.model_runner"]  # type: ignore[attr-defined]
    own.init_speculator = lambda vllm_config, device, req_states: "theirs"  # type: ignore[attr-defined]
    for name, module in made.items():
        monkeypatch.setitem(sys.modules, name, module)
    return own


def test_vllms_second_runner_gets_autoregressive_tokens(runner: Any, target: Target) -> None:
    """Requests lie in rows of their own, in another order than the batch's, one of them still without a token."""
    import torch

    file = export_of(VLLM, "prompt_lookup")
    loaded(file).install()
    most, longest, rows = 4, 64, [2, 0, 3, 1]
    table, lengths = torch.zeros((6, longest), dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    states = SimpleNamespace(all_token_ids=SimpleNamespace(gpu=table), total_len=SimpleNamespace(gpu=lengths))
    given = config(most, longest)
    given.speculative_config.model = "another.Proposer"
    assert runner.init_speculator(given, torch.device("cpu"), states) == "theirs"
    given.speculative_config.model = f"{file.name}.{file.class_name}"
    speculator = runner.init_speculator(given, torch.device("cpu"), states)
    assert speculator.draft_logits is None and speculator.supports_mm_inputs is False
    speculator.init_cudagraph_manager(None)
    speculator.capture()

    texts, accepted = [list(p) for p in PROMPTS], 0
    drafts = torch.zeros((len(rows), most), dtype=torch.int64)
    batch = SimpleNamespace(num_reqs=len(rows), idx_mapping=torch.tensor(rows))
    values: dict[str, Any] = {}
    for step in range(8):
        counts = []
        for place in range(len(rows)):
            waits = place == 3 and step == 0
            new = [] if waits else verified(target, texts[place], drafts[place].tolist() if step else [])
            texts[place] += new
            accepted += max(0, len(new) - 1)
            counts.append(len(new))
            table[rows[place], : len(texts[place])] = torch.tensor(texts[place], dtype=torch.int32)
            lengths[rows[place]] = len(texts[place])
        last = torch.zeros((6, 1), dtype=torch.int64)
        last[rows, 0] = torch.tensor([t[-1] for t in texts])
        values = {"input_batch": batch, "num_sampled": torch.tensor(counts), "last_sampled": last}
        more = dict.fromkeys(VLLM_V2_KEYWORDS)
        drafts = speculator.propose(*(values.get(name) for name in VLLM_V2_POSITIONAL), **more)
        assert drafts.shape == (len(rows), most) and drafts.dtype == torch.int64
        if step == 0:
            assert drafts[3].tolist() == [texts[3][-1]] * most, "no drafts where nothing was sampled"
    assert accepted > 0
    for prompt, text in zip(PROMPTS, texts, strict=True):
        assert text[len(prompt) :] == target.continued(prompt, len(text) - len(prompt))
    dummy = speculator.propose(*(values.get(name) for name in VLLM_V2_POSITIONAL), dummy_run=True, is_profile=True)
    assert dummy.shape == (len(rows), most)


# -- the drafts
@pytest.mark.parametrize("name", FIT)
def test_drafts_are_those_of_decgraphs_own_run(name: str, target: Target) -> None:
    algorithm = decgraph.load(name)
    session = algorithm.session(target.models, backend="reference")
    events: list[Any] = []
    prompt, limit = PROMPTS[2], 40
    session.run(Request(prompt=prompt, max_tokens=limit), listener=events.append)
    drafter = Drafter(carried(algorithm.module))
    text, drafted, compared = list(prompt), list[int](), 0
    for event in events:
        if isinstance(event, Drafted):
            drafted.append(event.token)
        elif isinstance(event, Committed):
            ours = drafter.propose(text, 64)
            if len(text) + len(ours) < len(prompt) + limit:  # near its limit a run drafts no more than it can commit
                assert ours == drafted
                compared += len(ours) > 0
            text += event.tokens
            drafted = []
    assert compared > 3


def test_a_text_that_goes_on_is_drafted_as_if_it_were_new() -> None:
    rng = random.Random(5)
    program = carried(decgraph.load("anpd").module)
    going = Drafter(program)
    texts = [[rng.randrange(4) for _ in range(rng.randrange(1, 6))] for _ in range(4)]
    for _ in range(30):
        text = rng.choice(texts)
        text += [rng.randrange(4) for _ in range(rng.randrange(1, 4))]
        assert going.propose(text, 8) == Drafter(program).propose(text, 8)
    assert len(going.live) <= 8


def test_a_drafter_loads_no_torch() -> None:
    program = carried(decgraph.load("prompt_lookup").module)
    code = f"""import sys
from decgraph.backends.exports.drafter import Drafter
print(Drafter({program!r}, {{"k": 2}}).propose([1, 2, 3, 1, 2], 8), "torch" in sys.modules)"""
    assert python(code).strip() == "[3, 1] False"


def test_values_outside_their_range_are_refused() -> None:
    with pytest.raises(decgraph.DecError, match="must be in"):
        Drafter(carried(decgraph.load("prompt_lookup").module), {"k": 99})
    with pytest.raises(decgraph.DecError, match="no text"):
        Drafter(carried(decgraph.load("prompt_lookup").module)).propose([], 3)


# -- what does not fit
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("autoregressive", "drafts nothing that is verified"),
        ("speculative", "drafts with a model, `drafter`"),
        ("speculative", "verification by rejection is its own"),
        ("eagle2", "reads what is inside a model"),
        ("medusa", "calls `target` besides the verification"),
        ("lookahead", "no index of the text"),
        ("suffix_decoding", "past is kept per session"),
        ("rest", "drafts a tree"),
        ("llada", "is a masked model"),
        ("input_guided_aggressive", "reads `prompt` of the request"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(name: str, word: str) -> None:
    for seam in (VLLM, SGLANG):
        with pytest.raises(decgraph.DecError) as refused:
            export_of(seam, name)
        assert word in str(refused.value) and f"stdlib/{name}.dec" in str(refused.value)


def test_a_program_of_ones_own_fits_by_what_it_does() -> None:
    assert misfits(decgraph.parse(LOOKUP.replace("prompt_lookup", "mine"), path="mine.dec").module) == []


@pytest.mark.parametrize(
    ("old", "new", "line", "word"),
    [
        ("    refines autoregressive(target) in tokens\n", "", 11, "verification by match is its own"),
        ('pick = "first")))', 'pick = "first")) at root)', 11, "drafts a tree"),
        ("per sequence = prompt", "per session", 7, "kept per session"),
        ("at_most = k", "at_most = min(k, len(prompt))", 11, "reads `prompt`"),
        ("at_most = k", "at_most = k if greedy else 1", 11, "reads `greedy`"),
        ("        commit", "        seen.learn([1, 2])\n        commit", 13, "stores what the seam does not tell again"),
        ("grow chain(", "grow topk(target(ctx).raw, 1)\n            grow chain(", 11, "calls `target` besides"),
    ],
)
def test_one_change_makes_it_a_misfit(old: str, new: str, line: int, word: str) -> None:
    text = LOOKUP
    if " at root" in new:  # `grow chain(...) at root` beside another branch
        old, new = "        verify", "            grow chain([1, 2]) at root\n        verify"
        line = 12
    assert old in text
    found = misfits(decgraph.parse(text.replace(old, new), path="changed.dec").module)
    assert any(word in m.why and m.line == line for m in found), found


# -- SGLang
class CustomSpecAlgo:
    """The attributes of SGLang's class that the test reads."""

    def __init__(self, name: str, factory: Any, *, supports_overlap: bool = False, validate_server_args: Any = None) -> None:
        self.name, self.factory, self.supports_overlap = name, factory, supports_overlap

    def is_ngram(self) -> bool:
        return False


class NGRAMWorker:
    """The attributes of SGLang's n-gram worker that the exported one reads."""

    def __init__(
        self, server_args: Any, gpu_id: Any, nccl_port: Any, target_worker: Any,
    ) -> None:  # fmt: skip
        self.draft_token_num = server_args.speculative_num_draft_tokens
        self.enable_overlap = server_args.overlap


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, CustomSpecAlgo]]:
    """Modules with the names of SGLang's that the exported file imports; what it registers."""
    found: dict[str, CustomSpecAlgo] = {}

    class SpeculativeAlgorithm:
        NGRAM = SimpleNamespace(handle_server_args=lambda server_args: server_args.append("as for n-grams"))

        @staticmethod
        def register(
            name: str, *, supports_overlap: bool = False, validate_server_args: Any = None, spec_class: Any = CustomSpecAlgo
        ) -> Any:
            def decorator(factory: Any) -> Any:
                found[name.upper()] = spec_class(
                    name=name.upper(), factory=factory, supports_overlap=supports_overlap,
                    validate_server_args=validate_server_args,
                )  # fmt: skip
                return factory

            return decorator

    assert tuple(inspect.signature(SpeculativeAlgorithm.register).parameters)[1:] == tuple(SGLANG_REGISTER)
    assert tuple(inspect.signature(CustomSpecAlgo).parameters) == SGLANG_SPEC_ARGUMENTS
    assert tuple(inspect.signature(NGRAMWorker).parameters) == SGLANG_WORKER_ARGUMENTS
    names = {"ngram_worker": NGRAMWorker, "spec_info": SpeculativeAlgorithm, "spec_registry": CustomSpecAlgo}
    for part in ("sglang", "sglang.srt", "sglang.srt.speculative"):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    for part, content in names.items():
        module = ModuleType(f"sglang.srt.speculative.{part}")
        setattr(module, content.__name__, content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    yield found


@pytest.mark.parametrize("when", ["overlapped", "one by one", "with a grammar"])
def test_sglangs_worker_is_registered_and_its_chains_are_verified(
    registered: dict[str, CustomSpecAlgo], target: Target, when: str
) -> None:
    """Overlapped, a step's tokens come with the next batch and reach the requests a step later; else, and where a grammar
    waits for them, they are in the requests."""
    file = export_of(SGLANG, "prompt_lookup", k=6)
    module = loaded(file)
    (spec,) = registered.values()
    assert (spec.name, spec.is_ngram(), spec.supports_overlap) == ("PROMPT_LOOKUP", True, True)
    spec.handle_server_args(told := [])  # type: ignore[attr-defined]
    assert told == ["as for n-grams"] and not spec.has_draft_kv()  # type: ignore[attr-defined]
    worker_class = spec.factory(None)
    assert worker_class is getattr(module, file.class_name) and issubclass(worker_class, NGRAMWorker)
    for method, parameters in SGLANG_METHODS.items():
        assert tuple(inspect.signature(getattr(worker_class, method)).parameters) == parameters
    assert "not run inside SGLang" in file.text and "0.5.23" in file.text
    module.register()
    n = 5
    given = dict.fromkeys(SGLANG_WORKER_ARGUMENTS) | {
        "server_args": SimpleNamespace(speculative_num_draft_tokens=n, overlap=when != "one by one")
    }
    worker: Any = worker_class(*given.values())
    late = when == "overlapped"
    requests = [SimpleNamespace(origin_input_ids_unpadded=list(p), output_ids=array("q")) for p in PROMPTS]
    texts = [[*p, target.next(p)] for p in PROMPTS]
    new = [text[-1:] for text in texts]
    for _ in range(9):
        if not late:
            for request, tokens in zip(requests, new, strict=True):
                request.output_ids.extend(tokens)
        relayed = SimpleNamespace(
            accept_tokens=np.array([[*tokens, *[7] * (n - len(tokens))] for tokens in new]).reshape(-1),
            accept_lens=np.array([len(tokens) for tokens in new]),
        )
        batch = SimpleNamespace(reqs=requests, spec_info=relayed, grammar_needs_sync=lambda: when == "with a grammar")
        drafts, mask = worker._prepare_draft_tokens(batch)
        assert drafts.shape == (len(requests) * n,) and drafts.dtype == np.int64
        assert mask.shape == (len(requests) * n * n,) and mask.dtype == bool
        if late:
            for request, tokens in zip(requests, new, strict=True):
                request.output_ids.extend(tokens)
        new = []
        for row, text in enumerate(texts):
            chain = drafts.reshape(-1, n)[row]
            assert chain[0] == text[-1]
            seen = mask.reshape(-1, n, n)[row]
            assert all(seen[i].tolist() == [True] * (i + 1) + [False] * (n - 1 - i) for i in range(n))
            new.append(verified(target, text, chain[1:].tolist()))
            text += new[-1]
        worker._update_ngram_corpus(batch)
    for prompt, text in zip(PROMPTS, texts, strict=True):
        assert text[len(prompt) :] == target.continued(prompt, len(text) - len(prompt))
    assert max(map(len, texts)) > 18, "some drafts were accepted"
