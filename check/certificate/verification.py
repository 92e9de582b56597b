"""What a verification accepts: the judgment on its rule, which the certificate names and which is checked here.

- `rule-matching`, `rule-support`: by cases. On every path the rule accepts a child that is the evidence's own draw (or has mass),
  or emits such a token (`follow_owned`, `walk_inside`). Of a loop over children the certificate says in which states an iteration
  can begin and end; the states are closed under the body, so there may be any number of children.
- `rule-lossless`: by the algebra of rows. An iteration over a child x ~ Q, where the row P is owed, accepts with the mass A, a
  function of the token; what is owed by all who go on has to be P - A but for a factor. Then nobody goes on where that is 0,
  and the mass of going on is its sum, so that accepted mass and the rest are P again: T2 (`siblings_lossless`). Or by one of two
  lemmas about rules of whole trees (`grown_block_Law`, `grown_traverse_Law`), known by the hashes of their IR.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import count
from typing import TYPE_CHECKING, Any

from decgraph.check.certificate.data import NONE, Fact, Refused, digest_of_rule
from decgraph.ir.values import Op, Region, Value

if TYPE_CHECKING:
    from decgraph.check.certificate.following import Pass

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
P, Q = {"P": Fraction(1)}, {"Q": Fraction(1)}
EMPTY: Row = {}


class Missing(Refused):
    """A state of a loop of a rule that the certificate does not list."""

    def __init__(self, op: Op, walk: str, loop: int, state: tuple[Any, ...]) -> None:
        super().__init__(op, f"a loop of the rule has a state that the certificate does not list: {state}")
        self.walk, self.loop, self.state = walk, loop, state


def accepted(k: Pass, op: Op) -> Fact | None:
    """What follows of the path that a verification accepts."""
    inner = list(op.regions[0].walk())
    for o in inner:
        if o.opcode in ("commit", "return", "state.write", "run"):
            raise Refused(o, f"{o.opcode} inside a rule")
    tree, rows = k.of(op.operands[0]), k.of(op.operands[1])
    noises = {v for o in inner for v in o.operands if v.type.elem == "noise"}
    labels = frozenset((k.names[v], None) for v in noises)
    k.depends[op.result] |= labels | (tree[3] if tree is not None and tree[0] == "tree" else NONE)
    said = k.certificate.rules.get(k.names[op.result])
    if said is None or tree is None or rows is None or (tree[0], rows[0]) != ("tree", "rows") or rows[2] != tree[1]:
        return None
    rule, theorem = said.get("rule", ""), said.get("theorem", "")
    if theorem not in THEOREMS.get(rule, ()):
        raise Refused(op, f"no rule {rule} by {theorem}")
    k.missing.discard(f"rule {k.names[op.result]}")
    if rule == "rule-lossless":
        if not (tree[4] and rows[3] and _own_noises(k, noises)):
            raise Refused(op, "a lossless rule whose drafts, evidence or noises are not known to be right")
        if theorem == "siblings_lossless":
            Lossless(k, op, ()).judge()
        elif LEMMAS.get(digest_of_rule(op)) != theorem:
            raise Refused(op, f"the rule is not the one that {theorem} is about")
        return ("path", rows[1], tree[2], "drawn", tree[3] | labels)
    how = Matching(k, op, said.get("states", ())).judge()
    if rule == "rule-matching" and how != "own":
        raise Refused(op, "the rule may accept or emit other tokens than own draws")
    return ("path", rows[1], tree[2], how, NONE)


def _own_noises(k: Pass, noises: set[Value]) -> bool:
    """Whether a rule's noises are its own: at sites of their own, keyed by all loops around them; nothing reads the output stream."""
    made = [(v, k.made.get(v)) for v in noises]
    own = all(
        o is not None and o.opcode == "noise" and o.attrs["site"] not in k.twice and set(k.counters[v]) <= set(o.operands)
        for v, o in made
    )
    return own and not k.output_readers


