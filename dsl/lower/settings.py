"""`when` of a claim: a condition over parameters, the size of the request and `greedy`, checked where it stands."""

from __future__ import annotations

from collections.abc import Sequence

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import did_you_mean
from decgraph.dsl.lower.declare import literal
from decgraph.dsl.lower.state import Lowering
from decgraph.dsl.printer import expression
from decgraph.ir.settings import ARITHMETIC, COMPARES, REQUEST, Condition, names, quantities, settings
from decgraph.ir.values import Function, Param, Region

CODE = "E411"
USAGE = "when delta == 0, when tau >= 1 and greedy"
COMPARED = ("int", "real", "prob", "bool", "text", "set", "token")


def setting_of(lw: Lowering, e: S.Expr, params: Sequence[Param]) -> tuple[Condition, bool]:
    """(the condition on parameters and the request, whether it asks for greedy requests). Fails where it reads anything else,
    reads no parameter, or where no value was found that satisfies it."""
    known = {p.name: p for p in params if p.value.type.elem != "model"}
    parts = e.values if isinstance(e, S.BoolOp) and e.op == "and" else (e,)
    rest = [p for p in parts if not (isinstance(p, S.Name) and p.name == "greedy" and "greedy" not in known)]
    made = tuple(_truth(lw, p, known) for p in rest)
    for part, c in zip(rest, made, strict=True):
        if not names(c):
            what = "reads no parameter" if quantities(c) else "is a constant"
            lw.fail(part.span, f"`{expression(part)}` {what}", f"a condition reads a parameter: {USAGE}", code=CODE)
    condition: Condition = () if not made else made[0] if len(made) == 1 else ("and", *made)
    if condition and not settings(Function(lw.function, tuple(params), (), Region((), (), ())), condition):
        ranges = "; ".join(f"{n} is {_range(known[n])}" for n in names(condition))
        lw.fail(e.span, f"no value was found that satisfies `{expression(e)}`", ranges, code=CODE)
    return condition, len(rest) < len(parts)


def _range(p: Param) -> str:
    t = p.value.type.elem
    if p.low is not None and p.high is not None:
        return f"in {p.low}..{p.high}"
    return "in 0..1" if t == "prob" else "yes or no" if t == "bool" else f"a {t}"


def _truth(lw: Lowering, e: S.Expr, known: dict[str, Param]) -> Condition:
    """A part that is true or false."""
    if isinstance(e, S.BoolOp):
        return (e.op, *(_truth(lw, v, known) for v in e.values))
    if isinstance(e, S.Unary) and e.op == "not":
        return ("not", _truth(lw, e.operand, known))
    if isinstance(e, S.Compare) and e.op in COMPARES:
        return (e.op, _number(lw, e.left, known), _number(lw, e.right, known))
    if isinstance(e, S.Name) and e.name == "greedy" and e.name not in known:
        lw.fail(e.span, "`greedy` is joined to a condition by `and`", USAGE, code=CODE)
    if isinstance(e, S.Name) and e.name in ("yes", "no", "true", "false") and e.name not in known:
        return ("const", e.name in ("yes", "true"))
    if isinstance(e, S.Name) and e.name in known and known[e.name].value.type.elem != "bool":
        lw.fail(e.span, f"`{e.name}` is no condition", f"compare it: {e.name} == 1", code=CODE)
    made = _number(lw, e, known)
    if made[0] not in ("param", "const"):
        lw.fail(e.span, f"`{expression(e)}` is no condition", USAGE, code=CODE)
    return made


def _number(lw: Lowering, e: S.Expr, known: dict[str, Param]) -> Condition:
    """A part that is compared."""
    if isinstance(e, S.Name) and e.name in known:
        if known[e.name].value.type.elem not in COMPARED:
            lw.fail(e.span, f"`{e.name}` does not compare", "conditions compare numbers, yes or no, texts and sets", code=CODE)
        return ("param", e.name)
    spelt = expression(e)
    quantity = next((q for q, words in REQUEST.items() if words == spelt), None)
    if quantity is not None and quantity not in known:
        return ("request", quantity)
    if isinstance(e, S.Binary) and e.op in ARITHMETIC:
        return (e.op, _number(lw, e.left, known), _number(lw, e.right, known))
    if isinstance(e, S.Unary) and e.op == "-":
        return ("neg", _number(lw, e.operand, known))
    if isinstance(e, S.Number | S.String | S.ListExpr) or (isinstance(e, S.Name) and e.name in ("yes", "no", "inf", "none")):
        return ("const", literal(lw, e, "what a claim's condition compares with"))
    near = did_you_mean(getattr(e, "name", ""), sorted(known), f"its parameters are {', '.join(known) or 'none'}")
    reads = "parameters, constants, `len(prompt)`, `room` and `greedy`"
    lw.fail(e.span, f"a claim's condition reads {reads}, not `{spelt}`", near, code=CODE)


__all__ = ["setting_of"]
