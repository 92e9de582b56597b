"""Every kernel that the vocabulary segments of every algorithm of stdlib/ become, for a vocabulary of 128256 and bfloat16 logits,
compiles for sm_80 and sm_90 and spills nothing. Their rules are in the area `rules` (test_areas.py, which says what is
compiled and what is known)."""

from __future__ import annotations

import pytest
from shelf import NAMES

from decgraph.bench import cubins

NO_ROWS = {"prompt_lookup", "rsd_s"}
"""Algorithms all of whose work over the vocabulary is in a rule, or op by op in torch."""


@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_an_algorithm(name: str) -> None:
    specs = cubins.of_algorithm(name)
    assert bool(specs) == (name not in NO_ROWS)
    assert all("128256" in s.text or s.constexprs.get("V") == 128256 for s in specs)
    made = cubins.found(specs, cubins.kept())
    assert not cubins.faults(r for rows in made.values() for r in rows)


@pytest.mark.slow
def test_what_is_known_is_what_is_compiled() -> None:
    """A part of the result file, compiled afresh."""
    known = cubins.kept()
    specs = [s for s in cubins.unique(cubins.everything()) if cubins.digest(s) in known][::9]
    fresh, held = cubins.found(specs, {}), cubins.found(specs, known)
    assert specs and fresh == held
