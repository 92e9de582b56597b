"""Queries to z3: whether facts about polynomials can hold together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from decgraph import extras
from decgraph.check.smt.poly import ONE, Monomial, Poly

if TYPE_CHECKING:
    from decgraph.check.smt.field import Fact, Field


def z3() -> Any:
    """The solver's module. Raises DecError where it is not installed."""
    try:
        import z3 as module
    except ImportError:
        raise extras.needed("smt", first="z3", what="proofs for all distributions need the solver") from None
    return module


def satisfiable(field: Field, facts: Sequence[Fact], seconds: float, deep: bool) -> bool | None:
    """Whether facts can be true together; None for unknown.

    First every monomial is a variable of its own that is at least 0. This linear problem is always decided, and facts that it
    refutes are impossible. Only if it does not, and only where `deep`, the solver is called on the nonlinear one.
    seconds: of the linear problem; the nonlinear one has what is left of the field's own seconds.
    """
    field.left()
    if _check(_problem(field, facts, linear=True), min(seconds, 2.0), "QF_LRA") is False:
        return False
    if not deep:
        return None
    return _check(_problem(field, facts, linear=False), min(seconds, field.left()), "QF_NRA")


def _check(constraints: list[Any], seconds: float, logic: str) -> bool | None:
    module = z3()
    solver = module.SolverFor(logic)
    solver.set("timeout", max(1, int(seconds * 1000)))
    solver.add(*constraints)
    answer = solver.check()
    return True if answer == module.sat else False if answer == module.unsat else None


def _problem(field: Field, facts: Sequence[Fact], linear: bool) -> list[Any]:
    module = z3()
    symbols = field.closure([p for p, _ in facts])
    variable = {s: module.Real(f"s{s}") for s in symbols}
    seen: dict[Monomial, Any] = {}

    def monomial(m: Monomial) -> Any:
        if m not in seen:
            if linear and sum(e for _, e in m) > 1:
                seen[m] = module.Real("m" + "_".join(f"{s}^{e}" for s, e in m))
            else:
                seen[m] = module.Product(*[variable[s] for s, e in m for _ in range(e)]) if m else module.RealVal(1)
        return seen[m]

    def term(p: Poly) -> Any:
        return module.Sum(*[module.RealVal(str(c)) * monomial(m) for m, c in p]) if p.terms else module.RealVal(0)

    out = [term(p) > 0 if strict else term(p) >= 0 for p, strict in facts]
    for s in symbols:
        out.append(variable[s] >= 0)
        if s in field.relus:
            n = term(field.relus[s])
            out += [variable[s] >= n, module.Or(variable[s] == 0, variable[s] == n)]
    for key in {field.places[s][0] for s in symbols if s in field.places}:
        row = [s for s in symbols if field.places.get(s, (None,))[0] == key]
        out.append(term(sum((-Poly.symbol(s) for s in row), ONE)) >= 0)
    if linear:
        out += [x >= 0 for m, x in seen.items() if m]
    return out


__all__ = ["satisfiable", "z3"]
