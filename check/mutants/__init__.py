"""Planted bugs. Every file of this folder holds a family of them in `MUTANTS`; `MUTANTS` here is all of them, by name."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from decgraph.check.mutant import Mutant

_FAMILIES = [import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__)]
MUTANTS: tuple[Mutant, ...] = tuple(sorted((m for family in _FAMILIES for m in family.MUTANTS), key=lambda m: m.name))

__all__ = ["MUTANTS"]
