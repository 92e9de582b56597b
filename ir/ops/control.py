"""Control: loops, branches, lanes and sub-runs. Counters are region arguments, so that noise keys name them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from decgraph.ir import facts, labels, sizes
from decgraph.ir.data.tree import Tree
from decgraph.ir.labels import Abs, Checker
from decgraph.ir.machine import Datum, Listed, Machine
from decgraph.ir.opdef import Attrs, OpError, Regions, Sample, Types, op
from decgraph.ir.ops.common import array, as_int, need, stack
from decgraph.ir.ops.limits import NODES
from decgraph.ir.places import loop_tree
from decgraph.ir.sizes import Known, Nodes, Size, Sizes, add
from decgraph.ir.types import BOOL, INT, LEVEL, Dim, Type, join, listing
from decgraph.ir.values import Op, Region, Value
from decgraph.ir.walk import free_values


def _carried(types: Types, region: Region, stops: bool, what: str) -> Types:
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


def _full(m: Machine, op: Op, vals: tuple[Datum, ...]) -> bool:
    """Whether an iteration of a drafting loop would only call a model where no draft fits."""
    if "fills" not in op.attrs:
        return False
    n = loop_tree(op)
    tree = vals[n] if n >= 0 else None
    return isinstance(tree, Tree) and bool(m.full(tree, op.attrs["fills"].rpartition(".")[2]))


FOLLOWED = 40
"""Iterations that are followed one by one; a tree that still grows faster then has no bound."""


def _growth(a: Known, b: Known) -> int | None:
    """By how much a tree grew, if all else is as it was; 0 for what did not change, None for any other change."""
    if a == b:
        return 0
    if (
        isinstance(a, Nodes)
        and isinstance(b, Nodes)
        and a.size is not None
        and b.size is not None
        and (replace(a, size=0, leaves=0) == replace(b, size=0, leaves=0))
    ):
        return b.size - a.size
    return None


def _sizes_of_loop(s: Sizes, op: Op, iterations: Size, carried: Sequence[Value]) -> list[Known]:
    """Iterations one by one until what an iteration adds is always the same; the rest by multiplication."""
    now: list[Known] = [s.known.get(v) for v in carried]
    body, last = op.regions[-1], None
    skip = len(body.yields) - len(carried)
    index: Known = None if iterations is None or op.opcode != "for" else max(iterations - 1, 0)
    for iteration in range(FOLLOWED if iterations is None else min(iterations, FOLLOWED)):
        if len(op.regions) == 2:
            s.region(op.regions[0], [index, *now])
        before = dict(s.peaks)
        after = s.region(body, [index, *now])[skip:]
        if after == now:
            return now
        shape = [_growth(a, b) for a, b in zip(now, after, strict=True)]
        if iterations is not None and shape == last and None not in shape:
            rest = iterations - iteration - 1
            for made, peak in s.peaks.items():
                old = before.get(made)
                if peak is not None and old is not None and peak + rest * (peak - old) > NODES:
                    s.too_large.append(op)
                s.peaks[made] = None if peak is None or old is None else add(peak, rest * (peak - old))
            return [
                b if not isinstance(b, Nodes) else replace(b, size=add(b.size, rest * grown))
                for b, grown in zip(after, (n or 0 for n in shape), strict=True)
            ]
        last, now = shape, [sizes.join(a, b) if iterations is None else b for a, b in zip(now, after, strict=True)]
    if iterations is not None and iterations <= FOLLOWED:
        return now
    lost = [a if a == b else None for a, b in zip(now, s.region(body, [index, *now])[skip:], strict=True)]
    for a, b in zip(now, lost, strict=True):
        if isinstance(a, Nodes) and b is None:
            s.peaks.update(dict.fromkeys(a.producers))
    s.region(body, [index, *lost])
    return lost


@op("for")
class For:
    """Run the body for i in lo..hi (hi excluded). Attributes: bound (static), stops (the body first yields "stop now"), lanes
    (the iterations are independent copies), fills (where iterations call a model before they grow a tree, such as "t.leaves":
    none is begun once nothing fits under those nodes). Operands lo, hi, then the carried values; region (i, *carried) ->
    ([stop], *carried)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(len(types) >= 2 and types[0].is_number and types[1].is_number, "for needs integer bounds")
        need(
            not types[0].dims and not types[1].dims,
            "for needs one number for each bound",
            "to go through a vector say: for x in xs",
        )
        return _carried(types[2:], regions[0], attrs.get("stops", False), "for")

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        return ((INT, *types[2:]),)

    @staticmethod
    def meaning(m: Machine, op: Op, lo: Datum, hi: Datum, *vals: Datum) -> tuple[Datum, ...]:
        vals = tuple(vals)
        for i in range(as_int(lo), as_int(hi)):
            if _full(m, op, vals):
                break
            m.for_iteration(op, i, vals)
            out = m.region(op.regions[0], (i, *vals))
            if op.attrs.get("stops"):
                vals = tuple(out[1:])
                if m.num.truth(out[0]):
                    break
            else:
                vals = tuple(out)
        return vals

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        ends = Abs(c.of(op.operands[0]).reads | c.of(op.operands[1]).reads)
        outer, c.control = c.control, c.control | ends.dep
        out = c.loop(op, list(op.operands[2:]), [Abs()], (0,))
        c.control = outer
        return out

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        return _sizes_of_loop(s, op, s.number(op.operands[1]), op.operands[2:])

    attrs = ("bound?", "stops?", "site?", "lanes?", "fills?")
    batch = "region"
    samples = (
        ('%z = for(%n, %i, %i, bound = 4) (%k: int, %a: int) {\n%s = map(%a, %k, fn = "add")\nyield %s\n}', 3),
        ("%z = for(%n, %i, %i, stops = true) (%k: int, %a: int) {\nyield %b, %k\n}", 1),
    )
    refusals = (
        ("bool, int", "integer bounds"),
        ("int[k], int", "for x in xs"),
    )


