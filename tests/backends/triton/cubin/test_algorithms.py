"""Every kernel that the vocabulary segments and rules of every algorithm of stdlib/ become, for a vocabulary of 128256 and
bfloat16 logits, compiles for sm_80 and sm_90 and spills nothing. test_areas.py says what is compiled and what is known."""

from __future__ import annotations

import pytest
from shelf import FEW, NAMES, module

from lab.gpu import cubins

BY_TORCH = {"block_rejection", "match_longest"}
"""Rules that no kernel is made of (test_rules_device.py says why)."""
ONLY_RULES = {"prompt_lookup", "rsd_s"}
"""What else these do over the vocabulary no kernel does: nothing, and a race of every token for its own sake."""


@pytest.mark.quick(*FEW[:2])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_an_algorithm(name: str) -> None:
    specs = cubins.of_algorithm(name)
    rules = [s for s in specs if {"NB", "PREFIX"} & set(s.constexprs)]  # nodes of a tree, counters of a caller
    verified = {op.attrs["rule"] for f in module(name).functions.values() for op in f.body.walk() if op.opcode == "tree.walk"}
    assert bool(rules) == bool(verified - BY_TORCH)
    assert (len(specs) > len(rules)) == (name not in ONLY_RULES)
    assert all(s.constexprs["V"] == 128256 for s in specs if "V" in s.constexprs)
    made = cubins.found(specs, cubins.kept())
    assert not cubins.faults(r for rows in made.values() for r in rows)


@pytest.mark.nightly
def test_what_is_known_is_what_is_compiled() -> None:
    """A part of the result file, compiled afresh."""
    known = cubins.kept()
    specs = [s for s in cubins.unique(cubins.everything()) if cubins.digest(s) in known][::9]
    fresh, held = cubins.found(specs, {}), cubins.found(specs, known)
    assert specs and fresh == held
