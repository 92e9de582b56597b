"""What an op may fail at when it runs, as far as a program's text shows: `Failing(function).why(op)` is "" where it cannot.

Safe is only what is shown to be: two vectors have one length where their lengths are one expression, an index is in range where
it counts or names what it indexes (a node of a tree in a column of the same tree, a token in a row over its vocabulary, the
counter of a loop over a vector in that vector), a vector has an element where a tree's root or a known number gives it one.
An op without a rule may fail.

Left out are errors that are not a program's: of models and of functions of the caller's, of requests that leave no token, of
values that a session refuses before it begins (a layer that a model does not have), and of what exceeds the limits of
every program (ir/ops/limits.py) or the memory of the machine. docs/checking.md says so.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Any

from decgraph.ir.values import Function, Op, Region, Value

INF = float("inf")
NEVER = frozenset(
    {
        *("const", "unfailing", "if", "for", "noise", "request", "topology", "vocab_size", "len", "face", "context"),
        *("done", "draw.get", "draw.point", "tree.nodes", "tree.get", "tree.new", "tree.size"),
        *(
            "level.get",
            "path.get",
            "state.read",
            "state.write",
            "commit",
            "return",
            "model.layers",
            "contains",
            "tree.continue",
        ),
        *(
            "tree.reroot",
            "tree.walk",
            "topk",
            "topology.narrow",
            "tile",
            "scan",
            "rank",
            "ended",
            "hidden.similarity",
            "hidden.mean",
        ),
        *(
            "memory.only",
            "memory.join",
            "normalize",
            "softmax",
            "ctx.get",
            "index.ask",
            "index.learn",
            "index.new",
            "canvas.get",
        ),
    }
)
"""Ops that do not fail, whatever they are given."""
OUTSIDE = frozenset(
    {
        *("model.eval", "model.evals", "model.memory", "model.read", "model.states", "model.attention", "head.read"),
        *("extern", "run", "batch.fold", "batch.top", "retokenize", "completes", "text_of"),
    }
)
"""Ops whose errors are a model's, a tokenizer's, the caller's or another sequence's."""
ALIKE = frozenset({"map", "face", "draw", "draw.get", "draw.point", "topk", "draw.many", "normalize", "softmax", "arg", "info"})
"""Ops whose first dimension is that of an operand."""


class Failing:
    """The ops of a function, with what is known of its values: `consts` are numbers that are known."""

    def __init__(self, function: Function, consts: Mapping[Value, Any] | None = None) -> None:
        self.function, self.consts = function, consts if consts is not None else {}
        self.vocab = next((str(p.value.type.of[1]) for p in function.params if p.value.type.elem == "model"), "")
        self.made = {v: op for op in function.body.walk() for v in op.results}
        self.same: dict[Value, Value] = {}  # what the region of a verification is given
        walks = [op for op in function.body.walk() if op.opcode == "tree.walk" and op.attrs["scope"] == "node"]
        self.evidence: set[Value] = set()
        self.evidence |= {op.regions[0].args[1] for op in walks if _of_model(self, op.operands[1])}
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
        self.counters = {
            op.regions[0].args[0]: op
            for op in function.body.walk()
            if op.opcode in ("for", "each") and op.regions and op.regions[0].args
        }

    def why(self, op: Op) -> str:
        """What an op may fail at, a clause; "" where it cannot."""
        rule = RULES.get(op.opcode)
        if rule is not None:
            return rule(self, op)
        return "" if op.opcode in NEVER or op.opcode in OUTSIDE else f"`{op.opcode}` may fail"

    def outside_drafts(self, sound: Collection[Op] = ()) -> Iterator[tuple[Op, str]]:
        """The ops that may fail and whose errors end the run, with what they may fail at. sound: those that are known
        not to fail, with what is in them."""
        for state in self.function.states:
            own = Failing(self.function, self.consts)
            own.made |= {v: op for op in state.init.walk() for v in op.results}
            yield from own._in(state.init, sound)
        yield from self._in(self.function.body, sound)

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

    def _in(self, region: Region, sound: Collection[Op], drafts: bool = False) -> Iterator[tuple[Op, str]]:
        for op in region.ops:
            if op in sound:
                continue
            if (not drafts or op.opcode in OUTSIDE) and (why := self.why(op)):
                yield op, why
            if op.opcode == "for" and self.range(op.operands[1])[1] <= self.range(op.operands[0])[0]:
                continue
            inside = drafts or "draft" in op.attrs and op.opcode == "if"
            decided = self.consts.get(op.operands[0]) if op.opcode == "if" else None
            regions = op.regions if not isinstance(decided, bool) else (op.regions[0 if decided else 1],)
            for inner in regions:
                yield from self._in(inner, sound, inside)

    # -- what is known of a value
    def key(self, v: Value, deep: int = 12) -> Hashable:
        """The same for two values that are equal: an expression of what is computed alike."""
        v = self.same.get(v, v)
        v = self.reads.get(v, v)
        if v in self.consts and isinstance(self.consts[v], int | bool):
            return ("const", int(self.consts[v]))
        op = self.made.get(v)
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
                    return known[2]
                return ("len", known)
            case "within" if len(op.operands) == 1:
                return self.key(op.operands[0], deep - 1)
        return v

    def rows(self, v: Value, deep: int = 12) -> Hashable:
        """The same for two vectors of one length: what their first dimension ranges over."""
        v = self.same.get(v, v)
        v = self.reads.get(v, v)
        if v.type.dims and v.type.dims[0].kind == "vocab" and v.type.dims[0].of == self.vocab:
            return ("range", ("const", 0), ("vocab_size",))
        op = self.made.get(v)
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
                kind = op.attrs["which"]
                return ("nodes" if kind == "all" else kind, self.tree(op.operands[0]))
            case "model.layers":
                return ("layers", self.key(op.operands[0], deep - 1))
            case "request" if op.attrs["field"] == "prompt":
                return ("prompt",)
            case "slice" if not op.attrs.get("has_lo"):
                return self.shorter(op, deep - 1) or v
            case "tile" if op.attrs["kind"] != "iota" and op.operands:  # zeros of some sizes, or one value so many times
                return ("range", ("const", 0), self.key(op.operands[op.attrs["kind"] == "tile"], deep - 1))
            case "tile" if op.attrs["kind"] == "iota":
                lo = self.key(op.operands[0], deep - 1) if len(op.operands) > 1 else ("const", 0)
                hi = self.key(op.operands[-1], deep - 1)
                if lo == ("const", 1) and isinstance(hi, tuple) and hi[:2] == ("map", "add") and lo in hi[2:]:
                    return ("range", ("const", 0), next(x for x in (*hi[2:], lo) if x != lo))
                return ("range", lo, hi)
            case "sort" | "scan" | "contains":
                return self.rows(op.operands[0], deep - 1)
            case "level.get":
                return ("level", self.key(op.operands[0], deep - 1))
            case "gather" if len(op.operands) == 2 and op.operands[1].type.dims:
                return self.rows(op.operands[1], deep - 1)
            case "within" if op.operands[0].type.dims:
                return self.rows(op.operands[0], deep - 1)
            case "lookup" if op.result.type.dims:
                return next(self.rows(x, deep - 1) for x in op.operands if x.type.dims)
            case _ if op.opcode in ALIKE and op.result.type.dims:
                wide = [x for x in op.operands if len(x.type.dims) and x.type.dims[0].kind != "vocab"]
                if wide and op.result.type.dims[0].kind != "vocab":
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
                grown = self.made.get(tree)
                point = self.made.get(grown.operands[1]) if grown is not None and grown.attrs.get("chain") else None
                root = self.made.get(grown.operands[0]) if grown is not None and grown.operands else None
                part = self.made.get(point.operands[0]) if point is not None and point.opcode == "draw.point" else None
                whole = (
                    part is not None and part.opcode == "slice" and part.operands[0] is v or point and point.operands[0] is v
                )
                if whole and root is not None and root.opcode == "tree.new":
                    return ("all but one of", of)
        return None

    def tree(self, v: Value) -> Value:
        """A tree, or the one that has the same nodes: what is set in its columns makes no new ones."""
        v = self.same.get(v, v)
        op = self.made.get(v)
        if op is not None and op.opcode in ("tree.set", "tree.front", "tree.continue"):
            return self.tree(op.operands[0])
        return self.reads.get(v, v)

    def carried(self, v: Value) -> tuple[Op, int] | None:
        """The loop whose value a value is in an iteration or after it, and which of its values."""
        op = self.made.get(v)
        if op is not None:
            return (op, op.results.index(v)) if op.opcode in ("for", "while") else None
        return self.args.get(v)

    def ways(self, v: Value) -> tuple[Value, ...]:
        """Of what a loop carries its start and what an iteration yields; of a branch what it yields either way."""
        op = self.made.get(v)
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
        made = self.made.get(new)
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

    def always(self, state: str, holds: Callable[[Failing, Value], bool]) -> bool:
        """Whether something is true of all that a state ever is: of its start, and of what is written to it."""
        decl = next(s for s in self.function.states if s.name == state)
        start = Failing(self.function, self.consts)
        start.made |= {v: op for op in decl.init.walk() for v in op.results}
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
            if p.value is v and v.type.is_number:
                return -INF if p.low is None else float(p.low), INF if p.high is None else float(p.high)
        op = self.made.get(v)
        if v in self.counters and deep:
            loop = self.counters[v]
            if loop.opcode == "each":
                return 0, INF
            low, high = self.range(loop.operands[0], deep - 1)[0], self.range(loop.operands[1], deep - 1)[1]
            return low, max(low, high - 1)
        if op is None or not deep:
            return (0, 1) if v.type.elem == "prob" else (-INF, INF)
        xs = [self.range(x, deep - 1) for x in op.operands] if op.opcode in ("map", "within", "as_int", "if") else []
        match op.opcode:
            case "const" if isinstance(op.attrs["value"], int) or hasattr(op.attrs["value"], "numerator"):
                return float(op.attrs["value"]), float(op.attrs["value"])
            case "len" | "tree.size" | "path.get":
                return (1 if op.opcode == "len" and self.filled(op.operands[0]) else 0), INF
            case "ctx.get" if op.attrs["field"] == "length":
                return (1 if self.whole(op.operands[0]) else 0), INF
            case "vocab_size":
                return 1, INF
            case "request" if op.attrs["field"] in ("limit", "room"):
                return 0, INF
            case "within" if len(op.operands) == 1:
                return xs[0]
            case "as_int" if not op.result.type.dims:
                return xs[0]
            case "map" if not op.result.type.dims:
                return _folded(op.attrs["fn"], xs)
        return (0, 1) if v.type.elem == "prob" else (-INF, INF)

    def whole(self, ctx: Value) -> bool:
        """Whether a context is the committed one: a prompt has a token."""
        op = self.made.get(ctx)
        return op is not None and op.opcode == "context" and not op.attrs.get("parent")

    def filled(self, v: Value, deep: int = 12) -> bool:
        """Whether a vector has an element for certain."""
        if v.type.dims and v.type.dims[0].kind in ("nodes", "vocab", "layers"):
            return True
        op = self.made.get(v)
        if op is None or not deep:
            return v in {p.value for p in self.function.params} and v.name == "prompt"
        match op.opcode:
            case "tile" if op.attrs["kind"] == "iota":
                lo = self.range(op.operands[0])[1] if len(op.operands) > 1 else 0
                return self.range(op.operands[-1])[0] > lo or self._after(op)
            case "tree.nodes":
                return op.attrs["which"] in ("all", "leaves")
            case "list":
                return bool(op.operands)
            case "request":
                return op.attrs["field"] == "prompt"
            case "path.get" if op.attrs["field"] == "token":
                made = self.made.get(op.operands[0])
                return made is not None and made.opcode == "tree.walk"
            case "compact":
                return self.filled(op.operands[0], deep - 1) and self.at_root(op.operands[1])
            case "concat":
                return any(self.filled(x, deep - 1) or not x.type.dims for x in op.operands)
            case "if":
                n, made = op.results.index(v), self.made.get(op.operands[0])
                return all(
                    self.filled(y := r.yields[n], deep - 1) or r is op.regions[0] and self._asked(made, y) for r in op.regions
                )
            case "slice" if op.attrs.get("has_lo") and not op.attrs.get("has_hi"):  # its end
                lo, whole = self.made.get(op.operands[1]), op.operands[0]
                size = None
                if lo is not None and lo.attrs.get("fn") == "sub" and self.range(lo.operands[1]) == (1, 1):
                    size = self.made.get(lo.operands[0])
                last = size is not None and size.opcode == "len" and self.key(size.operands[0]) == self.key(whole)
                return self.filled(whole, deep - 1) and (last or self.range(op.operands[1]) == (-1, -1))
            case "ctx.get":
                return op.attrs["field"] == "path" or op.attrs["field"] == "last" and self.range(op.operands[1])[0] >= 1
            case "gather" if len(op.operands) == 2 and op.operands[1].type.dims:
                return self.filled(op.operands[1], deep - 1)
            case _ if op.opcode in ALIKE and op.operands:
                return any(self.filled(x, deep - 1) for x in op.operands if x.type.dims)
        return False

    def _asked(self, condition: Op | None, v: Value) -> bool:
        """Whether a condition is that a vector has elements."""
        if condition is None or condition.opcode != "map" or condition.attrs["fn"] != "gt":
            return False
        size, least = (self.made.get(x) for x in condition.operands)
        known = size is not None and size.opcode == "len" and size.operands[0] is v
        return known and self.range(condition.operands[1])[0] >= 0 and least is not None

    def at_root(self, condition: Value) -> bool:
        """Whether a condition over the nodes of a tree is true at its root."""
        op = self.made.get(condition)
        if op is None:
            return False
        if op.opcode == "map" and op.attrs["fn"] in ("or", "and"):
            return (any if op.attrs["fn"] == "or" else all)(map(self.at_root, op.operands))
        return op.opcode == "tree.down" and op.attrs["fn"] == "all"

    def _after(self, op: Op) -> bool:
        """Whether a range ends after it begins, by its text: `range_(1, n + 1)`, with n at least 1."""
        lo, hi = op.operands if len(op.operands) > 1 else (None, op.operands[0])
        return lo is not None and self.range(hi)[0] > self.range(lo)[1]


def _folded(fn: str, xs: list[tuple[float, float]]) -> tuple[float, float]:
    """Numbers that the result of arithmetic lies between."""
    ends = [(a, b) for a in xs[0] for b in (xs[1] if len(xs) > 1 else (0.0,))]
    match fn:
        case "add":
            return xs[0][0] + xs[1][0], xs[0][1] + xs[1][1]
        case "sub":
            return xs[0][0] - xs[1][1], xs[0][1] - xs[1][0]
        case "mul" if all(abs(a) < INF and abs(b) < INF for a, b in ends) or min(min(x) for x in xs) >= 0:
            found = [0.0 if 0 in (a, b) else a * b for a, b in ends]
            return min(found), max(found)
        case "minimum":
            return min(x[0] for x in xs), min(x[1] for x in xs)
        case "maximum":
            return max(x[0] for x in xs), max(x[1] for x in xs)
        case "neg":
            return -xs[0][1], -xs[0][0]
        case "select":
            return min(x[0] for x in xs[1:]), max(x[1] for x in xs[1:])
        case "clamp":
            return xs[1][0], max(xs[1][1], xs[2][1])
    return -INF, INF


# -- the rules of ops


def _map(k: Failing, op: Op) -> str:
    wide = [v for v in op.operands if any(d.kind != "vocab" for d in v.type.dims)]
    if len(wide) > 1:
        most = max(len(v.type.dims) for v in wide)
        over = {d.kind for v in wide for d in v.type.dims if d.kind != "vocab"}
        if len({k.rows(v) for v in wide}) > 1 or most > 2 or len(over) > 1 and most > 1:
            return "its vectors may have different lengths"
    if op.attrs["fn"] == "mod" and not k.range(op.operands[1])[0] > 0:
        return "the divisor may be 0"
    return ""


def _read(k: Failing, op: Op) -> str:
    """A model reads a text of one token or more, where one row is asked for."""
    text = op.operands[1]
    sure = op.attrs.get("each") or text.type.elem in ("path", "node") or k.filled(text)
    return "" if sure else "a model may be given an empty text"


def _empty(k: Failing, op: Op) -> str:
    if op.opcode == "reduce" and op.attrs["fn"] not in ("max", "min", "mean", "logsumexp"):
        return ""
    x = op.operands[0]
    last = x.type.dims[-1].kind if x.type.dims else "vocab" if x.type.elem in ("dist", "scores") else ""
    if len(op.operands) == 1 and (last == "vocab" or x.type.elem in ("dist", "scores")):
        return ""
    if len({k.rows(v) for v in _keys(k, op.operands)}) > 1:
        return "its vectors may have different lengths"
    return "" if k.filled(x) else "there may be nothing to choose from"


def _keys(k: Failing, values: tuple[Value, ...]) -> list[Value]:
    """Candidates and the keys that they are chosen by, those of a list one by one."""
    lists = {v: made for v in values if v.type.elem == "list" and (made := k.made.get(v)) is not None and made.opcode == "list"}
    return [x for v in values for x in (lists[v].operands if v in lists else (v,))]


def _gather(k: Failing, op: Op) -> str:
    v, *index = op.operands
    if op.attrs.get("axis") or len(index) != 1:
        return "an index may be out of range"
    (i,) = index
    if v.type.elem == "topology" or i in k.counters:
        loop = k.counters.get(i)
        if loop is not None and loop.opcode == "each" and k.rows(loop.operands[0]) == k.rows(v):
            return ""
        if loop is not None and loop.opcode == "for" and k.range(loop.operands[0])[0] >= 0:
            count = k.made.get(loop.operands[1])
            if count is not None and count.opcode == "len":
                of = count.operands[0]
                if of is v or k.rows(of) == k.rows(v) or of.type.elem == "topology" and k.key(of) == k.key(v):
                    return ""
    first = v.type.dims[0].kind if v.type.dims else ""
    if first == "vocab" and i.type.elem in ("token", "draw") and i.type.vocab == v.type.dims[0].of:
        return ""
    if i.type.elem != "node" and k.filled(v) and _below(k, i, v):
        return ""
    made = k.made.get(v)
    if made is not None and made.opcode == "state.read" and i.type.elem == "int" and not i.type.dims and k.range(i)[0] >= 0:
        if k.always(
            made.attrs["state"], lambda k, x: _as_long(k, x, made.attrs["state"], int(min(k.range(i)[1], 1 << 30)) + 1)
        ):
            return ""
    if i.type.elem == "node":
        tree = k.rows(v)
        if isinstance(tree, tuple) and tree[0] == "nodes" and _of(k, i, tree[1]):
            return ""
    return "an index may be out of range"


def _as_long(k: Failing, v: Value, state: str, least: int) -> bool:
    """Whether a vector has so many elements: zeros, or what a state was with some of them replaced."""
    made = k.made.get(v)
    if made is None:
        return False
    match made.opcode:
        case "state.read":
            return made.attrs["state"] == state
        case "scatter":
            return _as_long(k, made.operands[0], state, least)
        case "map":
            return any(x.type.dims and _as_long(k, x, state, least) for x in made.operands)
        case "tile" if made.attrs["kind"] == "zeros" and made.operands:
            return k.range(made.operands[0])[0] >= least
    return False


def _below(k: Failing, i: Value, v: Value) -> bool:
    """Whether an index is 0 or -1, taken modulo the length of a vector that has elements, or held between its ends."""
    made = k.made.get(i)
    if k.range(i) in ((0, 0), (-1, -1)):
        return True
    if made is None or made.opcode != "map":
        return False
    if made.attrs["fn"] == "mod":
        return k.key(made.operands[1]) == ("len", k.rows(v))
    if made.attrs["fn"] == "clamp":
        last = ("map", "sub", ("len", k.rows(v)), ("const", 1))
        return k.range(made.operands[1])[0] >= 0 and k.range(made.operands[1])[1] <= 0 and k.key(made.operands[2]) == last
    return False


def _of(k: Failing, nodes: Value, tree: Value, seen: frozenset[Any] = frozenset()) -> bool:
    """Whether nodes are nodes of this very tree."""
    op = k.made.get(nodes)
    if (nodes, tree) in seen:
        return True
    if len(seen) > 30:
        return False
    seen |= {(nodes, tree)}
    carried, other = k.carried(nodes), k.carried(k.tree(tree))
    if carried is not None and other is not None and carried[0] is other[0]:
        return all(_of(k, a, b, seen) for a, b in zip(k.ways(nodes), k.ways(k.tree(tree)), strict=True))
    if carried is not None:
        bases = [
            a for a in (*carried[0].regions[-1].args, *carried[0].results) if a.type.elem == "tree" and k.grown_to(a, tree)
        ]
        return any(_of(k, nodes, base, seen) for base in bases)
    if op is None:
        counted = next((c for c in k.counters.values() if c.opcode == "each" and c.regions[0].args[-1] is nodes), None)
        return counted is not None and _of(k, counted.operands[0], tree, seen)
    match op.opcode:
        case "if":
            made = k.made.get(k.tree(tree))
            both = made is op
            ways = k.ways(k.tree(tree)) if both else (tree, tree)
            return all(_of(k, a, b, seen) for a, b in zip(k.ways(nodes), ways, strict=True))
        case "tree.nodes":
            return op.attrs["which"] == "root" or k.grown_to(op.operands[0], tree)
        case "tree.grow":
            return k.grown_to(op.results[0], tree)
        case "tree.get":
            return op.attrs["column"] == "parent" and k.grown_to(op.operands[0], tree)
        case "concat" | "list":
            return all(_of(k, x, tree, seen) for x in op.operands)
        case "compact" | "slice" | "select.top" | "take_first" | "gather" | "arg" | "batch.top":
            return op.operands[0].type.elem == "node" and _of(k, op.operands[0], tree, seen)
        case "const":
            return op.attrs["value"] == 0
    return False


def _lookup(k: Failing, op: Op) -> str:
    p, x = op.operands
    row = p.type.elem in ("dist", "scores") or bool(p.type.dims) and p.type.dims[-1].kind == "vocab"
    if not row or x.type.elem not in ("token", "draw"):
        return "an index may be out of range"
    wide = [v for v in (p, x) if v.type.dims and v.type.dims[0].kind != "vocab"]
    return "its vectors may have different lengths" if len(wide) > 1 and len({k.rows(v) for v in wide}) > 1 else ""


def _compact(k: Failing, op: Op) -> str:
    v, c = op.operands
    if not c.type.dims or k.rows(v) == k.rows(c):
        return ""
    tree = k.rows(c)
    if v.type.elem == "node" and isinstance(tree, tuple) and tree[0] == "nodes" and _of(k, v, tree[1]):
        return ""
    return "its vectors may have different lengths"


def _whole(k: Failing, op: Op) -> str:
    """Ends of slices, numbers of tokens: whole numbers are always taken."""
    real = [v for v in op.operands[1:] if v.type.elem in ("real", "prob")]
    return "an infinity is no whole number" if real else ""


def _as_int(k: Failing, op: Op) -> str:
    x = op.operands[0]
    made = k.made.get(x)
    if x.type.elem in ("int", "position", "node", "bool", "token", "draw"):
        return ""
    low, high = k.range(x)
    if made is not None and made.opcode == "map" and made.attrs["fn"] == "div":
        a, b = (k.range(v) for v in made.operands)
        below = k.made.get(made.operands[0])
        whole = made.operands[0].type.elem == "int" or below is not None and below.result.type.elem == "int"
        if b[0] > 0 and (whole or a[0] > -INF and a[1] < INF):
            return ""
    return "" if low > -INF and high < INF else "an infinity is no whole number"


def _within(k: Failing, op: Op) -> str:
    """A number is within the limits of every program; a vector within the capacity that it is shown to have."""
    if len(op.operands) == 1:
        return ""
    x, *sizes = op.operands
    inner = x.type
    for n, room in enumerate(sizes):
        bound = inner.dims[0].bound if inner.dims else None
        if not (bound is not None and bound <= k.range(room)[0]) and not (
            n == 0 and (_cut(k, x, room) or _held(k, x, room, op.attrs["what"]))
        ):
            return f"{op.attrs['what']} may be too small"
        inner = inner.of[0] if inner.elem == "list" else inner.drop() if inner.dims else inner
    return ""


def _held(k: Failing, x: Value, room: Value, what: str) -> bool:
    """Whether a state of some capacity, filled up to it, or what was drafted from it and is left, fits into it again."""

    def is_state(v: Value) -> bool:
        made = k.made.get(v)
        return made is not None and made.opcode == "state.read" and what == f"state `{made.attrs['state']}`"

    made = k.made.get(x)
    while made is not None and made.opcode in ("draw", "gather") and made.operands[made.opcode == "gather"].type.dims:
        made = k.made.get(made.operands[made.opcode == "gather"])
    if made is not None and made.opcode == "concat" and is_state(made.operands[0]):
        more = k.made.get(made.operands[1])
        left = ("map", "sub", k.key(room), ("len", k.rows(made.operands[0])))
        return more is not None and more.opcode == "draw.many" and k.key(more.operands[1]) == left
    if made is not None and made.opcode == "compact":  # nodes of a tree without its root, of which there are as many as drafts
        nodes, deep = k.made.get(made.operands[0]), k.made.get(made.operands[1])
        depth = k.made.get(deep.operands[0]) if deep is not None and deep.attrs.get("fn") == "gt" else None
        below = (
            depth is not None
            and depth.attrs.get("column") == "depth"
            and deep is not None
            and k.range(deep.operands[1])[0] >= 0
        )
        tree = k.made.get(k.tree(nodes.operands[0])) if below and nodes is not None and nodes.opcode == "tree.nodes" else None
        root = k.made.get(tree.operands[0]) if tree is not None and tree.attrs.get("chain") else None
        return root is not None and root.opcode == "tree.new" and tree is not None and is_state(tree.operands[1])
    return False


def _cut(k: Failing, x: Value, room: Value) -> bool:
    """Whether a vector was cut to its capacity: `first(xs, n)`, `top(xs, n)`, `xs[:n]`."""
    made = k.made.get(x)
    while made is not None and made.opcode in ("gather", "draw.get") and made.operands[-1].type.dims:
        made = k.made.get(made.operands[-1])
    if made is None or made.opcode not in ("take_first", "select.top", "slice") or made.attrs.get("has_lo"):
        return False
    most = made.operands[1]
    return k.key(most) == k.key(room) or k.range(most)[1] <= k.range(room)[0] and k.range(most)[0] >= 0


def _scatter(k: Failing, op: Op) -> str:
    v, x, *index = op.operands
    if len(index) != 1 or not v.type.dims:
        return "an index may be out of range"
    (i,) = index
    if x.type.dims and (not i.type.dims or k.rows(x) != k.rows(i)) or len(v.type.dims) > 1 and not _as_wide(k, v, x):
        return "its vectors may have different lengths"
    if v.type.dims[0].kind == "vocab" and i.type.elem in ("token", "draw") and i.type.vocab == v.type.dims[0].of:
        return ""
    return _gather(k, Op("gather", (v, i), {}, (), op.results, op.loc))


def _as_wide(k: Failing, v: Value, x: Value) -> bool:
    """Whether the rows of a state are as wide as the best `topk` tokens that are written there."""
    chosen = k.made.get(x)
    while chosen is not None and chosen.opcode in ("draw.get", "face"):
        chosen = k.made.get(chosen.operands[0])
    read = k.made.get(v)
    if chosen is None or chosen.opcode != "topk" or read is None or read.opcode != "state.read":
        return False
    state = next(s for s in k.function.states if s.name == read.attrs["state"])
    inner = Failing(k.function, k.consts)
    inner.made |= {r: op for op in state.init.walk() for r in op.results}
    made = inner.made.get(state.init.yields[0])
    while made is not None and made.opcode in ("map", "within"):
        made = inner.made.get(made.operands[0])
    if made is None or made.opcode != "tile" or made.attrs["kind"] != "zeros" or not made.operands:
        return False
    width = inner.key(made.operands[-1])
    return width == ("map", "minimum", k.key(chosen.operands[1]), ("vocab_size",))


def _select(k: Failing, op: Op) -> str:
    x, _, *keys = op.operands
    same = len({k.rows(v) for v in _keys(k, (x, *keys))}) == 1
    return _whole(k, Op(op.opcode, op.operands[:2], {}, (), op.results)) or (
        "" if same else "its vectors may have different lengths"
    )


def _each(k: Failing, op: Op) -> str:
    y = op.regions[0].yields[0].type
    return "" if not y.dims or op.result.type.elem == "list" else "its vectors may have different lengths"


def _folds(k: Failing, op: Op) -> str:
    return "" if k.rows(op.operands[1]) == ("nodes", k.tree(op.operands[0])) else "its vectors may have different lengths"


NODE, ALIKE_NOT = "there may be no such node", "its vectors may have different lengths"


def _grow(k: Failing, op: Op) -> str:
    """Draws at nodes of this tree: named ones, or those where their distributions were evaluated."""
    t, what, *rest = op.operands
    at = rest[0] if op.attrs.get("has_at") else None
    columns = rest[at is not None :]
    if any(v.type.dims and k.rows(v) != k.rows(what) for v in columns) or what.type.elem not in ("draw", "edit"):
        return ALIKE_NOT
    if at is not None and not _of(k, at, t):
        return NODE
    if op.attrs.get("chain"):
        return "" if at is None or not at.type.dims or k.filled(at) else "there may be no node to grow at"
    if at is not None and at.type.dims and what.type.dims and k.rows(at) != k.rows(what):
        return ALIKE_NOT
    return "" if at is not None or _placed(k, what, t) else NODE


def _placed(k: Failing, draws: Value, t: Value, deep: int = 8) -> bool:
    """Whether draws have a place in a tree: where their distribution was evaluated, or none, which is the frontier."""
    op = k.made.get(draws)
    if op is None or not deep:
        return False
    match op.opcode:
        case "if":
            return all(_placed(k, w, t, deep - 1) for w in k.ways(draws))
        case "draw.point":
            return True
        case "model.eval":
            place = op.operands[1]
            return not place.type.dims and place.type.of[0] == "ctx" or _of(k, place, t) if place.type.elem == "node" else False
        case "map":
            return all(_placed(k, x, t, deep - 1) for x in op.operands if x.type.elem in ("dist", "scores") or x.type.dims)
        case "tree.get" | "tile" | "rank" | "state.read" | "head.read":
            return False
        case _ if op.operands:
            return _placed(k, op.operands[0], t, deep - 1)
    return False


def _eval(k: Failing, op: Op) -> str:
    """A model is called at nodes of the tree that they are said to be of."""
    place, extra = op.operands[1], op.attrs.get("with", op.attrs.get("named", ()))
    if place.type.elem != "node" or place.type.of[0] == "ctx":
        return ""
    trees = [v for v in op.operands[2:] if v.type.elem == "tree"]
    return "" if len(trees) == 1 and "tree" in (*extra, "tree") and _of(k, place, trees[0]) else NODE


def _front(k: Failing, op: Op) -> str:
    return "" if _of(k, op.operands[1], op.operands[0]) else NODE


def _concat(k: Failing, op: Op) -> str:
    return "" if len(op.result.type.dims) < 2 else ALIKE_NOT


def _positions(k: Failing, op: Op) -> str:
    return "there may be no cell" if op.attrs["kind"] in ("start", "stop") else ""


def _race(k: Failing, op: Op) -> str:
    under = op.operands[2:]
    return ALIKE_NOT if under and under[0].type.dims and k.rows(under[0]) != k.rows(op.operands[0]) else ""


def _rounded(k: Failing, op: Op) -> str:
    """The memory of a context can be rounded, that of a canvas cannot on every backend."""
    made = k.made.get(op.operands[0])
    while made is not None and made.opcode in ("memory.only", "memory.join"):
        made = k.made.get(made.operands[0])
    context = made is not None and made.opcode == "model.memory" and made.operands[1].type.elem == "node"
    return "" if context else "this memory may not be one of a context"


def _set(k: Failing, op: Op) -> str:
    """A column set at nodes of its tree, to one value for all or to one for each."""
    t, nodes, values = op.operands
    if not _of(k, nodes, k.tree(t)):
        return "there may be no such node"
    alike = not values.type.dims and values.type.elem != "list" or k.rows(values) == k.rows(nodes)
    return "" if alike else "its vectors may have different lengths"


def _canvas(k: Failing, op: Op) -> str:
    return "" if k.range(op.operands[0])[0] >= 0 else "its length may be negative"


def _cells(k: Failing, op: Op) -> str:
    """Cells of a block of this canvas, with one value each."""
    c, at, *values = op.operands
    made = k.made.get(at)
    block = k.made.get(made.operands[0]) if made is not None and made.opcode == "gather" else None
    mine = block is not None and block.opcode == "positions" and block.operands[0].type == c.type
    plain = len(values) == 1 and op.attrs["kind"] == "token" and not op.attrs.get("has_mask")
    return "" if mine and plain and k.rows(values[0]) == k.rows(at) else "there may be no such cell, or no value for it"


def _drawn(k: Failing, op: Op) -> str:
    return "" if _of_model(k, op.operands[0]) else "there may be no mass to draw from"


def _of_model(k: Failing, v: Value, deep: int = 8) -> bool:
    """Whether a distribution is a model's, which has mass: what constrains it to nothing is a request."""
    v = k.same.get(v, v)
    made = k.made.get(v)
    if made is None or not deep:
        return v in k.evidence
    if made.opcode == "if":
        return all(_of_model(k, r.yields[made.results.index(v)], deep - 1) for r in made.regions)
    if made.opcode in ("face", "gather", "compact", "slice"):
        return _of_model(k, made.operands[0], deep - 1)
    if made.opcode == "normalize":  # of zeros to which a positive number was added
        inner = k.made.get(made.operands[0])
        parts = inner.operands if inner is not None and inner.attrs.get("fn") == "add" else ()
        zeros = [x for x in parts if (o := k.made.get(x)) is not None and o.opcode == "tile" and o.attrs["kind"] == "zeros"]
        return len(zeros) == 1 and any(k.range(x)[0] > 0 for x in parts)
    return made.opcode in ("model.eval", "model.evals", "model.read")


