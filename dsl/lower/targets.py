"""What stands on the left: names, columns, cells, tables; and what grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from decgraph.dsl import syntax as S
from decgraph.dsl.expressions import children
from decgraph.dsl.lower.expr import arithmetic
from decgraph.dsl.lower.state import FLOAT_IN_INT, Lowering, show, unfit
from decgraph.dsl.source import Span
from decgraph.ir.types import ANY, Type, join, listing
from decgraph.ir.values import Value


def set_name(lw: Lowering, name: str, v: Value) -> None:
    """Binds a name to a value."""
    lw.env[name] = v if v.name else replace_name(v, name)
    lw.gone.pop(name, None)


def replace_name(v: Value, name: str) -> Value:
    """The value, called so in the IR."""
    object.__setattr__(v, "name", name)  # a value gets its source name once, when it is first bound
    return v


def names_of(targets: Sequence[S.Expr]) -> list[str]:
    """The names of targets, empty where one is no name."""
    return [t.name if isinstance(t, S.Name) else "" for t in targets]


AUG = {"+=": "+", "-=": "-", "++=": "++"}


def assign_to(lw: Lowering, target: S.Expr, value: Value, op: str) -> None:
    """`target op value`."""
    if op != "=" and not isinstance(target, S.Index):
        old = lw.expr(target)
        value = _combined(lw, old, value, op, target)
    if isinstance(target, S.Name):
        n = target.name
        if n in ("ctx", "done", "root", "vocab"):
            lw.fail(target.span, f"`{n}` cannot be assigned", code="E300")
        if n in lw.states:
            write_state(lw, n, value, target)
        else:
            set_name(lw, n, value)
        return
    if isinstance(target, S.Attr):
        set_attr(lw, target, value)
        return
    if isinstance(target, S.Index):
        set_index(lw, target, value, op)
        return
    lw.fail(target.span, "this cannot be assigned", code="E300")


def _combined(lw: Lowering, old: Value, value: Value, op: str, at: S.Expr) -> Value:
    if op == "++=":
        return lw.one("concat", old, value, span=at.span)
    if old.type.elem == "position" and value.type.elem == "position":
        return lw.one("positions", old, value, span=at.span, kind="union" if op == "+=" else "minus")
    return arithmetic(lw, AUG[op], old, value, at.span)


def write_state(lw: Lowering, n: str, value: Value, target: S.Expr) -> None:
    """Writes a state, checked against its type and room."""
    info = lw.states[n]
    value = lw.token(value) if info.type.is_token else value
    j = join(info.type, value.type)
    if j is None or unfit(info.type, value.type):
        help = FLOAT_IN_INT if j is not None else ""
        lw.fail(target.span, f"state `{n}` is {show(info.type)}, not {show(value.type)}", help, code="E220")
    if j != info.type and info.type.elem in ("list", "any", "none"):
        info.type = j
    made = lw.b.last if lw.b.has_ops else None
    if not (made is not None and made.opcode == "scatter" and value in made.results):  # as long as it was
        value = roomy(lw, n, info.type, info.room, value, target.span)
    lw.emit("state.write", value, span=target.span, state=n, type=info.type)


def roomy(lw: Lowering, name: str, declared: Type, room: tuple[Value, ...], value: Value, span: Span) -> Value:
    """A value that fits into a state's capacity: checked while the program runs, where it is not known to fit."""
    if not room or not (value.type.dims or value.type.elem == "list") or value.type == listing(ANY):
        return value
    if declared.elem != "list":
        sizes = [d.bound for d in value.type.dims]
        most = [lw.constants.get(r) for r in room]
        if len(sizes) <= len(room) and all(
            n is not None and m is not None and n <= m for n, m in zip(sizes, most, strict=False)
        ):
            return value
    return lw.one("within", value, *room, span=span, what=f"state `{name}`")