class Cases:
    """All paths through a rule: what is known of its values (None: nothing), and with which mass."""

    def __init__(self, k: Pass, op: Op, states: Any) -> None:
        self.k, self.op, self.states, self.ids = k, op, states, count()
        self.loops = [o for o in op.regions[0].walk() if o.opcode == "for"]

    def get(self, env: Env, v: Value) -> Any:
        if v in env:
            return env[v]
        known = self.k.constants.get(v)
        if known is not None:
            return known
        low, high = self.k.numbers.range(v)
        return ("number", low >= 0, high <= 1)

    def run(self, region: Region, paths: list[tuple[Env, Row]]) -> list[tuple[Env, Row]]:
        for op in region.ops:
            paths = [after for env, mass in paths for after in self.step(op, env, mass)]
            if len(paths) > 400:
                raise Refused(op, "too many paths")
        return paths

    def step(self, op: Op, env: Env, mass: Row) -> list[tuple[Env, Row]]:
        if op.opcode == "if":
            out = []
            condition = self.get(env, op.operands[0])
            for n, region in enumerate(op.regions):
                if isinstance(condition, bool) and condition is bool(n):
                    continue
                learnt, left = (env, mass) if isinstance(condition, bool) else self.learn(op, env, condition, n == 0, mass)
                for after, rest in self.run(region, [(learnt, left)]):
                    out.append(({**after, **{r: self.get(after, y) for r, y in zip(op.results, region.yields)}}, rest))
            return out
        if op.opcode == "for":
            return self.loop(op, env, mass)
        xs = [self.get(env, v) for v in op.operands]
        value = self.value(op, xs) if len(op.results) == 1 else None
        return [({**env, **dict.fromkeys(op.results, value)}, mass)]

    def learn(self, op: Op, env: Env, condition: Any, true: bool, mass: Row) -> tuple[Env, Row]:
        raise NotImplementedError

    def loop(self, op: Op, env: Env, mass: Row) -> list[tuple[Env, Row]]:
        raise NotImplementedError

    def value(self, op: Op, xs: list[Any]) -> Any:
        """Constants and what is made of them."""
        match op.opcode, op.attrs.get("fn"), xs:
            case "const", _, _:
                value = op.attrs["value"]
                return value if isinstance(value, bool | int | Fraction) else None
            case "map", "not", [bool() as x]:
                return not x
            case "map", "and", _ if False in [x for x in xs if isinstance(x, bool)]:
                return False
            case "map", "or", _ if True in [x for x in xs if isinstance(x, bool)]:
                return True
            case "map", ("and" | "or"), _:
                rest = [x for x in xs if not isinstance(x, bool)]
                return self.together(op.attrs["fn"], rest) if rest else op.attrs["fn"] == "and"
        return None

    def together(self, fn: str, rest: list[Any]) -> Any:
        return rest[0] if len(rest) == 1 else None


