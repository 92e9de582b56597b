"""Every program lowers to IR that the verifier takes, fast, and in time linear in its length."""

from __future__ import annotations

from importlib import resources

import pytest
from lib.call_counts import work
from lib.programs.corpus import NAMES, program
from lib.programs.design_examples import DESIGN

from decgraph.dsl.lower import load_text, lower_file
from decgraph.dsl.parse import parse_text
from decgraph.dsl.source import Source
from decgraph.errors import DecError
from decgraph.ir.text import equal, parse_module, print_module
from decgraph.ir.verify import verify

LATER = {"clasp", "elastic_cache", "lookahead_reasoning"}
"""Programs that do not compile as they were first written. clasp: one layer applied to a state that the model never produced.
elastic_cache: a branch inside the forward, from a layer on. lookahead_reasoning: a sub-run from several nodes at once."""

WHOLE = [n for n in NAMES if n not in LATER | {"everything"}]
STDLIB = sorted(p.name[:-4] for p in resources.files("decgraph.stdlib").iterdir() if p.name.endswith(".dec"))


@pytest.mark.parametrize("name", WHOLE)
def test_program_lowers(name: str) -> None:
    module = load_text(program(name), f"{name}.dec")
    verify(module, level=2)
    assert name in module.functions or module.functions or name == "choices"


@pytest.mark.parametrize("name", sorted(DESIGN))
def test_design_examples_lower(name: str) -> None:
    module = load_text(DESIGN[name])
    verify(module, level=2)
    assert module.main == name
    assert equal(parse_module(print_module(module)), module)


@pytest.mark.parametrize("name", sorted(LATER))
def test_what_comes_later_is_refused_by_name(name: str) -> None:
    with pytest.raises(DecError) as caught:
        load_text(program(name), f"{name}.dec")
    assert f"{name}.dec:" in str(caught.value)


def test_spaces_and_comments_do_not_change_the_ir() -> None:
    text = DESIGN["speculative"]
    loose = text.replace("    ", "        ").replace("grow x", "grow x  # a draw").replace("in 1..32 = 4", "in 1 .. 32=4")
    assert equal(load_text(text), load_text(loose))


def calls(text: str) -> int:
    return work(lambda: lower_file(parse_text(text), Source(text)))


@pytest.mark.parametrize("name", STDLIB)
def test_stdlib_is_quick_to_read(name: str) -> None:
    text = (resources.files("decgraph.stdlib") / f"{name}.dec").read_text(encoding="utf-8")
    # The most is 50,000 a line: helpers and sub-runs are lowered where they are called, so that a line may hold several.
    assert calls(text) < 60_000 * (text.count("\n") + 1)


def test_many_algorithms_lower_in_linear_time() -> None:
    small = "\n".join(DESIGN["eagle2"].split("algorithm")[0:1])
    body = "algorithm" + DESIGN["eagle2"].split("algorithm")[1]
    texts = [small + "\n".join(body.replace("eagle2", f"a{i}") for i in range(n)) for n in (20, 100)]
    assert texts[1].count("\n") > 1_200
    few, many = map(calls, texts)
    assert many < 5 * 1.1 * few


def test_one_long_algorithm_takes_linear_time() -> None:
    head = "algorithm a(target: causal):\n    while not done:\n        x ~ target(ctx)\n        v0 = 1\n"

    def text(n: int) -> str:
        return head + "".join(f"        v{i} = v{i - 1} + {i}\n" for i in range(1, n)) + "        commit x\n"

    few, many = calls(text(200)), calls(text(1000))
    assert many < 5 * 1.1 * few
