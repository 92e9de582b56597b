"""Checking claims: worlds, exact laws, counterexamples and planted mutants."""
from decgraph.check.algorithm import check_algorithm
from decgraph.check.report import Report, check_module

__all__ = ["Report", "check_algorithm", "check_module"]
