"""Control: loops, branches, lanes and sub-runs. Counters are region arguments, so that noise keys name them."""

from __future__ import annotations

from typing import Any

from decgraph.ir.ops.common import as_int, need, stack
from decgraph.ir.places import loop_tree
from decgraph.ir.table import OpError, op
from decgraph.ir.types import INT, LEVEL, Dim, Type, join, listing


def _carried(types: tuple[Type, ...], region: Any, stops: bool, what: str) -> tuple[Type, ...]:
    yields = [v.type for v in region.yields]
    if stops:
        need(bool(yields) and yields[0].elem == "bool", f"the body of {what} must first yield whether to stop")
        yields = yields[1:]
    need(len(yields) == len(types), f"the body of {what} yields {len(yields)} values for {len(types)} carried")
    out = []
    for a, b in zip(types, yields):
        j = join(a, b)
        if j is None:
            raise OpError(
                f"a variable is {a} before {what} and {b} after its body",
                "give it one type: start it with a value like the ones assigned in the loop",
            )
        out.append(j)
    return tuple(out)


def _full(m: Any, op: Any, vals: tuple[Any, ...]) -> bool:
    """Whether a turn of a loop that drafts would only ask where nothing fits."""
    if "fills" not in op.attrs:
        return False
    n = loop_tree(op)
    return n >= 0 and bool(m.full(vals[n], op.attrs["fills"].rpartition(".")[2]))


@op("for")
class For:
    """Run the body for i in lo..hi (hi excluded). Attributes: bound (static), stops (the body first yields "stop now"), lanes
    (the turns are independent copies), fills (where turns ask a model before they grow a tree, such as "t.leaves": none is
    begun once nothing fits under those nodes). Operands lo, hi, then the carried values; region (i, *carried) -> ([stop],
    *carried)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(len(types) >= 2 and types[0].is_number and types[1].is_number, "for needs integer bounds")
        need(
            not types[0].dims and not types[1].dims,
            "for needs one number for each bound",
            "to go through a vector say: for x in xs",
        )
        return _carried(types[2:], regions[0], attrs.get("stops", False), "for")

    def regions(types: Any, attrs: Any) -> Any:
        return ((INT, *types[2:]),)

    def meaning(m: Any, op: Any, lo: Any, hi: Any, *vals: Any) -> Any:
        vals = tuple(vals)
        for i in range(as_int(lo), as_int(hi)):
            if _full(m, op, vals):
                break
            out = m.region(op.regions[0], (i, *vals))
            if op.attrs.get("stops"):
                vals = tuple(out[1:])
                if m.num.truth(out[0]):
                    break
            else:
                vals = tuple(out)
        return vals

    attrs = ("bound?", "stops?", "site?", "lanes?", "fills?")
    label, batch = "region", "region"


@op("while")
class While:
    """Run the body while the condition holds. Attribute bound: "done" (the loop of an algorithm), "cells" (it waits for
    cells to be decided), "progress" (something decreases), or a static bound as a second kind of end: operand 0 when
    attribute limited is set; fills as for `for`.
    Regions: cond (i, *carried) -> bool; body (i, *carried) -> ([stop], *carried)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        if attrs.get("limited"):
            need(bool(types) and types[0].is_number and not types[0].dims, "a bound must be a number")
            types = types[1:]
        need(
            len(regions[0].yields) == 1 and regions[0].yields[0].type.elem == "bool" and not regions[0].yields[0].type.dims,
            "a loop condition must be one bool",
            "say any(...) or all(...) of a vector",
        )
        return _carried(types, regions[1], attrs.get("stops", False), "while")

    def regions(types: Any, attrs: Any) -> Any:
        carried = types[1:] if attrs.get("limited") else types
        return ((INT, *carried), (INT, *carried))

    def meaning(m: Any, op: Any, *vals: Any) -> Any:
        limit = None
        if op.attrs.get("limited"):
            limit, vals = as_int(vals[0]), vals[1:]
        vals, i = m.carried(op, tuple(vals)), 0
        while (limit is None or i < limit) and not _full(m, op, vals) and m.num.truth(m.region(op.regions[0], (i, *vals))[0]):
            m.turn(op, i, vals)
            out = m.region(op.regions[1], (i, *vals))
            i += 1
            if op.attrs.get("stops"):
                vals = tuple(out[1:])
                if m.num.truth(out[0]):
                    break
            else:
                vals = tuple(out)
        return vals

    attrs = ("bound?", "stops?", "limited?", "site?", "fills?")
    label, batch = "region", "region"


