"""Planted bugs, by name."""

from __future__ import annotations

from decgraph.check.mutant import Mutant
from decgraph.check.mutants import rows, rules, walks

MUTANTS: tuple[Mutant, ...] = tuple(sorted((*rules.MUTANTS, *walks.MUTANTS, *rows.MUTANTS), key=lambda m: m.name))

__all__ = ["MUTANTS"]
