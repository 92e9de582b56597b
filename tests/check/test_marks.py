"""Strings that a program looks for are tokens of the worlds that it is checked in."""

from __future__ import annotations

from decgraph.check.algorithm import find
from decgraph.check.constants import facts
from decgraph.check.plans import first_plans
from decgraph.check.worlds import pieces_of, world


def test_what_a_program_looks_for() -> None:
    listed = (".", ",", "\n", "?", "!", ":", ";", ")", "]", "}")
    for name, marks in (("cautious", listed), ("foreal", (".",)), ("speculative", ())):
        module, _ = find(name)
        assert facts(module, module.entry).marks == marks, name


def test_pieces_differ_and_keep_one_that_is_no_mark() -> None:
    assert pieces_of(3) == ["a", "b", "ab"]
    assert pieces_of(3, (".", ",")) == ["a", ".", ","] and pieces_of(2, (".", ",")) == ["a", "."]
    assert pieces_of(3, ("b",)) == ["a", "ab", "b"]
    for size in (2, 3, 12):
        assert len(set(pieces_of(size, (".", "a")))) == size


def test_worlds_speak_the_marks_and_some_do_not() -> None:
    module, _ = find("cautious")
    plans = first_plans(module, module.entry.claims[1], 3, 6)
    texts = [world(module, module.entry.claims[1], p).detokenizer.text for p in plans]
    spoken = [{text([t]) for t in range(3)} - {"a", "b", "ab"} for text in texts]
    assert set() in spoken and {",", "\n"} in spoken