@op("while")
class While:
    """Run the body while the condition holds. Attribute bound: "done" (the loop of an algorithm), "cells" (it waits for
    cells to be decided), "progress" (something decreases), or a static bound as a second kind of end: operand 0 when
    attribute limited is set; fills as for `for`.
    Regions: cond (i, *carried) -> bool; body (i, *carried) -> ([stop], *carried)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        if attrs.get("limited"):
            need(bool(types) and types[0].is_number and not types[0].dims, "a bound must be a number")
            types = types[1:]
        need(
            len(regions[0].yields) == 1 and regions[0].yields[0].type.elem == "bool" and not regions[0].yields[0].type.dims,
            "a loop condition must be one bool",
            "say any(...) or all(...) of a vector",
        )
        return _carried(types, regions[1], attrs.get("stops", False), "while")

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        carried = types[1:] if attrs.get("limited") else types
        return ((INT, *carried), (INT, *carried))

    @staticmethod
    def meaning(m: Machine, op: Op, *vals: Datum) -> tuple[Datum, ...]:
        limit = None
        if op.attrs.get("limited"):
            limit, vals = as_int(vals[0]), vals[1:]
        vals, i = m.carried(op, tuple(vals)), 0
        while (limit is None or i < limit) and not _full(m, op, vals) and m.num.truth(m.region(op.regions[0], (i, *vals))[0]):
            m.while_iteration(op, i, vals)
            out = m.region(op.regions[1], (i, *vals))
            i += 1
            if op.attrs.get("stops"):
                vals = tuple(out[1:])
                if m.num.truth(out[0]):
                    break
            else:
                vals = tuple(out)
        return vals

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        carried = op.operands[1:] if op.attrs.get("limited") else op.operands
        return c.loop(op, list(carried), [Abs()], (0, 1))

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        if op.attrs.get("limited"):
            return _sizes_of_loop(s, op, s.number(op.operands[0]), op.operands[1:])
        return _sizes_of_loop(s, op, None, op.operands)

    attrs = ("bound?", "stops?", "limited?", "site?", "fills?")
    batch = "region"
    samples = (
        (
            (
                '%z = while(%i, bound = "progress") (%k: int, %a: int) {\n%go = map(%k, %n, fn = "le")\nyield %go\n} '
                '(%k: int, %a: int) {\n%s = map(%a, %a, fn = "add")\nyield %s\n}'
            ),
            8,
        ),
        ("%z = while(%n, %i, limited = true) (%k: int, %a: int) {\nyield %b\n} (%k: int, %a: int) {\nyield %k\n}", 0),
    )
    refusals = ()


@op("break")
class Break:
    """This way through the body of the innermost loop ends it, with these values of what the loop carries. It stands at the end
    of a branch. The loop's body yields the same values on this way, and that it stops, and computes nothing more: what writes
    control flow leaves here, and what follows values from op to op passes over this one."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return ()

    @staticmethod
    def meaning(m: Machine, op: Op, *carried: Datum) -> tuple[Datum, ...]:
        return ()

    label, batch = labels.nothing, "region"
    samples = (
        (
            (
                "%z = for(%n, %i, %i, stops = true) (%k: int, %a: int) {\n%s = if(%b) {\nbreak(%k)\nyield %k\n} "
                "{\nyield %a\n}\nyield %b, %s\n}"
            ),
            1,
        ),
    )
    refusals = ()


