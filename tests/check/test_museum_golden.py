"""The museum's programs against recordings of published code: what is refuted here is what was run there, in exact fractions.
stdlib's rules are held to the same recordings in tests/fidelity."""

from __future__ import annotations

import math
from fractions import Fraction as F
from typing import Any

import pytest
from fidelity.entry import recording
from fidelity.forced import START, Coin, Script, Step, lines, rule_text, step
from fidelity.rules_chains import drafter, law, table

from decgraph.backends.exact.choices import Choices, runs
from decgraph.backends.exact.world import World
from decgraph.check.distributions import CheckedProgram, execute
from decgraph.dsl.lower import load_text
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request


def cases(name: str) -> list[Any]:
    return [pytest.param(c, id=f"{name} {c['id']}") for c in recording(f"ar2/sampling_{name}")["cases"]]


def block(name: str, case: Any, coin: Coin, drafts: int | None = None) -> Step:
    """One exact step of a program that drafts a chain; drafts: so many of the recorded ones."""
    drafted, text = case["drafted"][:drafts], rule_text(name)
    p, q = table(case["p"][: len(drafted) + 1], drafted), table(drafter(case)[: len(drafted)], drafted)
    params = {"gamma": len(drafted)} if "gamma: int" in text else {}
    return step(text, p, q, case["V"], Script({lines(text, "x ~ drafter")[0]: drafted}, coin), "exact", **params)


@pytest.mark.parametrize("case", cases("block_ascend_fixed"))
def test_the_early_thresholds_are_those_that_were_shipped(case: Any) -> None:
    """The program that is refuted is the rule that an engine ran."""
    open_ = [(F(h), u) for h, u in zip(case["thresholds"], case["uniforms"], strict=True) if 0 < F(h) < 1]
    rest = iter([u for _, u in open_])
    made = block("m12_block_early", case, lambda h: F(next(rest)) <= h if 0 < h < 1 else h == 1)
    assert [h for h in made.odds if 0 < h < 1] == [h for h, _ in open_]
    assert list(made.tokens[:-1]) == case["drafted"][: case["accepted"]]
    assert made.last == law(case["next_token_distribution"])


def test_the_repaired_rule_differs() -> None:
    assert any(c.values[0]["differs_from_paper"] for c in cases("block_ascend_fixed"))


@pytest.mark.parametrize("case", cases("block_ascend_wrong"))
def test_the_product_of_uniforms_is_the_one_that_was_shipped(case: Any) -> None:
    """Of two drafts our program accepts both with probability d - d * log(d), up to its four parts of a uniform."""
    drafted = case["drafted"][:2]
    ratio = [min(F(1), F(case["p"][i][x]) / F(drafter(case)[i][x])) for i, x in enumerate(drafted)]
    assert [F(x) for x in case["cumulative_ratio"][:2]] == [ratio[0], ratio[0] * ratio[1]]
    d = float(ratio[0] * ratio[1])
    counts = [F(0), F(0), F(0)]

    def program(choices: Choices) -> int:
        def flip(h: F) -> bool:
            return bool(choices.choose([h, 1 - h], [True, False], "coin"))

        return len(block("m12_block_product", case, flip, 2).tokens) - 1

    for choices, n in runs(program, 200):
        counts[n] += choices.weight()
    both = d - d * math.log(d) if d else 0.0
    assert abs(float(counts[2]) - both) < 0.02
    assert abs(float(counts[0] + counts[1]) - (1 - both)) < 0.02 and sum(counts) == 1


@pytest.mark.parametrize("case", cases("block_sequential"))
def test_the_sequential_form(case: Any) -> None:
    """The museum's right program draws at every position, as the recording does: the last position that has a token wins."""
    k = len(case["drafted"])
    rows = zip(case["uniforms"], case["continue_probabilities"], strict=True)
    asked = iter([(i, F(u), F(c)) for i, (u, c) in enumerate(rows) if F(c) < 1 or i == k])

    def coin(h: F) -> bool:
        i, u, c = next(asked)
        assert h == 1 - c
        return u >= c if i == k else u < h

    made = block("m12_block_first_right", case, coin)
    assert list(made.tokens[:-1]) == case["drafted"][: case["accepted"]]
    assert case["extra_token"] in made.last


def test_skipping_a_repeated_token_is_off_by_what_was_recorded() -> None:
    """The distance that the recording's notes give for one table; without the skip it is 0."""
    p, q = [F(3, 28), F(1, 4), F(9, 28), F(9, 28)], [F(1, 16), F(3, 8), F(5, 16), F(1, 4)]
    distance = {}
    for name in ("m14_equal_siblings_skipped", "m14_equal_siblings_skipped_right"):
        found = [F(0)] * 4

        def program(choices: Choices, name: str = name) -> int:
            world = World(coupled=False)
            world.restart(choices)
            module = load_text(rule_text(name), name)
            models = {
                "target": TableModel(4, table={(): p}, window=0, name="target"),
                "drafter": TableModel(4, table={(): q}, window=0, name="drafter"),
            }
            m = execute(CheckedProgram(module, module.main, models, {}).machine(Request(START, max_tokens=1), world, 1))
            return int(m.committed_tokens()[0])

        for choices, token in runs(program, 2000):
            found[token] += choices.weight()
        distance[name] = sum(abs(a - b) for a, b in zip(found, p, strict=True)) / 2
    assert round(float(distance["m14_equal_siblings_skipped"]), 4) == 0.0057
    assert distance["m14_equal_siblings_skipped_right"] == 0