@op("if")
class If:
    """One of two regions, by a bool. Attribute reads names what the condition looks at (the checker's adversary)."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(
            types[0].elem == "bool" and not types[0].dims,
            f"a condition must be one bool, got {types[0]}",
            "say any(...) or all(...) of a vector",
        )
        a, b = ([v.type for v in r.yields] for r in regions)
        need(len(a) == len(b), "the branches yield different numbers of values")
        out = []
        for x, y in zip(a, b):
            j = join(x, y)
            if j is None:
                raise OpError(f"a variable is {x} in one branch and {y} in the other")
            out.append(j)
        return tuple(out)

    def regions(types: Any, attrs: Any) -> Any:
        return ((), ())

    def meaning(m: Any, op: Any, cond: Any) -> Any:
        return tuple(m.region(op.regions[0 if m.decide(op, cond) else 1], ()))

    attrs = ("reads?",)
    label, batch = "region", "region"


@op("each")
class Each:
    """A value for every element of a vector, list or topology: region (i, element) -> value, and optionally a bool to keep
    it (attribute filtered). A vector where the values stack, else (vectors whose lengths may differ, trees, paths) a list."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        t, v = types[0], regions[0].yields[0].type
        need(bool(t.dims) or t.elem in ("list", "topology"), f"for ... in needs a vector or list, got {t}")
        stacks = v.elem not in ("tree", "canvas", "path", "list", "memory", "none") and not any(
            d.kind in ("part", "k") for d in v.dims
        )
        d = t.dims[0] if t.dims and not attrs.get("filtered") else Dim("k", "", t.dims[0].bound if t.dims else None)
        return (v.over(d) if stacks else listing(v),)

    def regions(types: Any, attrs: Any) -> Any:
        t = types[0]
        return ((INT, LEVEL if t.elem == "topology" else t.of[0] if t.elem == "list" else t.drop()),)

    def meaning(m: Any, op: Any, xs: Any) -> Any:
        from decgraph.ir.ops.common import element, length

        out = []
        for i in range(length(xs)):
            r = m.region(op.regions[0], (i, element(xs, i)))
            if not op.attrs.get("filtered") or m.num.truth(r[1]):
                out.append(r[0])
        return (out if op.results[0].type.elem == "list" else stack(m, out),)

    attrs = ("filtered?",)
    label, batch = "region", "region"


@op("run")
class Run:
    """Run another algorithm from a context, on a scratch copy, until a condition on the path holds, at most so many tokens.
    Attributes callee, args (the callee's parameter names), has_tree, site. Operands start, bound, the arguments, [the tree of
    the start node], then the counters of the enclosing loops. Region: until (path) -> bool."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        need(types[0].elem == "node", "run ... from needs a node or ctx")
        need(types[1].is_number and not types[1].dims, "run ... at most needs a number")
        return (Type("path", (attrs.get("vocab", "V"),)),)

    def regions(types: Any, attrs: Any) -> Any:
        return ((Type("path", (attrs.get("vocab", "V"),)),),)

    def meaning(m: Any, op: Any, start: Any, bound: Any, *rest: Any) -> Any:
        n = len(op.attrs["args"])
        tree = rest[n] if op.attrs["has_tree"] else None
        counters = rest[n + 1 if op.attrs["has_tree"] else n :]
        return (m.sub_run(op, start, as_int(bound), dict(zip(op.attrs["args"], rest)), tree, counters),)

    attrs = ("callee", "args", "has_tree", "site", "vocab?")
    label, batch = "all", "ragged"


@op("const")
class Const:
    """A constant: attribute value (int, exact fraction, bool, text, none, or a list of these), attribute type."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        return (attrs["type"],)

    def meaning(m: Any, op: Any) -> Any:
        v = op.attrs["value"]
        if v == "inf":
            return (m.num.inf,)
        if v == "-inf":
            return (-m.num.inf,)
        return ([] if isinstance(v, (list, tuple)) and not v else m.num.const(v),)

    attrs = ("value", "type")
    label, batch = "none", "scalar"
