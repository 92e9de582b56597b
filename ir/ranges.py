"""What the numbers and conditions of a function can be, and so which outcomes of its ops no run can show.

An interval analysis: parameters lie in their declared ranges, a state holds what its start and every write of it can be, a
value that a loop carries what it is entered with and what an iteration yields. These grow to a fixpoint, at first by what is
found, then to the function's constants and to infinity. An op of which nothing is known gives anything of its type, so that an
outcome is only called impossible where it is. That holds of real runs: a step that the checker starts from arbitrary states
(check/initial_states.py) may show more.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from decgraph.ir.intervals import (
    BOTH,
    FALSE,
    FINITE,
    INF,
    INFINITE,
    NONNEGATIVE,
    SHARE,
    TRUE,
    UNKNOWN,
    End,
    Interval,
    counted,
    folded,
    hull,
    mapped,
    scanned,
    whole,
    widened,
)
from decgraph.ir.linear import Inequality, Linear, at_least, contradiction
from decgraph.ir.types import INT, Type
from decgraph.ir.values import Function, Op, Param, Region, Value

PATIENCE, MOST = 3, 12  # rounds before ends are moved on to constants, and before they are moved to infinity
NUMBERS = frozenset({"int", "real", "prob", "bool", "token", "draw", "dist", "scores"})
PASSED_ON = frozenset({"gather", "slice", "compact", "take_first", "select.top", "batch.top", "sort", "lookup", "within"})
COUNTS: dict[str, frozenset[str]] = {  # ops that count: whatever they say, or those with these attributes
    **dict.fromkeys(("len", "tree.size", "vocab_size", "model.layers", "rank", "arg"), frozenset[str]()),
    "ctx.get": frozenset({"length"}),
    "request": frozenset({"limit"}),
    "canvas.get": frozenset({"length"}),
    "path.get": frozenset({"depth", "length"}),
    "tree.get": frozenset({"depth"}),
    "automaton": frozenset({"states"}),
    "level.get": frozenset({"index", "rank", "width"}),
}
LAWS = {"draw.get": ("field", ("law", "prob")), "tree.get": ("column", ("law", "prob")), "path.get": ("field", ("prob",))}
OF_SAME = {"eq": TRUE, "le": TRUE, "ge": TRUE, "ne": FALSE, "lt": FALSE, "gt": FALSE}  # comparisons of a value with itself
LAW = object()  # the cell for the probabilities in the distributions of draws


def impossible(f: Function, outcomes: Callable[[Op], Sequence[str]]) -> frozenset[tuple[int, str]]:
    """The outcomes to which ops of a function's body cannot come in any run. outcomes: those of an op that are watched
    (backends/exact/coverage.py). Also both outcomes of `done` in the condition of `while not done`: a body that leaves the
    loop itself never shows that it ends there."""
    ranges = Ranges(f)
    ranges.propagate()
    found: set[tuple[int, str]] = set()
    for op in f.body.walk():
        kinds = outcomes(op) if id(op) not in ranges.reached else ranges.never(op, outcomes(op))
        found.update((id(op), kind) for kind in kinds)
        if op.opcode == "while" and op.attrs.get("bound") == "done":
            found.update((id(o), kind) for o in op.regions[0].walk() if o.opcode == "done" for kind in ("true", "false"))
    return frozenset(found)


@lru_cache(maxsize=256)
def of_folds(f: Function) -> dict[int, Interval]:
    """What the number of any sequence can be at every fold over a batch, by the id of its op."""
    ops = [op for op in f.body.walk() if op.opcode == "batch.fold"]
    if not ops:
        return {}
    ranges = Ranges(f)
    ranges.propagate()
    return {id(op): ranges.env[op.operands[0]] for op in ops if id(op) in ranges.reached}


def narrowed(f: Function, numbers: Mapping[int, Iterable[End]]) -> dict[int, Interval]:
    """`of_folds`, where the length of an accepted path is no less than the least that runs have come to: whether a rule always
    accepts or emits something is not known of its text. numbers: those that sequences had at each fold, by the op's id."""
    out = dict(of_folds(f))
    if not out:
        return out
    made = {v: op for op in f.body.walk() for v in op.results}
    for op in f.body.walk():
        length = made.get(op.operands[0]) if op.opcode == "batch.fold" and numbers.get(id(op)) else None
        if length is not None and length.opcode == "len" and length.operands[0].type.elem == "path" and id(op) in out:
            known = out[id(op)]
            out[id(op)] = Interval(max(known.low, min(numbers[id(op)])), known.high, known.kind)
    return out


