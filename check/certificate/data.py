"""What a certificate says, as plain data, and the order of its facts.

A fact is a tuple that begins with its kind; values of the program stand in it by their names in the printed IR, contexts by
their numbers: the context at the start is 0, and each commit, loop or branch that commits begins the next one.

| fact | says of a value, for every vocabulary, model, context and request |
|---|---|
| model M | it is the model parameter M itself |
| context v parent | the committed context number v, or that without its last token |
| piece start end | the tokens of the committed text between two positions |
| memory M v short first empty | what M computes for a beginning of context v, `short` tokens shorter, rows from `first` on |
| row M v face | a vector over the vocabulary: M's distribution after context v (shaped, raw, logits, logs); 0 (mass) or -inf (scores) where that is 0 |
| rows M t all | M's distribution after the nodes of tree t: all, or some with the root |
| nodes t v which | nodes of tree t: all, the root, some with the root |
| column t holds | depths of the nodes of t; a condition that is true at the root, or everywhere |
| token M v how noises | one token: M's own draw after v (own), a draw of M's distribution that nothing has read (drawn), one with mass (inside) |
| path M v how noises | tokens after v, each so after those before it |
| tokens M t | M's own draws after the nodes of t, the root's first |
| drafts noises race one after | draws that have the distributions which they state, given all that was read before; `after` (M, v): with mass there |
| tree t v noises true grown inside | a tree on context v; true: its drafts have the distributions that they state; grown: from which trees; inside: the model that gives mass to each edge ("": it has none, null: no one) |
| canvas M v | each decided cell got a token that M gave mass to there and then ("": none is decided); the cells come after context v |
| cell rows M c at face | M's distributions on canvas (or tree) c, at positions or nodes `at` (null: everywhere) |
| cell tokens M c at drafts | tokens with mass there |
| picked of keys tokens | one of the values of a vector, by its keys |
| edit M c e | position and token of an edit e of canvas c, with mass there |
| alone fact | a list of one element with that fact |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.ir.text import print_module
from decgraph.ir.values import Function, Module, Op, Region, Value

Fact = tuple[Any, ...]
Labels = frozenset[tuple[str, "str | None"]]
"""Draws, by the names of their noises; of an earlier iteration of a loop with the name of the loop."""
NONE: Labels = frozenset()
VERSION = {"context": 1, "row": 2, "token": 2, "path": 2, "memory": 2, "nodes": 2, "tree": 2}
"""Where in a fact the number of its context stands."""
HOW = {"inside": 0, "drawn": 1, "own": 2}
MASS, SCORES = ("shaped", "raw", "mass"), ("logits", "logs", "scores")


class Refused(Exception):
    """A certificate does not show its claim: the line of the program, and what does not follow."""

    def __init__(self, at: Op | None, why: str) -> None:
        super().__init__(why)
        self.line, self.why = (at.loc.line if at is not None else 0), why

    def __str__(self) -> str:
        return f"line {self.line}: {self.why}" if self.line else self.why


def plain(x: object) -> Any:
    """JSON as immutable data: lists as tuples, {"set": [...]} as a set."""
    if isinstance(x, list):
        return tuple(plain(y) for y in x)
    if isinstance(x, dict) and set(x) == {"set"}:
        return frozenset(plain(y) for y in x["set"])
    return {k: plain(y) for k, y in x.items()} if isinstance(x, dict) else x


@dataclass(frozen=True)
class Loop:
    """What holds at the head of a loop: on which draws its carried values, the states and its control depend; and states with
    draws of the iteration before that nothing has read."""

    values: tuple[Labels, ...] = ()
    stored: Mapping[str, Labels] = field(default_factory=dict)
    control: Labels = NONE
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Certificate:
    """A derivation of one claim: its facts by the names of values, its invariants by the names of loops."""

    model: str
    mode: str
    facts: Mapping[str, Fact]
    claim: str = ""
    ir: str = ""
    greedy: bool = False
    condition: str = ""
    premises: tuple[str, ...] = ()
    loops: Mapping[str, Loop] = field(default_factory=dict)
    rules: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    laws: frozenset[str] = frozenset()
    positive: frozenset[str] = frozenset()
    shared: Mapping[str, Labels] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Certificate] = field(default_factory=dict)
    cases: tuple[Certificate, ...] = ()


def read(data: Mapping[str, Any]) -> Certificate:
    """A certificate from JSON. Raises Refused for what is none."""
    try:
        made = {k: plain(v) for k, v in data.items() if k not in ("format", "loops", "cases", "functions")}
        loops = {k: Loop(**plain(v)) for k, v in data.get("loops", {}).items()}
        cases = tuple(read(part) for part in data.get("cases", ()))
        if data.get("format", 1) != 1:
            raise Refused(None, f"a certificate of format {data.get('format')}; this checker reads format 1")
        functions = {k: read(part) for k, part in data.get("functions", {}).items()}
        return Certificate(**made, loops=loops, cases=cases, functions=functions)
    except (TypeError, AttributeError) as error:
        raise Refused(None, f"this is no certificate: {error}") from None


def digest(module: Module) -> str:
    """The hash of a module's printed IR."""
    return hashlib.sha256(print_module(replace(module, path="")).encode()).hexdigest()