class Matching(Cases):
    """Tokens as ("token", id, how, where): own draws of the evidence, tokens with mass, or unknown; where: child, or a node."""

    def judge(self) -> str:
        region, tree = self.op.regions[0], self.op.attrs["scope"] == "tree"
        depth, first, second = region.args
        start = {depth: None, first: ("tree",) if tree else ("row", None), second: ("rows",) if tree else ("children",)}
        worst = "own"
        for env, _ in self.run(region, [(start, EMPTY)]):
            has, what, emits, token = (self.get(env, v) for v in region.yields)
            if not isinstance(has, bool) or not isinstance(emits, bool):
                raise Refused(self.op, "whether the rule accepts or emits is not known on some path")
            ends = [what] * has + [token] * emits
            kinds = [x[2] if isinstance(x, tuple) and x[0] in ("token", "node") and x[2] else "" for x in ends]
            if not kinds or "" in kinds or tree and not emits or not tree and len(ends) != 1:
                raise Refused(self.op, "on some path the rule accepts or emits what nothing is known of")
            node = ("node", what[1]) if tree and has else ("node", "root")
            if has and (what[0] != "node" if tree else what[3] != "child") or tree and token[3] != node:
                raise Refused(self.op, "on some path the rule accepts or emits at another node")
            worst = "inside" if "inside" in kinds else worst
        return worst

    @property
    def best(self) -> str:
        return "own" if self.k.certificate.greedy else "inside"

    def token(self, how: str = "", where: Any = None) -> Any:
        return ("token", next(self.ids), how, where)

    def value(self, op: Op, xs: list[Any]) -> Any:
        one, fn = not op.result.type.dims, op.attrs.get("fn")
        match op.opcode, xs:
            case "noise", _:
                return ("output",) if op.attrs["kind"] == "output" and not op.operands else ("noise",)
            case "draw", [("row", _), noise]:
                return self.token("own" if noise == ("output",) else "inside")
            case "draw", [("rows",), noise]:
                return ("draws", "own" if noise == ("output",) else "inside")
            case "draw", _:
                return self.token()
            case "arg", [("row", at)] if fn == "max":
                return self.token(self.best, at)
            case "arg", [("nodes", how), *_]:
                return ("node", next(self.ids), how)
            case "gather", [("children",), *_] if one:
                return self.token("", "child")
            case "gather", [("rows",), ("parents",)]:
                return ("rows above",)
            case "gather", [("draws", how), ("parents",)]:
                return ("draws above", how)
            case "gather", [("rows",), ("node", n, _)]:
                return ("row", ("node", n))
            case "gather", [("draws", how), ("node", n, _)]:
                return self.token(how, ("node", n))
            case "draw.get", [x] if op.attrs["field"] == "token":
                return x
            case "tree.get", [("tree",)] if op.attrs["column"] in ("parent", "token"):
                return ("parents",) if op.attrs["column"] == "parent" else ("tokens",)
            case "tree.nodes", [("tree",)] if op.attrs["which"] == "all":
                return ("nodes", "")
            case "lookup", [("rows above",), ("tokens",)]:
                return ("masses",)
            case "lookup", [("row", None), ("token", n, _, _)]:
                return ("mass", n)
            case "tree.down", [("tree",), ("good", how)] if fn == "all":
                return ("good way", how)
            case "compact", [("nodes", _), ("good way", how)]:
                return ("nodes", how)
            case "map", [("token", a, _, _), ("token", b, _, _)] if fn == "eq":
                return ("equal", a, b, True)
            case "map", [("equal", a, b, bool() as so)] if fn == "not":
                return ("equal", a, b, not so)
            case "map", [("tokens",), ("draws above", how)] | [("draws above", how), ("tokens",)] if fn == "eq":
                return ("good", how)
            case "map", [big, small] if fn in ("gt", "lt"):
                return self.greater(*((big, small) if fn == "gt" else (small, big)))
            case "map", _ if fn in ("exp", "sqrt", "abs", "relu"):
                return ("number", True, False)
            case "map", _ if fn in ("mul", "weigh", "minimum", "add", "maximum") and all(map(not_negative, xs)):
                return ("number", True, False)
        return super().value(op, xs)

    def together(self, fn: str, rest: list[Any]) -> Any:
        """Any part of a conjunction is implied; of its opposite nothing follows."""
        if len(rest) == 1 or fn == "or":
            return rest[0] if len(rest) == 1 else None
        for part in rest:
            match part:
                case ("above" | "good", _):
                    return part
                case ("equal", a, b, True):
                    return ("equal", a, b, "all")
        return None

    def greater(self, big: Any, small: Any) -> Any:
        if big == ("number", True, True) and isinstance(small, int | Fraction) and small >= 1:
            return False
        if not not_negative(small):
            return None
        match big:
            case ("masses",):
                return ("good", self.best)
            case ("mass", n):
                return ("above", n)
        return None

    def learn(self, op: Op, env: Env, condition: Any, true: bool, mass: Row) -> tuple[Env, Row]:
        match condition:
            case ("equal", a, b, so) if so is true or so == "all" and true:
                hows = [x[2] for x in env.values() if isinstance(x, tuple) and x[0] == "token" and x[1] in (a, b)]
                best = "own" if "own" in hows else "inside" if "inside" in hows else ""
                return self.told(env, (a, b), best), mass
            case ("above", n) if true:
                return self.told(env, (n,), self.best), mass
        return env, mass

    def told(self, env: Env, ids: tuple[int, ...], how: str) -> Env:
        better = lambda x: "own" if "own" in (x, how) else x or how
        same = lambda x: isinstance(x, tuple) and x[0] == "token" and x[1] in ids
        return {v: (*x[:2], better(x[2]), x[3]) if same(x) else x for v, x in env.items()}

    def loop(self, op: Op, env: Env, mass: Row) -> list[tuple[Env, Row]]:
        """States as (ended, values): each that the certificate lists is followed once."""
        n, body, stops = self.loops.index(op), op.regions[0], int(bool(op.attrs.get("stops")))
        states = self.states[n] if n < len(self.states) else ()
        self.listed(op, n, states, (False, *(nameless(self.get(env, v)) for v in op.operands[2:])))
        for ended, *values in states:
            if ended:
                continue
            inner = {**env, body.args[0]: None, **dict(zip(body.args[1:], map(self.named, values)))}
            for after, _ in self.run(body, [(inner, EMPTY)]):
                state = [nameless(self.get(after, y)) for y in body.yields[stops:]]
                stop = self.get(after, body.yields[0]) if stops else False
                for end in (True, False) if not isinstance(stop, bool) else (stop,):
                    self.listed(op, n, states, (end, *state))
        return [({**env, **dict(zip(op.results, map(self.named, values)))}, mass) for _, *values in states]

    def listed(self, op: Op, n: int, states: Any, state: tuple[Any, ...]) -> None:
        if state not in states:
            raise Missing(op, self.k.names[self.op.result], n, state)

    def named(self, x: Any) -> Any:
        return ("token", next(self.ids), *x[2:]) if isinstance(x, tuple) and x[0] == "token" else x