@op("verdict")
class Verdict:
    """This way through a verification rule ends it, as `break` ends a loop, with what the rule yields: (accepts, child or node,
    emits, token)."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(len(types) == 4, "a verdict is (accepts, what, emits, token)")
        return ()

    @staticmethod
    def meaning(m: Machine, op: Op, *verdict: Datum) -> tuple[Datum, ...]:
        return ()

    label, batch = labels.nothing, "region"
    samples = (
        (
            (
                '%z = tree.walk(%t, %at_t, scope = "node") (%d: int, %p: dist<V,shaped>, %xs: draw<V>[k]) {\n'
                "%o = const(value = 0, type = !int)\n%first = gather(%xs, %o)\n%x = if(%b) {\n"
                "verdict(%b, %first, %b, %first)\nyield %first\n} {\nyield %first\n}\nyield %b, %x, %b, %x\n}"
            ),
            [0],
        ),
    )
    refusals = (("int", "verdict"),)


@op("if")
class If:
    """One of two regions, by a bool. Attribute draft says that the first region drafts the tree of that name: its condition is
    `unfailing`, and where an error ends the region the tree stays as it was grown until then."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
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
                raise OpError(f"a value is {x} in one branch and {y} in the other", "give both branches the same type")
            out.append(j)
        return tuple(out)

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        return ((), ())

    @staticmethod
    def meaning(m: Machine, op: Op, cond: Datum) -> tuple[Datum, ...]:
        if "draft" in op.attrs:
            return (m.draft_block(op),)
        return tuple(m.region(op.regions[0 if m.decide(op, cond) else 1], ()))

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        cond = c.of(op.operands[0]).reads
        outer, c.control = c.control, c.control | cond
        both = [c.region(r, []) for r in op.regions]
        c.control = outer
        commits = [[o for o in r.walk() if o.opcode == "commit"] for r in op.regions]
        if [o.operands[0] for o in commits[0]] != [o.operands[0] for o in commits[1]]:
            for o in (*commits[0], *commits[1]):
                c.chosen(o, o.operands[0], op, cond)
        out = []
        for x, y, a, b in zip(*both, op.regions[0].yields, op.regions[1].yields, strict=True):
            j = x if a is b else labels.join(x, y)
            out.append(j if a is b else replace(j, dep=j.dep | cond, column=False))
        return out

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        a, b = (s.region(r, []) for r in op.regions)
        return [sizes.join(x, y) for x, y in zip(a, b, strict=True)]

    attrs = ("reads?", "draft?")
    batch = "region"
    samples = (("%z = if(%b) {\nyield %i\n} {\nyield %r\n}", 2),)
    refusals = ()


