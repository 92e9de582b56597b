"""Programs that cut a text or a memory at a length far beyond the prompts of small worlds: they decode as the target on every
short prompt, and their claim is false. Their twins, which cut at the length itself, are proved."""

from __future__ import annotations

import pytest

import decgraph

HEAD = "algorithm cut(target: causal{params}):\n    refines autoregressive(target) in tokens\n{before}    while not done:\n"
BODY = "        x ~ target({read}) as output\n        commit x\n"
MEMORY = "ctx, given = target.memory(ctx.parent).only(range_(0, {end}))"
SLICE = "prompt[:{end}] ++ ctx.last(ctx.length - len(prompt))"
WINDOW = ", window: int in {low}..2048 = 1024"


def verdict(read: str, params: str = "", before: str = "") -> str:
    text = HEAD.format(params=params, before=before) + BODY.format(read=read)
    return decgraph.parse(text).check(seconds=40).verdict


@pytest.mark.parametrize(
    "read",
    [
        *(f"ctx.last({n})" for n in (16, 63, 64, 65, 200, 1000)),
        SLICE.format(end=32),
        SLICE.format(end=300),
        MEMORY.format(end=40),
        "first([t for t in ctx.last(ctx.length)], 100)",
    ],
)
def test_what_leaves_out_the_rest_of_a_long_text_is_refuted(read: str) -> None:
    assert verdict(read) == "refuted"


@pytest.mark.parametrize("low", [128, 256, 700])
def test_a_window_is_as_small_as_its_range_allows(low: int) -> None:
    assert verdict("ctx.last(window)", WINDOW.format(low=low)) == "refuted"


def test_a_memory_of_the_prompts_beginning() -> None:
    before = "    m = target.memory(prompt[:512])\n"
    assert verdict("ctx, given = m.only(range_(0, 300))", before=before) == "refuted"


@pytest.mark.parametrize(
    "read",
    ["ctx.last(ctx.length)", SLICE.format(end="len(prompt)"), MEMORY.format(end="ctx.length - 1"), "ctx.last(ctx.length + 64)"],
)
def test_what_leaves_out_nothing_is_proved(read: str) -> None:
    assert verdict(read) in ("proved", "holds")


@pytest.mark.parametrize("n", [1025, 2049])
def test_a_cut_that_only_the_longest_prompt_reaches_is_refuted(n: int) -> None:
    assert verdict(f"ctx.last({n})") == "refuted"


@pytest.mark.parametrize("n", [4096, 9000])
def test_longer_cuts_than_contexts_are_said(n: int) -> None:
    """That no context as long was tried is a reason, and no proof."""
    text = HEAD.format(params="", before="") + BODY.format(read=f"ctx.last({n})")
    report = decgraph.parse(text).check(models=2, seconds=40)
    assert report.verdict == "undecided"
    assert any(r.startswith("contexts of up to ") and r.endswith(f"the program cuts at {n}") for r in report.reasons)
