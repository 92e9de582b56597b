"""What an op may fail at when it runs, as far as a program's text shows: `Failing(function).why(op)` is "" where it cannot fail.

Safe is only what is shown to be: two vectors have one length where their lengths are one expression, an index is in range where
it counts or names what it indexes (a node of a tree in a column of the same tree, a token in a row over its vocabulary, the
counter of a loop over a vector in that vector), a vector has an element where a tree's root or a known number gives it one. An op
without a rule may fail.

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
        *("const", "unfailing", "if", "for", "while", "noise", "request", "topology", "vocab_size", "len", "face", "context"),
        *("done", "draw.get", "draw.point", "tree.nodes", "tree.get", "tree.new", "tree.size", "tree.front", "tree.keep"),
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
        *("tree.reroot", "tree.grow", "tree.walk", "topk", "topology.narrow", "tile", "concat", "scan", "rank", "ended"),
        *(
            "memory.only",
            "memory.join",
            "memory.quantized",
            "normalize",
            "softmax",
            "ctx.get",
            "segment",
            "draw.race",
            "positions",
        ),
        *("index.ask", "index.learn", "canvas.get", "info"),
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
ALIKE = frozenset({"map", "face", "draw", "draw.get", "draw.point", "topk", "draw.many", "normalize", "softmax", "arg", "scan"})
"""Ops whose first dimension is that of an operand."""


class Failing:
    """The ops of a function, with what is known of its values: `consts` are numbers that are known."""

    def __init__(self, function: Function, consts: Mapping[Value, Any] | None = None) -> None:
        self.function, self.consts = function, consts or {}
        self.made = {v: op for op in function.body.walk() for v in op.results}
        walks = [op for op in function.body.walk() if op.opcode == "tree.walk" and op.attrs["scope"] == "node"]
        self.evidence: set[Value] = set()
        self.evidence |= {op.regions[0].args[1] for op in walks if _of_model(self, op.operands[1])}
        self.counters = {
            op.regions[0].args[0]: op
            for op in function.body.walk()
            if op.opcode in ("for", "each") and op.regions and op.regions[0].args
        }

    def why(self, op: Op) -> str:
        """What an op may fail at, a clause; "" where it cannot."""
        if op.opcode in NEVER or op.opcode in OUTSIDE:
            return ""
        rule = RULES.get(op.opcode)
        return rule(self, op) if rule is not None else f"`{op.opcode}` may fail"

    def outside_drafts(self, sound: Collection[Op] = ()) -> Iterator[tuple[Op, str]]:
        """The ops that may fail and whose errors end the run, with what they may fail at. sound: verifications whose rules are
        known not to fail."""
        yield from self._in(self.function.body, sound)

    def _in(self, region: Region, sound: Collection[Op]) -> Iterator[tuple[Op, str]]:
        for op in region.ops:
            if "draft" in op.attrs and op.opcode == "if":
                continue
            if why := self.why(op):
                yield op, why
            if op in sound:
                continue
            decided = self.consts.get(op.operands[0]) if op.opcode == "if" else None
            regions = op.regions if not isinstance(decided, bool) else (op.regions[0 if decided else 1],)
            for inner in regions:
                yield from self._in(inner, sound)

    # -- what is known of a value
    def key(self, v: Value, deep: int = 12) -> Hashable:
        """The same for two values that are equal: an expression of what is computed alike."""
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
            case "len":
                return ("len", self.rows(op.operands[0], deep - 1))
            case "within" if len(op.operands) == 1:
                return self.key(op.operands[0], deep - 1)
        return v

    def rows(self, v: Value, deep: int = 12) -> Hashable:
        """The same for two vectors of one length: what their first dimension ranges over."""
        op = self.made.get(v)
        if op is None or not deep:
            return v
        match op.opcode:
            case "model.eval" if op.operands[1].type.elem == "tree":
                return ("nodes", op.operands[1])
            case "model.eval" if op.operands[1].type.dims:
                return self.rows(op.operands[1], deep - 1)
            case "tree.get":
                return ("nodes", op.operands[0])
            case "tree.nodes" if op.attrs["which"] == "all":
                return ("nodes", op.operands[0])
            case "tree.down" | "tree.up":
                return ("nodes", op.operands[0])
            case "model.layers":
                return ("layers", self.key(op.operands[0], deep - 1))
            case "tile" if op.attrs["kind"] == "iota":
                lo = self.key(op.operands[0], deep - 1) if len(op.operands) > 1 else ("const", 0)
                return ("range", lo, self.key(op.operands[-1], deep - 1))
            case "level.get":
                return ("level", self.key(op.operands[0], deep - 1))
            case "gather" if len(op.operands) == 2 and op.operands[1].type.dims:
                return self.rows(op.operands[1], deep - 1)
            case "within" if op.operands[0].type.dims:
                return self.rows(op.operands[0], deep - 1)
            case "lookup" | "renorm" | "tile" if op.opcode == "lookup" and op.result.type.dims:
                return next(self.rows(x, deep - 1) for x in op.operands if x.type.dims)
            case _ if op.opcode in ALIKE and op.result.type.dims:
                wide = [x for x in op.operands if len(x.type.dims) and x.type.dims[0].kind != "vocab"]
                if wide and op.result.type.dims[0].kind != "vocab":
                    return self.rows(max(wide, key=lambda x: len(x.type.dims)), deep - 1)
        return v

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
            case "concat":
                return any(self.filled(x, deep - 1) or not x.type.dims for x in op.operands)
            case "gather" if len(op.operands) == 2 and op.operands[1].type.dims:
                return self.filled(op.operands[1], deep - 1)
            case _ if op.opcode in ALIKE and op.operands:
                return any(self.filled(x, deep - 1) for x in op.operands if x.type.dims)
        return False

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


def _empty(k: Failing, op: Op) -> str:
    if op.opcode == "reduce" and op.attrs["fn"] not in ("max", "min", "mean", "logsumexp"):
        return ""
    x = op.operands[0]
    last = x.type.dims[-1].kind if x.type.dims else "vocab" if x.type.elem in ("dist", "scores") else ""
    if len(op.operands) == 1 and (last == "vocab" or x.type.elem in ("dist", "scores")):
        return ""
    if len({k.rows(v) for v in op.operands}) > 1:
        return "its vectors may have different lengths"
    return "" if k.filled(x) else "there may be nothing to choose from"


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
    if i.type.elem == "node":
        tree = k.rows(v)
        if isinstance(tree, tuple) and tree[0] == "nodes" and _of(k, i, tree[1]):
            return ""
    return "an index may be out of range"


def _of(k: Failing, nodes: Value, tree: Any, deep: int = 8) -> bool:
    """Whether nodes are nodes of this very tree."""
    op = k.made.get(nodes)
    if op is None or not deep:
        counted = next((c for c in k.counters.values() if c.opcode == "each" and c.regions[0].args[-1] is nodes), None)
        return counted is not None and _of(k, counted.operands[0], tree, deep - 1)
    match op.opcode:
        case "tree.nodes":
            return op.operands[0] is tree or op.attrs["which"] == "root"
        case "tree.get":
            return op.operands[0] is tree and op.attrs["column"] == "parent"
        case "compact" | "slice" | "select.top" | "take_first" | "gather" | "arg":
            return op.operands[0].type.elem == "node" and _of(k, op.operands[0], tree, deep - 1)
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
    for d, room in zip(x.type.dims, sizes, strict=False):
        if d.bound is None or not d.bound <= k.range(room)[0]:
            return f"{op.attrs['what']} may be too small"
    return "" if x.type.dims else f"{op.attrs['what']} may be too small"


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
    same = len({k.rows(v) for v in (x, *keys)}) == 1
    return _whole(k, Op(op.opcode, op.operands[:2], {}, (), op.results)) or (
        "" if same else "its vectors may have different lengths"
    )


def _each(k: Failing, op: Op) -> str:
    y = op.regions[0].yields[0].type
    return "" if not y.dims or op.result.type.elem == "list" else "its vectors may have different lengths"


def _folds(k: Failing, op: Op) -> str:
    return "" if k.rows(op.operands[1]) == ("nodes", op.operands[0]) else "its vectors may have different lengths"


def _drawn(k: Failing, op: Op) -> str:
    return "" if _of_model(k, op.operands[0]) else "there may be no mass to draw from"


def _of_model(k: Failing, v: Value, deep: int = 8) -> bool:
    """Whether a distribution is a model's, which has mass: what constrains it to nothing is a request."""
    made = k.made.get(v)
    if made is None or not deep:
        return v in k.evidence
    if made.opcode == "if":
        return all(_of_model(k, r.yields[made.results.index(v)], deep - 1) for r in made.regions)
    if made.opcode in ("face", "gather", "compact", "slice"):
        return _of_model(k, made.operands[0], deep - 1)
    return made.opcode in ("model.eval", "model.evals", "model.read")


def _derive(k: Failing, op: Op) -> str:
    """Layers that parameters name are tried before a run; those of `layers` are there."""
    for v in op.operands[1:]:
        made = k.made.get(v)
        while made is not None and made.opcode in ("compact", "map") and made.result.type.dims:
            made = k.made.get(made.operands[0]) if made.opcode == "compact" else None
        known = v.type.elem == "model" or v in {p.value for p in k.function.params}
        if not known and not (made is not None and made.opcode in ("model.layers", "const")) and not _layer(k, v):
            return "a layer may not be there"
    return ""


def _layer(k: Failing, v: Value) -> bool:
    """Whether a number is one of parameters and of how many layers there are: it is what it is in every step."""
    made = k.made.get(v)
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
    "list": lambda k, op: (
        "" if all(not v.type.dims for v in op.operands) or op.result.type.elem == "list" else "lengths may differ"
    ),
}
"""By opcode: what an op may fail at."""


def may_fail(function: Function, op: Op) -> bool:
    """Whether an op may end in an error of the program's own."""
    return bool(Failing(function).why(op))