def set_attr(lw: Lowering, target: S.Attr, value: Value) -> None:
    """`t.frontier = nodes`, `t.column = values`."""
    owner = lw.expr(target.value)
    if owner.type.elem == "tree" and isinstance(target.value, S.Name):
        name = target.value.name
        if target.name == "frontier":
            lw.env[name] = lw.one("tree.front", owner, value, span=target.span, name=name)
            return
        nodes = lw.one("tree.nodes", owner, span=target.span, which="all")
        set_column(lw, name, owner, nodes, target.name, value, target)
        return
    lw.fail(target.span, f"{show(owner.type)} has nothing called `{target.name}` to set", code="E240")


def set_column(lw: Lowering, name: str, tree: Value, nodes: Value, column: str, value: Value, at: S.Expr) -> None:
    """Writes a column of a tree at nodes."""
    t = str(tree.type.of[0])
    if column in OF_TREES - {"frontier"}:
        lw.fail(at.span, f"every tree has a `{column}` of its own, which cannot be set", "take another name", code="E240")
    elem = value.type
    if elem.is_number and elem.dims and elem.dims[-1].kind == "vocab":
        hint = "a distribution can be stored: normalize(weights)"
        lw.fail(at.span, f"column `{column}` cannot hold {show(elem)}", hint, code="E220")
    if elem.dims and nodes.type.dims:
        elem = elem.drop()
    if elem.elem == "draw":
        elem = Type("token", elem.of, elem.dims)
    have = lw.columns.get((t, column))
    j = elem if have is None else join(have, elem)
    if j is None:
        lw.fail(at.span, f"column `{column}` holds {show(have)}, not {show(elem)}", code="E220")  # type: ignore[arg-type]
    lw.columns[(t, column)] = j
    lw.env[name] = lw.one("tree.set", tree, nodes, value, span=at.span, column=column, name=name)


def set_index(lw: Lowering, target: S.Index, value: Value, op: str) -> None:
    """`value[subs] op x`: a column, cells of a canvas, an index, a layer, or entries of a vector."""
    inner = target.value
    if isinstance(inner, S.Attr):
        owner = lw.expr(inner.value)
        if owner.type.elem == "tree" and isinstance(inner.value, S.Name):
            nodes = lw.expr(target.subs[0])
            if inner.name == "frontier":
                lw.fail(target.span, "the frontier is set whole", "t.frontier = nodes", code="E300")
            if op != "=":
                value = _combined(lw, lw.expr(target), value, op, target)
            set_column(lw, inner.value.name, owner, nodes, inner.name, value, target)
            return
        if owner.type.elem == "canvas" and inner.name == "soft" and isinstance(inner.value, S.Name):
            put(lw, inner.value.name, owner, target.subs[0], value, "soft", target)
            return
        lw.fail(target.span, f"{show(owner.type)} has nothing called `{inner.name}` to set", code="E240")
    if not isinstance(inner, S.Name):
        lw.fail(target.span, "this cannot be assigned", "give the inner value a name first", code="E300")
    n = inner.name
    if n in lw.lane_names and isinstance(target.subs[0], S.Name) and target.subs[0].name == lw.lane_var:
        loose: dict[str, Any] = {}
        if value.type.dims or value.type.elem in ("tree", "canvas", "path", "list", "memory", "none"):
            loose["ragged"] = True
        item = lw.emit("list", value, span=target.span, **loose)[0]
        lw.env[n] = lw.one("concat", lw.env[n], item, span=target.span, name=n)
        return
    if n not in lw.env and n not in lw.states:
        lw.fail(inner.span, f"`{n}` has no value here to set a part of", f"start it first: {n} = zeros(size)", code="E300")
    owner = lw.expr(inner)
    if owner.type.elem == "canvas":
        if op != "=":
            lw.fail(target.span, "cells are decided with =", code="E300")
        last = lw.b.last if lw.b.has_ops else None  # nothing was made in this branch
        if last is not None and last.opcode == "request" and last.attrs.get("field") == "mask" and value in last.results:
            lw.fail(
                target.span, "cells are not decided with the mask", f"mask them again: remask {n}[ps] where yes", code="E300"
            )
        put(lw, n, owner, target.subs[0], value, "token", target)
        return
    if owner.type.elem == "index":
        keys = [lw.expr(s) for s in target.subs]
        v = lw.one("index.learn", owner, *keys, value, span=target.span)
        _store(lw, n, v, target)
        return
    if owner.type.elem == "memory":
        if op != "=" or len(target.subs) != 1:
            lw.fail(target.span, "a layer is set with m[l] = ...", code="E300")
        lw.env[n] = lw.one("memory.put", owner, value, lw.expr(target.subs[0]), span=target.span, name=n)
        return
    if op != "=":
        if op == "-=":
            value = lw.one("map", value, span=target.span, fn="neg")
        mode = "sum"
    else:
        mode = "last"
    ix = [lw.expr(s) for s in target.subs]
    v = lw.one("scatter", owner, value, *ix, span=target.span, mode=mode, name=n)
    _store(lw, n, v, target)


