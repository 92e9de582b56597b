"""How single ops are written in a generated driver: as the operator, attribute or call that a person would write.

Other ops are calls of their lowerings (`writer.py`). Every expression computes what the lowering does; where that depends on
the types of the operands, the expression is used only for the types for which it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from decgraph.backends.torch.texts import atom, negated, whole
from decgraph.ir.ops.common import numeric
from decgraph.ir.types import Type
from decgraph.ir.values import Op, Value

Producers = Mapping[Value, Op]
"""The op that produces each value."""
Form = Callable[[Op, Sequence[str], Producers], str | None]
"""The text of an op, given the texts of its operands; None where the op must be a call of its lowering."""

SCALARS = ("int", "real", "prob", "bool", "position")
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}
HOST = {
    **{fn: f"{{}} {INFIX[fn]} {{}}" for fn in ("add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge")},
    "and": "{} & {}",
    "or": "{} | {}",
    "not": "~{}",
    "neg": "-{}",
    "minimum": "np.minimum({}, {})",
    "maximum": "np.maximum({}, {})",
}
"""NumPy's operators for elementwise functions of host arrays."""
NUMBERS = {
    "and": "{} and {}",
    "or": "{} or {}",
    "select": "{1} if {0} else {2}",
    "minimum": "min({}, {})",
    "maximum": "max({}, {})",
    "neg": "-{}",
}


