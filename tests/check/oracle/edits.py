"""Random edits of true programs: one to three changes of kinds that people make, each said in words."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from oracle import language as L
from oracle.bases import bases
from oracle.language import Program
from oracle.places import blocks, condition, is_main, lines, picked, put, within
from oracle.reading import Unreadable, expr, statement
from oracle.rewrites import (
    also_accepts,
    always,
    another_function,
    another_law,
    another_model,
    another_name,
    another_number,
    another_place,
    arithmetic,
    as_output,
    as_point,
    compares,
    longer,
    of_factor,
    off_by_one,
    raw,
    shaped,
    shared_noise,
    some_children,
    stepped,
    takes_likeliest,
    turned,
    unwrapped,
)

Edit = Callable[[Program, random.Random], tuple[Program, str] | None]


# ---- edits of statements


def drop(p: Program, r: random.Random) -> Any:
    found = picked(r, [x for x in lines(p) if len(x[2]) > 1])
    return found and (within(p, found[0], found[1], ()), f"dropped `{L.line_of(found[2][found[1]])}`")


def swap(p: Program, r: random.Random) -> Any:
    found = picked(r, [x for x in lines(p) if x[1] + 1 < len(x[2]) and not is_main(x[2][x[1] + 1])])
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
        if is_main(s):
            i = r.randrange(len(s.body))
            if len(s.body) < 2:
                return None
            loop = replace(s, body=(*s.body[:i], *s.body[i + 1 :]))
            return replace(
                p, body=(*p.body[:n], s.body[i], loop, *p.body[n + 1 :])
            ), f"before the loop: `{L.line_of(s.body[i])}`"
    return None


def once_more(p: Program, r: random.Random) -> Any:
    """What the loop does is done once before it, too."""
    for n, s in enumerate(p.body):
        if is_main(s):
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
    line = r.choice(
        [
            f"grow topk({model}(t.leaves).raw, 1)",
            f"grow sample({model}(root), 1) at root",
            "grow x",
            "grow point(x.token)",
            f"grow point({r.randint(0, 2)}) at root",
            f"grow topk({model}(root).raw, 2) at root",
        ]
    )
    return within(p, at, i, (b[i], statement(line, (), ()))), f"also {line}"


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
            if changed and not is_main(b[changed[0]]) and (best is None or len(at) >= len(best[0])):
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
        changed_lines = there[i : i + 1 + more]
        new_if = L.If(expr(test), changed_lines, (b[i],)) if changed_lines else L.If(L.Un("not", expr(test)), (b[i],))
        out = within(p, at, i, (new_if,))
        if counted:
            out = _with_counter(out, scope)
        return out, f"if {test}{f' (turns per {scope})' if counted else ''}: {said}"

    return edit


def _with_counter(p: Program, scope: str) -> Program:
    """The program with a state `late` that counts its turns."""
    for n, s in enumerate(p.body):
        if is_main(s):
            loop = replace(s, body=(*s.body, statement("late += 1", (), ())))
            body = (*p.body[:n], loop, *p.body[n + 1 :])
            return replace(p, body=body, states=(*p.states, L.State("late", "int", scope, L.Num("0"))))
    return p


KINDS: dict[str, Edit] = {
    f.__name__: f
    for f in (
        drop,
        swap,
        twice,
        only_if,
        before_loop,
        once_more,
        leave,
        commits,
        drafts_more,
        off_by_one,
        longer,
        another_number,
        another_model,
        raw,
        shaped,
        another_place,
        compares,
        arithmetic,
        turned,
        another_function,
        unwrapped,
        of_factor,
        always,
        also_accepts,
        another_law,
        some_children,
        takes_likeliest,
        as_output,
        as_point,
        shared_noise,
        another_name,
        stepped,
        other_scope,
        stronger,
    )
}
LATE = (
    "commits",
    "another_model",
    "raw",
    "another_place",
    "unwrapped",
    "of_factor",
    "always",
    "another_law",
    "some_children",
    "takes_likeliest",
    "as_output",
    "as_point",
    "drafts_more",
    "drop",
    "longer",
    "off_by_one",
    "turned",
    "another_name",
)
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
