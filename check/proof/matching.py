"""The judgment `matching`: on every path a rule accepts a child that is the target's own draw, or emits that draw.

Symbolic execution over a few abstract values, with equalities that hold under branches; loops run until no new joint state of
their carried values appears, so the result holds for any number of children, any vocabulary and any distributions. The same
execution decides `support`: what is accepted or emitted has mass (check/proof/masses.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count
from typing import Literal, TypeAlias

from decgraph.check.proof.masses import ANY, Above, Number, chosen, constant, divided, folded, greater, mapped
from decgraph.ir.values import Constant, Op, Region, Value

MOST_PATHS = 400
MOST_STATES = 60
Known = Literal["own", "inside", ""]


class NoRule(Exception):
    """The judgment does not hold, or is not found: why."""


@dataclass(frozen=True)
class Thing:
    """An abstract value by its kind; `at`: the node that it belongs to."""

    kind: str
    at: Hashable = None
    known: Known = ""


@dataclass(frozen=True)
class Tok:
    """A token: which one it is (`name`), what is known of it, and whether it is the child in hand or stands at a node."""

    name: int
    known: Known = ""
    place: Hashable = None


@dataclass(frozen=True)
class Equal:
    """The condition that two tokens are equal, or (`so` False) that they are not. part: one of several conditions that are
    joined by `and`, of whose opposite nothing follows. known: of both where they are equal."""

    a: int
    b: int
    so: bool = True
    part: bool = False
    known: Known = ""


UNKNOWN = Thing("unknown")
OUTPUT, NOISE = Thing("output"), Thing("noise")
ROW, ROWS, CHILDREN, TREE, ABOVE = (Thing(k) for k in ("row", "rows", "children", "tree", "rows at parents"))
PARENTS, TOKENS, NODES = Thing("parents"), Thing("tokens"), "each node"
RuleValue: TypeAlias = Thing | Tok | Equal | Above | Number | Constant
"""What is known of a value in a rule."""
Env = Mapping[Value, RuleValue]
EVIDENCE = Number(("each", None), low=True, some=True, finite=True, share=True)
"""What is known of a row of the evidence."""


@dataclass
class Paths:
    """All paths through the region of one `tree.walk`. outer: what is known of values from outside of the rule; fresh: whether
    draws count as own that are made with noise of the rule's own, and not those of the output stream; drafted: whether drafts
    are drawn from the distributions that they state."""

    op: Op
    outer: Callable[[Value], RuleValue]
    greedy: bool = False
    fresh: bool = False
    drafted: bool = False

    def __post_init__(self) -> None:
        self.names = count()

    def judge(self) -> Literal["matching", "support"]:
        """The judgment. Raises NoRule."""
        region = self.op.regions[0]
        depth, first, second = region.args
        whole = self.op.attrs["scope"] == "tree"
        start = {depth: UNKNOWN, first: TREE if whole else ROW, second: ROWS if whole else CHILDREN}
        worst: set[Known] = set()
        for env in self.run(region, [start]):
            has, what, emits, token = (env.get(v, UNKNOWN) for v in region.yields)
            worst |= self._of_tree(has, what, emits, token) if whole else self._of_node(has, what, emits, token)
        if "" in worst:
            raise NoRule("accepts or emits a token that nothing is known of")
        return "support" if "inside" in worst else "matching"

    def _of_node(self, has: RuleValue, what: RuleValue, emits: RuleValue, token: RuleValue) -> set[Known]:
        """Of a path through a rule for one node: exactly one of a child and an emitted token."""
        if not isinstance(has, bool) or not isinstance(emits, bool):
            raise NoRule("whether the rule accepts or emits is not known on some path")
        if has:
            if emits or not (isinstance(what, Tok) and what.place == "child"):
                raise NoRule("accepts something that is not a child, or emits below it")
            return {what.known}
        if not emits or not isinstance(token, Tok):
            raise NoRule("emits a token that nothing is known of" if emits else "a path accepts nothing and emits nothing")
        return {token.known}

    def _of_tree(self, has: RuleValue, what: RuleValue, emits: RuleValue, token: RuleValue) -> set[Known]:
        """Of a path through a rule for a whole tree: a node whose path is known, and a token that stands at it."""
        if not isinstance(has, bool) or not isinstance(emits, bool):
            raise NoRule("whether the rule accepts or emits is not known on some path")
        node: Hashable = "root"
        known: set[Known] = set()
        if has:
            if not (isinstance(what, Thing) and what.kind == "node"):
                raise NoRule("the accepted node is not known to carry the target's tokens")
            node, known = what.at, {what.known}
        if not emits:
            raise NoRule("may accept the root and emit nothing")
        if not (isinstance(token, Tok) and token.place == ("at", node)):
            raise NoRule("the emitted token is not known to be the target's at the accepted node")
        known.add(token.known)
        return known

    def run(self, region: Region, envs: list[Env]) -> list[Env]:
        for op in region.ops:
            envs = [after for env in envs for after in self.step(op, env)]
            if len(envs) > MOST_PATHS:
                raise NoRule("too many paths")
        return envs

    def get(self, env: Env, v: Value) -> RuleValue:
        return env[v] if v in env else self.outer(v)

    def step(self, op: Op, env: Env) -> list[Env]:
        """The environments after an op: one, or one for each way through a branch."""
        if op.opcode == "if":
            return self._branch(op, env, self.get(env, op.operands[0]))
        if op.opcode == "for":
            return self._loop(op, env)
        if len(op.results) != 1:
            return [{**env, **dict.fromkeys(op.results, UNKNOWN)}]
        return [{**env, op.result: self._value(op, [self.get(env, v) for v in op.operands])}]

    def _value(self, op: Op, xs: list[RuleValue]) -> RuleValue:
        one = not op.result.type.dims
        match op.opcode, xs:
            case "const", _:
                value = op.attrs["value"]
                return value if isinstance(value, bool | int | Fraction) else UNKNOWN
            case "bernoulli", [x, _] if (number := self._number(x)) is not None and number.most not in (None, ANY):
                return self._condition(number.most)
            case "noise", _:
                return OUTPUT if op.attrs["kind"] == "output" and not op.operands else NOISE
            case "draw", [Number(nothing=("each", at), finite=True), _]:
                return Tok(next(self.names), "inside", at)
            case "draw", [Thing("row"), noise]:
                return Tok(next(self.names), "own" if (noise == OUTPUT) is not self.fresh else "inside")
            case "draw", [Thing("rows"), noise]:
                return Thing("draws", None, "own" if (noise == OUTPUT) is not self.fresh else "inside")
            case "draw" | "arg", [Thing("row", at), *rest] if not rest and op.attrs.get("fn") == "max":
                return Tok(next(self.names), "own" if self.greedy else "inside", at)
            case "arg", [Number(nothing=("each", at), some=True, finite=True)] if op.attrs.get("fn") == "max":
                return Tok(next(self.names), "inside", at)
            case "draw", _:
                return Tok(next(self.names))
            case "gather", [Thing("children"), *_] if one:
                return Tok(next(self.names), "", "child")
            case "gather", [Thing("rows"), Thing("parents")]:
                return ABOVE
            case "gather", [Thing("rows"), Thing("node", at)]:
                return Thing("row", ("at", at))
            case "gather", [Thing("draws", _, known), Thing("parents")]:
                return Thing("draws at parents", None, known)
            case "gather", [Thing("draws", _, known), Thing("node", at)]:
                return Tok(next(self.names), known, ("at", at))
            case "draw.get", [x] if op.attrs["field"] == "token":
                return x
            case "draw.get", [Tok(name, place="child")] if op.attrs["field"] == "prob":
                return self._stated()
            case "draw.get", [Tok(name, place="child")] if op.attrs["field"] == "law":
                return Thing("law", name)
            case "face", [Thing("row" | "rows") as x] if op.attrs["face"] == "raw" and not self.greedy:
                return x
            case "arg", [Thing("nodes", _, known), *_]:
                return Thing("node", next(self.names), known)
            case "tree.get", [Thing("tree")] if op.attrs["column"] in ("parent", "token"):
                return PARENTS if op.attrs["column"] == "parent" else TOKENS
            case "tree.nodes", [Thing("tree")] if op.attrs["which"] == "all":
                return Thing("nodes")
            case "lookup", [Thing("rows at parents"), Thing("tokens")]:
                return replace(EVIDENCE, nothing=NODES, some=False)
            case "lookup", [Thing("law", of), Tok(name)]:
                return self._stated() if name == of else Number(low=True, finite=True, share=True)
            case "lookup", [x, Tok(name, _, place)] if (row := self._number(x)) is not None:
                rows = {n for n in (row.nothing, row.under, row.never) if isinstance(n, tuple)}
                within = rows <= {("each", None), ("each", place)}
                return replace(self._at(row, name if within else None), some=row.above)
            case "reduce", [x] if _of_vocabulary(op) and (row := self._number(x)) is not None:
                return folded(op.attrs["fn"], row)
            case "normalize", [x] if (row := self._number(x)) is not None:
                return x if x == ROW else divided(row)
            case "gather", [Number() as x, *_]:
                return replace(self._at(x, None), some=x.above)
            case "tree.down", [Thing("tree"), Thing("good at nodes", _, known)] if op.attrs["fn"] == "all":
                return Thing("good on paths", None, known)
            case "compact", [Thing("nodes"), Thing("good on paths", _, known)]:
                return Thing("nodes", None, known)
            case "map", _:
                return self._map(op.attrs["fn"], xs, same=len({*op.operands}) == 1)
        return UNKNOWN

    @staticmethod
    def _at(row: Number, name: Hashable) -> Number:
        """Of a number of a row, that of the token `name` if that is one of its own; of each of a vector elsewhere (None)."""
        found = [name if isinstance(n, tuple) else n if n == ANY else None for n in (row.nothing, row.under, row.never)]
        return replace(row, nothing=found[0], under=found[1], never=found[2])

    def _stated(self) -> Number:
        """What a draft's own distribution gives it: it was drawn from there."""
        return Number(low=True, above=self.drafted, some=self.drafted, finite=True, share=True)

    def _number(self, x: RuleValue) -> Number | None:
        """What is known of a number or a row, or None."""
        match x:
            case Number():
                return x
            case bool():
                return None
            case int() | Fraction():
                return constant(x)
            case Thing("row" | "rows" as kind, at):
                return replace(EVIDENCE, nothing=("each", at) if kind == "row" else None)
            case Thing("law"):
                return replace(EVIDENCE, nothing=None, some=self.drafted)
        return None

    def _condition(self, token: Hashable) -> RuleValue:
        """That a token has mass; at greedy requests only the target's own has."""
        known: Known = "own" if self.greedy else "inside"
        return Thing("good at nodes", None, known) if token == NODES else Above(token)

    def _map(self, fn: str, xs: list[RuleValue], *, same: bool = False) -> RuleValue:
        match fn, xs:
            case "not", [bool() as x]:
                return not x
            case "not", [Equal(part=False) as x]:
                return replace(x, so=not x.so)
            case "and", _:
                if False in [x for x in xs if isinstance(x, bool)]:
                    return False
                if all(x is True for x in xs):
                    return True
                rest = [x for x in xs if x is not True]
                if len(rest) == 1:
                    return rest[0]
                for part in rest:  # any part of a conjunction is implied
                    if isinstance(part, Above) or _is(part, "good at nodes"):
                        return part
                    if isinstance(part, Equal) and part.so:
                        return replace(part, part=True)
                return UNKNOWN
            case "or", _:
                if True in [x for x in xs if isinstance(x, bool)]:
                    return True
                rest = [x for x in xs if x is not False]
                if len(rest) == 2:
                    return self._either(*rest)
                return False if not rest else rest[0] if len(rest) == 1 else UNKNOWN
            case "eq", [Tok(a, known), Tok(b, other)]:
                return Equal(a, b, known="own" if "own" in (known, other) else known or other)
            case "eq", [Thing("tokens"), Thing("draws at parents", _, known)] | [
                Thing("draws at parents", _, known),
                Thing("tokens"),
            ]:
                return Thing("good at nodes", None, known)
            case "gt" | "ge", [big, small]:
                return self._greater(big, small, or_equal=fn == "ge")
            case "lt" | "le", [small, big]:
                return self._greater(big, small, or_equal=fn == "le")
            case "select", [condition, *ways]:
                yes, no = map(self._number, ways)
                return UNKNOWN if yes is None or no is None else chosen(condition, yes, no)
        return mapped(fn, [self._number(x) or Number() for x in xs], same=same)

    def _greater(self, big: RuleValue, small: RuleValue, *, or_equal: bool) -> RuleValue:
        x, y = self._number(big), self._number(small)
        if x is None or y is None:
            return UNKNOWN
        if x.share and isinstance(small, int | Fraction) and small >= 1 and not or_equal:
            return False
        token = greater(x, y, or_equal=or_equal)
        return UNKNOWN if token is None else self._condition(token)

    def _either(self, a: RuleValue, b: RuleValue) -> RuleValue:
        """`a or b`, where either says that one token has mass: also as one that is equal to another with mass."""
        if isinstance(b, Equal):
            a, b = b, a
        if a == b and (isinstance(a, Above) or _is(a, "good at nodes")):
            return a
        same = isinstance(a, Equal) and isinstance(b, Above) and a.so and a.known and b.token in (a.a, a.b) and not self.greedy
        return b if same else UNKNOWN

    def _branch(self, op: Op, env: Env, condition: RuleValue) -> list[Env]:
        out: list[Env] = []
        for n, region in enumerate(op.regions):
            if isinstance(condition, bool) and condition is bool(n):
                continue
            for after in self.run(region, [self._learnt(env, condition, true=n == 0)]):
                yields = {r: self.get(after, y) for r, y in zip(op.results, region.yields)}
                out.append({**after, **yields})
        return out

    def _learnt(self, env: Env, condition: RuleValue, *, true: bool) -> Env:
        """What a condition says of tokens where it is true, or false."""
        match condition:
            case Equal(a, b, so) if so is true:
                same = [x.known for x in env.values() if isinstance(x, Tok) and x.name in (a, b)]
                best: Known = "own" if "own" in same else "inside" if "inside" in same else ""
                return _with(env, lambda x: replace(x, known=best) if x.name in (a, b) else x)
            case Above(name) if true:
                known: Known = "own" if self.greedy else "inside"
                return _with(env, lambda x: replace(x, known=x.known or known) if x.name == name else x)
        return env

    def _loop(self, op: Op, env: Env) -> list[Env]:
        """Joint states of the carried values until there are no new ones; a state holds what is known, and no names."""
        body, stops = op.regions[0], int(bool(op.attrs.get("stops")))
        start = tuple(_nameless(self.get(env, v)) for v in op.operands[2:])
        seen, todo, ends = {start}, [start], {start}
        while todo:
            inner = {**env, body.args[0]: UNKNOWN}
            inner |= dict(zip(body.args[1:], map(self._named, todo.pop())))
            for after in self.run(body, [inner]):
                stop = self.get(after, body.yields[0]) if stops else False
                state = tuple(_nameless(self.get(after, y)) for y in body.yields[stops:])
                ends.add(state)
                if stop is not True and state not in seen:
                    seen.add(state)
                    todo.append(state)
            if len(seen) > MOST_STATES:
                raise NoRule("too many states of a loop")
        return [{**env, **dict(zip(op.results, map(self._named, state)))} for state in ends]

    def _named(self, x: RuleValue) -> RuleValue:
        return replace(x, name=next(self.names)) if isinstance(x, Tok) else x


def _with(env: Env, change: Callable[[Tok], Tok]) -> Env:
    return {v: change(x) if isinstance(x, Tok) else x for v, x in env.items()}


def _nameless(x: RuleValue) -> RuleValue:
    """A carried value without the identity of a token; conditions on tokens mean nothing in another iteration."""
    if isinstance(x, Number):
        of = [n if n in (ANY, NODES) or isinstance(n, tuple) else None for n in (x.nothing, x.under, x.never)]
        return replace(x, nothing=of[0], under=of[1], never=of[2])
    return replace(x, name=-1) if isinstance(x, Tok) else UNKNOWN if isinstance(x, Equal | Above) or _is(x, "law") else x


def _of_vocabulary(op: Op) -> bool:
    """Whether what is folded are rows over the vocabulary."""
    t = op.operands[0].type
    return op.attrs.get("over", "") in ("", "vocab") and (t.elem == "dist" or bool(t.dims) and t.dims[-1].kind == "vocab")


def _is(x: RuleValue, kind: str) -> bool:
    return isinstance(x, Thing) and x.kind == kind
