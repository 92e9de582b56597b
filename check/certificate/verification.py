"""What a verification accepts: the judgment on its rule, which the certificate names and which is checked here.

- `rule-matching`, `rule-support`, by cases: on every path the rule accepts a child that is the evidence's own draw (or has
  mass), or emits such a token (`follow_owned`, `walk_inside`). Of a loop over children the certificate lists the states in
  which an iteration begins and ends; they are closed under the body, so there may be any number of children.
- `rule-lossless`, by algebra: an iteration over a child x ~ Q, where the row P is owed, accepts with the mass A, a function of
  the token; what all who go on owe has to be P - A but for a factor. Its sum is their mass, so accepted mass and the rest are P
  again (`siblings_lossless`). Or by a lemma about a rule of whole trees, known by the hash of its IR.

The cases and the algebra are functions of terms in proof/Accepts.v too, with a proof in Coq that what they accept is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import count
from typing import Any

from decgraph.check.certificate.data import NONE, Fact, Known, Refused, digest_of_rule
from decgraph.ir.values import Op, Region, Value

LEMMAS: Mapping[str, str] = {
    "941d2bc304d105f81b8fc7ecc037c7afd603bcfb1cdb1a6015c258c6bfe895f0": "grown_block_Law",
    "ac2d7bda1e160e4fa29c748fb9025f474bed067d087fbf26bc8ea7e977334982": "grown_traverse_Law",
}
THEOREMS = {
    "rule-matching": ("follow_owned",),
    "rule-support": ("walk_inside",),
    "rule-lossless": ("siblings_lossless", *LEMMAS.values()),
}
Env = Mapping[Value, Any]
Row = dict[str, Fraction]
Path = tuple[Env, Row]
P, Q, EMPTY = {"P": Fraction(1)}, {"Q": Fraction(1)}, dict[str, Fraction]()


class MissingState(Refused):
    """A state of a loop of a rule that the certificate does not list."""

    def __init__(self, op: Op, walk: str, loop: int, state: tuple[Any, ...]) -> None:
        super().__init__(op, f"a loop of the rule has a state that the certificate does not list: {state}")
        self.walk, self.loop, self.state = walk, loop, state


def accepted(k: Known, op: Op) -> Fact | None:
    """What follows of the path that a verification accepts."""
    inner = list(op.regions[0].walk())
    if bad := next((o for o in inner if o.opcode in ("commit", "return", "state.write", "run")), None):
        raise Refused(bad, f"{bad.opcode} inside a rule")
    tree, rows, name = k.of(op.operands[0]), k.of(op.operands[1]), k.names[op.result]
    noises = {v for o in inner for v in o.operands if v.type.elem == "noise"}
    labels = frozenset((k.names[v], None) for v in noises)
    k.depends[op.result] |= labels | (tree[3] if tree is not None and tree[0] == "tree" else NONE)
    said = k.claims["rules"].get(name)
    if said is None or tree is None or rows is None or (tree[0], rows[0]) != ("tree", "rows") or rows[2] != tree[1]:
        return None
    rule, theorem = said["rule"], said["theorem"]
    if theorem not in THEOREMS.get(rule, ()):
        raise Refused(op, f"no rule {rule} by {theorem}")
    k.missing.discard(f"rule {name}")
    if rule != "rule-lossless":
        how = Matching(k, op, said["states"]).judge()
        if rule == "rule-matching" and how != "own":
            raise Refused(op, "the rule may accept or emit other tokens than own draws")
        return ("path", rows[1], tree[2], how, NONE)
    made = {v: k.producers.get(v) for v in noises}
    own = all(o is not None and o.opcode == "noise" and o.attrs["site"] not in k.twice for o in made.values())
    if not own or any(not set(k.counters[v]) <= set(o.operands) for v, o in made.items() if o is not None) or k.output_readers:
        raise Refused(op, "a noise of the rule is not its own, or something reads the output stream")
    if k.tells(labels, *op.operands) or labels & k.control:
        raise Refused(op, "a shared memory tells of the rule's own noise, which other requests may have read")
    if not tree[4] or not rows[3]:
        raise Refused(op, "drafts that are not known to be drawn as they state, or evidence at some nodes only")
    if theorem == "siblings_lossless":
        Lossless(k, op).judge()
    elif LEMMAS.get(digest_of_rule(op)) != theorem:
        raise Refused(op, f"the rule is not the one that {theorem} is about")
    return ("path", rows[1], tree[2], "drawn", tree[3] | labels)


class Cases:
    """All paths through a rule: what is known of its values (None: nothing), and with which mass."""

    def __init__(self, k: Known, op: Op, states: Any = ()) -> None:
        self.k, self.op, self.states, self.ids = k, op, states, count()
        self.loops = [o for o in op.regions[0].walk() if o.opcode == "for"]

    def get(self, env: Env, v: Value) -> Any:
        known = env[v] if v in env else self.k.constants.get(v)
        return known if v in env or known is not None else ("number", self.k.numbers.range(v)[0] >= 0)

    def run(self, region: Region, paths: list[Path]) -> list[Path]:
        for op in region.ops:
            paths = [after for env, mass in paths for after in self.step(op, env, mass)]
            if len(paths) > 400:
                raise Refused(op, "too many paths")
        return paths

    def step(self, op: Op, env: Env, mass: Row) -> list[Path]:
        if op.opcode == "for":
            return self.loop(op, env, mass)
        xs = [self.get(env, v) for v in op.operands]
        if op.opcode != "if":
            value = self.constant(op, xs) if len(op.results) == 1 else None
            return [({**env, **dict.fromkeys(op.results, value)}, mass)]
        out: list[Path] = []
        for n, region in enumerate(op.regions):
            if not isinstance(xs[0], bool) or xs[0] is not bool(n):
                learnt = (env, mass) if isinstance(xs[0], bool) else self.learn(op, env, xs[0], n == 0, mass)
                for after, rest in self.run(region, [learnt]):
                    out.append(({**after, **{r: self.get(after, y) for r, y in zip(op.results, region.yields)}}, rest))
        return out

    def constant(self, op: Op, xs: list[Any]) -> Any:
        fn, rest = op.attrs.get("fn"), [x for x in xs if not isinstance(x, bool)]
        if op.opcode == "const":
            return op.attrs["value"] if isinstance(op.attrs["value"], bool | int | Fraction) else None
        if op.opcode == "map" and fn in ("and", "or"):
            if any(x is (fn == "or") for x in xs) or not rest:
                return (fn == "or") if any(x is (fn == "or") for x in xs) else fn == "and"
            return rest[0] if len(rest) == 1 else None
        return not xs[0] if op.opcode == "map" and fn == "not" and isinstance(xs[0], bool) else self.value(op, xs)

    def value(self, op: Op, xs: list[Any]) -> Any:
        raise NotImplementedError

    def learn(self, op: Op, env: Env, condition: Any, true: bool, mass: Row) -> Path:
        raise NotImplementedError

    def loop(self, op: Op, env: Env, mass: Row) -> list[Path]:
        raise Refused(op, "a loop in a loop over children")


def not_negative(x: Any) -> bool:
    """Whether a number of a rule is known to be 0 or more."""
    return (
        isinstance(x, int | Fraction)
        and x >= 0
        or isinstance(x, tuple)
        and (x[0] in ("mass", "masses") or x[0] == "number" and x[1])
    )


ABOUT: Mapping[tuple[str, ...], Callable[..., Any]] = {
    ("gather", "rows", "parents"): lambda *_: ("rows above",),
    ("gather", "draws", "parents"): lambda draws, _: ("draws above", draws[1]),
    ("gather", "rows", "node"): lambda _, node: ("row", node[:2]),
    ("tree.get parent", "tree"): lambda _: ("parents",),
    ("tree.get token", "tree"): lambda _: ("tokens",),
    ("tree.nodes all", "tree"): lambda _: ("nodes", ""),
    ("lookup", "rows above", "tokens"): lambda *_: ("masses",),
    ("lookup", "row", "token"): lambda row, token: ("mass", token[1]) if row[1] is None else None,
    ("tree.down all", "tree", "good"): lambda _, good: ("good way", good[1]),
    ("compact", "nodes", "good way"): lambda _, way: ("nodes", way[1]),
    ("map eq", "token", "token"): lambda a, b: ("equal", a[1], b[1], True),
    ("map eq", "tokens", "draws above"): lambda _, draws: ("good", draws[1]),
    ("map eq", "draws above", "tokens"): lambda draws, _: ("good", draws[1]),
    ("map not", "equal"): lambda x: (*x[:3], not x[3]),
    ("draw.get token", "token"): lambda x: x,
    ("draw.get token", "draws"): lambda x: x,
}
"""What an op of a rule makes, by its name, its attribute and the kinds of its operands."""


class Matching(Cases):
    """Tokens are ("token", id, how, where): own draws of the evidence, with mass, or unknown; where: child, or a node."""

    def judge(self) -> str:
        region, tree, hows = self.op.regions[0], self.op.attrs["scope"] == "tree", set()
        start = dict(zip(region.args, (None, ("tree",), ("rows",)) if tree else (None, ("row", None), ("children",))))
        for env, _ in self.run(region, [(start, EMPTY)]):
            has, what, emits, token = (self.get(env, v) for v in region.yields)
            ends = [x for yes, x in ((has, what), (emits, token)) if yes is True]
            if (
                not isinstance(has, bool)
                or not isinstance(emits, bool)
                or len(ends) != (1 + has if tree else 1)
                or tree
                and not emits
            ):
                raise Refused(
                    self.op, "on some path it is not known whether the rule accepts or emits, or it does neither or both"
                )
            if any(not isinstance(x, tuple) or x[0] not in ("token", "node") or not x[2] for x in ends):
                raise Refused(self.op, "on some path the rule accepts or emits what nothing is known of")
            node = ("node", what[1]) if tree and has else ("node", "root")
            if has and (what[0] != "node" if tree else what[3:] != ("child",)) or tree and token[3:] != (node,):
                raise Refused(self.op, "on some path the rule accepts or emits at another node")
            hows |= {x[2] for x in ends}
        return "inside" if "inside" in hows else "own"

    def token(self, how: str = "", where: Any = None) -> Any:
        return ("token", next(self.ids), how, where)

    def value(self, op: Op, xs: list[Any]) -> Any:
        fn, best, one = op.attrs.get("fn"), "own" if self.k.claims["greedy"] else "inside", not op.result.type.dims
        kinds = tuple(x[0] if isinstance(x, tuple) else "" for x in xs)
        which = next((str(op.attrs[a]) for a in ("fn", "column", "which", "field") if a in op.attrs), "")
        for key in ((op.opcode, *kinds), (f"{op.opcode} {which}", *kinds)):
            if key in ABOUT:
                return ABOUT[key](*xs)
        own = "own" if xs[1:] == [("output",)] else "inside"
        match op.opcode, xs:
            case "noise", _:
                return ("output",) if op.attrs["kind"] == "output" and not op.operands else ("noise",)
            case "draw", [_, _]:
                return self.token(own) if kinds[0] == "row" else ("draws", own) if kinds[0] == "rows" else self.token()
            case "arg", [("row", at)] if fn == "max":
                return self.token(best, at)
            case "arg", [("nodes", how), *_]:
                return ("node", next(self.ids), how)
            case "gather", [("children",), *_] if one:
                return self.token("", "child")
            case "gather", [("draws", how), ("node", n, _)]:
                return self.token(how, ("node", n))
            case "map", [a, b] if fn in ("gt", "lt"):
                big, small = (a, b) if fn == "gt" else (b, a)
                above = {"masses": ("good", best), "mass": ("above", *big[1:])}.get(big[0]) if isinstance(big, tuple) else None
                return above if not_negative(small) else None
            case "map", _ if (
                fn in ("exp", "sqrt", "abs", "relu")
                or fn in ("mul", "weigh", "minimum", "add", "maximum")
                and all(map(not_negative, xs))
            ):
                return ("number", True)
        return None

    def learn(self, op: Op, env: Env, condition: Any, true: bool, mass: Row) -> Path:
        """What a condition says of tokens: of two that are equal what is known of either; that one has mass."""
        ids: tuple[int, ...]
        is_token: Callable[[Any], bool] = lambda x: isinstance(x, tuple) and x[0] == "token"
        match condition:
            case ("equal", a, b, so) if so is true:
                ids, hows = (a, b), {x[2] for x in env.values() if is_token(x) and x[1] in (a, b)}
            case ("above", n) if true:
                ids, hows = (n,), {"own" if self.k.claims["greedy"] else "inside"}
            case _:
                return env, mass
        best: Callable[[str], str] = lambda x: next((how for how in ("own", "inside") if how in {*hows, x}), "")
        return {v: (*x[:2], best(x[2]), x[3]) if is_token(x) and x[1] in ids else x for v, x in env.items()}, mass

    def loop(self, op: Op, env: Env, mass: Row) -> list[Path]:
        """States are (ended, values): each that the certificate lists is followed once, and all that come up are listed."""
        n, body, stops = self.loops.index(op), op.regions[0], int(bool(op.attrs.get("stops")))
        found = [(False, *(nameless(self.get(env, v)) for v in op.operands[2:]))]
        for _, *values in (state for state in self.states[n] if not state[0]):
            inner = {**env, body.args[0]: None, **dict(zip(body.args[1:], map(self.named, values)))}
            for after, _ in self.run(body, [(inner, EMPTY)]):
                stop = self.get(after, body.yields[0]) if stops else False
                state = [nameless(self.get(after, y)) for y in body.yields[stops:]]
                found += [(end, *state) for end in ((stop,) if isinstance(stop, bool) else (True, False))]
        if missing := [state for state in found if state not in self.states[n]]:
            raise MissingState(op, self.k.names[self.op.result], n, missing[0])
        return [({**env, **dict(zip(op.results, map(self.named, values)))}, mass) for _, *values in self.states[n]]

    def named(self, x: Any) -> Any:
        return ("token", next(self.ids), *x[2:]) if isinstance(x, tuple) and x[0] == "token" else x


def nameless(x: Any) -> Any:
    """A carried value without the identity of a token; a condition on tokens means nothing in another iteration."""
    kind = x[0] if isinstance(x, tuple) else ""
    return ("token", -1, *x[2:]) if kind == "token" else None if kind in ("equal", "above", "mass") else x


# -- the algebra of rows: linear combinations of P, Q and relu rows, as functions of a token
def plus(a: Row, b: Row, factor: Fraction | int = 1) -> Row:
    """a + factor * b."""
    out = {atom: a.get(atom, Fraction(0)) + factor * b.get(atom, Fraction(0)) for atom in {*a, *b}}
    return {atom: x for atom, x in out.items() if x}


def is_positive(a: Row) -> bool:
    """Whether a row is nowhere negative, by its factors: P, Q and relu rows are not."""
    return all(x > 0 for x in a.values())


def relu(a: Row) -> Row:
    """relu(a) as an atom; of a and -a one has the name, since relu(-a) = relu(a) - a."""
    negative = plus(EMPTY, a, -1)
    if is_positive(a) or is_positive(negative):
        return a if is_positive(a) else EMPTY
    base = negative if a[min(a)] < 0 else a
    scale = base[min(a)]
    name = "relu(" + " ".join(f"{x / scale}*{atom}" for atom, x in sorted(base.items())) + ")"
    return plus({name: scale}, a if base is negative else EMPTY)


def minimum(a: Row, b: Row) -> Row:
    """The smaller of two rows, token by token."""
    return plus(a, relu(plus(a, b, -1)), -1)


class Lossless(Cases):
    """Values: ("row", r) and ("at", r), a row and its entry at the child; ("ratio", r), that entry divided by Q's; ("chance",
    r), the same between 0 and 1; ("coin", r), a coin that falls so with the mass r; ("rest", r), the row r over its sum."""

    def judge(self) -> None:
        region, op = self.op.regions[0], self.op
        _, p, children = region.args
        if op.attrs["scope"] != "node" or [o.opcode for o in region.ops].count("for") != 1:
            raise Refused(op, "no rule for lossless rules of this form yet")
        at = [o.opcode for o in region.ops].index("for")
        loop, before = region.ops[at], region.ops[:at]
        ends = {
            o.result: o.attrs["value"] if o.opcode == "const" else o.operands for o in before if o.opcode in ("const", "len")
        }
        low, high = (ends.get(v) for v in loop.operands[:2])
        if (
            len(ends) != len(before)
            or low != 0
            or high != (children,)
            or p not in loop.operands[2:]
            or not loop.attrs.get("stops")
        ):
            raise Refused(loop, "not one loop that goes over all children, with what is owed, until one is accepted")
        self.keyed(region, (region.args[0],), {})
        start = {v: x for v, x in ends.items() if not isinstance(x, tuple)}
        state, owed = [start.get(v) for v in loop.operands[2:]], loop.operands[2:].index(p)
        done, rest = self.iteration(loop, start, state, owed, children), Region((), region.ops[at + 1 :], ())
        for values, accepts in ((state, False), *([(done, True)] if done is not None else [])):
            env = {**start, **dict(zip(loop.results, values)), loop.results[owed]: ("row", P)}
            for after, _ in self.run(rest, [(env, Q)]):
                has, what, emits, token = (after.get(v) for v in region.yields)
                if (has, emits, what if accepts else token) != (
                    (True, False, ("child",)) if accepts else (False, True, ("owed",))
                ):
                    raise Refused(
                        op, "after the children the rule does not yield what was accepted, or else a draw of what is owed"
                    )

    def keyed(self, region: Region, counters: tuple[Value, ...], keys: dict[Value, tuple[Value, ...]]) -> None:
        """Every noise is made where it is read, keyed by all loops around it, and read once."""
        for op in region.ops:
            if op.opcode == "noise":
                if op.attrs["kind"] == "output" or not set(counters) <= set(op.operands):
                    raise Refused(op, "a noise of the output stream, or not keyed by depth and child")
                keys[op.result] = counters
            for v in op.operands:
                if v.type.elem == "noise" and keys.pop(v, None) != counters:
                    raise Refused(op, "a noise that is read twice, or elsewhere than it is made")
            for inner in op.regions:
                self.keyed(inner, (*counters, inner.args[0]) if op.opcode in ("for", "while", "each") else counters, keys)

    def iteration(self, loop: Op, start: Env, state: list[Any], owed: int, children: Value) -> list[Any] | None:
        """One child: what is accepted of it, and what is owed by those who go on."""
        body, accepts, rests, done = loop.regions[0], EMPTY, [], None
        env = {**start, **dict(zip(body.args[1:], state)), body.args[0]: ("index",), children: ("children",)}
        env[body.args[1 + owed]] = ("row", P)
        others: Callable[[list[Any]], list[Any]] = lambda values: [x for n, x in enumerate(values) if n != owed]
        for after, mass in self.run(body, [(env, Q)]):
            stop, *now = (after.get(v) for v in body.yields)
            if stop is True and others(now).count(("child",)) == 1 and others(now).count(True) == 2:
                if done is not None and others(now) != others(done):
                    raise Refused(loop, "a child is accepted in two ways")
                accepts, done = plus(accepts, mass), now
            elif stop is False and others(now) == others(state):
                rests.append(now[owed])
            else:
                raise Refused(loop, "an iteration ends in a state that is neither accepted nor as before")
        left = plus(P, accepts, -1)
        for kind, row in [rest if isinstance(rest, tuple) and len(rest) == 2 else ("", EMPTY) for rest in rests]:
            factors = {row[atom] / left[atom] for atom in row} if row.keys() == left.keys() else set()
            if kind != "rest" or len(factors) != 1 or min(factors) <= 0:
                raise Refused(loop, "accepted mass and what is owed afterwards are not what was owed before")
        if left and not rests:
            raise Refused(loop, "every child is accepted")
        return done

    def value(self, op: Op, xs: list[Any]) -> Any:
        if op.attrs.get("fn") in ("mul", "weigh") and len(xs) == 2 and not isinstance(xs[1], tuple):
            xs = xs[::-1]
        match op.opcode, op.attrs.get("fn"), xs:
            case "noise", _, _:
                return ("noise",)
            case "gather", _, [("children",), ("index",)]:
                return ("child",)
            case "lookup", _, [("row", r), ("child",)]:
                return ("at", r)
            case "draw.get", _, [("child",)] if op.attrs["field"] == "law":
                return ("row", Q)
            case "map", "div", [("at", r), ("at", q)] if q == Q:
                return ("ratio", r)
            case "map", ("sub" | "contrast" | "add" as fn), [("row" | "at" | "ratio" as kind, r), (other, s)] if kind == other:
                return (kind, plus(r, s, 1 if fn == "add" else -1))
            case "map", ("mul" | "weigh"), [int() | Fraction() as c, ("row" | "at" | "ratio" as kind, r)] if not isinstance(
                c, bool
            ):
                return (kind, plus(EMPTY, r, Fraction(c)))
            case "map", "minimum", [("ratio", r), 1] | [1, ("ratio", r)] if is_positive(r):
                return ("chance", minimum(r, Q))
            case "map", "minimum", [("row", r), ("row", s)]:
                return ("row", minimum(r, s))
            case "map", "relu", [("row", r)]:
                return ("row", relu(r))
            case "normalize", _, [("row", r)]:
                if not is_positive(r):
                    raise Refused(op, "a row is normalized that may be negative")
                return ("rest", r)
            case "draw", _, [("row", r), ("noise",)]:
                return ("owed",) if r == P else None
            case "bernoulli", _, [("ratio" | "chance" as kind, r), ("noise",)] if kind == "chance" or is_positive(r):
                return ("coin", r if kind == "chance" else minimum(r, Q))  # q * min(1, n / q) = min(n, q) for n >= 0
        return None

    def learn(self, op: Op, env: Env, condition: Any, true: bool, mass: Row) -> Path:
        if not (isinstance(condition, tuple) and condition[0] == "coin" and mass == Q):
            raise Refused(op, "a branch on something that is no coin about this child, or a second one")
        return env, condition[1] if true else plus(mass, condition[1], -1)