def digest_of_rule(op: Op) -> str:
    """The hash of a verification rule's IR: without names, sites and lines, and without the ops that repeat what regions yield."""
    numbers: dict[Value, int] = {}

    def text(region: Region) -> list[Any]:
        args, ops = [numbers.setdefault(v, len(numbers)) for v in region.args], []
        for o in region.ops:
            if o.opcode in ("break", "verdict"):
                continue
            attrs = sorted((k, str(v)) for k, v in o.attrs.items() if k not in ("site", "reads"))
            used, inner = [numbers.get(v, "outside") for v in o.operands], [text(r) for r in o.regions]
            ops.append([o.opcode, attrs, used, inner, [numbers.setdefault(v, len(numbers)) for v in o.results]])
        return [args, ops, [numbers.get(v, "outside") for v in region.yields]]

    return hashlib.sha256(json.dumps([op.attrs["scope"], text(op.regions[0])]).encode()).hexdigest()


def names_of(function: Function) -> tuple[dict[Value, str], dict[Op, str]]:
    """The names of values as the printed IR has them, and of loops by their order."""
    taken: dict[str, int] = {}
    names: dict[Value, str] = {}
    loops: dict[Op, str] = {}

    def define(values: tuple[Value, ...]) -> None:
        for v in values:
            n = taken.get(v.name, 0)
            taken[v.name] = n + 1
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
    if fact[0] == "canvas":
        return (*fact[:2], new if fact[2] == old else -1)
    if fact[0] == "alone":
        return None
    at = VERSION.get(fact[0])
    if at is None:
        return fact
    return (*fact[:at], new, *fact[at + 1 :]) if fact[at] == old else None


def placed(fact: Fact | None, name: str) -> Fact | None:
    """A fact about a tree that goes by another name from here on."""
    return ("tree", name, *fact[2:5], fact[5] | {name}, fact[6]) if fact is not None and fact[0] == "tree" else fact


def one_model(a: str | None, b: str | None) -> str | None:
    """The model that is said of two things, where "" is true of any and None of none."""
    return None if a is None or b is None or (a and b and a != b) else a or b


def follows(known: Fact | None, claimed: Fact) -> bool:
    """Whether a claimed fact follows from a known one alone."""
    if known == claimed:
        return True
    if known is None or known[0] != claimed[0] or len(known) != len(claimed):
        return False
    match known, claimed:
        case ("token" | "path", m, v, how, noises), (_, n, w, less, others):
            weaker = how == less or less == "inside"
            return (m, v) == (n, w) and weaker and (noises <= others or less == "inside")
        case ("row", m, v, face), (_, n, w, less):
            return (m, v) == (n, w) and (less == "mass" and face in MASS or less == "scores" and face in SCORES)
        case ("cell rows", m, c, at, face), (_, n, d, where, less):
            return (m, c, at) == (n, d, where) and (less == "mass" and face in MASS or less == "scores" and face in SCORES)
        case ("rows", m, t, _), (_, n, u, least):
            return (m, t) == (n, u) and least is False
        case ("nodes", t, v, _), (_, u, w, least):
            return (t, v) == (u, w) and least == "some"
        case ("column", t, "everywhere"), (_, u, "at root"):
            return bool(t == u)
        case ("drafts", noises, race, one, after), (_, others, r, o, less):
            return noises <= others and race == r and one <= o and (less is None or less == after)
        case ("tree", t, v, noises, true, grown, inside), (_, u, w, others, so, fewer, less):
            fits = (t, v) == (u, w) and noises <= others and grown >= fewer
            return fits and (true or not so) and (less is None or less == inside or inside == "" and less is not None)
        case ("canvas", m, v), (_, n, w):
            return m in ("", n) and w in (v, -1)
        case ("cell tokens", m, c, at, drafts), (_, n, d, where, less):
            return (m, c, at) == (n, d, where) and (less is None or drafts is not None and follows(drafts, less))
        case ("memory", m, v, _, (), False), (_, n, w, None, (), False):
            return (m, v) == (n, w)
        case ("alone", inner), (_, less):
            return follows(inner, less)
    return False


def labels_of(fact: Fact | None) -> Labels:
    """The draws that a fact says a value consists of."""
    match fact:
        case ("token" | "path", _, _, _, noises) | ("drafts", noises, _, _, _) | ("tree", _, _, noises, _, _, _):
            return frozenset(noises)
        case ("cell tokens", _, _, _, tuple() as drafts):
            return labels_of(drafts)
    return NONE


def walk(region: Region) -> Iterator[Op]:
    """Every op of a region and inside it."""
    return region.walk()


Rule = Callable[[Any, Op], "Fact | None | list[Fact | None]"]