class Ranges:
    """The intervals of every value of a function. `cells` are what iterations and steps hand on: states by name, arguments of
    the bodies of loops, LAW."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.env: dict[Value, Interval] = {p.value: declared(p) for p in f.params}
        self.cells: dict[Hashable, Interval] = {LAW: SHARE}
        self.reached: set[int] = set()
        self.producers = {v: op for op in f.body.walk() for v in op.results}
        self.counters: dict[Value, tuple[Value, Value]] = {
            op.regions[0].args[0]: (op.operands[0], op.operands[1]) for op in f.body.walk() if op.opcode == "for"
        }
        self.lengths = {op.results[0]: op.operands[0] for op in f.body.walk() if op.opcode == "len"}
        self.length_of = {of: v for v, of in self.lengths.items()}  # one for each vector
        self.at_least: dict[Value, End] = {}  # of vectors that a loop goes over: their length inside it
        self.round, self.changed = 0, True
        ops = [o for r in (f.body, *(s.init for s in f.states)) for o in r.walk()]
        ends = [e for o in ops if o.opcode == "const" for e in _ends(constant(o))]
        self.stops = sorted({e for e in [*ends, *(e for p in f.params for e in _ends(declared(p)))] if abs(e) != INF})

    def propagate(self) -> None:
        """Go through the function until nothing grows any more."""
        while self.changed:
            self.changed, self.round = False, self.round + 1
            self.reached.clear()
            for s in self.f.states:
                self.join(s.name, self.region(s.init)[0])
            self.region(self.f.body)

    def join(self, cell: Hashable, interval: Interval) -> Interval:
        """A cell holds also this."""
        old = self.cells.get(cell)
        new = interval if old is None else hull(old, interval)
        if old is not None and new != old and self.round > PATIENCE:
            new = widened(old, new, self.stops if self.round <= MOST else ())
        self.changed |= new != old
        self.cells[cell] = new
        return new

    def region(self, region: Region) -> list[Interval]:
        """What a region yields; its arguments are set."""
        for op in region.ops:
            self.reached.add(id(op))
            found = self.op(op, [self.env[v] for v in op.operands])
            for v, a in zip(op.results, found, strict=True):
                self.env[v] = fitting(v.type, a)
        return [self.env[v] for v in region.yields]

    def enter(self, region: Region, args: Sequence[Interval] = ()) -> list[Interval]:
        """What a region yields with these arguments; those that are not given may be anything."""
        for n, v in enumerate(region.args):
            self.env[v] = fitting(v.type, args[n] if n < len(args) else UNKNOWN)
        return self.region(region)

    # -- ops
    def op(self, op: Op, xs: list[Interval]) -> Sequence[Interval]:
        """The results of one op."""
        if op.opcode == "if":
            return self.branches(op, xs[0])
        if op.opcode in ("for", "while"):
            return self.loop(op, xs)
        if op.opcode == "each":
            passed = xs[0] if op.operands[0].type.elem != "topology" else UNKNOWN
            return self.enter(op.regions[0], (NONNEGATIVE, passed))[:1]
        if op.opcode == "tree.walk":
            seen = (xs[1], UNKNOWN) if op.attrs["scope"] == "node" else (UNKNOWN, xs[1])
            self.enter(op.regions[0], (NONNEGATIVE, *seen))
        elif op.opcode == "segment":
            return self.enter(op.regions[0])
        else:
            for r in op.regions:
                self.enter(r)
        if op.opcode == "state.write":
            self.join(op.attrs["state"], xs[0])
        elif op.opcode in ("draw", "draw.many", "draw.race", "topk"):
            self.join(LAW, hull(xs[0], SHARE))
        if not op.results:
            return ()
        if op.opcode in ("relax", "pairs.top", "model.evals"):
            return [SHARE if op.opcode == "model.evals" else UNKNOWN for _ in op.results]
        return [self.result(op, xs), *(UNKNOWN for _ in op.results[1:])]

    def branches(self, op: Op, condition: Interval) -> list[Interval]:
        """The results of an `if`: of the branches that can be taken. A draft may end at any of its trees."""
        if "draft" in op.attrs:
            for r in op.regions:
                self.enter(r)
            return [UNKNOWN for _ in op.results]
        taken = [self.enter(r) for r, can in zip(op.regions, condition.truths, strict=True) if can]
        return [hull(*parts) for parts in zip(*taken, strict=True)]

    def loop(self, op: Op, xs: list[Interval]) -> list[Interval]:
        """The results of a loop: what it is entered with, and what its iterations yield."""
        body, limited = op.regions[-1], op.attrs.get("limited")
        carried = xs[2:] if op.opcode == "for" else xs[1:] if limited else xs
        carried_on = [self.join(v, x) for v, x in zip(body.args[1:], carried, strict=True)]
        can = iterations(op, xs)[1] > 0
        if op.opcode == "for":
            counter = counted(xs[0], xs[1])
        else:
            counter = counted(Interval(0, 0), xs[0]) if limited else NONNEGATIVE
            can = can and self.enter(op.regions[0], (counter, *carried_on))[0].truths[0]
        if can:
            over = self.lengths.get(op.operands[1]) if op.opcode == "for" else None
            before = dict(self.at_least)
            if over is not None and xs[0].low >= 0:
                self.at_least[over] = max(self.at_least.get(over, 0), xs[0].low + 1)
            out = self.enter(body, (counter, *carried_on))[1 if op.attrs.get("stops") else 0 :]
            self.at_least = before
            if op.opcode == "for" and iterations(op, xs)[1] <= 1:  # no iteration begins with what another one yields
                return [hull(x, y) for x, y in zip(carried_on, out, strict=True)]
            carried_on = [self.join(v, x) for v, x in zip(body.args[1:], out, strict=True)]
        return carried_on

    def result(self, op: Op, xs: list[Interval]) -> Interval:
        """The first result of an op without control of its own."""
        code, attrs, types = op.opcode, op.attrs, [v.type for v in op.operands]
        if code == "const":
            return constant(op)
        if code == "state.read":
            return self.cells.get(attrs["state"], UNKNOWN)
        if code == "map":
            if attrs["fn"] == "mod" and [t.elem for t in types] == ["int", "int"] and 1 <= xs[1].low <= xs[1].high < INF:
                return Interval(0, xs[1].high - 1)  # of whole numbers the remainder is less than what they are divided by
            if attrs["fn"] in OF_SAME and (known := self.compared(op, xs)) is not None:
                return known
            return mapped(attrs["fn"], xs) if all(t.elem in NUMBERS for t in types) else UNKNOWN
        if code == "reduce" and types[0].elem in NUMBERS:
            return folded(attrs["fn"], xs[0], types[0].elem == "bool", types[0].elem != "dist")
        if code == "scan" and types[0].elem in NUMBERS:
            return scanned(attrs["fn"], xs[0], types[0].elem == "bool")
        if code == "batch.fold":  # of at least one sequence
            more = attrs["fn"] == "sum"
            return Interval(xs[0].low, INF, xs[0].kind) if more and xs[0].low >= 0 else UNKNOWN if more else xs[0]
        if code in PASSED_ON or (code == "arg" and len(xs) > 1):  # of several operands the first are the candidates
            return xs[0] if types[0].elem != "topology" else UNKNOWN
        if code in ("concat", "list") and xs:
            return hull(*xs)
        if code == "tile":
            return {
                "tile": lambda: xs[0],
                "zeros": lambda: Interval(0, 0),
                "iota": lambda: counted(Interval(0, 0) if len(xs) == 1 else xs[0], xs[-1]),
            }[attrs["kind"]]()
        if code == "scatter":
            grows = attrs["mode"] == "sum" and not (xs[0].kind == xs[1].kind == FINITE and xs[0].low >= 0 and xs[1].low >= 0)
            return UNKNOWN if grows else hull(xs[0], xs[1], *([NONNEGATIVE] if attrs["mode"] == "sum" else []))
        if code == "as_int":
            return whole(xs[0])
        if code == "tree.new":
            return Interval(0, 0)
        if code in ("tree.set", "tree.front", "tree.keep"):
            return Interval(0, xs[0].high)
        if code == "tree.size":
            return Interval(0, xs[0].high)
        if code == "len" and op.operands[0] in self.at_least:
            return Interval(self.at_least[op.operands[0]], INF)
        if code in COUNTS and (not COUNTS[code] or any(attrs.get(a) in COUNTS[code] for a in ("field", "column", "what"))):
            return NONNEGATIVE
        return self.distribution(op, xs)

    def compared(self, op: Op, xs: Sequence[Interval]) -> Interval | None:
        """What a comparison says where its two sides are the same value, or whole numbers of which one is never the larger."""
        fn, (a, b) = op.attrs["fn"], op.operands
        if a is b:
            return OF_SAME[fn] if xs[0].ordered or a.type.elem in ("int", "token", "draw") else None
        if fn not in ("lt", "le", "gt", "ge") or not a.type == b.type == INT:
            return None
        if fn in ("gt", "ge"):
            fn, a, b = {"gt": "lt", "ge": "le"}[fn], b, a
        strict = fn == "lt"
        return FALSE if not self.can(a, b, below=strict) else None if self.can(b, a, below=not strict) else TRUE

    def can(self, a: Value, b: Value, below: bool) -> bool:
        """Whether a whole number can be below another one, or no more than it."""
        return not contradiction([Inequality(self.sum_of(b) - self.sum_of(a), below)], lambda s: True, self.about)

    def about(self, v: Hashable) -> list[Inequality]:
        """What a whole number lies between: a loop's counter is less than the loop's end."""
        assert isinstance(v, Value)
        known, x = self.env.get(v, UNKNOWN), Linear.of(v)
        ends = [Inequality((x - Linear.of(e)).times(sign)) for e, sign in zip(_ends(known), (1, -1)) if abs(e) != INF]
        if v in self.counters:
            low, high = self.counters[v]
            ends += [at_least(x, self.sum_of(low))] if low.type == INT else []
            ends += [at_least(self.sum_of(high), x + 1)] if high.type == INT else []
        return ends

    def sum_of(self, v: Value) -> Linear:
        """A whole number as a sum of others."""
        op, known = self.producers.get(v), self.env.get(v)
        if known is None:
            return Linear.of(v)
        if known.low == known.high and abs(known.low) != INF:
            return Linear.of(known.low)
        if op is not None and op.opcode == "len":
            return Linear.of(self.length_of[op.operands[0]])
        if op is not None and op.opcode == "within":
            return self.sum_of(op.operands[0])
        if op is not None and op.opcode == "if" and "draft" not in op.attrs:
            taken = [r for r, can in zip(op.regions, self.env[op.operands[0]].truths, strict=True) if can]
            return self.sum_of(taken[0].yields[op.results.index(v)]) if len(taken) == 1 else Linear.of(v)
        if op is None or op.opcode != "map" or op.attrs["fn"] not in ("add", "sub") or any(o.type != INT for o in op.operands):
            return Linear.of(v)
        a, b = (self.sum_of(o) for o in op.operands)
        return a + b if op.attrs["fn"] == "add" else a - b

    def distribution(self, op: Op, xs: list[Interval]) -> Interval:
        """The entries of distributions, and what is read of draws."""
        code, attrs = op.opcode, op.attrs
        positive = bool(xs) and xs[0].kind == FINITE and xs[0].low >= 0
        if code == "model.attention" or code in ("head.read", "extern") and op.result.type.elem == "prob":
            return SHARE
        if code == "model.eval" or (code == "index.ask" and attrs["what"] == "score"):
            return SHARE
        if code == "softmax" and xs[0].kind == FINITE:
            return SHARE
        if code in ("normalize", "renorm") and positive:
            return SHARE
        if code == "face" and attrs["face"] != "logits":
            return hull(xs[0], SHARE)
        if code in LAWS and attrs[LAWS[code][0]] in LAWS[code][1]:
            law = self.cells[LAW]
            return law if law.kind == FINITE and law.low >= 0 else UNKNOWN
        if code == "info" and attrs["kind"] == "entropy" and positive and xs[0].high <= 1:
            return NONNEGATIVE
        return UNKNOWN

    # -- outcomes
    def never(self, op: Op, kinds: Sequence[str]) -> list[str]:
        """Of the outcomes of an op that runs those to which it cannot come."""
        xs = [self.env[v] for v in op.operands]
        if op.opcode == "for":
            least, most = iterations(op, xs)
            least = min(least, 1) if op.attrs.get("stops") else least
            return [k for k, can in (("never", least < 1), ("once", least < 2 and most > 0), ("again", most > 1)) if not can]
        if op.opcode == "while":
            most = iterations(op, xs)[1] if self.runs(op.regions[-1]) else 0
            return [k for k, can in (("once", most > 0), ("again", most > 1)) if not can]
        if kinds == ("left", "right"):
            a, b = xs
            left, right = mapped("lt", [a, b]), mapped("lt", [b, a])
            wins = [o.truths[0] for o in ((left, right) if op.attrs["fn"] == "minimum" else (right, left))]
            if all(v.type == INT for v in op.operands):
                less = op.operands[::-1] if op.attrs["fn"] == "maximum" else op.operands
                wins = [can and self.can(a, b, below=True) for can, (a, b) in zip(wins, (less, less[::-1]), strict=True)]
            return [k for k, can in zip(kinds, wins, strict=True) if not can]
        if kinds == ("above", "zero") and xs[0].ordered:
            return [k for k, can in (("above", xs[0].high > 0), ("zero", xs[0].low <= 0)) if not can]
        if kinds == ("low", "inside", "high") and all(x.ordered for x in xs):
            x, low, high = xs
            inside = x.high >= low.low and x.low <= high.high
            return [k for k, can in (("low", x.low < low.high), ("inside", inside), ("high", x.high > high.low)) if not can]
        if kinds == ("varies",):
            return ["varies"] if self.env[op.results[0]].low == self.env[op.results[0]].high else []
        if op.opcode == "bernoulli" and xs[0].ordered:
            return [k for k, can in (("true", xs[0].high > 0), ("false", xs[0].low < 1)) if not can]
        if kinds == ("true", "false"):
            truths = (xs[0] if op.opcode == "if" else self.env[op.results[0]]).truths
            return [k for k, can in zip(kinds, truths, strict=True) if not can]
        return []

    def runs(self, region: Region) -> bool:
        """Whether a region can be entered (one without ops is taken to be)."""
        return not region.ops or id(region.ops[0]) in self.reached


def iterations(op: Op, xs: Sequence[Interval]) -> tuple[End, End]:
    """The fewest and the most iterations of a loop by its bounds, when nothing else ends it."""
    if op.opcode == "while" and not op.attrs.get("limited"):
        return 0, INF
    low, high = (whole(x) for x in xs[:2]) if op.opcode == "for" else (Interval(0, 0), whole(xs[0]))
    least = 0 if high.low == -INF or low.high == INF else max(0, high.low - low.high)
    most = INF if high.high == INF or low.low == -INF else max(0, high.high - low.low)
    return least, most


def fitting(t: Type, a: Interval) -> Interval:
    """What is known of a value of a type: a bool is one whatever was found, and of what is no number nothing is."""
    if t.elem == "bool":
        return a if a.ordered and a.low >= 0 and a.high <= 1 else BOTH
    if t.elem == "tree":  # its nodes, the root aside
        return a if a.ordered and a.low >= 0 else NONNEGATIVE
    return a if t.elem in NUMBERS - {"token", "draw"} or t.elem == "list" else UNKNOWN


def declared(p: Param) -> Interval:
    """What a parameter can be. Decimals are taken both as they are written and as the number that the machine keeps."""
    t = p.value.type
    if t.elem == "bool":
        return BOTH if p.low is None or p.high is None else Interval(int(p.low), int(p.high))  # a claim's condition fixes it
    if not t.is_number or t.dims or (p.has_default and p.default is None):
        return UNKNOWN
    low, high = (0 if p.low is None and t.elem == "prob" else p.low), (1 if p.high is None and t.elem == "prob" else p.high)
    if low is None and high is None:
        return UNKNOWN
    return Interval(-INF if low is None else min(_both(low)), INF if high is None else max(_both(high)))


def _both(x: End) -> tuple[End, ...]:
    return (x,) if isinstance(x, int) or abs(x) == INF else (Fraction(x), Fraction(str(x)))


def constant(op: Op) -> Interval:
    """What a constant holds."""
    value = op.attrs["value"]
    values = list(value) if isinstance(value, list | tuple) else [value]
    known: list[Interval] = []
    for v in values:
        x = {"inf": INF, "-inf": -INF}.get(v, v) if isinstance(v, str) else int(v) if isinstance(v, bool) else v
        if not isinstance(x, int | float | Fraction) or x != x:
            return UNKNOWN
        known.append(Interval(min(_both(x)), max(_both(x)), INFINITE if abs(x) == INF else FINITE))
    return hull(*known) if known else UNKNOWN


def _ends(a: Interval) -> tuple[End, End]:
    return a.low, a.high
