"""Which cases of every test become items of pytest: those that `-m` selects.

What quick.py and costs.py decide depends on one test alone. It is decided while the cases are still plain data, because an item
costs a tenth of a millisecond to build, to mark and to deselect, and `make test` selects every sixth of 27,000.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from _pytest.mark.expression import Expression  # what -m means; pytest exports it nowhere
from costs import beyond_budget, costly
from quick import is_slow_file, slow_cases

DECIDED = {"slow", "nightly", "gpu", "hypothesis", "and", "or", "not"}
"""The marks that are decided before items are made. Where `-m` names others, all cases become items."""


class Case:
    """A case of a test, with what quick.py and costs.py read of an item."""

    def __init__(self, test: str, metafunc: pytest.Metafunc, callspec: Any, marks: Sequence[pytest.Mark]) -> None:
        self.nodeid, self.path, self.fixturenames = test, metafunc.definition.path, metafunc.fixturenames
        self.callspec, self.marks = callspec, {mark.name: mark for mark in reversed([*callspec.marks, *marks])}
        self.get_closest_marker = self.marks.get

    def has(self, mark: str, /, **_: Any) -> bool:
        """Whether the case has a mark."""
        return mark in self.marks

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        """Mark the case and the item that is made of it."""
        self.callspec.marks.append(mark.mark)
        self.marks.setdefault(mark.mark.name, mark.mark)


def mark_cases(config: pytest.Config, cases: Sequence[Any]) -> dict[str, str]:
    """Mark what is left to `make slow` and to the night. Returns, by test, what is wrong with its mark `quick`. cases: all of
    each of their tests; the first one of a test with a wrong mark is left alone, so that it runs and fails."""
    slow, idle = slow_cases(cases)
    left, wrong = {id(case) for case in slow}, dict(idle) if names_no_case(config) else {}
    unmarked = set(wrong)
    for case in cases:
        if (test := case.nodeid.split("[")[0]) in unmarked:
            unmarked.remove(test)
        elif id(case) in left or is_slow_file(case.path) and not case.get_closest_marker("nightly"):
            case.add_marker(pytest.mark.slow)
    if list(config.args) == list(config.getini("testpaths")):  # whoever names a file wants its tests
        for case in costly(cases):
            case.add_marker(pytest.mark.slow)
        for case in beyond_budget(cases):
            case.add_marker(pytest.mark.nightly)
    return wrong


def names_no_case(config: pytest.Config) -> bool:
    """Whether all cases of each test are collected."""
    return not any("::" in argument for argument in config.args)


def cut(metafunc: pytest.Metafunc) -> str:
    """Mark the cases of a test, drop those that `-m` does not select, and return what is wrong with the test's mark `quick`."""
    config, calls = metafunc.config, metafunc._calls
    test, marks = metafunc.definition.nodeid, list(metafunc.definition.iter_markers())
    if getattr(metafunc.function, "is_hypothesis_test", False):
        marks.append(pytest.mark.hypothesis.mark)
    cases = [Case(test, metafunc, callspec, marks) for callspec in calls]
    if config.option.markexpr != "gpu":
        cases = [case for case in cases if "gpu" not in case.marks]
    wrong = mark_cases(config, cases).get(test, "")
    if names_no_case(config) and (chosen := expression(config.option.markexpr)) is not None:
        cases = [case for case in cases if chosen.evaluate(case.has)]
        calls[:] = [case.callspec for case in cases] or calls[:1]  # of an empty list pytest makes a test without parameters
    return wrong


@cache
def expression(words: str) -> Expression | None:
    """What `-m` selects by, unless it names marks that are not decided yet."""
    return Expression.compile(words) if words and set(re.findall(r"\w+", words)) <= DECIDED else None
