"""Random edits of true programs: one to three changes of kinds that people make, each said in words."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from oracle import language as L
from oracle.bases import bases
from oracle.language import Program, show
from oracle.reading import Unreadable, expr, statement

Place = tuple[Any, ...]
Edit = Callable[[Program, random.Random], tuple[Program, str] | None]


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


STATEMENTS = (L.Draw, L.Assign, L.Grow, L.Draft, L.Repeat, L.For, L.While, L.If, L.Break, L.Verify, L.Commit, L.Accept, L.Emit,
              L.Canvas, L.Unmask)


def blocks(p: Program) -> list[tuple[Place, tuple[Any, ...]]]:
    """Every block of statements."""
    return [(at, x) for at, x in code(p) if isinstance(x, tuple) and x and isinstance(x[0], STATEMENTS)]


def lines(p: Program) -> list[tuple[Place, int, tuple[Any, ...]]]:
    """Every statement but the loop of the algorithm: its block's place, its number there, the block."""
    return [(at, i, b) for at, b in blocks(p) for i, s in enumerate(b) if not _main(s)]


def _main(s: Any) -> bool:
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
        return r.choice([f"max(p) > {c}", f"min(p) < {c}", "len(children) > 1", "len(children) == 0", "p[0] > p[1]", f"p[1] < {c}"])
    pool = [f"ctx.length > {n}", f"ctx.length == {n}", f"ctx.length > {n}", f"ctx.token == {r.randint(0, 3)}", "ctx.length % 2 == 0",
            "ctx.length % 3 == 0", "greedy", "not greedy"]
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


# ---- edits of statements


def drop(p: Program, r: random.Random) -> Any:
    found = picked(r, [x for x in lines(p) if len(x[2]) > 1])
    return found and (within(p, found[0], found[1], ()), f"dropped `{L.line_of(found[2][found[1]])}`")


def swap(p: Program, r: random.Random) -> Any:
    found = picked(r, [x for x in lines(p) if x[1] + 1 < len(x[2]) and not _main(x[2][x[1] + 1])])
    if found is None:
        return None
    at, i, b = found
    return put(p, at, (*b[:i], b[i + 1], b[i], *b[i + 2 :])), f"swapped `{L.line_of(b[i])}` with the next line"


def twice(p: Program, r: random.Random) -> Any:
    found = picked(r, lines(p))
    at, i, b = found
    return within(p, at, i, (b[i], b[i])), f"twice `{L.line_of(b[i])}`"


def only_if(p: Program, r: random.Random) -> Any:
    at, i, b = picked(r, lines(p))
    test = condition(p, at, r)
    return within(p, at, i, (L.If(expr(test), (b[i],)),)), f"only if {test}: `{L.line_of(b[i])}`"


def before_loop(p: Program, r: random.Random) -> Any:
    """A line of the loop is run once, before it."""
    for n, s in enumerate(p.body):
        if _main(s):
            i = r.randrange(len(s.body))
            if len(s.body) < 2:
                return None
            loop = replace(s, body=(*s.body[:i], *s.body[i + 1 :]))
            return replace(p, body=(*p.body[:n], s.body[i], loop, *p.body[n + 1 :])), f"before the loop: `{L.line_of(s.body[i])}`"
    return None


def once_more(p: Program, r: random.Random) -> Any:
    """What the loop does is done once before it, too."""
    for n, s in enumerate(p.body):
        if _main(s):
            return replace(p, body=(*p.body[:n], *s.body, *p.body[n:])), "the loop's lines once before it"
    return None


def leave(p: Program, r: random.Random) -> Any:
    """The loop is left early."""
    at, i, b = picked(r, lines(p))
    if at[0] == "rules":
        return None
    test = condition(p, at, r)
    return within(p, at, i, (b[i], L.Break(expr(test)))), f"break if {test} after `{L.line_of(b[i])}`"


