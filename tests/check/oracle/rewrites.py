"""Edits of one expression, draw or test of a program."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from oracle import language as L
from oracle.language import Program, show
from oracle.places import call, code, is_main, one, picked, put
from oracle.reading import expr


def off_by_one(p: Program, r: random.Random) -> Any:
    d = r.choice([1, -1])
    return one(
        p, r, lambda x: isinstance(x, L.Num) and x.text.isdigit(), lambda x: L.Num(str(max(0, int(x.text) + d))), "off by one"
    )


def longer(p: Program, r: random.Random) -> Any:
    op, n = r.choice("+-"), r.choice("12")
    return one(
        p, r, lambda x: isinstance(x, L.Repeat), lambda x: replace(x, count=L.Bin(op, x.count, L.Num(n))), "another count"
    )


def another_number(p: Program, r: random.Random) -> Any:
    new = L.Num(r.choice(["0", "1", "0.1", "0.3", "0.9", "0.99", "0.01"]))
    return one(p, r, lambda x: isinstance(x, L.Num) and "." in x.text, lambda x: new, "another number")


def another_model(p: Program, r: random.Random) -> Any:
    models = [q.name for q in p.params if q.model]
    return one(p, r, lambda x: isinstance(x, L.Name) and x.id in models, lambda x: L.Name(r.choice(models)), "another model")


def raw(p: Program, r: random.Random) -> Any:
    models = [q.name for q in p.params if q.model]
    return one(p, r, lambda x: call(x, *models), lambda x: L.Attr(x, "raw"), "unshaped")


def shaped(p: Program, r: random.Random) -> Any:
    return one(p, r, lambda x: isinstance(x, L.Attr) and x.name == "raw", lambda x: x.value, "shaped")


def another_place(p: Program, r: random.Random) -> Any:
    places = ["ctx", "root", "t.leaves", "t.nodes", "t", "t.frontier", "t.drafted", "ctx.parent"]
    models = [q.name for q in p.params if q.model]
    return one(p, r, lambda x: call(x, *models), lambda x: replace(x, args=(expr(r.choice(places)),)), "another place")


def compares(p: Program, r: random.Random) -> Any:
    other = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
    return one(
        p, r, lambda x: isinstance(x, L.Bin) and x.op in other, lambda x: replace(x, op=other[x.op]), "another comparison"
    )


def arithmetic(p: Program, r: random.Random) -> Any:
    other = {"+": "-", "-": "+", "*": "/", "/": "*"}
    return one(
        p, r, lambda x: isinstance(x, L.Bin) and x.op in other, lambda x: replace(x, op=other[x.op]), "another operation"
    )


def turned(p: Program, r: random.Random) -> Any:
    return one(
        p,
        r,
        lambda x: isinstance(x, L.Bin) and x.op in ("-", "/", "<", ">"),
        lambda x: replace(x, left=x.right, right=x.left),
        "turned round",
    )


def another_function(p: Program, r: random.Random) -> Any:
    other = {
        "max": ["min", "sum"],
        "any": ["all"],
        "all": ["any"],
        "relu": ["abs"],
        "sample": ["distinct", "topk"],
        "distinct": ["sample", "topk"],
        "topk": ["sample", "distinct"],
        "rank": ["rank"],
        "first_max": ["rank"],
        "min": ["max"],
    }
    return one(
        p, r, lambda x: call(x, *other), lambda x: replace(x, func=L.Name(r.choice(other[x.func.id]))), "another function"
    )


def unwrapped(p: Program, r: random.Random) -> Any:
    return one(p, r, lambda x: call(x, "normalize", "relu", "argmax", "point", "min"), lambda x: x.args[0], "forgotten")


def of_factor(p: Program, r: random.Random) -> Any:
    """A coin that comes up too often or too rarely."""
    c = r.choice(["2", "0.5", "0.9", "1.1", "1.001", "4"])
    return one(
        p,
        r,
        lambda x: call(x, "bernoulli"),
        lambda x: replace(x, args=(L.Bin("*", x.args[0], L.Num(c)),)),
        f"accepts times {c}",
    )


def always(p: Program, r: random.Random) -> Any:
    test = r.choice(
        [
            "yes",
            "no",
            "p[x] > 0.5",
            "p[x] > 0",
            "p[x] >= x.law[x]",
            "bernoulli(p[x])",
            "bernoulli(1 - x.law[x])",
            "bernoulli(x.law[x])",
            "p[x] == max(p)",
            "bernoulli(0.5)",
            "max(p) > 0.9 and p[x] == max(p)",
        ]
    )
    return one(p, r, lambda x: call(x, "bernoulli"), lambda x: expr(test), "accepts otherwise")


def also_accepts(p: Program, r: random.Random) -> Any:
    """A test that also holds, or only holds, somewhere else."""
    some = r.choice(
        [
            "p[x] > 0.9",
            "p[x] > 0.99",
            f"x == {r.randint(0, 3)}",
            "x.law[x] < 0.02",
            "max(p) > 0.9",
            "x.law[x] == 1",
            "len(children) > 1",
            "p[x] < 0.01",
        ]
    )
    word = r.choice(["or", "and", "and not"])
    new = L.Un("not", expr(some)) if word == "and not" else expr(some)
    tests = [(at, x) for at, x in code(p) if at[0] == "rules" and isinstance(x, L.If)]
    found = picked(r, tests)
    if found is None:
        return None
    at, x = found
    return put(p, (*at, "test"), L.Bin(word.split()[0], x.test, new)), f"accepts {word} {some}"


def another_law(p: Program, r: random.Random) -> Any:
    law = r.choice(["onehot(x)", "children[0].law", "uniform(vocab)", "x.law * 2", "p"])
    return one(p, r, lambda x: isinstance(x, L.Attr) and x.name == "law", lambda x: expr(law), "another law")


def some_children(p: Program, r: random.Random) -> Any:
    part = r.choice(["children[1:]", "children[:1]", "children[:2]"])
    return one(
        p,
        r,
        lambda x: isinstance(x, L.For) and show(x.over) == "children",
        lambda x: replace(x, over=expr(part)),
        "not all children",
    )


def takes_likeliest(p: Program, r: random.Random) -> Any:
    return one(
        p,
        r,
        lambda x: isinstance(x, L.Draw),
        lambda x: L.Assign(L.Name(x.name), "=", L.Call(L.Name("argmax"), (x.value,))),
        "takes the likeliest",
    )


def as_output(p: Program, r: random.Random) -> Any:
    """A draw reads the noise of the specification, or no longer does."""
    return one(
        p, r, lambda x: isinstance(x, L.Draw), lambda x: replace(x, output=True if x.output is None else None), "other noise"
    )


def as_point(p: Program, r: random.Random) -> Any:
    """The draft's law is forgotten."""
    return one(
        p,
        r,
        lambda x: isinstance(x, L.Grow) and isinstance(x.value, L.Name),
        lambda x: replace(x, value=L.Call(L.Name("point"), (L.Attr(x.value, "token"),))),
        "law forgotten",
    )


