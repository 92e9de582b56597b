"""Checking claims: worlds, exact laws, counterexamples and planted mutants.

The room can be called: `decgraph.check("speculative")` is `check_algorithm("speculative")`.
"""

import sys
from types import ModuleType

from decgraph.check.algorithm import CheckOptions, check_algorithm, check_all
from decgraph.check.report import Report, check_module

__all__ = ["CheckOptions", "Report", "check_algorithm", "check_all", "check_module"]


class Room(ModuleType):
    """A module that is also its main function, since one name has to serve for both."""

    __call__ = staticmethod(check_algorithm)
    check_algorithm = staticmethod(check_algorithm)
    check_all = staticmethod(check_all)


sys.modules[__name__].__class__ = Room