def nameless(x: Any) -> Any:
    """A carried value without the identity of a token; a condition on tokens means nothing in another iteration."""
    if not isinstance(x, tuple):
        return x
    return ("token", -1, *x[2:]) if x[0] == "token" else None if x[0] in ("equal", "above", "mass") else x


def not_negative(x: Any) -> bool:
    known = isinstance(x, tuple) and (x[0] in ("mass", "masses") or x[0] == "number" and x[1])
    return known or isinstance(x, int | Fraction) and x >= 0


# -- the algebra of rows: linear combinations of P, Q and relu rows, as functions of a token
def plus(a: Row, b: Row, factor: Fraction | int = 1) -> Row:
    out = {atom: a.get(atom, Fraction(0)) + factor * b.get(atom, Fraction(0)) for atom in {*a, *b}}
    return {atom: x for atom, x in out.items() if x}


def is_positive(a: Row) -> bool:
    """Whether a row is nowhere negative, by its factors: P, Q and relu rows are not."""
    return all(x > 0 for x in a.values())


def relu(a: Row) -> Row:
    """relu(a) as an atom; of a and -a one has the name, since relu(-a) = relu(a) - a."""
    if is_positive(a) or is_positive(plus(EMPTY, a, -1)):
        return a if is_positive(a) else EMPTY
    least = min(a)
    turned = a[least] < 0
    base = plus(EMPTY, a, -1) if turned else a
    scale = base[least]
    name = "relu(" + " ".join(f"{x / scale}*{atom}" for atom, x in sorted(base.items())) + ")"
    return plus({name: scale}, a if turned else EMPTY)


def minimum(a: Row, b: Row) -> Row:
    return plus(a, relu(plus(a, b, -1)), -1)


