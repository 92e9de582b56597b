"""Every planted bug is found in a small algorithm; the long run plants all of them in all of stdlib."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import pytest

from decgraph.backends.exact.run import ExactMachine
from decgraph.check import check_algorithm, check_all
from decgraph.check.algorithm import find
from decgraph.check.mutant import Mutant, applicable, judge, one
from decgraph.check.mutants import MUTANTS
from decgraph.check.plans import first_plans, further_plans
from decgraph.check.planting import Planting
from decgraph.check.profile import profile
from decgraph.check.worlds import world

PROGRAMS = Path(__file__).parent / "programs"
# Small ones first; a mutant is planted in the first of these that it applies to.
HOSTS = [
    "speculative",
    "points",
    "iid_siblings",
    "two_drafters",
    "sequoia",
    "eagle2",
    "medusa",
    "jacobi",
    "freedave",
    "block_verification",
    "inner",
    "cfg",
    "klass",
]


@lru_cache
def host(name: str):
    path = PROGRAMS / f"{name}.dec"
    module, text = find(path if path.exists() else name)
    planting = Planting(text, module.path)

    def worlds(module, engine, turn):
        plans = further_plans if turn == 1 else partial(first_plans, first=20 * turn)  # as plant_all has them
        return [
            world(module, claim, plan, engine=engine)
            for claim in module.entry.claims
            for plan in plans(module, claim, 3, 20, **({"given": {}} if turn == 1 else {}))
        ]

    def without(case):
        return replace(world(module, case.claim, case.plan), params=case.params, length=case.length, request=case.request)

    facts = profile(worlds(module, ExactMachine, 0)[:8])
    return module, planting, worlds, without, {m.name: (m, text) for m, text in applicable(facts, MUTANTS, planting)}


def test_names_and_reasons() -> None:
    names = [m.name for m in MUTANTS]
    assert names == sorted(set(names)) and len(names) > 35
    for m in MUTANTS:
        assert (m.rewrite is None) != (m.engine is None), m.name
        assert len(m.why) > 20 and m.sees.startswith("V = "), m.name


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_killed(mutant) -> None:
    for name in HOSTS:
        module, planting, worlds, without, known = host(name)
        if mutant.name in known:
            m, text = known[mutant.name]
            kill = one(module, planting, m, text, worlds, without)
            assert kill.killed, f"{mutant.name} survives in {name}"
            assert kill.by["how"] != "refused" or mutant.name == "residual-not-normalised", kill.by
            return
    pytest.fail(f"{mutant.name} applies to none of {', '.join(HOSTS)}")


class Same(ExactMachine):
    """A bug that is none."""


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("speculative", "pearl", "freedave")),
        pytest.param("speculative_jacobi", marks=pytest.mark.nightly),  # over a minute
    ],
)
def test_no_bug_is_never_found(name: str) -> None:
    """Nor does an error that the program itself ends with in a world count as one of the bug's."""
    module, planting, worlds, without, _ = host(name)
    none = Mutant("none", "nothing is wrong", lambda f: True, "V = 2", engine=Same)
    kill = one(module, planting, none, None, worlds, without)
    assert not kill.killed, kill.by


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [
        ("siblings-resorted", "eagle2"),
        ("siblings-merged", "eagle2"),
        ("pruned-by-own-score", "eagle2"),
        ("tested-with-raw", "eagle2"),
        ("replacement-dropped", "eagle2"),
        ("siblings-merged", "sequoia"),
        ("points-as-drawn", "eagle2"),
        ("siblings-seen", "speculative"),
        ("path-not-gathered", "speculative"),
    ],
)
def test_what_does_not_apply_is_equivalent(name: str, algorithm: str) -> None:
    """The reasons why a mutant does not apply, held against the checker: no world shows it."""
    module, _, worlds, _, known = host(algorithm)
    assert name not in known
    mutant = next(m for m in MUTANTS if m.name == name)
    assert [judge(c, mutant.steps) for c in worlds(module, mutant.engine, 0)[:2]] == [None] * 2


def test_a_patch_never_reaches_the_specification() -> None:
    """freedave and static_masked use the same helper `one`; the copy is patched, the original is not."""
    planting = host("freedave")[1]
    m = next(m for m in MUTANTS if m.name == "edit-fresh-noise")
    text = planting.patched(m.rewrite)
    assert text is not None and "planted_one" in text and "as output" not in text
    module = planting.load(text)
    ops = [op for op in module.functions["static_masked"].body.walk() if op.opcode == "noise"]
    assert {op.attrs["kind"] for op in ops} == {"output"}


def test_the_whole_check_of_one_algorithm() -> None:
    report = check_algorithm("speculative", params={"gamma": 1}, models=12, derive=False)
    assert (report.verdict, report.survivors) == ("holds", [])
    assert report.killed == report.planted > 20
    plain = report.to_json()
    assert plain["mutants"]["planted"] == plain["mutants"]["killed"] == report.planted


@pytest.mark.nightly
def test_all_of_stdlib_with_all_mutants() -> None:
    for report in check_all(jobs=2, derive=False):
        assert report.verdict == "holds", report.name
        assert [m.name for m in report.survivors] == [], report.name
