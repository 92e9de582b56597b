"""Every algorithm of stdlib/ commits the same tokens before and after its passes: all of them, all but one, one alone."""

from __future__ import annotations

from functools import cache

import pytest
from lib.stdlib.table_models import FEW, NAMES

import decgraph
from decgraph.check.validation import ComparedWorld, SessionRecord, Validation, batch_differences, compared, observe, worlds
from decgraph.ir.text import print_module
from decgraph.ir.values import Module
from decgraph.passes.manager import ORDER, optimise

WORLDS_EACH = 2  # a table world and a free one; `--validate` looks at more


@cache
def seen(name: str) -> list[tuple[ComparedWorld, SessionRecord]]:
    before = decgraph.load(name).module
    return [(w, observe(before, w)) for w in worlds(before.entry, WORLDS_EACH)]


def compare(name: str, made: Module) -> None:
    for world, before in seen(name):
        found = compared(before, observe(made, world))
        assert not found, f"{name}: {found}\n{world}"


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_all_passes_and_all_but_one(name: str) -> None:
    before = decgraph.load(name).module
    texts = set()
    for without in ((), *((p,) for p in ORDER)):
        made, _ = optimise(before, without=without)
        text = print_module(made)
        if text not in texts:  # a pass that had nothing to do
            compare(name, made)
        texts.add(text)


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_one_pass_alone(name: str) -> None:
    before = decgraph.load(name).module
    for one in ORDER:
        made, report = optimise(before, only=(one,))
        if report.steps[0].changed:
            compare(name, made)


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_batches(name: str) -> None:
    before = decgraph.load(name).module
    made, _ = optimise(before)
    world, _ = seen(name)[1]
    assert batch_differences(before, made, world) == ""


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_validation_of_every_pass(name: str) -> None:
    optimise(decgraph.load(name).module, validate=Validation(count=24))