def _store(lw: Lowering, n: str, v: Value, target: S.Expr) -> None:
    if n in lw.states:
        write_state(lw, n, v, target)
    else:
        lw.env[n] = v


def put(lw: Lowering, name: str, c: Value, sub: S.Expr, value: Value, kind: str, at: S.Node) -> None:
    """`c[ps] = x`, `c[ps where m] = x`."""
    if isinstance(sub, S.Where):
        ps, mask = lw.expr(sub.value), lw.expr(sub.cond)
        lw.env[name] = lw.emit("canvas.put", c, ps, value, mask, span=at.span, names=(name,), kind=kind, has_mask=True)[0]
        return
    ps = lw.expr(sub)
    if ps.type.elem == "bool":
        if not ps.type.dims:
            advice = f"cells are decided all at once: unmask {name} where {name}.masked with x"
            lw.fail(at.span, "an index is a place, not a condition", advice, code="E210")
        every = lw.one("canvas.get", c, span=at.span, field="all")
        lw.env[name] = lw.emit("canvas.put", c, every, value, ps, span=at.span, names=(name,), kind=kind, has_mask=True)[0]
        return
    lw.env[name] = lw.emit("canvas.put", c, ps, value, span=at.span, names=(name,), kind=kind)[0]


def _canvas_target(lw: Lowering, target: S.Expr) -> tuple[str, Value, Value]:
    """(name, canvas, positions) of `c[ps]` or `c`."""
    inner = target.value if isinstance(target, S.Index) else target
    if not isinstance(inner, S.Name):
        lw.fail(target.span, "cells are named through their canvas: c[positions]", code="E210")
    c = lw.expr(inner)
    if c.type.elem != "canvas":
        lw.fail(target.span, f"`{inner.name}` is {show(c.type)}, not a canvas", code="E210")
    if isinstance(target, S.Index):
        ps = lw.expr(target.subs[0])
        if ps.type.elem == "bool":
            every = lw.one("canvas.get", c, span=target.span, field="all")
            ps = lw.one("compact", every, ps, span=target.span)
    else:
        ps = lw.one("canvas.get", c, span=target.span, field="all")
    return inner.name, c, ps


