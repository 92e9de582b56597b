"""A rule and the condition of a run only say what is to be done: nothing is committed or returned inside them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from decgraph.dsl.lower import load_text
from decgraph.errors import DecError

PROGRAM = """from autoregressive import autoregressive

def committed(x: token):
    commit x
    return x == 0

rule mine(p: dist, children: draws):
    y ~ p as output
    for x in children:
        if x == y:
            {inside}
    emit y

algorithm a(target: causal, drafter: causal):
    refines autoregressive(target) in tokens
    while not done:
        draft t:
            grow topk(drafter(t.leaves).raw, 1)
        verify t by mine against target(t)
        commit t.accepted
        xs = run autoregressive(drafter) from ctx until {until} at most 2
"""

INSIDE = {
    "commit": {"inside": "commit x"},
    "commit_in_a_helper": {"inside": "z = committed(x)"},
    "return": {"inside": "return x"},
    "until": {"until": "committed(path.token[0])"},
}


def program(**parts: str) -> str:
    return PROGRAM.format(**{"inside": "accept x", "until": "done", **parts})


@pytest.mark.parametrize("name", INSIDE)
def test_an_effect_is_refused_at_its_line(name: str, golden: Callable[[str, str], None]) -> None:
    with pytest.raises(DecError) as caught:
        load_text(program(**INSIDE[name]), f"{name}.dec")
    assert caught.value.codes == ("E300",)
    golden(f"{name}.txt", f"{caught.value}\n")


def test_without_them_it_loads() -> None:
    assert load_text(program(), "a.dec").main == "a"


def test_the_same_helper_serves_outside_of_rules() -> None:
    called = program().replace(
        "        commit t.accepted\n", "        commit t.accepted\n        z = committed(t.token[root])\n"
    )
    assert load_text(called, "a.dec").main == "a"
