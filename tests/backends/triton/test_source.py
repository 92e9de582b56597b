"""Generated text: written, marked, loaded once, and shown by tracebacks."""

from __future__ import annotations

import traceback
from itertools import count

import pytest
import torch

from decgraph.backends.triton.cubin import Spec, reports
from decgraph.backends.triton.source import HEADER, Text, load
from decgraph.ir.values import Loc, Op

_NUMBER = count()


def fresh(body: str) -> str:
    """A text that no other test has loaded."""
    return f"# {next(_NUMBER)} of test_source\n{body}"


def test_blocks_marks_and_empty_lines() -> None:
    text = Text()
    op, other = (Op("const", (), {}, (), (), Loc("/a/speculative.dec", line, 1)) for line in (14, 15))
    text.line("a = 1")
    text.mark(op)
    with text.block("if a:"):
        text.line("b = 2")
        text.line()
        text.mark(other)
        text.line("c = 3")
    text.mark(None)
    text.line("d = 4")
    assert str(text) == "a = 1\nif a:  # speculative.dec:14\n    b = 2\n\n    c = 3  # speculative.dec:15\nd = 4\n"


def test_equal_texts_are_loaded_once() -> None:
    text = fresh("made = []\n")
    first = load("one", text)
    assert load("one", text) is first and load("another name", text) is first
    assert load("one", fresh("made = []\n")) is not first


def test_a_text_with_a_scope_is_loaded_anew() -> None:
    text = fresh("found = given\n")
    assert load("x", text, {"given": 1})["found"] == 1
    assert load("x", text, {"given": 2})["found"] == 2
    with pytest.raises(NameError):
        load("x", text)


def test_a_traceback_shows_the_generated_line() -> None:
    space = load("broken segment", fresh("def f(x):\n    return 1 // x   # the culprit\n"))
    try:
        space["f"](0)
    except ZeroDivisionError:
        seen = traceback.format_exc()
    assert "return 1 // x   # the culprit" in seen and "<decgraph broken segment" in seen and "line 3" in seen


KERNEL = (
    HEADER
    + """

@triton.jit
def doubled(x, B: tl.constexpr):
    at = x + tl.arange(0, B)
    tl.store(at, tl.load(at) * 2)
"""
)


def test_a_loaded_kernel_runs() -> None:
    x = torch.arange(8.0)
    load("doubled", KERNEL)["doubled"][(1,)](x, B=8)
    assert x.tolist() == [2.0 * i for i in range(8)]


def test_a_kernel_that_does_not_compile_shows_its_line() -> None:
    wrong = KERNEL.replace("tl.load(at) * 2", "tl.load(at) * nobody")
    (found,) = reports([Spec("wrong", "doubled", {"x": "*fp32"}, {"B": 8}, wrong)], [80])
    assert "tl.store(at, tl.load(at) * nobody)" in found.error and "nobody is not defined" in found.error