def unmask(lw: Lowering, s: S.Unmask) -> None:
    """Decide cells that are still masked. Inside its clauses, what ranges over the positions means their open rows, so that
    a choice of "the surest" is a choice among cells that are still open. Where a span begins and ends, how long it is and which
    block it is are said of the span itself."""
    name, c, ps = _canvas_target(lw, s.target)
    masked = lw.one("canvas.get", c, span=s.span, field="masked")
    at = lw.one("gather", masked, ps, span=s.span)
    open_ = lw.one("compact", ps, at, span=s.span, name="open")
    saved = dict(lw.env)
    cid = str(c.type.of[0])
    used = {n.name for e in (s.where, s.with_) if e is not None for n in S.walk(e) if isinstance(n, S.Name)}
    lw.narrowed[open_] = ps
    if s.where is not None:
        refuse_unnamed(lw, s.where)
    before = dict(lw.env)
    for k, v in list(lw.env.items()):
        t = v.type
        if k not in used or k == name or not t.dims or t.elem in ("tree", "canvas") or k.startswith("%"):
            continue
        d = t.dims[0]
        if v is ps:
            lw.env[k] = open_
        elif d.kind == "part" and d.of == cid and t.elem in ("dist", "draw") and len(t.dims) == 1 and v not in lw.unplaced:
            lw.env[k] = lw.one("gather", v, open_, span=s.span, name=k)  # they know their places, of whatever part they are
        elif d.kind == "part" and d.of == cid and t.elem != "position":
            lw.env[k] = lw.one("compact", v, at, span=s.span, name=k)
        elif d.kind == "cells" and d.of == cid and t.elem in ("dist", "draw", "token", "prob", "real", "bool", "int"):
            lw.env[k] = lw.one("gather", v, open_, span=s.span, name=k)
    asked = {n.name for n in S.walk(s.where) if isinstance(n, S.Name)} if s.where is not None else set()
    if s.where is not None and any(lw.env[n] is not before[n] for n in asked if n in before):
        lw.opened = {id(e): open_ for e in fields_of(s.where, name)}  # beside rows of open cells they mean those too
    mask = lw.expr(s.where) if s.where is not None else None
    if mask is not None and (mask.type.elem != "bool"):
        lw.fail(s.where.span if s.where else s.span, f"`where` needs a condition, got {show(mask.type)}", code="E210")
    value = lw.expr(s.with_)
    for what, e in ((mask, s.where), (value, s.with_)):
        if what is not None and e is not None and what.type.dims and what.type.dims[0].kind == "k" != open_.type.dims[0].kind:
            unnamed(lw, e, "this")
    lw.env, lw.opened = saved, {}
    extra = [mask] if mask is not None else []
    lw.env[name] = lw.emit(
        "canvas.put", c, open_, value, *extra, span=s.span, names=(name,), kind="token", has_mask=mask is not None, open=True
    )[0]


FOLDS = frozenset(("len", "any", "all", "count", "sum", "mean", "max", "min", "argmax", "argmin", "entropy"))


def refuse_unnamed(lw: Lowering, where: S.Expr) -> None:
    """Raise DecError for a vector of which nobody knows what it ranges over, standing where one over the cells would: it has a
    row for every cell, and the others for those that are still masked. One that is indexed, folded or searched is fine."""

    def visit(e: S.Node) -> None:
        if isinstance(e, S.Name):
            v = lw.env.get(e.name)
            if v is not None and v.type.dims and v.type.dims[0].kind == "k" and v.type.elem not in ("tree", "canvas"):
                unnamed(lw, e, f"`{e.name}`")
            return
        if isinstance(e, S.Call) and isinstance(e.func, S.Name) and e.func.name in FOLDS:
            return
        skipped = e.value if isinstance(e, S.Index) else e.right if isinstance(e, S.Compare) and "in" in e.op else None
        for part in children(e):
            if not (part is skipped and isinstance(part, S.Name)):
                visit(part)

    visit(where)


def fields_of(where: S.Node, canvas: str) -> Iterator[S.Attr]:
    """Where a condition reads `c.masked`, `c.token` and so on cell by cell: neither folded nor indexed."""
    if isinstance(where, S.Attr) and isinstance(where.value, S.Name) and where.value.name == canvas:
        if where.name in ("masked", "decided", "token", "draws", "all"):
            yield where
    elif not (isinstance(where, S.Call) and isinstance(where.func, S.Name) and where.func.name in FOLDS):
        for part in children(where):
            if not (isinstance(where, S.Index) and part is where.value):
                yield from fields_of(part, canvas)


def unnamed(lw: Lowering, e: S.Expr, what: str) -> NoReturn:
    """Stops at a vector of which nobody knows what it ranges over."""
    lw.fail(
        e.span,
        f"{what} is a vector of which it is not known that it ranges over the cells; inside `unmask` vectors have "
        "a row for each cell that is still masked",
        "select outside: c[b where c.masked[b] and condition] = x; or index it: v[i]",
        code="E381",
    )


def remask(lw: Lowering, s: S.Remask) -> None:
    """`remask c[ps] where cond`: these cells are masked again."""
    name, c, ps = _canvas_target(lw, s.target)
    extra = [lw.expr(s.where)] if s.where is not None else []
    lw.env[name] = lw.emit("canvas.put", c, ps, *extra, span=s.span, names=(name,), kind="mask", has_mask=bool(extra))[0]