def _derive(k: Failing, op: Op) -> str:
    """Layers that parameters name are tried before a run; those of `layers` are there."""
    given = {p.value for p in k.function.params}
    for v in op.operands[1:]:
        if v.type.elem != "model" and v not in given and not _layer(k, v) and not _layers(k, v, set()):
            return "a layer may not be there"
    return ""


def _layers(k: Failing, v: Value, seen: set[str]) -> bool:
    """Whether numbers are all of layers that are there, also where a state holds them."""
    made = k.made.get(v)
    if made is None:
        return False
    match made.opcode:
        case "model.layers" | "const":
            return True
        case "compact" | "take_first" | "slice":
            return _layers(k, made.operands[0], seen)
        case "if":
            return all(_layers(k, r.yields[made.results.index(v)], seen) for r in made.regions)
        case "state.read":
            return made.attrs["state"] in seen or k.always(
                made.attrs["state"], lambda k, x: _layers(k, x, {*seen, made.attrs["state"]})
            )
    return False


def _layer(k: Failing, v: Value) -> bool:
    """Whether a number is made of parameters and of how many layers there are, so that a session tries it before it begins, or
    counts layers."""
    made, loop = k.made.get(v), k.counters.get(v)
    if loop is not None and loop.opcode == "for" and k.range(loop.operands[0])[0] >= 0:
        most = k.key(loop.operands[1])
        return any(
            isinstance(x, tuple) and x[0] == "len" and x[1][0] == "layers"
            for x in (most, *(most if isinstance(most, tuple) else ()))
        )
    if made is None:
        return v in {p.value for p in k.function.params}
    if made.opcode in ("map", "as_int", "len", "within"):
        return all(_layer(k, x) for x in made.operands)
    return made.opcode in ("const", "model.layers", "vocab_size")


