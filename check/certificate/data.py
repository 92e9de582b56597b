"""What a certificate says, as plain data; and when one fact follows from another.

A fact is a tuple that begins with its kind. Values of the program stand in it by their names in the printed IR, contexts by
numbers: 0 is the one at the start; each commit, and each loop or branch that commits, begins the next (docs/proof.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from decgraph.ir.text import print_module
from decgraph.ir.values import Function, Module, Op, Region, Value

Fact = tuple[Any, ...]
Known: TypeAlias = Any
"""The pass that asks (following.py): it imports those whom it asks, so they do not name it."""
Labels = frozenset[Any]
"""Draws as (name of a noise, None); of an earlier iteration of a loop with the name of the loop in the place of None."""
NONE: Labels = frozenset()
HOW = {"inside": 0, "drawn": 1, "own": 2}
MASS, SCORES = ("shaped", "raw", "mass"), ("logits", "logs", "scores")
KINDS = ("model", "context", "piece", "memory", "row", "rows", "cell rows", "token", "path", "cell tokens", "drafts", "nodes")
FIELDS = dict(zip(KINDS, ("=", "v=", "==", "=o", "=vf", "==t", "===f", "=vh<", "=vh<", "===d", "<n", "=vs")))
FIELDS |= {"tree": "=v<t>m", "canvas": "mb"}
"""What stands in a fact of each kind, behind it, by how it may be weakened (ORDER)."""
ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: bool(a == b),  # models, trees, positions
    "v": lambda a, b: bool(a == b),  # the number of the context that it is about
    "o": lambda a, b: bool(a <= b),  # of a beginning of an earlier context
    "b": lambda a, b: b in (a, -1),  # the context that a canvas comes after; -1: not known
    "h": lambda a, b: a == b or b == "inside",
    "f": lambda a, b: a == b or b == "mass" and a in MASS or b == "scores" and a in SCORES or (a, b) == ("logits", "logs"),
    "<": lambda a, b: a <= b,  # of which draws it consists, at most
    ">": lambda a, b: a >= b,  # from which trees it was grown
    "t": lambda a, b: a or not b,  # drafts have the distributions that they state; rows at all nodes
    "s": lambda a, b: b in (a, "some"),  # which nodes: all, the root; some with the root
    "n": lambda a, b: b is None or a == b,
    "m": lambda a, b: b is None or a in ("", b) and a is not None,  # the model of all edges or cells; "": there are none
    "d": lambda a, b: b is None or follows(a, b),
}


class Refused(Exception):
    """A certificate does not show its claim: the line of the program, and what does not follow."""

    def __init__(self, at: Op | None, why: str) -> None:
        super().__init__(f"line {at.loc.line}: {why}" if at is not None and at.loc.line else why)


EMPTY: dict[str, Any] = dict.fromkeys(("loops", "rules", "shared", "numbers", "functions"), {})
EMPTY |= dict.fromkeys(("claim", "ir", "condition"), "") | {
    "premises": (),
    "cases": (),
    "laws": NONE,
    "greedy": False,
    "format": 1,
}
"""What a certificate says beside its model, mode and facts; those of functions that are run leave most of it out."""


def plain(x: object) -> Any:
    """JSON as immutable data: lists as tuples, {"set": [...]} as a set."""
    if isinstance(x, list):
        return tuple(map(plain, x))
    if isinstance(x, dict) and set(x) == {"set"}:
        return frozenset(map(plain, x["set"]))
    return {k: plain(y) for k, y in x.items()} if isinstance(x, dict) else x


def read(data: Mapping[str, Any]) -> dict[str, Any]:
    """A certificate from JSON."""
    found = {**EMPTY, **plain(data)}
    if found["format"] != 1:
        raise Refused(None, f"a certificate of format {found['format']}; this checker reads format 1")
    functions = {name: {**EMPTY, **part} for name, part in found["functions"].items()}
    cases = [{**EMPTY, "functions": functions, **part} for part in found["cases"]]
    return {**found, "functions": functions, "cases": cases}


def digest(module: Module) -> str:
    """The hash of a module's printed IR."""
    return hashlib.sha256(print_module(replace(module, path="")).encode()).hexdigest()


