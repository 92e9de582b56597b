"""Growing and verifying trees, tables and canvases, for the oracle's interpreter."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle import language as L
from oracle.values import Canvas, Dist, Drawn, Many, Node, Path, Stuck, Tree, token_of
from oracle.worlds import Model


def nodes(x: Any) -> list[Node]:
    """The nodes in a value."""
    return [n for y in x for n in nodes(y)] if isinstance(x, Many) else [x]


def point(m: Any, x: Any) -> Drawn:
    """A token as a draft that was not drawn; draws stay what they are."""
    if isinstance(x, Drawn):
        return x
    sure = tuple(Fraction(int(v == token_of(x))) for v in range(m.world.vocab))
    if sum(sure) != 1:
        raise Stuck("no such token")
    return Drawn(token_of(x), sure, sure)


def sure(m: Any, x: Any) -> Drawn:
    """The point mass on a token, of a draw as well."""
    return point(m, token_of(x))


def hang(tree: Tree, parent: int, edge: Drawn) -> int:
    tree.edges.append(edge)
    tree.parents.append(parent)
    return len(tree.edges) - 1


def flat(x: Any) -> list[Drawn]:
    return [d for y in x for d in flat(y)] if isinstance(x, Many) else [x]


def places(m: Any, tree: Tree, value: Any, at: Any) -> list[tuple[int, Drawn]]:
    """(parent, draft) of everything that `grow` hangs."""
    if at is None and isinstance(value, Many) and value.at is not None:
        return [(n.id, d) for n, x in zip(value.at, value, strict=True) for d in flat(x)]
    if at is None or isinstance(at, Node):
        return [(at.id if at is not None else 0, d) for d in flat(value)]
    parents = nodes(at)
    if isinstance(value, Many) and len(value) == len(parents):
        return [(n.id, d) for n, x in zip(parents, value, strict=True) for d in flat(x)]
    if len(parents) == 1:
        return [(parents[0].id, d) for d in flat(value)]
    raise Stuck("drafts and nodes do not go together")


def verify(m: Any, tree: Tree, rule: Any, evidence: Any) -> None:
    """Walk from the root: at every node the rule accepts a child, or emits and ends."""
    from oracle.interpret import Verdict

    name, given = (rule.id, ()) if isinstance(rule, L.Name) else (rule.func.id, [m.value(a) for a in rule.args])
    written = m.rules[name]
    node, path, emitted = 0, [], None
    while True:
        row = _evidence(evidence, node)
        if row is None:
            break
        below = tree.children(node)
        outer = m.env
        m.env = {written.params[0].name: row, written.params[1].name: Many([tree.edges[c] for c in below])}
        for p, x in zip(written.params[2:], [*given, *[None] * len(written.params)], strict=False):
            m.env[p.name] = m._num(L.Num(p.default)) if x is None else x
        try:
            m.run(written.body)
            accepted = None
        except Verdict as v:
            accepted, emitted = v.child, v.token
        finally:
            m.env = outer
        if accepted is None:
            break
        node = next(c for c in below if tree.edges[c] is accepted)
        path.append(node)
    tokens = tuple(token_of(tree.edges[n]) for n in path) + (() if emitted is None else (emitted,))
    tree.accepted = Path(tokens, node, len(path), emitted is not None)


def _evidence(rows: Any, node: int) -> Any:
    if isinstance(rows, Dist):
        return rows
    if rows.at is not None:
        found = [r for n, r in zip(rows.at, rows, strict=True) if n.id == node]
        return found[0] if found else None
    return rows[node] if node < len(rows) else None


def stored(m: Any, target: L.Index, op: str, value: Any) -> None:
    """`table[x] = v`, `c[i] = x`."""
    held, subs = m.value(target.value), [m.value(s) for s in target.subs]
    if isinstance(held, Canvas):
        for i, x in zip(_list(subs[0]), _list(value), strict=True):
            held.cells[int(i)] = token_of(x)
        return
    made = Many([Many(r) if isinstance(r, Many) else r for r in held])
    where = [token_of(i) for i in _list(subs[0])]
    values = list(value) if isinstance(subs[0], Many) else [value]
    if len(subs) != 1 or op != "=":
        raise Stuck("a table is written row by row")
    for i, v in zip(where, values, strict=True):
        if isinstance(made[i], Many):
            new = [token_of(x) for x in _list(v)]
            made[i] = Many([*new, *made[i][len(new) :]][: len(made[i])])
        else:
            made[i] = token_of(v)
    m.set(target.value.id, made)


def _list(x: Any) -> list[Any]:
    return list(x) if isinstance(x, Many) else [x]


# ---- canvases


def model_on_canvas(m: Any, model: Model, c: Canvas, at: Any) -> Many:
    """A row for every position of the canvas, or for some."""
    seen = c.base + tuple("_" if x is None else x for x in c.cells)
    out = []
    for i in range(len(c.cells)) if at is None else map(int, at):
        path = tuple(0 if x == "_" else x for x in seen[: len(c.base) + i])
        out.append(m.row(model, path, key=(*seen, "cell", i), place=("cell", i)))
    return Many(out, range(len(c.cells)) if at is None else at)


def unmask(m: Any, s: L.Unmask) -> None:
    """Decide positions that are masked still. What ranges over positions is cut down to these."""
    whole = isinstance(s.target, L.Name)
    c = m.value(s.target if whole else s.target.value)
    ps = list(range(len(c.cells))) if whole else [int(i) for i in m.value(s.target.subs[0])]
    still = [i for i in ps if c.cells[i] is None]
    outer, m.env = m.env, {k: _cut(v, still) for k, v in m.env.items()}
    try:
        chosen = Many([True] * len(still)) if s.where is None else m.value(s.where)
        put = m.value(s.value)
    finally:
        m.env = outer
    if len(chosen) != len(still) or len(put) != len(still):
        raise Stuck("a choice of other positions")
    for i, yes, x in zip(still, chosen, put, strict=True):
        if yes:
            c.cells[i] = token_of(x)


def _cut(x: Any, still: list[int]) -> Any:
    if not isinstance(x, Many) or x.at is None or (x.at and not isinstance(x.at[0], int)):
        return x
    if any(i not in x.at for i in still):
        return x
    return Many([x[x.at.index(i)] for i in still], still)
