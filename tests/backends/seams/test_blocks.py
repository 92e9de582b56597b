"""Masked programs at an engine's blocks: tokens of `decgraph.run`, whatever the batch, in any iteration."""

from __future__ import annotations

import itertools
import random
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from lib.engines.sglang_engine import BLOCK, MASK, DllmEngine, Req, loaded, stand_in
from lib.models.masked_models import V, masked

import decgraph
from decgraph.backends.seams.blocks import Blocks
from decgraph.backends.seams.file import exported
from decgraph.backends.seams.fits import trial
from decgraph.backends.seams.seam import carried
from decgraph.backends.triton.values import Spans, Vec, flattened, rebuilt
from decgraph.errors import DecError
from decgraph.runtime.models.interface import MASK as CELL
from decgraph.runtime.request import Request

PROGRAMS = (
    "adablock", "coherent_contextual", "credit_decoding", "d3llm", "dilated", "dinfer_hierarchy", "dparallel", "dream",
    "dream_confidence", "dream_margin", "dream_origin", "eb_sampler", "entropy_renoise", "eoser", "eoser_ass",
    "explore_exploit", "fast_diffuser", "fast_dllm_dream_quota", "fast_dllm_uncached", "group_masked", "hyperschedule",
    "joint_threshold",
    "klass", "llada", "local_leap", "maskgit", "prophet", "remdm_loop", "saber", "sdlm", "secondary_remask", "set_block",
    "static_masked", "zipar",
)  # fmt: skip
"""Programs that can wait for an engine at every call."""
REFUSED = {
    "codebook_delay": "is not the rest of the block",
    "dllm_self_speculative": "a tree of canvases",
    "fast_dllm": "on a memory of the program's own",
    "joint_threshold_indel": "vectors of different lengths",
    "learn2pd": "it calls `final`",
    "llada_guided": "a distribution is read behind another call",
    "sdar": "on a memory",
    "soft_value": "it calls `reward`",
}
"""Programs that cannot, and why; each reason has its line."""
LENGTHS = (8, 16, 8, 11, 3, 21)


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch)


@cache
def model() -> Any:
    return masked(5, ("block", BLOCK))[0]


@cache
def scores(row: tuple[int, ...], begin: int) -> torch.Tensor:
    """Logits [block, V] of the last block of a text."""
    cells = tuple(CELL if c == MASK and i >= begin else c for i, c in enumerate(row))
    made = model().eval_canvas(cells, range(begin, len(row)))
    return torch.tensor(np.stack([np.asarray(x.to_float().logits) for x in made]), dtype=torch.float32)


def forward(text: list[int], cells: list[int]) -> torch.Tensor:
    return scores((*text, *cells), len(text))


def prompts(count: int) -> list[list[int]]:
    rng = random.Random(2)
    return [[rng.randrange(3, V - 1) for _ in range(n)] for n in LENGTHS[:count]]


@cache
def algorithm(name: str) -> str:
    """The exported file of a program."""
    return exported("sglang", decgraph.load(name).module, {}, key="dllm").text


@cache
def expected(name: str, i: int, temperature: int) -> list[int]:
    """Two blocks of request number i."""
    prompt = prompts(6)[i]
    return own(name, prompt, rounded(len(prompt), 2), {}, seed=9 + i, temperature=temperature)