RULES: dict[str, Callable[[Failing, Op], str]] = {
    "map": _map,
    "reduce": _empty,
    "arg": _empty,
    "gather": _gather,
    "lookup": _lookup,
    "compact": _compact,
    "slice": _whole,
    "take_first": _whole,
    "as_int": _as_int,
    "within": _within,
    "scatter": _scatter,
    "select.top": _select,
    "sort": lambda k, op: (
        "" if len(op.operands) == 1 or k.rows(op.operands[0]) == k.rows(op.operands[1]) else "its keys may be fewer"
    ),
    "each": _each,
    "tree.down": _folds,
    "tree.up": _folds,
    "draw": _drawn,
    "draw.many": _drawn,
    "model.derive": _derive,
    "tree.set": _set,
    "tree.grow": _grow,
    "tree.front": _front,
    "tree.keep": _front,
    "model.read": _read,
    "model.eval": _eval,
    "model.states": _eval,
    "model.memory": _eval,
    "model.attention": _eval,
    "head.read": _eval,
    "concat": _concat,
    "while": lambda k, op: "" if op.attrs.get("limited") or op.attrs.get("bound") == "done" else "this loop may not end",
    "info": lambda k, op: "" if len({k.rows(v) for v in op.operands if v.type.dims}) < 2 else ALIKE_NOT,
    "positions": _positions,
    "draw.race": _race,
    "memory.quantized": _rounded,
    "canvas.new": _canvas,
    "canvas.put": _cells,
    "list": lambda k, op: (
        ""
        if len(op.operands) < 2 or all(not v.type.dims for v in op.operands) or op.result.type.elem == "list"
        else "lengths may differ"
    ),
}
"""By opcode: what an op may fail at."""


def may_fail(function: Function, op: Op) -> bool:
    """Whether an op may end in an error of the program's own."""
    return bool(Failing(function).why(op))