def digest_of_rule(op: Op) -> str:
    """The hash of a verification rule's IR without names, sites and lines, and without ops that repeat what regions yield."""
    numbers: dict[Value, int] = {}

    def text(region: Region) -> list[Any]:
        args, ops = [numbers.setdefault(v, len(numbers)) for v in region.args], []
        for o in (o for o in region.ops if o.opcode not in ("break", "verdict")):
            attrs = sorted((k, str(v)) for k, v in o.attrs.items() if k not in ("site", "reads"))
            used, inner = [numbers.get(v, "outside") for v in o.operands], [text(r) for r in o.regions]
            ops.append([o.opcode, attrs, used, inner, [numbers.setdefault(v, len(numbers)) for v in o.results]])
        return [args, ops, [numbers.get(v, "outside") for v in region.yields]]

    return hashlib.sha256(repr([op.attrs["scope"], text(op.regions[0])]).encode()).hexdigest()


def names_of(function: Function) -> tuple[dict[Value, str], dict[Op, str]]:
    """The names of values as the printed IR has them, and of loops by their order."""
    taken: dict[str, int] = {}
    names: dict[Value, str] = {}
    loops: dict[Op, str] = {}

    def define(values: tuple[Value, ...]) -> None:
        for v in values:
            n = taken[v.name] = taken.get(v.name, -1) + 1
            names[v] = f"%{n}" if not v.name else f"%{v.name}" + (f".{n}" if n else "")

    def walk(region: Region) -> None:
        for op in region.ops:
            define(op.results)
            if op.opcode in ("for", "while", "each"):
                loops[op] = f"loop {len(loops)}"
            for r in op.regions:
                define(r.args)
                walk(r)

    define(tuple(p.value for p in function.params))
    walk(function.body)
    return names, loops


def moved(fact: Fact | None, old: int, new: int) -> Fact | None:
    """A fact about context `old`, where that is context `new` too; None where it is about another one."""
    if fact is None or old == new:
        return fact
    kinds = FIELDS[fact[0]]
    if fact[0] == "memory":
        return (*fact[:2], new)  # a beginning of an earlier context is one of later ones
    if "v" in kinds and fact[1 + kinds.index("v")] != old:
        return None
    return (
        fact[0],
        *((new if x == old else -1) if c == "b" else new if c == "v" and x == old else x for c, x in zip(kinds, fact[1:])),
    )


def placed(fact: Fact | None, name: str) -> Fact | None:
    """A fact about a tree that goes by another name from here on."""
    return ("tree", name, *fact[2:5], fact[5] | {name}, fact[6]) if fact is not None and fact[0] == "tree" else fact


def one_model(a: str | None, b: str | None) -> str | None:
    """The model that is said of two things, where "" is true of any and None of none."""
    return None if a is None or b is None or (a and b and a != b) else a or b


def follows(known: Fact | None, claimed: Fact) -> bool:
    """Whether a claimed fact follows from a known one alone."""
    if known is None or known[0] != claimed[0] or len(known) != len(claimed):
        return False
    if known[0] in ("token", "path") and claimed[3] == "inside":
        known = (*known[:3], "inside", NONE)
    return all(ORDER[c](a, b) for c, a, b in zip(FIELDS[known[0]], known[1:], claimed[1:], strict=True))


def labels_of(fact: Fact | None) -> Labels:
    """The draws that a fact says a value consists of."""
    if fact is None or "<" not in FIELDS[fact[0]]:
        return labels_of(fact[4]) if fact is not None and fact[0] == "cell tokens" else NONE
    return frozenset(fact[1 + FIELDS[fact[0]].index("<")])


def said(x: object) -> str:
    """A fact as a person reads it."""
    if isinstance(x, frozenset):
        return "{" + ", ".join(sorted(map(said, x))) + "}"
    return "(" + " ".join(map(said, x)) + ")" if isinstance(x, tuple) else "nothing" if x is None else str(x)