def expression(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    """An op as an expression of its operands' texts, or None for a call of its lowering."""
    form = FORMS.get(op.opcode)
    return form(op, args, producers) if form is not None else None


def over_vocabulary(t: Type) -> bool:
    """Whether a type has a vocabulary axis."""
    return any(d.kind == "vocab" for d in numeric(t).dims)


def _map(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    fn, types = str(op.attrs["fn"]), [v.type for v in op.operands]
    dims = [numeric(t).dims for t in types]
    if all(not d for d in dims):
        if all(t.elem in ("token", "draw", "int", "position", "node") for t in types) and fn in ("eq", "ne"):
            tokens = [v.type.elem in ("token", "draw") for v in op.operands]
            return f"{atom(args[0])} {INFIX[fn]} {atom(args[1])}" if any(tokens) or _numbers(types) else None
        return _of_numbers(op, fn, args, producers) if _numbers(types) else None
    given = [of_a_model(v, producers) for v in op.operands]
    if len({tuple(d) for d in dims}) == 1 and (all(given) or any(given) and any(t.elem == "dist" for t in types)):
        if fn in ("add", "sub", "mul", "div"):
            return f"{atom(args[0])} {INFIX[fn]} {atom(args[1])}"
        return f"torch.relu({args[0]})" if fn == "relu" else None
    arrays = [v for v in op.operands if v.type.dims]
    if len({v.type.dims for v in arrays}) == 1 and all(on_host(v, producers) for v in arrays) and fn in HOST:
        return HOST[fn].format(*map(atom, args)) if all(v.type.dims or v.type.elem in SCALARS for v in op.operands) else None
    return None


def of_a_model(v: Value, producers: Producers) -> bool:
    """Whether numbers over the vocabulary come from a distribution: rows.py's operators and torch's functions take them."""
    made = producers.get(v)
    sums = made is not None and made.opcode == "map" and made.attrs["fn"] in ("add", "sub", "mul", "div", "relu")
    return v.type.elem == "dist" or made is not None and sums and any(of_a_model(x, producers) for x in made.operands)


def on_host(v: Value, producers: Producers) -> bool:
    """Whether a vector is a NumPy array: numbers, conditions or nodes produced by an op of ARRAYS."""
    made = producers.get(v)
    if made is None or v.type.elem not in SCALARS or any(d.kind == "vocab" for d in v.type.dims):
        return False
    if made.opcode in ("map", "gather"):
        return all(on_host(x, producers) for x in made.operands[: 1 if made.opcode == "gather" else None] if x.type.dims)
    return made.opcode in ARRAYS


def _numbers(types: Sequence[Type]) -> bool:
    return all(t.elem in SCALARS for t in types)


def is_number(text: str) -> bool:
    """Whether an expression is a number written out."""
    return text.lstrip("-")[:1].isdigit() and whole(text.lstrip("-"))


def _of_numbers(op: Op, fn: str, args: Sequence[str], producers: Producers) -> str | None:
    if fn == "not":
        return negated(args[0])
    if fn == "div":  # dividing a Python float by zero raises, NumPy returns inf
        read = [producers.get(v) for v in op.operands]
        if not any(o is not None and o.opcode == "lookup" and o.operands[0].type.elem == "dist" for o in read):
            return None
    if fn in ("minimum", "maximum"):  # Python's functions return a NaN only where it is the first argument
        first, second = (is_number(a) or v.type.elem in ("int", "position") for a, v in zip(args, op.operands, strict=True))
        if not second:
            if not first:
                return None
            args = args[::-1]
    if fn in INFIX:
        return f"{atom(args[0])} {INFIX[fn]} {atom(args[1])}"
    return NUMBERS[fn].format(*(args if "(" in NUMBERS[fn] else map(atom, args))) if fn in NUMBERS else None


def _lookup(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    p, x = (v.type for v in op.operands)
    if p.elem != "dist" or x.elem not in ("draw", "token"):
        return None
    if not p.dims and not x.dims or len(p.dims) == len(x.dims) and x.elem == "draw":
        return f"{atom(args[0])}[{args[1]}]"
    return f"probability({args[0]}, {args[1]})" if len(p.dims) == len(x.dims) else None


def _gather(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    if len(op.operands) != 2 or op.attrs.get("axis"):
        return None
    v, i = (x.type for x in op.operands)
    if v.elem in ("list", "topology") and not v.dims and i.elem == "int" and not i.dims:
        return f"{atom(args[0])}[{args[1]}]"
    if v.elem in ("dist", "draw") and i.elem in ("node", "position") and len(v.dims) == 1:
        return f"{atom(args[0])}[{args[1]}]"
    cells = len(v.dims) > 0 and (v.dims[0].kind, v.dims[0].of) == ("cells", i.of[0] if i.of else "")
    if cells and on_host(op.operands[0], producers) and every(op.operands[1], producers):
        return args[0]
    if on_host(op.operands[0], producers) and len(v.dims) == 1 and len(i.dims) == 1:
        return f"{atom(args[0])}[{args[1]}]"
    return None


ARRAYS = ("canvas.get", "tree.get", "tree.nodes", "tree.down", "tree.up", "lookup", "first_max", "rank", "info", "pairs.top")
"""Ops whose results on the host are NumPy arrays."""


def every(v: Value, producers: Producers) -> bool:
    """Whether a value is all positions of a canvas, in order."""
    made = producers.get(v)
    return made is not None and made.opcode == "canvas.get" and made.attrs["field"] == "all"


def _draw_get(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    return f"law(m, {args[0]})" if op.attrs["field"] == "law" else None


def _tree_nodes(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    t, which = atom(args[0]), op.attrs["which"]
    if which == "root":
        return "0"
    forms = {"all": f"{t}.nodes", "drafted": f"{t}.drafted", "leaves": f"{t}.leaves()", "new": f"{t}.new"}
    return {**forms, "frontier": f"{t}.frontier"}.get(which) if len(args) == 1 else None


def _tree_get(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    t = atom(args[0])
    columns = {"parent": f"{t}.parent", "depth": f"{t}.depth", "logprob": f"{t}.logprobs()", "token": f"{t}.tokens()"}
    return columns.get(op.attrs["column"])


def _canvas_get(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    c = atom(args[0])
    fields = {
        "masked": f"{c}.masked()",
        "decided": f"~{c}.masked()",
        "length": f"len({args[0]})",
        "all": f"np.arange(len({args[0]}))",
    }
    return fields.get(op.attrs["field"])


def _reduce(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    names = {"any": "np.any", "all": "np.all", "count": "np.count_nonzero"}
    t = op.operands[0].type
    if op.attrs["fn"] in names and t.elem == "bool" and len(t.dims) == 1 and not over_vocabulary(t):
        return f"{names[op.attrs['fn']]}({args[0]})"
    return None


def _compact(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    v, c = (x.type for x in op.operands)
    whole = bool(c.dims) and c.dims[0].kind in ("nodes", "cells")
    if v.elem in ("node", "position") and len(v.dims) == 1 and len(c.dims) == 1:
        if not whole or every(op.operands[0], producers):
            return f"{atom(args[0])}[{args[1]}]"
        return f"{atom(args[0])}[{atom(args[1])}[{args[0]}]]" if args[0].isidentifier() else None
    return None


def _face(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    return f"{atom(args[0])}.{op.attrs['face']}"


def _level_get(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    field = f"{atom(args[0])}.{op.attrs['field']}"
    return f"np.array({field}, dtype=np.int64)" if op.result.type.dims else field


def _len(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    return f"len({args[0]})"


def _as_int(op: Op, args: Sequence[str], producers: Producers) -> str | None:
    t = op.operands[0].type
    return f"int({args[0]})" if not t.dims and t.elem in ("position", "node", "int") else None


FORMS: dict[str, Form] = {
    "as_int": _as_int,
    "canvas.get": _canvas_get,
    "compact": _compact,
    "draw.get": _draw_get,
    "face": _face,
    "gather": _gather,
    "len": _len,
    "level.get": _level_get,
    "lookup": _lookup,
    "map": _map,
    "reduce": _reduce,
    "tree.get": _tree_get,
    "tree.nodes": _tree_nodes,
}