@op("unfailing")
class Unfailing:
    """That drafting goes on: true, until an error ends the draft. The condition of an `if` with attribute draft; attribute site
    keeps two of them apart."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (BOOL,)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        return (True,)

    attrs = ("site",)
    label, batch = labels.nothing, "scalar"
    samples = (('%z = unfailing(site = "f.1")', True),)
    refusals = ()


@op("each")
class Each:
    """A value for every element of a vector, list or topology: region (i, element) -> value, and optionally a bool to keep
    it (attribute filtered). A vector where the values stack, else (vectors whose lengths may differ, trees, paths) a list."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        t, v = types[0], regions[0].yields[0].type
        need(bool(t.dims) or t.elem in ("list", "topology"), f"for ... in needs a vector or list, got {t}")
        stacks = v.elem not in ("tree", "canvas", "path", "list", "memory", "none") and not any(
            d.kind in ("part", "k") for d in v.dims
        )
        d = t.dims[0] if t.dims and not attrs.get("filtered") else Dim("k", "", t.dims[0].bound if t.dims else None)
        return (v.over(d) if stacks else listing(v),)

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        t = types[0]
        return ((INT, LEVEL if t.elem == "topology" else t.item if t.elem == "list" else t.drop()),)

    @staticmethod
    def meaning(m: Machine, op: Op, xs: Listed) -> tuple[Datum, ...]:
        from decgraph.ir.ops.common import element, length

        out = []
        for i in range(length(xs)):
            r = m.region(op.regions[0], (i, element(xs, i)))
            if not op.attrs.get("filtered") or m.num.truth(r[1]):
                out.append(r[0])
        if not out and op.results[0].type.elem == "bool":
            return (array(m, out).astype(bool),)
        return (out if op.results[0].type.elem == "list" else stack(m, out),)

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        xs = c.of(op.operands[0])
        item = Abs(xs.reads) if xs.column else replace(xs, tree=None)
        out = [c.aged(a, op) for a in c.region(op.regions[0], [Abs(), item])]
        dep = out[0].dep | xs.dep | (out[1].reads if len(out) > 1 else labels.NO)
        return [Abs(dep, out[0].draws, canvas=out[0].canvas)]

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        s.region(op.regions[0], [None, None])
        xs = s.lengths(op.operands[0])
        return [(xs[0] if xs else None, *s.lengths(op.result)[1:]) if op.result.type.dims else None]

    attrs = ("filtered?",)
    batch = "region"
    looks = "all"
    samples = (
        ('%z = each(%xs) (%k: int, %v: int) {\n%s = map(%v, %k, fn = "add")\nyield %s\n}', [3, 2, 4]),
        ("%z = each(%bs, filtered = true) (%k: int, %v: bool) {\nyield %k, %v\n}", [0, 1]),
        ('%z = each(%shape) (%k: int, %v: level) {\n%p = level.get(%v, field = "parent")\n%l = len(%p)\nyield %l\n}', [2, 1]),
    )
    refusals = ()