OF_TREES = frozenset((
    "token", "parent", "depth", "prob", "law", "masked", "decided", "point", "draw", "nodes", "drafted", "leaves", "new",
    "frontier", "children", "path", "size", "height", "accepted",
))  # fmt: skip
"""What a tree says of itself: a column of such a name would never be read."""


def grow_value(lw: Lowering, s: S.Grow) -> Value:
    """`grow x at ns with col = v`: the tree grows, the new nodes are the value."""
    if not lw.drafting or lw.drafting[-1] not in lw.env:
        lw.fail(s.span, "grow stands inside `draft t:`", code="E300")
    name = lw.drafting[-1]
    chain = isinstance(s.what, S.Call) and isinstance(s.what.func, S.Name) and s.what.func.name == "chain"
    if chain:
        assert isinstance(s.what, S.Call)
        if len(s.what.args) != 1:
            lw.fail(s.what.span, "chain takes the tokens to grow one under the other", code="E260")
        x = lw.token(lw.expr(s.what.args[0]))
        if x.type.elem == "path":  # tokens that were not drawn are certain
            x = lw.one("path.get", x, span=s.what.args[0].span, field="token")
        if x.type.elem in ("token", "int"):
            x = lw.one("draw.point", x, span=s.span)
        if x.type.elem != "draw" or len(x.type.dims) > 1:
            lw.fail(
                s.what.span,
                f"chain takes a vector of tokens or draws, got {show(x.type)}",
                "chain(topk(q, 1)), chain(index.path(ctx, ...)), chain(run A(...) from ctx until done at most 4)",
                code="E260",
            )
    elif isinstance(s.what, S.Call) and isinstance(s.what.func, S.Name) and s.what.func.name == "best_first":
        return grow_best(lw, name, s, s.what)
    else:
        x = lw.token(lw.expr(s.what))
    operands: list[Value] = []
    if s.at is not None:
        operands.append(lw.expr(s.at))
    columns = []
    tree = str(lw.env[name].type.of[0])
    for k in s.columns:
        if k.name in OF_TREES:
            own = sorted(c for (t, c) in lw.columns if t == tree and c not in OF_TREES)
            lw.fail(
                k.span,
                f"every tree has a `{k.name}` of its own, which `grow` does not set",
                f"grow sets logprob and columns of yours{': ' + ', '.join(own) if own else ', such as grow x with score = s'}",
                code="E240",
            )
        v = lw.expr(k.value)
        columns.append(k.name)
        operands.append(v)
        if k.name != "logprob":
            elem = v.type.drop() if v.type.dims else v.type
            if v.type.elem == "astate":
                elem = v.type.scalar
            elem = Type("token", elem.of, elem.dims) if elem.elem == "draw" else elem
            elem = elem.scalar if x.type.dims and len(v.type.dims) == len(x.type.dims) else elem
            lw.columns[(tree, k.name)] = elem
    t, new = lw.emit(
        "tree.grow",
        lw.env[name],
        x,
        *operands,
        span=s.span,
        names=(name, "new"),
        has_at=s.at is not None,
        columns=tuple(columns),
        chain=chain,
    )
    lw.env[name] = t
    return new


def grow_best(lw: Lowering, name: str, s: S.Grow, e: S.Call) -> Value:
    """`grow best_first(index.after(m), size = n, above = p)`."""
    size, above = e.kwarg("size"), e.kwarg("above")
    if len(e.args) != 1 or size is None or {k.name for k in e.kwargs} - {"size", "above"} or s.at is not None or s.columns:
        lw.fail(
            s.span,
            "best_first takes the result of an index lookup, size = and above =",
            "grow best_first(index.after(m), size = n, above = p)",
            code="E260",
        )
    asked, n = lw.expr(e.args[0]), lw.expr(size)
    least = lw.expr(above) if above is not None else lw.const(0)
    t, new = lw.emit("tree.best_first", lw.env[name], asked, n, least, span=s.span, names=(name, "new"), bound=lw.upper(n))
    lw.env[name] = t
    return new