class Lossless(Cases):
    """Values: ("row", r) and ("at", r), a row and its entry at the child; ("ratio", r), that entry divided by Q's; ("chance", r), the same
    where it is between 0 and 1; ("coin", r), a
    coin that falls so with the mass r over the child's token; ("rest", r), the row r divided by its sum."""

    def judge(self) -> None:
        region, op = self.op.regions[0], self.op
        _, p, children = region.args
        if op.attrs["scope"] != "node" or len([o for o in region.ops if o.opcode == "for"]) != 1:
            raise Refused(op, "no rule for lossless rules of this form yet")
        (loop,) = (o for o in region.ops if o.opcode == "for")
        at, made = region.ops.index(loop), {o.result: o for o in region.ops if len(o.results) == 1}
        low, high = (made.get(v) for v in loop.operands[:2])
        all_of_them = low is not None and low.attrs.get("value", 1) == 0 and high is not None and high.opcode == "len"
        if not all_of_them or high is None or high.operands[0] is not children or p not in loop.operands[2:]:
            raise Refused(loop, "the loop does not carry what is owed over all children")
        if any(o.opcode not in ("const", "len") for o in region.ops[:at]) or not loop.attrs.get("stops"):
            raise Refused(loop, "the loop never accepts, or is not the first thing in the rule")
        self.keyed(region, (region.args[0],), {})
        start = {o.result: o.attrs["value"] for o in region.ops[:at] if o.opcode == "const"}
        state, owed = [start.get(v) for v in loop.operands[2:]], loop.operands[2:].index(p)
        done = self.iteration(loop, start, state, owed, children)
        rest = Region((), region.ops[at + 1 :], ())
        for values, accepts in ((state, False), (done, True)):
            env = {**start, **dict(zip(loop.results, values)), loop.results[owed]: ("row", P)} if values else None
            for after, _ in self.run(rest, [(env, Q)]) if env is not None else ():
                has, what, emits, token = (after.get(v) for v in region.yields)
                right = (has, what, emits) == (True, ("child",), False) if accepts else (has, emits, token) == (False, True, ("owed",))
                if not right:
                    raise Refused(op, "after the children the rule does not yield what was accepted, or else a draw of what is owed")

    def keyed(self, region: Region, counters: tuple[Value, ...], made: dict[Value, tuple[Value, ...]]) -> None:
        """Every noise is made where it is read, keyed by all loops around it, and read once."""
        for op in region.ops:
            if op.opcode == "noise":
                if op.attrs["kind"] == "output" or not set(counters) <= set(op.operands):
                    raise Refused(op, "a noise of the output stream, or not keyed by depth and child")
                made[op.result] = counters
            for v in op.operands:
                if v.type.elem == "noise" and made.pop(v, None) != counters:
                    raise Refused(op, "a noise that is read twice, or elsewhere than it is made")
            for inner in op.regions:
                looped = op.opcode in ("for", "while", "each")
                self.keyed(inner, (*counters, inner.args[0]) if looped else counters, made)

    def iteration(self, loop: Op, start: Any, state: list[Any], owed: int, children: Value) -> list[Any] | None:
        """One child: what is accepted of it, and what is owed by those who go on."""
        body = loop.regions[0]
        env = {**start, **dict(zip(body.args[1:], state)), body.args[0]: ("index",), children: ("children",)}
        env[body.args[1 + owed]] = ("row", P)
        accepts: Row = {}
        rests, done = [], None
        for after, mass in self.run(body, [(env, Q)]):
            stop, *now = (after.get(v) for v in body.yields)
            others = [x for n, x in enumerate(now) if n != owed]
            if stop is True and others.count(("child",)) == 1 and others.count(True) == 2:
                if done is not None and others != [x for n, x in enumerate(done) if n != owed]:
                    raise Refused(loop, "a child is accepted in two ways")
                accepts, done = plus(accepts, mass), now
            elif stop is False and others == [x for n, x in enumerate(state) if n != owed]:
                rests.append(now[owed])
            else:
                raise Refused(loop, "an iteration ends in a state that is neither accepted nor as before")
        left = plus(P, accepts, -1)
        if left and not rests:
            raise Refused(loop, "every child is accepted")
        for rest in rests:
            if not (isinstance(rest, tuple) and rest[0] == "rest" and self.proportional(rest[1], left)):
                raise Refused(loop, "accepted mass and what is owed afterwards are not what was owed before")
        return done

    def proportional(self, a: Row, b: Row) -> bool:
        if not b or set(a) != set(b):
            return False
        factors = {a[atom] / b[atom] for atom in a}
        return len(factors) == 1 and min(factors) > 0

    def value(self, op: Op, xs: list[Any]) -> Any:
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
            case "map", ("mul" | "weigh"), [int() | Fraction() as c, ("row" | "at" | "ratio" as kind, r)] if c is not True:
                return (kind, plus(EMPTY, r, Fraction(c)))
            case "map", ("mul" | "weigh"), [("row" | "at" | "ratio" as kind, r), int() | Fraction() as c] if c is not True:
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
            case "bernoulli", _, [("ratio", r), ("noise",)] if is_positive(r):
                return ("coin", minimum(r, Q))  # q * min(1, n / q) = min(n, q) where n is not negative
            case "bernoulli", _, [("chance", r), ("noise",)]:
                return ("coin", r)
        return super().value(op, xs)

    def learn(self, op: Op, env: Env, condition: Any, true: bool, mass: Row) -> tuple[Env, Row]:
        if not (isinstance(condition, tuple) and condition[0] == "coin" and mass == Q):
            raise Refused(op, "a branch on something that is no coin about this child, or a second one")
        return env, condition[1] if true else plus(mass, condition[1], -1)

    def loop(self, op: Op, env: Env, mass: Row) -> list[tuple[Env, Row]]:
        raise Refused(op, "a loop in a loop over children")
