"""What one pass of the kernel knows at the place where it stands: facts of values, the draws that they depend on, what decides
whether an op runs, and the version of the context. The kernel's rules read it and change it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from decgraph.check.proof.folding import Number, Range, number
from decgraph.check.proof.invariants import Invariant, Step
from decgraph.check.proof.placed import Placed
from decgraph.check.proof.sizes import Sizes
from decgraph.ir.facts import NONE, Certainty, Drafts, Fact, ModelIs
from decgraph.ir.failing import Failing
from decgraph.ir.labels import Labels, check_labels
from decgraph.ir.settings import Condition
from decgraph.ir.values import Constant, Function, Module, Op, Value

MODELS = ("model.eval", "model.read", "head.read", "softmax", "warp", "beta")
KEPT = ("gather", "slice", "compact", "take_first", "sort", "select.top")
DRAWN = ("draw", "draw.many", "draw.race")
CERTAIN = ("draw.point", "topk", "index.ask")
POSITIVE = ("relu", "exp", "sqrt", "abs")
"""Elementwise functions whose results are not negative, and those of operands that are not negative."""
KEEP = ("add", "mul", "weigh", "mix", "minimum", "maximum", "div", "pow", "floor", "select")
Again = Callable[[Value], bool]


class Walked(Protocol):
    """What is known of a function: what made its values, which ones its loops carry (the loop and the place), and ranges."""

    function: Function
    producers: dict[Value, Op]
    carried: dict[Value, tuple[Op, int]]

    def low(self, v: Value) -> Number:
        """A number that the value is not below."""
        ...


def sums_to_one(k: Walked, v: Value, seen: frozenset[Value] = frozenset()) -> bool:
    """Whether a row is a distribution, or draws are of what they state, by what made them and not by their types: `x ~ q * 0.5`
    draws from q and states q / 2, a branch that yields a row or its logits has the type of a row, and `normalize(2 * p - q)`
    has entries below 0."""
    again: Again = lambda x: sums_to_one(k, x, seen | {v})
    op = k.producers.get(v)
    if v in seen:
        return True  # what comes round a loop is as its other values are
    if op is None:
        return _from_elsewhere(k, v, again)
    match op.opcode:
        case name if name in MODELS or name in CERTAIN:
            return True
        case "normalize" | "renorm":
            return not_negative(k, op.operands[0])
        case "face":
            return op.attrs["face"] != "logits" and again(op.operands[0])
        case name if name in KEPT or name in DRAWN:
            return again(op.operands[0])
        case "draw.get":
            return op.attrs["field"] == "law" and again(op.operands[0])
    return _from_elsewhere(k, v, again)


def not_negative(k: Walked, v: Value, seen: frozenset[Value] = frozenset()) -> bool:
    """Whether no entry of a value is negative."""
    again: Again = lambda x: not_negative(k, x, seen | {v})
    op = k.producers.get(v)
    if v in seen or v.type.elem == "bool" or k.low(v) >= 0:
        return True
    if op is None:
        return _from_elsewhere(k, v, again)
    match op.opcode:
        case name if name in MODELS or name in ("len", "rank", "index.ask"):
            return True
        case "const":  # also of a line that the pass comes to later
            return isinstance(op.attrs["value"], int | Fraction) and op.attrs["value"] >= 0
        case "face":
            return op.attrs["face"] != "logits" and again(op.operands[0])
        case "map" if op.attrs["fn"] in POSITIVE:
            return True
        case "map" if op.attrs["fn"] in KEEP:
            return all(again(x) for x in op.operands)
        case name if name in ("normalize", "renorm", "lookup", "reduce", "scan", *KEPT):
            return again(op.operands[0])
        case "concat" | "list" | "tile":
            return op.attrs.get("kind") == "zeros" or all(again(x) for x in op.operands)
        case "draw.get":
            return op.attrs["field"] == "law" and sums_to_one(k, v)
    return _from_elsewhere(k, v, again)


def _from_elsewhere(k: Walked, v: Value, again: Again) -> bool:
    """Of what a loop, a branch or a column of a tree yields: whether it holds of all that this may be."""
    op = k.producers.get(v)
    loop, n = k.carried.get(v) or (op, op.results.index(v) if op is not None else 0)
    if loop is not None and loop.opcode in ("for", "while"):
        many, body = len(loop.results), loop.regions[-1]
        return again(loop.operands[len(loop.operands) - many + n]) and again(body.yields[len(body.yields) - many + n])
    if op is not None and op.opcode == "if":
        return all(again(region.yields[op.results.index(v)]) for region in op.regions)
    return op is not None and op.opcode == "tree.get" and _column(op, k.function, again)


def _column(read: Op, function: Function, again: Again) -> bool:
    """A column holds what is written to it anywhere, and a node what is grown anywhere; to read what nothing was written to is
    an error."""
    name, writes = read.attrs["column"], []
    for op in function.body.walk():
        if op.opcode == "tree.grow" and name in ("law", "draw") and op.operands[1].type.elem == "draw":
            writes.append(op.operands[1])
        if op.opcode == "tree.set" and op.attrs["column"] == name:
            writes.append(op.operands[2])
        if op.opcode == "tree.grow" and name in op.attrs.get("columns", ()):
            first = 3 if op.attrs.get("has_at") else 2
            writes.append(op.operands[first + op.attrs["columns"].index(name)])
    return bool(writes) and all(again(v) for v in writes)


EVER = Op("ever", (), {}, (), ())
"""In labels the mark of what a shared memory tells: of a draw of any iteration, later ones among them, however long ago it
was read."""
Judged = tuple[str, str]
"""What a verification rule is (`matching`, `lossless`, `support` or ""), and why it is not more."""


UnreadDraws = dict[str, Drafts]
"""What is known of the draws in states, by the names of invariants.py `memory_of`."""


def unread_at_start(function: Function) -> UnreadDraws:
    """States of a sequence that begin without draws."""
    states = [s for s in function.states if s.scope == "sequence" and s.type.elem == "draw"]
    return {
        f"state {s.name}": Drafts(NONE) for s in states if all(op.opcode == "list" and not op.operands for op in s.init.ops)
    }


@dataclass
class Environment(Placed):
    """What a pass over `function` knows, for a claim about `model`, or for support about "one or another"."""

    module: Module
    function: Function
    model: str
    mode: Certainty
    judge: Callable[[Environment, Op], Judged]
    invariants: Mapping[Op | None, Invariant]
    greedy: bool = False
    settings: Mapping[str, Constant] = field(default_factory=dict)
    condition: Condition = ()
    ask_normalised: Callable[[], bool] = bool

    def __post_init__(self) -> None:
        self.models = self.model.split(" or ")
        self.facts: dict[Value, Fact] = {}
        self.taints: dict[Value, Labels] = {}
        self.consts: dict[Value, Constant] = {}
        self.states: dict[str, Labels] = {}
        lasting = [s for s in self.function.states if s.scope != "sequence"]
        self.texts = {f"state {s.name}" for s in lasting if s.type.elem == "index"}  # they learn what is committed
        self.shared = {f"state {s.name}" for s in lasting} | {"extern", "batch", *(["context"] if self.texts else [])}
        beside = self.invariants.get(None)
        self.others: dict[str, Labels] = {} if beside is None else dict(beside.states)
        self.told: dict[str, Labels] = {}
        self.grown: dict[Value, Op] = {}
        self.version, self.newest = 0, 0
        self.control: Labels = NONE
        self.progress = self.ended = self.output_decides = False
        self.committed: set[Certainty] = set()
        self.failing = Failing(self.function, self.consts)
        self.drafting: set[Value] | None = None  # where an error may end a draft: see endings.py
        self.ends_draft: Labels = NONE  # the draws by which it is decided whether an error ends it
        self.unread = unread_at_start(self.function)
        self.sound: set[Op] = set()
        self.inside: dict[Op, tuple[tuple[int, str], ...]] = {}  # of an algorithm that is run the lines that may fail, and why
        self.steps: list[Step] = []
        self.place(self.function)
        output = {v for v, op in self.producers.items() if op.opcode == "noise" and op.attrs["kind"] == "output"}
        self.output_readers = [op for op in self.function.body.walk() if any(v in output for v in op.operands)]
        self.mislabelled = {
            f.tree for f in check_labels(self.module) if f.severity == "error" and f.function == self.function.name
        }
        governed = {name for name, _ in self.function.policies}
        for p in self.function.params:
            if p.value.type.elem == "model" and p.name not in governed:
                self.facts[p.value] = ModelIs(p.name)
            if p.name in self.settings:
                self.consts[p.value] = self.settings[p.name]
        self.sizes = Sizes(self.failing, self.consts, self.condition, self.of)

    def of(self, v: Value) -> Fact | None:
        return self.facts.get(v) or self.sizes.pieces.get(v)

    def taint(self, *values: Value) -> Labels:
        return frozenset().union(*(self.taints.get(v, NONE) for v in values))

    def is_output(self, v: Value) -> bool:
        """Whether a noise is the `output` stream at the row's own position."""
        made = self.producers.get(v)
        return made is not None and made.opcode == "noise" and made.attrs["kind"] == "output" and not made.operands

    def fresh(self, op: Op, noise: Value) -> bool:
        """Whether nothing else reads a noise, and nothing that the draw goes by tells of it, as a shared memory may."""
        return self.read_alone(op, noise) and (noise, None) not in self.control | self.taint(*op.operands)

    def reads_noise(self, op: Op, noise: Value) -> None:
        """The results of a draw depend on its noise."""
        for v in op.results:
            self.taints[v] |= {(noise, None)}

    def limits(self, v: Value) -> Range:
        """Numbers that the value lies between."""
        known = number(self.consts.get(v))
        return self.failing.range(v) if known is None else (known, known)

    def low(self, v: Value) -> Number:
        """A number that the value is not below."""
        return self.limits(v)[0]

    def const(self, v: Value) -> Constant:
        return self.consts.get(v)

    def sums_to_one(self, v: Value) -> bool:
        return sums_to_one(self, v)

    def normalised(self) -> bool:
        """Whether scores may be taken for the logarithms of probabilities."""
        return self.ask_normalised()

    def tells(self, noises: Labels, *values: Value) -> bool:
        """Whether any of the values depends on one of these draws."""
        return bool(noises & self.taint(*values))

    def remembered(self, name: str) -> Labels:
        """The draws that a memory depends on. What a session, a batch or the caller keeps was also written by sequences that
        run beside this one, at any place of the program and in this very iteration, and by requests before it, whose noise is
        this one's where they have its seed (docs/decisions/0016-noise-and-memory.md)."""
        told = self.others.get(name, NONE) | (self.others.get("context", NONE) if name in self.texts else NONE)
        return self.states.get(name, NONE) | told | {(v, EVER) for v, _ in told}

    def in_context(self) -> Labels:
        """The draws that the committed context depends on."""
        return self.states.get("context", NONE)

    def say(self, op: Op, text: str, rule: str) -> None:
        self.steps.append(Step(op.loc.line, text, rule))