def own(name: str, prompt: list[int], length: int, params: dict[str, Any], **fields: Any) -> list[int]:
    """The tokens of a run for each block, whose number is the request's."""
    sized = Blocks(decgraph.load(name).module, block=BLOCK, vocab=V, mask=MASK).params
    session = decgraph.load(name).session({"model": model()}, **{**sized, **params})
    text = list(prompt)
    while len(text) < length:
        request = Request(prompt=tuple(text), max_tokens=BLOCK - len(text) % BLOCK, request_id=len(text) // BLOCK, **fields)
        text += session.run(request).tokens
    return text[len(prompt) :]


def rounded(n: int, blocks: int) -> int:
    """Where so many blocks behind n tokens end."""
    return (n // BLOCK + blocks) * BLOCK


def class_of(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def asked(i: int, prompt: list[int], plain: dict[str, Any], blocks: int = 2) -> Req:
    return Req(f"r{i}", prompt, {"sampling_seed": 9 + i, **plain}, length=rounded(len(prompt), blocks) - len(prompt))


QUICK = (("llada", "fdfo", 1), ("joint_threshold", "sync", 0))
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow if case[1:] == ("fdfo", 1) else pytest.mark.nightly)
    for case in itertools.product(PROGRAMS, ("sync", "fdfo"), (0, 1))
    if case[::2] != ("entropy_renoise", 0)  # draws from unshaped distributions, so temperature 0 is refused
]
"""By day each program once, where requests are in different iterations and draw."""


@pytest.mark.usefixtures("sglang")
@pytest.mark.budget(60)
@pytest.mark.parametrize(("name", "form", "temperature"), CASES)
def test_tokens_are_those_of_a_run(name: str, form: str, temperature: int) -> None:
    """Six requests, two blocks of eight each, through SGLang's interface: a whole block at once, or first done, first out."""
    made = loaded(algorithm(name), name)[class_of(name)]
    greedy = {"top_k": 1} if temperature == 0 else {}
    reqs = [asked(i, prompt, greedy) for i, prompt in enumerate(prompts(6))]
    DllmEngine(made, forward, V).serve(reqs, form == "fdfo", random.Random(1))
    for i, r in enumerate(reqs):
        assert r.output_ids == expected(name, i, temperature)


@pytest.mark.quick(but=("soft_value", "learn2pd"))
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_wait_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(DecError, match=rf"{name}\.dec:\d+: .*{REFUSED[name]}"):
        exported("sglang", decgraph.load(name).module, {}, key="dllm")


@pytest.mark.usefixtures("sglang")
def test_an_aborted_request_leaves_the_others_alone() -> None:
    """Requests go away in the middle of a block, again and again, and nothing is left of them."""
    name = "fast_dllm_uncached"
    made = loaded(algorithm(name), name)[class_of(name)]
    engine = DllmEngine(made, forward, V)
    reqs = [asked(i, prompts(6)[i % 6], {}, blocks=1) for i in range(6)]
    engine.serve(reqs, True, random.Random(1), aborts=reqs[::2])
    for i, r in enumerate(reqs):
        if i % 2:
            length = rounded(len(r.origin_input_ids), 1)
            assert r.output_ids == own(name, r.origin_input_ids, length, {}, seed=9 + i)
    assert any(not r.output_ids for r in reqs)
    del reqs, r
    assert not made.requests


def stepped(blocks: Blocks, cells: torch.Tensor, at: list[Any], text: list[int]) -> tuple[list[int], int]:
    """A block of one request to its end: its tokens, and how many forwards that took."""
    for n in range(1, 200):
        cells, over, failed = blocks.step(at, cells, forward(text, cells[0].tolist())[None])
        assert not failed.any()
        if bool(over.all()):
            return cells[0].tolist(), n
    raise AssertionError("the block does not end")


def entered(blocks: Blocks, prompt: list[int], **named: Any) -> tuple[list[Any], torch.Tensor, list[int]]:
    begin = len(prompt) // BLOCK * BLOCK
    cells = torch.tensor([[*prompt[begin:], *[MASK] * (BLOCK - len(prompt) + begin)]])
    at, shown = blocks.enter(torch.tensor([begin]), cells, **named)
    return at, shown, prompt[:begin]


def test_sizes_that_nobody_sets_are_the_engines() -> None:
    """sdlm's canvas is 4 positions long by default, and would not be a block of eight."""
    assert not trial(decgraph.load("sdlm").module, {}, "blocks").misfits
    (found,) = trial(decgraph.load("sdlm").module, {"d": 4}, "blocks").misfits
    assert "not the rest of the block" in found.why and found.line


def test_a_block_ends_when_a_forward_has_seen_it() -> None:
    """Eight steps for eight positions, and one more forward."""
    blocks = Blocks(carried(decgraph.load("llada").module), block=BLOCK, vocab=V, mask=MASK)
    at, cells, text = entered(blocks, prompts(1)[0], settings=[{"temperature": 0}])
    tokens, count = stepped(blocks, cells, at, text)
    assert count == BLOCK + 1 and MASK not in tokens


def test_what_changes_before_the_first_call_is_shown() -> None:
    """entropy_renoise begins with random tokens, which the first forward has to see."""
    blocks = Blocks(carried(decgraph.load("entropy_renoise").module), block=BLOCK, vocab=V, mask=MASK)
    _, cells, _ = entered(blocks, prompts(1)[0], settings=[{"seed": 3}])
    assert (cells != MASK).sum() > BLOCK // 2


def test_numbers_and_settings_of_a_request_are_its_own() -> None:
    """Two requests with another threshold, temperature and truncation each, in one batch."""
    prompt = prompts(1)[0]
    chosen: list[tuple[dict[str, Any], dict[str, float]]] = [
        ({"temperature": 0.7, "top_k": 4, "seed": 1}, {"tau": 0.2}),
        ({"temperature": 1, "top_p": 0.8, "seed": 2}, {"tau": 0.95}),
    ]
    blocks = Blocks(carried(decgraph.load("fast_dllm_uncached").module), block=BLOCK, vocab=V, mask=MASK, open=("tau",))
    for settings, params in chosen:
        blocks.check(settings, params)
    cells = torch.full((2, BLOCK), MASK)
    at, cells = blocks.enter(torch.tensor([8, 8]), cells, [s for s, _ in chosen], [p for _, p in chosen])
    over = torch.zeros(2, dtype=torch.bool)
    while not over.all():
        cells, over, failed = blocks.step(at, cells, torch.stack([forward(prompt, row) for row in cells.tolist()]))
        assert not failed.any()
    for row, (settings, params) in zip(cells.tolist(), chosen, strict=True):
        assert row == own("fast_dllm_uncached", prompt, 16, params, **settings)


def test_settings_that_would_change_nothing_are_refused() -> None:
    blocks = Blocks(carried(decgraph.load("llada").module), block=BLOCK, vocab=V, mask=MASK)
    blocks.check({"temperature": 0.5, "top_k": 3, "eos": (1, 2, 3, 4, 5)})
    wrong: list[dict[str, Any]] = [{"repetition_penalty": 1.2}, {"bias": {3: 1.0}}, {"bans": (4,)}, {"min_length": 3}]
    for settings in wrong:
        with pytest.raises(DecError, match="penalties, biases, bans and a least length"):
            blocks.check(settings)
    with pytest.raises(DecError, match="no parameter `steps`"):
        blocks.check({}, {"steps": 4})


def test_text_with_the_mask_in_it_is_text() -> None:
    """A prompt may contain the mask's id; the engine says how far it goes."""
    blocks = Blocks(carried(decgraph.load("llada").module), block=BLOCK, vocab=V, mask=MASK)
    cells = torch.tensor([[5, MASK, 7, *[MASK] * 5]])
    prompt = torch.arange(BLOCK)[None] < 3
    at, cells = blocks.enter(torch.tensor([0]), cells, [{"temperature": 0}], prompt=prompt)
    for _ in range(BLOCK):
        cells, over, _ = blocks.step(at, cells, forward([], cells[0].tolist())[None])
    assert cells[0, :3].tolist() == [5, MASK, 7] and MASK not in cells[0, 3:].tolist()


def test_a_block_of_text_alone_is_over_at_once() -> None:
    blocks = Blocks(carried(decgraph.load("llada").module), block=BLOCK, vocab=V, mask=MASK)
    cells = torch.arange(BLOCK)[None]
    at, shown = blocks.enter(torch.tensor([0]), cells, [{}])
    new, over, failed = blocks.step(at, shown, forward([], cells[0].tolist())[None])
    assert bool(over) and not bool(failed) and torch.equal(new, cells)


def test_spans_keep_which_lanes_have_them() -> None:
    """Recorded bodies and blocks in flight hand parts of canvases on."""
    spans = Spans([Vec(torch.arange(4)[None], torch.ones(1, 4, dtype=torch.bool))])
    spans.live = torch.tensor([[True]])
    tensors: list[torch.Tensor] = []
    flattened(spans, tensors)
    made = rebuilt(spans, iter([t.clone() for t in tensors]))
    assert isinstance(made, Spans) and torch.equal(made.live, spans.live) and torch.equal(made[0].data, spans[0].data)
