"""What the words and functions of the language mean to the oracle's interpreter."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from oracle import language as L
from oracle.trees import flat, model_on_canvas, point, sure
from oracle.values import Canvas, Context, Dist, Drawn, Many, Node, Path, Stuck, Tree, combine, deep, numbers, taken, token_of
from oracle.worlds import Model


def word(m: Any, name: str) -> Any:
    """A word that has a value."""
    if name == "ctx":
        return Context(m.context)
    if name == "done":
        return m.done
    if name == "root":
        return Node(m.trees[-1], 0)
    if name == "prompt":
        return Many(m.request.prompt)
    if name == "greedy":
        return m.request.temperature == 0
    if name == "eos":
        return min(m.request.eos) if m.request.eos else 0
    if name == "pad":
        return min(m.request.eos) if m.request.eos else 0
    if name == "vocab":
        return ("vocab", m.world.vocab)
    raise Stuck(f"no value: {name}")


def inner(text: str) -> list[Any]:
    """The parts between the brackets of a type, as expressions."""
    from oracle.reading import expr

    return [expr(part) for part in text[text.index("[") + 1 : text.rindex("]")].split(",")]


def many_nodes(t: Tree, ids: Any) -> Many:
    found = [Node(t, i) for i in ids]
    return Many(found, found)


def attribute(m: Any, x: Any, name: str) -> Any:
    """`x.name`."""
    if isinstance(x, Tree):
        return _tree(m, x, name)
    if isinstance(x, Context):
        return {"length": lambda: len(x.tokens), "token": lambda: x.tokens[-1], "parent": lambda: Context(x.tokens[:-1])}[
            name
        ]()
    if isinstance(x, Many) and name != "start" and (not x or isinstance(x[0], Dist | Drawn | Many | Node)):
        return Many([attribute(m, y, name) for y in x], x.at)
    if isinstance(x, Dist) and name == "raw":
        if x.raw is None:
            raise Stuck("raw of what has no raw")
        return Dist(x.raw, x.raw, x.place)
    if isinstance(x, Drawn):
        return {"token": lambda: x.token, "law": lambda: Dist(x.law), "prob": lambda: x.raw[x.token]}[name]()
    if isinstance(x, Path) and name in ("depth", "node"):
        return x.depth if name == "depth" else x.node
    if isinstance(x, Path) and name in ("token", "length"):
        return Many(x.tokens) if name == "token" else len(x.tokens)
    if isinstance(x, Canvas):
        every = range(len(x.cells))
        if name in ("masked", "decided"):
            return Many([(c is None) == (name == "masked") for c in x.cells], every)
        return {"all": lambda: Many(every, every), "token": lambda: Many(x.cells, every)}[name]()
    if isinstance(x, tuple) and x[0] == "vocab":
        return x[1]
    if isinstance(x, tuple) and x[0] == "level":
        return x[1][name]
    if isinstance(x, Many) and name == "start":
        return x[0]
    raise Stuck(f"no .{name} of {type(x).__name__}")


def _tree(m: Any, t: Tree, name: str) -> Any:
    ids = range(len(t.edges))
    if name in ("nodes", "drafted", "leaves", "new", "frontier"):
        return many_nodes(t, {"nodes": ids, "drafted": ids[1:], "leaves": t.leaves(), "new": t.new, "frontier": t.new}[name])
    every = [Node(t, i) for i in ids]
    if name == "token":
        return Many([token_of(t.edges[i]) if i else t.base[-1] for i in ids], every)
    if name == "depth":
        return Many([len(t.path(i)) for i in ids], every)
    if name == "parent":
        return Many([Node(t, t.parents[i]) for i in ids], every)
    if name in ("size", "height"):
        return len(t.edges) - 1 if name == "size" else max(len(t.path(i)) for i in ids)
    if name == "accepted":
        if t.accepted is None:
            raise Stuck("nothing was verified")
        return t.accepted
    raise Stuck(f"no column {name}")


def levels(shape: str) -> list[Any]:
    """The levels of a topology, given as a branching for each."""
    out, count = [], 1
    for i, width in enumerate(map(int, shape.split("x"))):
        out.append(
            (
                "level",
                {
                    "index": i,
                    "width": width,
                    "parent": Many([j // width for j in range(count * width)]),
                    "rank": Many([j % width for j in range(count * width)]),
                },
            )
        )
        count *= width
    return out


# ---- functions


def called(m: Any, e: L.Call) -> Any:
    """A model, a store or a function, called."""
    if isinstance(e.func, L.Attr):
        return _method(m, e)
    found = m.world.models.get(e.func.id)
    args = [m.value(a) for a in e.args]
    named = {n: m.value(v) for n, v in e.named}
    if found is not None:
        return _model(m, found, args[0], named)
    f = FUNCTIONS.get(e.func.id)
    if f is None:
        raise Stuck(f"no function {e.func.id}")
    return f(m, *args, **named)


def _model(m: Any, model: Model, at: Any, named: dict[str, Any]) -> Any:
    if isinstance(at, Canvas):
        return model_on_canvas(m, model, at, named.get("at"))
    if isinstance(at, Tree):
        return _model(m, model, many_nodes(at, range(len(at.edges))), named)
    if isinstance(at, Many):
        return Many([_model(m, model, n, named) for n in at], at.at)
    path = at.tokens if isinstance(at, Context) else at.tree.context(at.id)
    if not path:
        raise Stuck("an empty context")
    return m.row(model, path)


def _method(m: Any, e: L.Call) -> Any:
    on, name = m.value(e.func.value), e.func.name
    args, named = [m.value(a) for a in e.args], {n: m.value(v) for n, v in e.named}
    if isinstance(on, Model) and name == "heads":
        path = args[0].tokens
        if not path:
            raise Stuck("heads after nothing")
        rows = [raw_of_head(m, on, path, h) for h in range(3)]
        return Many(rows)
    if isinstance(on, Context) and name == "last":
        return Many(on.tokens[-int(args[0]) :])
    if name == "path":
        depth = next(
            int(m.value(inner(s.type.replace("(", "[").replace(")", "]"))[0]))
            for s in m.program.states
            if s.name == e.func.value.id
        )
        text, asked = on, args[0].tokens
        for n in range(min(depth, len(asked)), int(named.get("at_least", 1)) - 1, -1):
            starts = [i for i in range(len(text) - n) if n and text[i : i + n] == asked[len(asked) - n :]]
            if starts:
                i = starts[0] if named.get("pick", "last") == "first" else starts[-1]
                return Many(point(m, x) for x in text[i + n : i + n + int(named.get("at_most", 16))])
        return Many([])
    raise Stuck(f"no method {name}")


def raw_of_head(m: Any, model: Model, path: tuple[int, ...], head: int) -> Dist:
    return m.row(model, path, key=("head", head, *path), place=len(path) + 1 + head)


def sample(m: Any, q: Any, k: Any, replace: bool = True) -> Any:
    """k draws; without replacement the law of each is what is left."""
    if isinstance(q, Many):
        return Many([sample(m, x, k, replace) for x in q], q.at)
    out, left = [], q.probs
    for _ in range(int(k)):
        if not any(left):
            break
        token = m.choices.of(list(left))
        out.append(Drawn(token, left, q.raw if q.raw is not None else q.probs))
        if not replace:
            rest = [w if v != token else Fraction(0) for v, w in enumerate(left)]
            left = tuple(w / sum(rest) for w in rest) if sum(rest) else tuple(rest)
    return Many(out)


def distinct(m: Any, q: Any, k: Any) -> Any:
    return topk(m, attribute(m, q, "raw"), k) if m.request.temperature == 0 else sample(m, q, k, False)


def topk(m: Any, q: Any, k: Any) -> Any:
    if isinstance(q, Many):
        return Many([topk(m, x, k) for x in q], q.at)
    order = sorted(range(len(q.probs)), key=lambda v: (-q.probs[v], v))
    out = []
    for v in order[: int(k)]:
        made = point(m, v)
        out.append(Drawn(v, made.law, q.probs))
    return Many(out)


def fold(f: Any) -> Any:
    """A fold of the last dimension."""

    def over(m: Any, x: Any, *more: Any) -> Any:
        if more:
            return f([numbers(y) for y in (x, *more)])
        if isinstance(x, Dist):
            return f(x.probs)
        if isinstance(x, Many) and x and isinstance(x[0], Dist | Many):
            return Many([over(m, y) for y in x], x.at)
        return f([numbers(y) for y in x])

    return over


def each(f: Any) -> Any:
    """A function of every number."""

    def over(m: Any, x: Any) -> Any:
        return deep(lambda y: Dist(tuple(map(f, y.probs))) if isinstance(y, Dist) else f(numbers(y)), x)

    return over


def normalize(m: Any, x: Any) -> Any:
    def one(y: Any) -> Any:
        total = sum(y.probs)
        if total == 0:
            raise Stuck("normalize of nothing")
        return Dist(tuple(w / total for w in y.probs))

    return deep(one, x)


def argmax(m: Any, x: Any, by: Any = None) -> Any:
    if by is not None:
        keys = [numbers(taken(by, i)) for i in x] if len(by) != len(x) or by.at is not None else [numbers(b) for b in by]
        return x[keys.index(max(keys))]
    if isinstance(x, Many) and x and isinstance(x[0], Dist):
        return Many([argmax(m, y) for y in x], x.at)
    if isinstance(x, Dist):
        return Drawn(p := x.probs.index(max(x.probs)), point(m, p).law, x.probs)
    return x.index(max(x))


def rank(m: Any, x: Any) -> Any:
    order = sorted(range(len(x)), key=lambda i: (-x[i], i))
    return Many([order.index(i) for i in range(len(x))], x.at)


def first_max(m: Any, x: Any) -> Any:
    return Many([bool(x) and i == x.index(max(x)) for i in range(len(x))], x.at)


def blocks(m: Any, c: Canvas, k: Any) -> list[Many]:
    cells = list(range(len(c.cells)))
    return [Many(cells[i : i + int(k)], cells[i : i + int(k)]) for i in range(0, len(cells), int(k))]


def onehot(m: Any, x: Any) -> Any:
    return deep(lambda y: Dist(sure(m, y).law), x)


FUNCTIONS: dict[str, Any] = {
    "sample": sample,
    "distinct": distinct,
    "topk": topk,
    "point": lambda m, x: deep(lambda y: sure(m, y), x),
    "chain": lambda m, xs: ("chain", flat(xs)),
    "bernoulli": lambda m, s: m.coin(s),
    "max": fold(max),
    "min": fold(min),
    "sum": fold(sum),
    "all": fold(all),
    "any": fold(any),
    "count": fold(lambda xs: sum(map(bool, xs))),
    "len": lambda m, x: len(x),
    "relu": each(lambda y: max(y, Fraction(0))),
    "abs": each(abs),
    "int": each(int),
    "normalize": normalize,
    "argmax": argmax,
    "rank": rank,
    "first_max": first_max,
    "blocks": blocks,
    "onehot": onehot,
    "uniform": lambda m, v: Dist((Fraction(1, m.world.vocab),) * m.world.vocab),
    "tile": lambda m, x, n: Many([x] * int(n)),
    "first": lambda m, x, n: Many(x[: int(n)]),
    "sure": lambda m, s, tau: combine("or", combine(">=", s, tau), first_max(m, s)),
}
