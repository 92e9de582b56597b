"""Programs on a canvas whose schedule is known: which cells are decided in which order.

Where the cells that a step decides are fixed beforehand, or are chosen by the draws in one and the same way, and each gets a
fresh draw of the model's row there on this very canvas, the canvas has a distribution that depends on the schedule alone
(`scheduled_agree` in proof/Canvas.v): what thresholds, memories, coins, externs and counters compute beside it makes no
difference. So two programs with one schedule agree. Claims `when block == 1` and `when steps == 1` are of this kind: both
programs decide the cells one by one from the left, or all at once. With the specification's own noise, by how many cells are
decided, the tokens are the same (`scheduled_tokens`).

canvas_loops.py goes through a function once. Numbers are sums over parameters (amounts.py), a set of cells is an
interval, and what depends on draws is unknown (vectors.py, cells.py). canvases.py has the rules of what is done to a canvas: an
op without one loses it.
"""

from __future__ import annotations

from fractions import Fraction

from decgraph.check.proof.amounts import INF, ONE, ZERO, KnownAmounts
from decgraph.check.proof.canvas_loops import Walk
from decgraph.check.proof.canvas_values import CanvasValue
from decgraph.check.proof.invariants import DerivationStopped, Step
from decgraph.ir.linear import Linear
from decgraph.ir.settings import Condition, conjuncts
from decgraph.ir.values import Claim, Constant, Function, Module, Param


def scheduled(module: Module, claim: Claim) -> list[Step]:
    """The steps of a derivation that an algorithm has its specification's schedule where the claim holds; else Stopped."""
    spec = module.functions.get(claim.spec)
    if spec is None:
        raise DerivationStopped(None, f"no specification {claim.spec}")
    mine, known = _setting(module.entry, claim)
    args, theirs = dict(claim.args), {}
    for p in spec.params:
        kind, value = args.get(p.name, ("const", p.default))
        theirs[p.name] = mine.get(str(value)) if kind == "param" else _value(value)
    want = Walk(spec, _setting(module.entry, claim)[1], theirs)
    try:
        want.run()
    except DerivationStopped as stopped:
        raise DerivationStopped(None, f"the specification {claim.spec} (line {stopped.line}): {stopped.why}") from None
    found = Walk(module.entry, known, mine)
    found.run()
    assert found.end is not None and want.end is not None
    if (found.asked, found.models, found.end.steps) != (want.asked, want.models, want.end.steps):
        raise DerivationStopped(None, f"{claim.spec} decides the cells in another order")
    if claim.mode == "tokens" and not (found.own and want.own):
        raise DerivationStopped(None, "the draws read other noise than those of the specification")
    return found.steps


def _value(x: Constant) -> CanvasValue:
    if isinstance(x, bool):
        return x
    if isinstance(x, tuple | list | frozenset):
        return None if x else ()
    return Linear.of(Fraction(x)) if isinstance(x, int | float | Fraction) else None


def _setting(function: Function, claim: Claim) -> tuple[dict[str, CanvasValue], KnownAmounts]:
    """What the parameters are under a claim's condition, and what is known of them. A part of the condition that is not
    understood is left out: what follows without it holds with it."""
    known = KnownAmounts()
    given = {p.name: _parameter(p, known) for p in function.params}

    def amount(part: Condition) -> CanvasValue:
        return given.get(part[1]) if part[0] == "param" else _value(part[1]) if part[0] == "const" else None

    for part in conjuncts(claim.setting):
        match part:
            case ("param", name):
                given[name] = True
            case ("not", ("param", name)):
                given[name] = False
            case ("==", ("param", name), other):
                old, new = given[name], amount(other)
                if isinstance(old, Linear) and isinstance(new, Linear):
                    given = {k: new if v == old else v for k, v in given.items()}
                elif old is None and not isinstance(new, Linear):
                    given[name] = new
            case ("<=" | "<" as op, a, b) | (">=" | ">" as op, b, a):
                x, y = amount(a), amount(b)
                if isinstance(x, Linear) and isinstance(y, Linear):
                    known.facts.append(y - x - (ONE if op in "<>" and known.whole(y - x) else ZERO))
    return given, known


def _parameter(p: Param, known: KnownAmounts) -> CanvasValue:
    t = p.value.type
    if t.elem == "model":
        return p.name
    bounds = (0, 1) if t.elem == "prob" else (-INF, INF)
    low, high = (end if x is None else Fraction(str(x)) for end, x in zip(bounds, (p.low, p.high), strict=True))
    if t.dims or not t.is_number or t.elem != "int" and (low == -INF or high == INF):  # it may be infinite
        return None
    return known.atom(low, high, real=t.elem != "int", name=p.name)


__all__ = ["scheduled"]
