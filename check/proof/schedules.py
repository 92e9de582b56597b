"""Programs on a canvas whose schedule is known: which cells are decided in which order.

Where the cells that a step decides are fixed beforehand, or are chosen by the draws in one and the same way, and each gets a
fresh draw of the model's row there on this very canvas, the canvas has a distribution that depends on the schedule alone
(`scheduled_agree` in proof/Canvas.v): what thresholds, memories, coins, externs and counters compute beside it makes no
difference. So two programs with one schedule agree. Claims `when block == 1` and `when steps == 1` are of this kind: both
programs decide the cells one by one from the left, or all at once. With the specification's own noise, by how many cells are
decided, the tokens are the same (`scheduled_tokens`).

canvas_loops.py goes through a function once. Numbers are polynomials over parameters (amounts.py), a set of cells is an
interval, and what depends on draws is unknown (vectors.py, cells.py). canvases.py has the rules of what is done to a canvas: an
op without one loses it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from decgraph.check.proof.amounts import INF, ONE, Amount, Known
from decgraph.check.proof.canvas_loops import Walk
from decgraph.check.proof.invariants import Step, Stopped
from decgraph.ir.values import Claim, Function, Module, Param


def scheduled(module: Module, claim: Claim) -> list[Step]:
    """The steps of a derivation that an algorithm has its specification's schedule where the claim holds; else Stopped."""
    spec = module.functions.get(claim.spec)
    if spec is None:
        raise Stopped(None, f"no specification {claim.spec}")
    mine, known = _setting(module.entry, claim)
    args, theirs = dict(claim.args), {}
    for p in spec.params:
        kind, value = args.get(p.name, ("const", p.default))
        theirs[p.name] = mine.get(value) if kind == "param" else _value(value)
    want = Walk(spec, _setting(module.entry, claim)[1], theirs)
    try:
        want.run()
    except Stopped as stopped:
        raise Stopped(None, f"the specification {claim.spec} (line {stopped.line}): {stopped.why}") from None
    found = Walk(module.entry, known, mine)
    found.run()
    assert found.end is not None and want.end is not None
    if (found.asked, found.models, found.end.steps) != (want.asked, want.models, want.end.steps):
        raise Stopped(None, f"{claim.spec} decides the cells in another order")
    if claim.mode == "tokens" and not (found.own and want.own):
        raise Stopped(None, "the draws read other noise than those of the specification")
    return found.steps


def _value(x: Any) -> Any:
    if isinstance(x, bool) or isinstance(x, tuple | list | frozenset) and not x:
        return x if isinstance(x, bool) else ()
    return Amount.of(x) if isinstance(x, int | float) or hasattr(x, "denominator") else None


def _setting(function: Function, claim: Claim) -> tuple[dict[str, Any], Known]:
    """What the parameters are under a claim's condition, and what is known of them."""
    known = Known()
    given: dict[str, Any] = {}
    for p in function.params:
        given[p.name] = _parameter(p, known)
    parts = claim.setting[1:] if claim.setting[:1] == ("and",) else (claim.setting,) if claim.setting else ()
    for part in parts:  # a part that is not understood is left out: what follows without it holds with it
        match part:
            case ("param", name) | ("==", ("param", name), ("const", True)):
                given[name] = True
            case ("not", ("param", name)) | ("==", ("param", name), ("const", False)):
                given[name] = False
            case ("==", ("param", name), ("const", ())):
                given[name] = ()
            case ("==", ("param", name), other) if isinstance(given[name], Amount) and (x := _amount(other, given)) is not None:
                atom = given[name]
                given = {k: x if v == atom else v for k, v in given.items()}
            case ("<=", a, b) | (">=", b, a) if (x := _amount(a, given)) is not None and (y := _amount(b, given)) is not None:
                known.facts.append(y - x)
            case ("<", a, b) | (">", b, a) if (x := _amount(a, given)) is not None and (y := _amount(b, given)) is not None:
                known.facts.append(y - x - ONE if known.whole(y - x) else y - x)
    return given, known


def _amount(part: Any, given: dict[str, Any]) -> Amount | None:
    match part:
        case ("param", name):
            return given[name] if isinstance(given[name], Amount) else None
        case ("const", x):
            value = _value(x)
            return value if isinstance(value, Amount) else None
    return None


def _parameter(p: Param, known: Known) -> Any:
    t = p.value.type
    if t.elem == "model":
        return p.name
    if t.dims or not t.is_number:
        return None
    bounds = (0, 1) if t.elem == "prob" else (-INF, INF)
    low, high = (end if x is None else Fraction(str(x)) for end, x in zip(bounds, (p.low, p.high), strict=True))
    if t.elem != "int" and (low == -INF or high == INF):  # it may be infinite
        return None
    return known.atom(low, high, real=t.elem != "int", name=f"{p.name}")


__all__ = ["scheduled"]
