"""What a program's text shows of its values: which are equal, which vectors have one length, between which numbers one lies.

Two values are equal where they are one expression, two vectors have one length where their lengths are one expression. Nothing
runs, so what is not shown is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from decgraph.ir.intervals import INF, UNKNOWN, Interval, mapped, whole
from decgraph.ir.settings import ends_of
from decgraph.ir.values import Constant, Function, Op, Region, Value

ALIKE = frozenset({"map", "face", "draw", "draw.get", "draw.point", "topk", "draw.many", "normalize", "softmax", "arg", "info"})
"""Ops whose first dimension is that of an operand."""
COUNTING = frozenset(
    {"const", "len", "as_int", "tree.size", "vocab_size", "request", "ctx.get", "model.layers", "tile", "rank"}
)
"""Ops that make finite whole numbers."""
FINITE = frozenset({"add", "sub", "minimum", "maximum", "neg", "relu", "abs", "select", "clamp", "div", "log", "sqrt"})
"""Functions that give a finite number of finite ones, where what is divided by is positive."""
LARGE = 1e100
"""Sums of a few numbers that are no larger, and their shares, are finite."""


class Expressions:
    """The values of a function and the ops that make them. consts: the values that are known numbers."""

    def __init__(self, function: Function, consts: Mapping[Value, Constant] | None = None) -> None:
        self.function, self.consts = function, consts if consts is not None else {}
        self.vocab = next((str(p.value.type.of[1]) for p in function.params if p.value.type.elem == "model"), "")
        self.producers = {v: op for op in function.body.walk() for v in op.results}
        self.same: dict[Value, Value] = {}  # what the region of a verification is given
        self.counters = {
            op.regions[0].args[0]: op
            for op in function.body.walk()
            if op.opcode in ("for", "each") and op.regions and op.regions[0].args
        }
        self.ints = False
        walks = [op for op in function.body.walk() if op.opcode == "tree.walk" and op.attrs["scope"] == "node"]
        self.evidence: set[Value] = set()
        self.evidence |= {op.regions[0].args[1] for op in walks if self.of_model(op.operands[1])}
        loops = [op for op in function.body.walk() if op.opcode in ("for", "while")]
        self.args = {a: (op, n) for op in loops for r in op.regions for n, a in enumerate(r.args[1:])}
        self.versions: dict[Value, int] = {}
        self.reads: dict[Value, Value] = {}  # of equal reads of a state the first
        self._number(function.body, 0)
        self._read(function.body, {})
        for op in function.body.walk():
            if op.opcode == "tree.walk" and op.attrs["scope"] == "tree":
                self.same[op.regions[0].args[1]] = op.operands[0]
                self.same[op.regions[0].args[2]] = op.operands[1]
        ends = [op for op in function.body.walk() if op.opcode == "reduce" and op.attrs["fn"] in ("max", "min")]
        whole = [op.operands[0] for op in ends if op.result.type.elem not in ("real", "prob")]
        self.ints = all(map(self.filled, whole))
        """Whether all whole numbers are finite: the largest of nothing is not."""

    def _number(self, region: Region, version: int) -> int:
        """Note of every context after how many commits, by the text, it stands; equal numbers are one context."""
        for op in region.ops:
            if op.opcode == "context":
                self.versions[op.result] = version
            commits = op.opcode == "commit" or any(o.opcode == "commit" for r in op.regions for o in r.walk())
            version += commits
            for inner in op.regions:
                version = self._number(inner, version) + commits
        return version

    def _read(self, region: Region, known: dict[str, Value]) -> None:
        """Note what reads the same value of a state as an op before it: nothing was written between them."""
        for op in region.ops:
            writes = {str(o.attrs["state"]) for r in op.regions for o in r.walk() if o.opcode == "state.write"}
            if op.opcode == "state.read":
                self.reads[op.result] = known.setdefault(str(op.attrs["state"]), op.result)
            writes |= {str(op.attrs["state"])} if op.opcode == "state.write" else set()
            known = {name: v for name, v in known.items() if name not in writes}
            for inner in op.regions:
                self._read(inner, dict(known))

    def key(self, v: Value, deep: int = 12) -> Hashable:
        """The same for two values that are equal: an expression of what is computed alike."""
        v = self.same.get(v, v)
        v = self.reads.get(v, v)
        number = self.consts.get(v)
        if isinstance(number, int):
            return ("const", int(number))
        op = self.producers.get(v)
        if op is None or not deep:
            return v
        match op.opcode:
            case "const":
                return ("const", op.attrs["value"]) if isinstance(op.attrs["value"], int | str | bool) else v
            case "map":
                return ("map", op.attrs["fn"], *(self.key(x, deep - 1) for x in op.operands))
            case "vocab_size" | "model.layers" | "topology.narrow" | "as_int":
                return (op.opcode, *(self.key(x, deep - 1) for x in op.operands))
            case "topology":
                return (op.opcode, str(op.attrs["shape"]))
            case "request" if op.attrs["field"] not in ("room", "mask"):
                return (op.opcode, op.attrs["field"])
            case "level.get":
                return (op.opcode, op.attrs["field"], self.key(op.operands[0], deep - 1))
            case "context":
                return (op.opcode, self.versions.get(v, v), bool(op.attrs.get("parent")))
            case "ctx.get" if op.attrs["field"] == "length":
                return (op.opcode, self.key(op.operands[0], deep - 1))
            case "len":
                known = self.rows(op.operands[0], deep - 1)
                if isinstance(known, tuple) and known[0] == "range" and known[1] == ("const", 0):
                    bound: Hashable = known[2]
                    return bound
                return ("len", known)
            case "within" if len(op.operands) == 1:
                return self.key(op.operands[0], deep - 1)
        return v

    def count(self, v: Value, deep: int) -> Hashable:
        """How many elements there are of a number of them: without its fraction, and none where it is negative."""
        key = self.key(v, deep)
        whole = v.type.elem == "int" and (self.range(v)[0] >= 0 or isinstance(key, tuple) and key[0] == "len")
        return key if whole else ("count", key)

    def rows(self, v: Value, deep: int = 12) -> Hashable:
        """The same for two vectors of one length: what their first dimension ranges over."""
        v = self.same.get(v, v)
        v = self.reads.get(v, v)
        if v.type.dims and v.type.dims[0].kind == "vocab" and v.type.dims[0].of == self.vocab:
            return ("range", ("const", 0), ("vocab_size",))
        op = self.producers.get(v)
        if op is None or not deep:
            return v
        match op.opcode:
            case "model.eval" if "at" in op.attrs.get("with", ()):
                return self.rows(op.operands[2 + op.attrs["with"].index("at")], deep - 1)
            case "model.eval" | "head.read" if op.operands[1].type.elem == "tree":
                return ("nodes", self.tree(op.operands[1]))
            case "model.eval" if op.operands[1].type.dims:
                return self.rows(op.operands[1], deep - 1)
            case "model.attention":
                return ("range", ("const", 0), ("ctx.get", self.key(op.operands[1], deep - 1)))
            case "tree.get" | "tree.down" | "tree.up":
                return ("nodes", self.tree(op.operands[0]))
            case "tree.nodes" if len(op.operands) == 1:
                kind, t = op.attrs["which"], op.operands[0]
                return ("nodes" if kind == "all" else kind, self.tree(t) if kind in ("all", "leaves", "drafted") else t)
            case "model.layers":
                return ("layers", self.key(op.operands[0], deep - 1))
            case "request" if op.attrs["field"] == "prompt":
                return ("prompt",)
            case "slice" if not op.attrs.get("has_lo"):
                return self.shorter(op, deep - 1) or v
            case "tile" if op.attrs["kind"] != "iota" and op.operands:  # zeros of some sizes, or one value so many times
                return ("range", ("const", 0), self.count(op.operands[op.attrs["kind"] == "tile"], deep - 1))
            case "tile" if op.attrs["kind"] == "iota":
                first, last = op.operands[:-1], [*op.operands][-1]
                lo = self.key(first[0], deep - 1) if first else ("const", 0)
                hi = self.key(last, deep - 1)
                if lo == ("const", 1) and isinstance(hi, tuple) and hi[:2] == ("map", "add") and lo in hi[2:]:
                    plus = self.producers[last]
                    plus = self.producers[plus.operands[0]] if plus.opcode == "within" else plus
                    return ("range", ("const", 0), self.count(next(x for x in plus.operands if self.key(x) != lo), deep))
                return ("range", lo, self.count(last, deep - 1) if lo == ("const", 0) else hi)
            case "sort" | "scan" | "contains":
                return self.rows(op.operands[0], deep - 1)
            case "level.get":
                return ("level", self.key(op.operands[0], deep - 1))
            case "gather" if len(op.operands) == 2 and op.operands[1].type.dims:
                return self.rows(op.operands[1], deep - 1)
            case "within" if op.operands[0].type.dims:
                return self.rows(op.operands[0], deep - 1)
            case "lookup" if op.result.type.dims:
                vector = next((x for x in op.operands if x.type.dims and x.type.dims[0].kind != "vocab"), v)
                return self.rows(vector, deep - 1)
            case _ if op.opcode in ALIKE and op.result.type.dims:
                wide = [x for x in op.operands if len(x.type.dims) and x.type.dims[0].kind != "vocab"]
                if wide and op.result.type.dims[0].kind != "vocab" and not _optional(op):
                    found = {self.rows(x, deep - 1) for x in wide}
                    return found.pop() if len(found) == 1 else v
        return v

    def shorter(self, op: Op, deep: int) -> Hashable:
        """What `z[:-1]` ranges over, and `y[:len(z) - 1]` where z is what was said of a chain of y; None for other slices."""
        v, end = op.operands
        if self.range(end) == (-1, -1):
            return ("all but one of", self.rows(v, deep))
        match self.key(end, deep):
            case ("map", "sub", ("len", ("nodes", Value() as tree) as of), ("const", 1)):
                grown = self.producers.get(tree)
                point = self.producers.get(grown.operands[1]) if grown is not None and grown.attrs.get("chain") else None
                root = self.producers.get(grown.operands[0]) if grown is not None and grown.operands else None
                part = self.producers.get(point.operands[0]) if point is not None and point.opcode == "draw.point" else None
                whole = (
                    part is not None and part.opcode == "slice" and part.operands[0] is v or point and point.operands[0] is v
                )
                if whole and root is not None and root.opcode == "tree.new":
                    return ("all but one of", of)
        return None

    def tree(self, v: Value) -> Value:
        """A tree, or the one that has the same nodes: what is set in its columns makes no new ones."""
        v = self.same.get(v, v)
        op = self.producers.get(v)
        if op is not None and op.opcode in ("tree.set", "tree.front", "tree.continue"):
            return self.tree(op.operands[0])
        return self.reads.get(v, v)

    def carried(self, v: Value) -> tuple[Op, int] | None:
        """The loop whose value a value is in an iteration or after it, and which of its values."""
        op = self.producers.get(v)
        if op is not None:
            return (op, op.results.index(v)) if op.opcode in ("for", "while") else None
        return self.args.get(v)

    def ways(self, v: Value) -> tuple[Value, ...]:
        """Of what a loop carries its start and what an iteration yields; of a branch what it yields either way."""
        op = self.producers.get(v)
        if op is not None and op.opcode == "if":
            return tuple(r.yields[op.results.index(v)] for r in op.regions)
        if (found := self.carried(v)) is None:
            return ()
        loop, n = found
        return loop.operands[n - len(loop.results)], loop.regions[-1].yields[n - len(loop.results)]

    def grown_to(self, old: Value, new: Value, seen: frozenset[Value] = frozenset()) -> bool:
        """Whether the nodes of a tree are nodes of another one, which it was grown to."""
        old, new = self.tree(old), self.tree(new)
        if new is old:
            return True
        made = self.producers.get(new)
        if made is not None and made.opcode == "tree.grow":
            return self.grown_to(old, made.operands[0], seen)
        if new in seen:
            return True
        ways = self.ways(new)
        found = self.carried(new)
        if found is not None:  # from its start on every iteration only grows it
            loop, n = found
            arg = loop.regions[-1].args[1 + n]
            grows = old is arg or self.grown_to(arg, ways[1], seen | {new, arg})
            return grows and (old is arg or self.grown_to(old, ways[0], seen | {new}))
        return bool(ways) and all(self.grown_to(old, w, seen | {new}) for w in ways)

    def always(self, state: str, holds: Callable[[Expressions, Value], bool]) -> bool:
        """Whether something is true of all that a state ever is: of its start, and of what is written to it."""
        decl = next(s for s in self.function.states if s.name == state)
        start = Expressions(self.function, self.consts)
        start.producers |= {v: op for op in decl.init.walk() for v in op.results}
        writes = [op for op in self.function.body.walk() if op.opcode == "state.write" and op.attrs["state"] == state]
        return (
            decl.scope == "sequence" and holds(start, decl.init.yields[0]) and all(holds(self, op.operands[0]) for op in writes)
        )

    def range(self, v: Value, deep: int = 8) -> tuple[float, float]:
        """Numbers that a value lies between."""
        known = self.consts.get(v)
        if isinstance(known, int) or hasattr(known, "numerator"):
            return float(known), float(known)  # type: ignore[arg-type]  # a fraction is a number
        for p in self.function.params:
            if p.value is v and v.type.elem == "token":
                return 0, INF
            if p.value is v and v.type.is_number:
                least, most = ends_of(p)
                return -INF if least is None else float(least), INF if most is None else float(most)
        op = self.producers.get(v)
        if v in self.counters and deep:
            loop = self.counters[v]
            if loop.opcode == "each":
                return 0, INF
            low, high = _truncated(self.range(loop.operands[0], deep - 1)), _truncated(self.range(loop.operands[1], deep - 1))
            return low[0], max(low[0], high[1] - 1)
        if op is None or not deep:
            return -INF, INF
        xs = [self.range(x, deep - 1) for x in op.operands] if op.opcode in ("map", "within", "as_int", "if") else []
        match op.opcode:
            case "const" if isinstance(op.attrs["value"], int) or hasattr(op.attrs["value"], "numerator"):
                return float(op.attrs["value"]), float(op.attrs["value"])
            case "len" | "tree.size" | "path.get":
                return (1 if op.opcode == "len" and self.filled(op.operands[0]) else 0), INF
            case "draw.get" if op.attrs["field"] == "token" and (draw := self.producers.get(op.operands[0])) is not None:
                return (0 if draw.opcode == "draw" else -INF), INF
            case "ctx.get" if op.attrs["field"] == "length":
                return (1 if self.whole(op.operands[0]) else 0), INF
            case "vocab_size":
                return 1, INF
            case "request" if op.attrs["field"] in ("limit", "room"):
                return 0, INF
            case "within" if len(op.operands) == 1:
                return xs[0]
            case "gather" if (whole := self.producers.get(op.operands[0])) is not None and whole.attrs.get("kind") == "zeros":
                return 0, 0
            case "as_int" if not op.result.type.dims:
                return _truncated(xs[0])
            case "map" if not op.result.type.dims:
                result = mapped(op.attrs["fn"], [self.interval(x, between, deep) for x, between in zip(op.operands, xs)])
                if result.ordered and (result.low, result.high) != (-INF, INF):
                    return float(result.low), float(result.high)
        return (0, 1) if self.share(v) else (-INF, INF)

    def interval(self, v: Value, between: tuple[float, float], deep: int) -> Interval:
        """What the result of a function goes by; of what may be an infinity or NaN nothing is known."""
        known = max(map(abs, between)) <= LARGE or self.finite(v, min(deep - 1, 3))
        return Interval(*between) if known else UNKNOWN

    def share(self, v: Value, deep: int = 8) -> bool:
        """Whether a value lies between 0 and 1, or all of a vector do: what models and callers say does. No type says it."""
        op = self.producers.get(v)
        if op is None or not deep or v.type.elem not in ("prob", "dist"):
            return v.type.elem == "prob" and v in {p.value for p in self.function.params}
        if op.opcode == "map":
            return op.attrs["fn"] in ("mul", "minimum", "maximum", "relu", "select") and all(
                x.type.elem == "bool" or self.share(x, deep - 1) for x in op.operands
            )
        if op.opcode == "reduce":
            (x,) = op.operands
            some = x.type.elem == "dist" or len(x.type.dims) == 1 and self.filled(x)  # the largest of nothing is -inf
            return op.attrs["fn"] in ("max", "min") and some and self.share(x, deep - 1)
        if op.opcode == "draw.get":
            made = self.producers.get(op.operands[0])
            return op.attrs["field"] == "law" and made is not None and made.opcode == "draw.point"
        if op.opcode in ("face", "lookup", "gather", "slice", "compact", "take_first", "sort"):
            return op.attrs.get("face") != "logits" and self.share(op.operands[0], deep - 1)
        return op.opcode in ("model.eval", "model.read", "model.attention", "head.read", "beta", "extern")

    def finite(self, v: Value, deep: int = 4) -> bool:
        """Whether a number is neither an infinity nor NaN, whatever it is computed from."""
        op = self.producers.get(v)
        whole = v.type.elem not in ("real", "prob", "dist", "scores") and (
            self.ints or op is not None and op.opcode in COUNTING
        )
        if whole or max(map(abs, self.range(v, deep))) <= LARGE:
            return True
        if op is None or not deep or op.opcode != "map":
            return False
        fn, xs = op.attrs["fn"], [x for x in op.operands if x.type.elem != "bool"]
        if fn in ("div", "log", "sqrt") and not self.range(xs[-1], deep)[0] >= (1 / LARGE if fn != "sqrt" else 0):
            return False
        return fn in FINITE and all(self.finite(x, deep - 1) for x in xs)

    def whole(self, ctx: Value, seen: frozenset[Value] = frozenset()) -> bool:
        """Whether a context has a token for certain, as the committed one has: there is no empty prompt."""
        op = self.producers.get(ctx)
        if ctx in seen or op is not None and op.opcode == "context":
            return op is None or ctx in seen or not op.attrs.get("parent")
        ways = self.ways(ctx)
        return bool(ways) and all(self.whole(w, seen | {ctx}) for w in ways)

    def filled(self, v: Value, deep: int = 12) -> bool:
        """Whether a vector has an element for certain."""
        op = self.producers.get(v)
        if op is not None and _optional(op):
            return False
        if v.type.dims and v.type.dims[0].kind in ("nodes", "vocab", "layers"):
            return True
        if op is None or not deep:
            return False
        match op.opcode:
            case "tile" if op.attrs["kind"] == "iota":
                first, last = op.operands[:-1], [*op.operands][-1]
                return _truncated(self.range(last))[0] > (_truncated(self.range(first[0]))[1] if first else 0)
            case "tree.nodes":
                return op.attrs["which"] in ("all", "leaves")
            case "list":
                return bool(op.operands)
            case "request":
                return bool(op.attrs["field"] == "prompt")
            case "path.get" if op.attrs["field"] == "token":
                made = self.producers.get(op.operands[0])
                return made is not None and made.opcode == "tree.walk"
            case "compact":
                of = self.rows(op.operands[0])
                return isinstance(of, tuple) and of[0] == "nodes" and self.at_root(op.operands[1])
            case "concat":
                single = [x for x in op.operands if not x.type.dims and x.type.elem not in ("list", "path", "topology", "node")]
                return bool(single) or any(self.filled(x, deep - 1) for x in op.operands)
            case "if":
                n, made = op.results.index(v), self.producers.get(op.operands[0])
                some, other = (r.yields[n] for r in op.regions)
                return (self.filled(some, deep - 1) or self._asked(made, some)) and self.filled(other, deep - 1)
            case "slice" if op.attrs.get("has_lo") and not op.attrs.get("has_hi"):  # its end
                lo, whole = self.producers.get(op.operands[1]), op.operands[0]
                size = None
                if lo is not None and lo.attrs.get("fn") == "sub" and self.range(lo.operands[1]) == (1, 1):
                    size = self.producers.get(lo.operands[0])
                at_end = size is not None and size.opcode == "len" and self.key(size.operands[0]) == self.key(whole)
                return self.filled(whole, deep - 1) and (at_end or self.range(op.operands[1]) == (-1, -1))
            case "ctx.get":
                asks = op.attrs["field"] == "path" or op.attrs["field"] == "last" and self.range(op.operands[1])[0] >= 1
                return asks and self.whole(op.operands[0])
            case "topk" | "draw.many" if len(op.operands[0].type.dims) == (op.operands[0].type.elem not in ("dist", "scores")):
                return op.opcode == "topk" and self.range(op.operands[1])[0] >= 1
            case "gather" if len(op.operands) == 2 and op.operands[1].type.dims:
                return self.filled(op.operands[1], deep - 1)
            case _ if op.opcode in ALIKE and op.operands:
                wide = [x for x in op.operands if x.type.dims and x.type.dims[0].kind != "vocab"]
                return any(self.filled(x, deep - 1) for x in wide if len(x.type.dims) == max(len(y.type.dims) for y in wide))
        return False

    def _asked(self, condition: Op | None, v: Value) -> bool:
        """Whether a condition is that a vector has elements."""
        if condition is None or condition.opcode != "map" or condition.attrs["fn"] != "gt":
            return False
        size = self.producers.get(condition.operands[0])
        return size is not None and size.opcode == "len" and size.operands[0] is v and self.range(condition.operands[1])[0] >= 0

    def at_root(self, condition: Value) -> bool:
        """Whether a condition over the nodes of a tree is true at its root."""
        op = self.producers.get(condition)
        if op is None:
            return False
        if op.opcode == "map" and op.attrs["fn"] in ("or", "and"):
            return (any if op.attrs["fn"] == "or" else all)(map(self.at_root, op.operands))
        return op.opcode == "tree.down" and op.attrs["fn"] == "all"

    def of_model(self, v: Value, deep: int = 8) -> bool:
        """Whether a distribution is a model's, which has mass: what constrains it to nothing is a request."""
        v = self.same.get(v, v)
        made = self.producers.get(v)
        if made is None or not deep:
            return v in self.evidence
        if made.opcode == "if":
            return all(self.of_model(r.yields[made.results.index(v)], deep - 1) for r in made.regions)
        if made.opcode in ("face", "gather", "compact", "slice"):
            return self.of_model(made.operands[0], deep - 1)
        if made.opcode == "normalize":  # of zeros to which a positive number was added
            inner = self.producers.get(made.operands[0])
            parts = inner.operands if inner is not None and inner.attrs.get("fn") == "add" else ()
            zeros = [x for x in parts if (o := self.producers.get(x)) and o.opcode == "tile" and o.attrs["kind"] == "zeros"]
            return len(zeros) == 1 and any(self.range(x)[0] > 0 for x in parts)
        return made.opcode in ("model.eval", "model.evals", "model.read")


def _truncated(x: tuple[float, float]) -> tuple[float, float]:
    """Numbers that one without its fraction lies between."""
    known = whole(Interval(*x))
    return float(known.low), float(known.high)


def _optional(op: Op) -> bool:
    """Whether a choice may be none."""
    return any(x.type.elem == "none" for x in op.operands)