def another_name(p: Program, r: random.Random) -> Any:
    """One of the program's own values for another."""
    own = sorted(
        {x.name for _, x in code(p) if isinstance(x, L.Draw | L.For)}
        | {"p", "x", "y"}
        | {s.name for s in p.states}
        | {q.name for q in p.params if not q.model}
    )
    return one(p, r, lambda x: isinstance(x, L.Name) and x.id in own, lambda x: L.Name(r.choice(own)), "another value")


def stepped(p: Program, r: random.Random) -> Any:
    """What an accepted path gives, or what a state is given."""
    new = r.choice(["t.size", "t.accepted.depth", "t.height", "ctx.length", "0", "1", "t.accepted.depth + 1"])
    return one(
        p,
        r,
        lambda x: isinstance(x, L.Assign) and isinstance(x.target, L.Name) and x.target.id in {s.name for s in p.states},
        lambda x: replace(x, value=expr(new)),
        "carries something else",
    )


def shared_noise(p: Program, r: random.Random) -> Any:
    """A draw reads a noise that was made once, before the loop."""
    main = next((n for n, s in enumerate(p.body) if is_main(s)), None)
    got = one(
        p,
        r,
        lambda x: isinstance(x, L.Draw) and x.output is None and not x.using,
        lambda x: replace(x, using="g"),
        "shared noise",
    )
    if got is None or main is None:
        return None
    new = got[0]
    return replace(new, body=(*new.body[:main], L.Noise("g", (L.Name("vocab"),)), *new.body[main:])), got[1]
