"""Where a program can be edited: walking its syntax, changing one place of it, and tests that hold only somewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from oracle import language as L
from oracle.language import Program, show

Place = tuple[Any, ...]


# ---- places of a program


def walk(x: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Everything in a program with its place."""
    yield at, x
    if isinstance(x, tuple):
        for i, y in enumerate(x):
            yield from walk(y, (*at, i))
    elif is_dataclass(x) and not isinstance(x, type):
        for f in fields(x):
            yield from walk(getattr(x, f.name), (*at, f.name))


def put(x: Any, at: Place, value: Any) -> Any:
    """`x` with another value at a place."""
    if not at:
        return value
    if isinstance(x, tuple):
        return (*x[: at[0]], put(x[at[0]], at[1:], value), *x[at[0] + 1 :])
    return replace(x, **{at[0]: put(getattr(x, at[0]), at[1:], value)})


def code(p: Program) -> Iterator[tuple[Place, Any]]:
    """What runs: bodies of the algorithm and of its rules."""
    for part in ("body", "rules"):
        yield from walk(getattr(p, part), (part,))


STATEMENTS = (
    L.Draw,
    L.Assign,
    L.Grow,
    L.Draft,
    L.Repeat,
    L.For,
    L.While,
    L.If,
    L.Break,
    L.Verify,
    L.Commit,
    L.Accept,
    L.Emit,
    L.Canvas,
    L.Unmask,
)


def blocks(p: Program) -> list[tuple[Place, tuple[Any, ...]]]:
    """Every block of statements."""
    return [(at, x) for at, x in code(p) if isinstance(x, tuple) and x and isinstance(x[0], STATEMENTS)]


def lines(p: Program) -> list[tuple[Place, int, tuple[Any, ...]]]:
    """Every statement but the loop of the algorithm: its block's place, its number there, the block."""
    return [(at, i, b) for at, b in blocks(p) for i, s in enumerate(b) if not is_main(s)]


def is_main(s: Any) -> bool:
    return isinstance(s, L.While) and show(s.test) == "not done"


def picked(r: random.Random, xs: Any) -> Any:
    xs = list(xs)
    return r.choice(xs) if xs else None


def one(p: Program, r: random.Random, fits: Callable[[Any], bool], change: Callable[[Any], Any], said: str) -> Any:
    """Change one of the places that fit."""
    found = picked(r, [(at, x) for at, x in code(p) if fits(x)])
    if found is None:
        return None
    at, x = found
    new = change(x)
    return None if new is None or new == x else (put(p, at, new), f"{said}: {_short(x)} -> {_short(new)}")


def _short(x: Any) -> str:
    try:
        return show(x)
    except TypeError:
        return L.line_of(x) if isinstance(x, STATEMENTS) else str(x)


def call(x: Any, *names: str) -> bool:
    return isinstance(x, L.Call) and isinstance(x.func, L.Name) and x.func.id in names


# ---- conditions


def condition(p: Program, at: Place, r: random.Random) -> str:
    """A test that is true only somewhere: of lengths, tokens, probabilities, parameters, depths."""
    c, n = r.choice(["0.5", "0.9", "0.99", "0.01", "0.2"]), r.randint(1, 7)
    if at[0] == "rules":
        return r.choice(
            [f"max(p) > {c}", f"min(p) < {c}", "len(children) > 1", "len(children) == 0", "p[0] > p[1]", f"p[1] < {c}"]
        )
    pool = [
        f"ctx.length > {n}",
        f"ctx.length == {n}",
        f"ctx.length > {n}",
        f"ctx.token == {r.randint(0, 3)}",
        "ctx.length % 2 == 0",
        "ctx.length % 3 == 0",
        "greedy",
        "not greedy",
    ]
    causal = [q.name for q in p.params if q.type.startswith("causal")]
    pool += [f"max({m}(ctx).raw) > {c}" for m in causal] + [f"min({m}(ctx).raw) < {c}" for m in causal]
    pool += [f"{q.name} > {r.randint(int(q.low), int(q.high))}" for q in p.params if q.type == "int"]
    pool += [f"{q.name} == {q.default}" for q in p.params if q.type == "int"]
    pool += [f"{q.name} > {r.choice(['0', '0.25', '0.5', '0.9'])}" for q in p.params if q.type == "prob"]
    if any(isinstance(x, L.Draft) and x.name == "t" for _, x in walk(p.body)):
        pool += [f"t.height > {r.randint(0, 4)}", f"t.size > {r.randint(0, 5)}", f"t.size < {r.randint(1, 4)}"]
    if any(isinstance(x, L.Canvas) for _, x in walk(p.body)):
        pool = [f"count(c.decided) > {n - 1}", f"count(c.masked) == {n}", f"length > {n}", f"block > {r.randint(1, 3)}"]
    return r.choice(pool)


def within(p: Program, at: Place, i: int, new: tuple[Any, ...]) -> Program:
    """The block at a place with other statements for its i-th."""
    block = next(b for a, b in blocks(p) if a == at)
    return put(p, at, (*block[:i], *new, *block[i + 1 :]))
