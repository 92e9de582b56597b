"""Proofs for all distributions, with polynomials and the solver z3: `decgraph check --smt` (docs/proof.md)."""

from decgraph.check.smt.prove import prove, prove_rule, smt_report
from decgraph.check.smt.report import SmtReport

__all__ = ["SmtReport", "prove", "prove_rule", "smt_report"]