def commits(p: Program, r: random.Random) -> Any:
    found = picked(r, [x for x in lines(p) if isinstance(x[2][x[1]], L.Commit)])
    if found is None:
        return None
    at, i, b = found
    model = r.choice([q.name for q in p.params if q.model])
    line = r.choice([f"commit argmax({model}(ctx))", f"z ~ {model}(ctx)", "commit x", f"z ~ {model}(ctx) as output"])
    new = [statement(line, (), ())] + ([L.Commit(L.Name("z"))] if line.startswith("z") else [])
    where = r.choice(["instead", "before", "after"])
    put_in = tuple(new) if where == "instead" else (*new, b[i]) if where == "before" else (b[i], *new)
    return within(p, at, i, put_in), f"{where} of the commit: {line}"


def drafts_more(p: Program, r: random.Random) -> Any:
    """A further draft at the root, or below the leaves."""
    found = picked(r, [x for x in lines(p) if isinstance(x[2][x[1]], L.Grow)])
    if found is None:
        return None
    at, i, b = found
    model = r.choice([q.name for q in p.params if q.model])
    line = r.choice([f"grow topk({model}(t.leaves).raw, 1)", f"grow sample({model}(root), 1) at root", "grow x", "grow point(x.token)",
                     f"grow point({r.randint(0, 2)}) at root", f"grow topk({model}(root).raw, 2) at root"])
    return within(p, at, i, (b[i], statement(line, (), ()))), f"also {line}"


# ---- edits of expressions


def off_by_one(p: Program, r: random.Random) -> Any:
    d = r.choice([1, -1])
    return one(p, r, lambda x: isinstance(x, L.Num) and x.text.isdigit(), lambda x: L.Num(str(max(0, int(x.text) + d))), "off by one")


def longer(p: Program, r: random.Random) -> Any:
    op, n = r.choice("+-"), r.choice("12")
    return one(p, r, lambda x: isinstance(x, L.Repeat), lambda x: replace(x, count=L.Bin(op, x.count, L.Num(n))), "another count")


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
    return one(p, r, lambda x: isinstance(x, L.Bin) and x.op in other, lambda x: replace(x, op=other[x.op]), "another comparison")


def arithmetic(p: Program, r: random.Random) -> Any:
    other = {"+": "-", "-": "+", "*": "/", "/": "*"}
    return one(p, r, lambda x: isinstance(x, L.Bin) and x.op in other, lambda x: replace(x, op=other[x.op]), "another operation")


def turned(p: Program, r: random.Random) -> Any:
    return one(p, r, lambda x: isinstance(x, L.Bin) and x.op in ("-", "/", "<", ">"),
               lambda x: replace(x, left=x.right, right=x.left), "turned round")


def another_function(p: Program, r: random.Random) -> Any:
    other = {"max": ["min", "sum"], "any": ["all"], "all": ["any"], "relu": ["abs"], "sample": ["distinct", "topk"],
             "distinct": ["sample", "topk"], "topk": ["sample", "distinct"], "rank": ["rank"], "first_max": ["rank"], "min": ["max"]}
    return one(p, r, lambda x: call(x, *other), lambda x: replace(x, func=L.Name(r.choice(other[x.func.id]))), "another function")


def unwrapped(p: Program, r: random.Random) -> Any:
    return one(p, r, lambda x: call(x, "normalize", "relu", "argmax", "point", "min"), lambda x: x.args[0], "forgotten")


def of_factor(p: Program, r: random.Random) -> Any:
    """A coin that comes up too often or too rarely."""
    c = r.choice(["2", "0.5", "0.9", "1.1", "1.001", "4"])
    return one(p, r, lambda x: call(x, "bernoulli"),
               lambda x: replace(x, args=(L.Bin("*", x.args[0], L.Num(c)),)), f"accepts times {c}")


def always(p: Program, r: random.Random) -> Any:
    test = r.choice(["yes", "no", "p[x] > 0.5", "p[x] > 0", "p[x] >= x.law[x]", "bernoulli(p[x])", "bernoulli(1 - x.law[x])",
                     "bernoulli(x.law[x])", "p[x] == max(p)", "bernoulli(0.5)", "max(p) > 0.9 and p[x] == max(p)"])
    return one(p, r, lambda x: call(x, "bernoulli"), lambda x: expr(test), "accepts otherwise")


