"""A drawn token's probability before the request shapes it is a warning, unless a comment means it."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

import decgraph
from decgraph.dsl.lower import load_text, warnings_of
from decgraph.dsl.parse import parse_text
from decgraph.dsl.source import Source

PAGE = Path(__file__).parents[2] / "docs/errors/E032.md"
STDLIB = sorted(p.name[:-4] for p in resources.files("decgraph.stdlib").iterdir() if p.name.endswith(".dec"))

CAUSAL = """algorithm a(target: causal, drafter: causal, eta: prob = 0.5):
    while not done:
        draft t:
            repeat 4:
                q = drafter(t.leaves)
                x ~ q
                grow x
                break if any({read} < eta)
        verify t by rejection against target(t)
        commit t.accepted
"""


def warned(text: str) -> list[str]:
    """The warnings of a program that loads, rendered."""
    return [d.render() for d in warnings_of(load_text(text, "a.dec"), parse_text(text), Source(text, "a.dec"))]


def blocks() -> list[str]:
    """The programs of the page: the wrong one, and two that are right."""
    return re.findall(r"```dec\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_page_has_a_program_that_is_warned_of_and_two_that_are_not(golden: Callable[[str, str], None]) -> None:
    wrong, *right = blocks()
    (warning,) = warned(wrong)
    golden("before_temperature.txt", f"{warning}\n")
    assert len(right) == 2 and [warned(text) for text in right] == [[], []]


@pytest.mark.parametrize(
    "read, times",
    [
        ("q.raw[x]", 1),
        ("q.raw[x.token]", 1),
        ("log(q.raw[x][:1])", 1),
        ("(q.raw[x] if greedy else q[x])", 0),
        ("(q[x] if not greedy else q.raw[x])", 0),
        ("(q.raw if greedy else q)[x]", 0),
        ("(q[x] if greedy else q.raw[x])", 1),
        ("max(q.raw)", 0),
        ("q[x]", 0),
        ("target(root).raw[x]", 0),
    ],
)
def test_what_is_read_unshaped_of_the_draws_own_distribution(read: str, times: int) -> None:
    assert len(warned(CAUSAL.format(read=read))) == times


@pytest.mark.parametrize(
    "line, comment, times",
    [
        ("break if any(q.raw[x] < eta)", "# E032: as in the code of X", 0),
        ("x ~ q\n", "# E032: as in the code of X", 0),
        ("x ~ q\n", "# E032", 1),
        ("x ~ q\n", "# as in the code of X", 1),
        ("grow x\n", "# E032: as in the code of X", 1),
    ],
)
def test_a_comment_with_the_code_and_a_reason_means_it(line: str, comment: str, times: int) -> None:
    text = CAUSAL.format(read="q.raw[x]")
    assert text.count(line) == 1
    assert len(warned(text.replace(line, f"{line.rstrip()}  {comment}{line[len(line.rstrip()) :]}"))) == times


@pytest.mark.quick("fast_dllm", "sdar", "speckv")
@pytest.mark.parametrize("name", [n for n in STDLIB if n not in ("helpers", "policies", "rules")])
def test_no_published_program_is_warned_of(name: str) -> None:
    assert decgraph.load(name).warnings() == []
