"""Checking claims: derivations, worlds, exact distributions and counterexamples.

The room can be called: `decgraph.check("speculative")` is `check_algorithm("speculative")`.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from decgraph.check.algorithm import CheckOptions, check_algorithm, check_all
from decgraph.check.report import Report, check_module

__all__ = ["CheckOptions", "Report", "check_algorithm", "check_all", "check_module"]


if TYPE_CHECKING:
    Base = object  # a module's `__getattr__` makes every misspelt name an Any
else:
    Base = ModuleType


class CheckModule(Base):
    """A module that is also its main function, since one name has to serve for both."""

    __call__ = staticmethod(check_algorithm)
    check_algorithm = staticmethod(check_algorithm)
    check_all = staticmethod(check_all)


sys.modules[__name__].__class__ = CheckModule  # type: ignore[assignment]
