"""A cache policy given from outside makes the program that says so itself."""

from __future__ import annotations

from pathlib import Path

import pytest

import decgraph
from decgraph import stdlib
from decgraph.errors import DecError
from decgraph.ir.text import equal


def unclaimed(name: str, called: str) -> decgraph.Algorithm:
    """A program without its claims, under another name: sites of noise carry it."""
    lines = decgraph.load(name).text.splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(("    refines ", "from "))]
    return decgraph.parse("".join(kept).replace(f"algorithm {name}(", f"algorithm {called}("))


def test_a_policy_from_outside_is_the_program_with_that_line() -> None:
    dual = unclaimed("fast_dllm", "fast_dllm")
    said = unclaimed("fast_dllm_prefix", "fast_dllm").module
    assert equal(dual.cached("prefix").module, said)
    assert not equal(dual.module, said)
    assert equal(dual.cached("dual").module, dual.module)


def test_what_cannot_be_cached_says_why() -> None:
    with pytest.raises(DecError, match="no masked model"):
        decgraph.load("speculative").cached("dual")
    with pytest.raises(DecError, match="policies in reach: prefix, dual"):
        decgraph.load("fast_dllm").cached("nope")
    with pytest.raises(DecError, match="no canvas"):
        decgraph.parse(
            "algorithm a(model: masked, target: causal):\n    while not done:\n        x ~ target(ctx)\n        commit x\n"
        ).cached("dual")


def test_no_policy_is_no_line_wherever_the_canvas_stands() -> None:
    plain = decgraph.load("sdlm")
    assert equal(plain.cached("none").module, plain.module)


def test_what_a_policy_does_has_the_policys_lines() -> None:
    """Profiles, errors and generated source name lines: of a policy its own, and behind them the call's."""
    lines = Path(stdlib.__file__).with_name("policies.dec").read_text().splitlines()
    starts = [n for n, line in enumerate(lines, 1) if line.startswith("policy ")]
    dual = next(n for n in starts if lines[n - 1].startswith("policy dual"))
    end = next((n for n in starts if n > dual), len(lines) + 1)
    f = decgraph.load("fast_dllm").function
    own = [op.loc for op in f.body.walk() if op.loc.path.endswith("policies.dec")]
    assert {loc.line for loc in own} == {n for n in range(dual, end) if "enter" in lines[n - 1] or "otherwise" in lines[n - 1]}
    assert all(loc.called is not None and loc.called.path.endswith("fast_dllm.dec") and loc.called.line == 15 for loc in own)
