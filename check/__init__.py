"""Checking claims: worlds, exact laws, counterexamples and planted mutants.

The room can be called: `decgraph.check("speculative")` is `check_algorithm("speculative")`.
"""

import sys
from types import ModuleType
from typing import Any

from decgraph.check.algorithm import check_algorithm, check_all
from decgraph.check.report import Report, check_module

__all__ = ["Report", "check_algorithm", "check_all", "check_module"]


class _Room(ModuleType):
    """A module that is also its main function, since one name has to serve for both."""

    def __call__(self, algorithm: Any, **options: Any) -> Report:
        return check_algorithm(algorithm, **options)


sys.modules[__name__].__class__ = _Room