def also_accepts(p: Program, r: random.Random) -> Any:
    """A test that also holds, or only holds, somewhere else."""
    some = r.choice(["p[x] > 0.9", "p[x] > 0.99", f"x == {r.randint(0, 3)}", "x.law[x] < 0.02", "max(p) > 0.9", "x.law[x] == 1",
                     "len(children) > 1", "p[x] < 0.01"])
    word = r.choice(["or", "and", "and not"])
    new = L.Un("not", expr(some)) if word == "and not" else expr(some)
    tests = [(at, x) for at, x in code(p) if at[0] == "rules" and isinstance(x, L.If)]
    found = picked(r, tests)
    if found is None:
        return None
    at, x = found
    return put(p, (*at, "test"), L.Bin(word.split()[0], x.test, new)), f"accepts {word} {some}"


def another_law(p: Program, r: random.Random) -> Any:
    law = r.choice(["onehot(x)", "children[0].law", "children[-1].law" if r.random() < 0 else "uniform(vocab)", "x.law * 2", "p"])
    return one(p, r, lambda x: isinstance(x, L.Attr) and x.name == "law", lambda x: expr(law), "another law")


def some_children(p: Program, r: random.Random) -> Any:
    part = r.choice(["children[1:]", "children[:1]", "children[:2]"])
    return one(p, r, lambda x: isinstance(x, L.For) and show(x.over) == "children",
               lambda x: replace(x, over=expr(part)), "not all children")


def takes_likeliest(p: Program, r: random.Random) -> Any:
    return one(p, r, lambda x: isinstance(x, L.Draw), lambda x: L.Assign(L.Name(x.name), "=", L.Call(L.Name("argmax"), (x.value,))),
               "takes the likeliest")


def as_output(p: Program, r: random.Random) -> Any:
    """A draw reads the noise of the specification, or no longer does."""
    return one(p, r, lambda x: isinstance(x, L.Draw), lambda x: replace(x, output=True if x.output is None else None), "other noise")


def as_point(p: Program, r: random.Random) -> Any:
    """The draft's law is forgotten."""
    return one(p, r, lambda x: isinstance(x, L.Grow) and isinstance(x.value, L.Name),
               lambda x: replace(x, value=L.Call(L.Name("point"), (L.Attr(x.value, "token"),))), "law forgotten")


def another_name(p: Program, r: random.Random) -> Any:
    """One of the program's own values for another."""
    own = sorted({x.name for _, x in code(p) if isinstance(x, L.Draw | L.For)} | {"p", "x", "y"} | {s.name for s in p.states}
                 | {q.name for q in p.params if not q.model})
    return one(p, r, lambda x: isinstance(x, L.Name) and x.id in own, lambda x: L.Name(r.choice(own)), "another value")


def stepped(p: Program, r: random.Random) -> Any:
    """What an accepted path gives, or what a state is given."""
    new = r.choice(["t.size", "t.accepted.depth", "t.height", "ctx.length", "0", "1", "t.accepted.depth + 1"])
    return one(p, r, lambda x: isinstance(x, L.Assign) and isinstance(x.target, L.Name) and x.target.id in {s.name for s in p.states},
               lambda x: replace(x, value=expr(new)), "carries something else")


def shared_noise(p: Program, r: random.Random) -> Any:
    """A draw reads a noise that was made once, before the loop."""
    main = next((n for n, s in enumerate(p.body) if _main(s)), None)
    got = one(p, r, lambda x: isinstance(x, L.Draw) and x.output is None and not x.using, lambda x: replace(x, using="g"), "shared noise")
    if got is None or main is None:
        return None
    new = got[0]
    return replace(new, body=(*new.body[:main], L.Noise("g", (L.Name("vocab"),)), *new.body[main:])), got[1]


# ---- edits of declarations


def other_scope(p: Program, r: random.Random) -> Any:
    if not p.states:
        return None
    s = r.choice(p.states)
    new = replace(s, scope="session" if s.scope == "sequence" else "sequence")
    return replace(p, states=tuple(new if q is s else q for q in p.states)), f"{s.name} per {new.scope}"