@op("run")
class Run:
    """Run another algorithm from a context, on a scratch copy, until a condition on the path holds, at most so many tokens.
    Attributes callee, args (the callee's parameter names), has_tree, site. Operands start, bound, the arguments, [the tree of
    the start node], then the counters of the enclosing loops. Region: until (path) -> bool."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(
            types[0].elem == "node" and not types[0].dims,
            f"run ... from needs the context or one node, got {types[0]}",
            "run A(...) from ctx; of several nodes index one: t.leaves[0]",
        )
        until = regions[0].yields[0].type
        need(
            until.elem == "bool" and not until.dims,
            f"run ... until needs one condition, got {until}",
            'until done, until completes("text")',
        )
        need(types[1].is_number and not types[1].dims, "run ... at most needs a number")
        return (Type("path", (attrs.get("vocab", "V"),)),)

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        return ((Type("path", (attrs.get("vocab", "V"),)),),)

    @staticmethod
    def meaning(m: Machine, op: Op, start: Datum, bound: Datum, *rest: Datum) -> tuple[Datum, ...]:
        n = len(op.attrs["args"])
        tree = rest[n] if op.attrs["has_tree"] else None
        counters = rest[n + 1 if op.attrs["has_tree"] else n :]
        return (m.sub_run(op, start, as_int(bound), dict(zip(op.attrs["args"], rest)), tree, counters),)

    @staticmethod
    def fact(k: facts.Known, op: Op) -> facts.Fact | None:
        return k.run_of(op)

    attrs = ("callee", "args", "has_tree", "site", "vocab?")
    label, batch = labels.joined, "ragged"
    samples = (
        ('%z = run(%ctx, %i, callee = "f", args = (), has_tree = false, site = "f.1") (%p: path<V>) {\nyield %b\n}', [0, 1]),
    )
    refusals = ()


@op("const")
class Const:
    """A constant: attribute value (int, exact fraction, bool, text, none, or a list of these), attribute type."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        return (attrs["type"],)

    @staticmethod
    def meaning(m: Machine, op: Op) -> tuple[Datum, ...]:
        v = op.attrs["value"]
        if v == "inf":
            return (m.num.inf,)
        if v == "-inf":
            return (-m.num.inf,)
        return ([] if isinstance(v, (list, tuple)) and not v else m.num.const(v),)

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        v = op.attrs["value"]
        return [v if isinstance(v, int) and not isinstance(v, bool) else None]

    attrs = ("value", "type")
    label, batch = labels.joined, "scalar"
    samples: tuple[Sample, ...] = (
        ("%z = const(value = 7, type = !int)", 7),
        ("%z = const(value = 1/4, type = !prob)", 0.25),
        ("%z = const(value = [], type = !list<any,-1>)", []),
    )
    refusals = ()


KINDS = ("vocabulary", "device")


@op("segment")
class Segment:
    """Run the region: what is outlined means what it meant in place. Attributes kind: "vocabulary" (ops on rows of
    distributions, one kernel) or "device" (what lies between two waits for the host, one graph); name. The operands are the
    values that the region uses and does not define, in order of first use; the region takes no arguments, its yields are the
    results."""

    @staticmethod
    def type(types: Types, attrs: Attrs, regions: Regions) -> Types:
        need(attrs["kind"] in KINDS, f"a segment is of kind {' or '.join(KINDS)}, not {attrs['kind']}")
        free = tuple(v.type for v in free_values(regions[0])) if regions else types
        need(
            free == tuple(types),
            f"a segment's operands are what its region uses: {', '.join(map(str, free))}",
            "list every free value of the region once, in order of first use",
        )
        return tuple(v.type for v in regions[0].yields) if regions else ()

    @staticmethod
    def regions(types: Types, attrs: Attrs) -> tuple[Types, ...]:
        return ((),)

    @staticmethod
    def meaning(m: Machine, op: Op, *values: Datum) -> tuple[Datum, ...]:
        return tuple(m.region(op.regions[0], ()))

    @staticmethod
    def label(c: Checker, op: Op) -> list[Abs]:
        return c.region(op.regions[0], [])

    @staticmethod
    def capacity(s: Sizes, op: Op) -> list[Known]:
        return s.region(op.regions[0], [])

    attrs = ("kind", "name")
    batch = "region"
    samples = (('%z = segment(%i, %n, kind = "device", name = "s") {\n%s = map(%i, %n, fn = "add")\nyield %s\n}', 3),)
    refusals = (("", "vocabulary", {"kind": "loud", "name": "s"}),)