def stronger(p: Program, r: random.Random) -> Any:
    """A claim that says more."""
    c = p.claims[0]
    if isinstance(c, L.Ensures):
        new: Any = L.Ensures(expr(r.choice(["p[x] > 0.05", "p[x] > c", "p[x] >= 0.2", "p[x] > 0.001"])))
    elif isinstance(c, L.Refines) and not c.greedy and c.mode == "distribution":
        new = replace(c, mode="tokens")
    elif isinstance(c, L.Keeps):
        new = L.Ensures(expr("p[x] > 0"))
    else:
        return None
    return replace(p, claims=(new,)), f"claims {L.claim_text(new)}"


def late(inner: Edit) -> Edit:
    """Another edit, but only where a condition holds: `if condition: the edited line, else: the line`."""
    def edit(p: Program, r: random.Random) -> Any:
        got = inner(p, r)
        if got is None:
            return None
        new, said = got
        best = None
        for at, b in blocks(p):  # the innermost block in which one line differs
            there = dict(blocks(new)).get(at)
            if there is None or len(there) < len(b) - 1:
                continue
            changed = [i for i in range(min(len(b), len(there))) if b[i] != there[i]]
            if changed and not _main(b[changed[0]]) and (best is None or len(at) >= len(best[0])):
                best = (at, changed[0], b, there)
        if best is None:
            return None
        at, i, b, there = best
        more = len(there) - len(b)
        if b[i + 1 :] != there[i + 1 + more :]:
            return None
        counted = at[0] == "body" and r.random() < 0.35
        scope = r.choice(["sequence", "sequence", "session"])
        test = f"late > {r.randint(0, 3)}" if counted else condition(p, at, r)
        changed_lines = there[i : i + 1 + more] or (L.If(expr("no"), (b[i],)),)
        out = within(p, at, i, (L.If(expr(test), changed_lines, (b[i],)),))
        if counted:
            out = _with_counter(out, scope)
        return out, f"if {test}{f' (turns per {scope})' if counted else ''}: {said}"
    return edit


def _with_counter(p: Program, scope: str) -> Program:
    """The program with a state `late` that counts its turns."""
    for n, s in enumerate(p.body):
        if _main(s):
            loop = replace(s, body=(*s.body, statement("late += 1", (), ())))
            body = (*p.body[:n], loop, *p.body[n + 1 :])
            return replace(p, body=body, states=(*p.states, L.State("late", "int", scope, L.Num("0"))))
    return p


KINDS: dict[str, Edit] = {f.__name__: f for f in (
    drop, swap, twice, only_if, before_loop, once_more, leave, commits, drafts_more, off_by_one, longer, another_number,
    another_model, raw, shaped, another_place, compares, arithmetic, turned, another_function, unwrapped, of_factor, always,
    also_accepts, another_law, some_children, takes_likeliest, as_output, as_point, shared_noise, another_name, stepped, other_scope, stronger)}
LATE = ("commits", "another_model", "raw", "another_place", "unwrapped", "of_factor", "always", "another_law", "some_children",
        "takes_likeliest", "as_output", "as_point", "drafts_more", "drop", "longer", "off_by_one", "turned", "another_name")
KINDS |= {f"late_{name}": late(KINDS[name]) for name in LATE}


def edited(seed: int, loads: Callable[[str], bool], base: str = "") -> tuple[Program, str]:
    """A program that differs from a base in one change or two, and still loads; and what was changed."""
    r = random.Random(f"edit {seed}")
    while True:
        name = base or r.choice(sorted(bases()))
        p, said = bases()[name], []
        for _ in range(1 if r.random() < 0.75 else 2):
            kind = r.choice(sorted(KINDS))
            try:
                got = KINDS[kind](p, r)
            except (Unreadable, KeyError, StopIteration):
                got = None
            if got is not None:
                p, said = got[0], [*said, f"{kind}: {got[1]}"]
        if said and p != bases()[name] and loads(p.text()):
            return p, f"{name}; " + "; ".join(said)
