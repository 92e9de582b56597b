"""The static cost of a step: which models are called how often, how large trees and choices get, what waits for the host.

A step is one iteration of the loop that commits: the body of `while not done`, or for canvases the whole run. Counts are
products of the loops around a call: a number, a parameter with its range, or a number known only at run time. After the
pass reuse every call also says how much of what it asks for it computes (passes/reuse.py: c is the tokens of context, n(t)
the drafted nodes of tree t).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from decgraph.ir.drafting import drafting
from decgraph.ir.types import Type
from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.ir.walk import producers
from decgraph.passes.placement import waits
from decgraph.passes.reuse import reuse_by_op
from decgraph.passes.tree_fusion import parts_of

HOST = {
    "extern": "calls the function",
    "text_of": "makes text of tokens",
    "automaton": "steps an automaton",
    "model.attention": "reads attention, computed beside the engine",
}
NO_CALL = ": no call of the model"
STORES = ("index.ask", "index.learn")


@dataclass(frozen=True)
class CallCost:
    """Calls of one model at one line: `times` in words, at most `most` of them in a step (None: no static bound). After
    reuse: which tokens are `asked` for and which of them `computed`."""

    model: str
    place: str
    times: str
    most: int | None
    line: int
    asked: str = ""
    computed: str = ""


@dataclass(frozen=True)
class Cost:
    """The report. `text()` is for people, `to_json()` for programs."""

    name: str
    step: str
    calls: tuple[CallCost, ...]
    capacities: tuple[str, ...]
    effects: tuple[str, ...]
    syncs: tuple[str, ...]
    random: dict[str, int] = field(default_factory=dict)
    host: tuple[str, ...] = ()

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def _repr_html_(self) -> str:
        from decgraph.html import fragment

        return fragment(self)

    def text(self) -> str:
        out = [f"{self.name}: static cost of {self.step}", "", "model calls"]
        width = max((len(c.model) for c in self.calls), default=0)
        for c in self.calls:
            most = f", at most {c.most}" if c.most is not None and c.times != f"{c.most}" else ""
            out.append(f"  {c.model:<{width}}  {c.times} x {c.place}{most}    line {c.line}")
            if c.computed:
                out.append(
                    f"  {'':<{width}}    computes {c.computed}; reads {c.asked}{NO_CALL if c.computed == 'nothing' else ''}"
                )
        groups = [
            ("capacities", self.capacities),
            ("effects", self.effects),
            ("on the host", self.host),
            ("waits for the host", self.syncs),
        ]
        random = tuple(f"{count} {kind}" for kind, count in self.random.items())
        for title, lines in (*groups, ("randomness (sites, keyed)", random)):
            out += ["", title, *(f"  {line}" for line in lines or ("none",))]
        return "\n".join(out)


SIGNS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
CALLED = {"minimum": "min", "maximum": "max", "neg": "-"}
"""How functions over numbers are written in .dec files."""


@dataclass(frozen=True)
class Frequency:
    """How often a place is reached in a step."""

    words: tuple[str, ...] = ()
    most: int | None = 1
    perhaps: bool = False

    def times(self) -> str:
        said = " x ".join(self.words) or "1"
        return f"up to {said}" if self.perhaps else said

    def inside(self, words: str, most: int | None) -> Frequency:
        both = None if most is None or self.most is None else self.most * most
        return Frequency((*self.words, words), both, self.perhaps)


def cost_of(module: Module) -> Cost:
    """The cost of a module's algorithm."""
    return CostWalker(module, module.entry).report()


class CostWalker:
    """One walk over a step, with the loops around every op. given: what the caller of a sub-run calls the function's models;
    within: the functions that are being walked around it."""

    def __init__(self, module: Module, function: Function, names: Mapping[Value, str] | None = None,
                 within: tuple[str, ...] = ()) -> None:  # fmt: skip
        self.module, self.function, self.names, self.within = module, function, names or {}, (*within, function.name)
        self.producers = producers(function.body)
        self.calls: list[CallCost] = []
        self.by_op: dict[tuple[Op, ...], CallCost] = {}
        """The same by op, behind the ops of the runs that it stands in; with memories, which are no calls of their own."""
        self.capacities: dict[str, None] = {}
        self.effects: dict[str, None] = {}
        self.host: dict[str, None] = {}
        self.reuse = reuse_by_op(function)
        self.random: dict[str, int] = {}

    def report(self) -> Cost:
        loop = self.loop()
        region = loop.regions[1] if loop is not None else self.function.body
        what = "one decoding step (an iteration of `while not done`)" if loop is not None else "a whole run"
        for p in self.function.params:
            if p.value.type.elem == "int" and p.high is not None:
                self.capacities[f"{p.name} <= {p.high}"] = None
        for s in self.function.states:
            self.capacities[f"state {s.name}: {_size(s.type)}, per {s.scope}"] = None
        self.walk(region, Frequency())
        return Cost(self.function.name, what, tuple(self.calls), tuple(self.capacities), tuple(self.effects),
                    tuple(map(str, waits(self.function))), self.random, tuple(self.host))  # fmt: skip

    def loop(self) -> Op | None:
        """The loop that commits."""
        return next((op for op in self.function.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"), None)

    def walk(self, region: Region, frequency: Frequency) -> None:
        for op in region.ops:
            self.one(op, frequency)
            for inner, within in self.inside(op, frequency):
                self.walk(inner, within)

    def inside(self, op: Op, frequency: Frequency) -> list[tuple[Region, Frequency]]:
        match op.opcode:
            case "for":
                words, most = self.count(op)
                return [(op.regions[0], frequency.inside(words, most))]
            case "while":
                words = "iterations until it stops" if op.attrs.get("bound") != "done" else "steps"
                within = frequency.inside(words, None)
                return [(r, within) for r in op.regions]
            case "if":
                return [(r, Frequency(frequency.words, frequency.most, True)) for r in op.regions]
            case "tree.walk":
                within = frequency.inside("depth of the verification", None) if op.attrs["scope"] == "node" else frequency
                return [(r, within) for r in op.regions]
            case "each":
                return [(r, frequency.inside(f"len({self.name(op.operands[0])})", None)) for r in op.regions]
        return [(r, frequency) for r in op.regions]

    def count(self, op: Op) -> tuple[str, int | None]:
        """The iterations of a `for`, in words and at most."""
        low, high = op.operands[:2]
        bound = op.attrs.get("bound")
        made = self.producers.get(high)
        start = self.producers.get(low)
        first = start.attrs["value"] if start is not None and start.opcode == "const" else None
        if made is not None and made.opcode == "const" and isinstance(first, int):
            times = max(0, int(made.attrs["value"]) - first)
            return str(times), times
        if made is not None and made.opcode == "len":
            bounds = [d.bound for d in made.operands[0].type.dims[:1]]
            source = self.producers.get(made.operands[0])
            if source is not None and source.opcode == "positions" and source.attrs.get("kind") == "blocks":
                return "every block", None
            return f"len({self.name(made.operands[0])})", bounds[0] if bounds else None
        return self.name(high), int(bound) if isinstance(bound, int) else None

    def most(self, value: Value) -> int | None:
        """The largest a number can be, where it is known."""
        made = self.producers.get(value)
        if made is not None and made.opcode == "const" and isinstance(made.attrs["value"], int):
            return int(made.attrs["value"])
        high = next((p.high for p in self.function.params if p.value is value), None)
        return int(high) if high is not None else None

    def sub_run(self, op: Op, frequency: Frequency) -> None:
        """The model calls of a run of another algorithm: of its steps, each of which commits at least one token."""
        callee = self.module.functions.get(op.attrs["callee"])
        if callee is None or callee.name in self.within:
            return
        operands = dict(zip(op.attrs["args"], op.operands[2:], strict=False))
        given = {p.value: self.derived(operands[p.name]) for p in callee.params
                 if p.value.type.elem == "model" and p.name in operands}  # fmt: skip
        inner = CostWalker(self.module, callee, given, self.within)
        loop = inner.loop()
        before = [o for o in callee.body.ops if o is not loop]
        for o in before:
            inner.one(o, frequency)
            for region, within in inner.inside(o, frequency):
                inner.walk(region, within)
        if loop is not None:
            bound = self.most(op.operands[1])
            words = str(bound) if self.name(op.operands[1]).startswith("(") else self.name(op.operands[1])
            steps = frequency.inside(words, bound)
            inner.walk(loop.regions[1], Frequency(steps.words, steps.most, True))
        for key, call in inner.by_op.items():
            self.by_op[(op, *key)] = replace(call, place=f"{call.place}, in a run of {callee.name}")
        for call in inner.calls:
            self.calls.append(replace(call, place=f"{call.place}, in a run of {callee.name}", line=op.loc.line))

    def name(self, value: Value) -> str:
        if value in self.names:
            return self.names[value]
        if value.name and not value.name.startswith("%"):
            return value.name.split(".")[0]
        return self.spelled(self.producers.get(value))

    def spelled(self, op: Op | None, deep: int = 2) -> str:
        """A value without a name, as an author would write it; its op in parentheses where that is no expression."""
        if op is None:
            return "n"
        if op.opcode == "const":
            return str(op.attrs["value"])
        if op.opcode == "state.read":
            return str(op.attrs["state"])
        if op.opcode != "map" or not deep:
            return f"({op.opcode})" if deep == 2 else "..."
        parts = [v.name.split(".")[0] if v.name and not v.name.startswith("%")
                 else self.spelled(self.producers.get(v), deep - 1) for v in op.operands]  # fmt: skip
        fn = str(op.attrs["fn"])
        if len(parts) == 2 and fn in SIGNS:
            return f"{parts[0]} {SIGNS[fn]} {parts[1]}"
        return f"{CALLED.get(fn, fn)}({', '.join(parts)})"

    def one(self, op: Op, frequency: Frequency) -> None:
        match op.opcode:
            case "model.eval" | "model.evals" | "model.read":
                self.calls.append(self.call(op, frequency))
            case "model.memory":
                self.call(op, frequency)
                self.capacities[f"memory of {self.model(op)}: keys, values and features it computed (line {op.loc.line})"] = (
                    None
                )
            case "commit":
                self.effects[f"commits (line {op.loc.line})"] = None
            case "state.write":
                self.effects[f"writes state {op.attrs['state']} (line {op.loc.line})"] = None
            case "return":
                self.effects[f"returns (line {op.loc.line})"] = None
            case "tree.new" if isinstance(op.attrs.get("capacity"), int):
                self.capacities[f"tree {op.attrs['tree']}: at most {op.attrs['capacity']} nodes (line {op.loc.line})"] = None
            case "select.top" | "topk" if isinstance(op.attrs.get("bound"), int):
                self.capacities[f"{op.opcode} keeps at most {op.attrs['bound']} (line {op.loc.line})"] = None
            case "run":
                self.effects[f"runs {op.attrs['callee']} on a scratch context (line {op.loc.line})"] = None
                self.sub_run(op, frequency)
            case "noise":
                kind = str(op.attrs["kind"])
                self.random[kind] = self.random.get(kind, 0) + 1
        if op.opcode in HOST:
            what = f" {op.attrs['extern']}" if "extern" in op.attrs else ""
            self.host[f"{HOST[op.opcode]}{what} (line {op.loc.line})"] = None
        elif op.opcode in STORES:
            verb = "looks up" if op.opcode.endswith("ask") else "adds to"
            self.host[f"{verb} an index (line {op.loc.line})"] = None
        elif op.opcode.startswith("batch."):
            self.host[f"waits for the whole batch (line {op.loc.line})"] = None

    def call(self, op: Op, frequency: Frequency) -> CallCost:
        """What one call costs, noted in `found`."""
        kept = self.reuse.get(op)
        said = (kept.asked, kept.computed) if kept is not None else ("", "")
        made = CallCost(self.model(op), self.places(op), frequency.times(), frequency.most, op.loc.line, *said)
        self.by_op[(op,)] = made
        return made

    def model(self, op: Op) -> str:
        """The model of a call, with how it was derived and which part of it is called."""
        base = self.derived(op.operands[0])
        if op.attrs.get("drafts"):
            return drafting(base)
        return f"{base}.{op.attrs['part']}" if op.attrs.get("part") else base

    def derived(self, value: Value) -> str:
        made = self.producers.get(value)
        if made is None or made.opcode != "model.derive":
            return self.name(value)
        words = [self.derived(v) if v.type.elem == "model" else self.layers(v) for v in made.operands[1:]]
        names = [f"{n} = " for n in made.attrs.get("named", ())] or [""] * len(words)
        inner = ", ".join(n + w for n, w in zip(names, words, strict=True))
        if made.attrs["how"] == "adapter":
            return f"{self.derived(made.operands[0])}({inner})"
        return f"{self.derived(made.operands[0])}.{made.attrs['how']}({inner})"

    def layers(self, value: Value) -> str:
        """A number, a set, or a vector of numbers that is written out."""
        made = self.producers.get(value)
        if made is not None and made.opcode == "const":
            return str(made.attrs["value"])
        if made is None or made.opcode != "list":
            return self.name(value)
        return f"[{', '.join(map(self.layers, made.operands))}]"

    def places(self, op: Op) -> str:
        """Where a call stands; all places of one that has several."""
        if op.opcode == "model.read":
            return "every token of a second context" if op.attrs.get("each") else "a second context"
        out, at = [], 1
        for names in parts_of(op):
            out.append(self.place(op.operands[at], dict(zip(names, op.operands[at + 1 :], strict=False))))
            at += 1 + len(names)
        return " and ".join(dict.fromkeys(out))

    def place(self, where: Value, extra: dict[str, Value]) -> str:
        t = where.type
        if t.elem == "canvas":
            at = " at some positions" if "at" in extra else ""
            return f"canvas {t.of[0]}{at}" + (", on what it remembers" if "given" in extra else "")
        if t.elem == "tree":
            return f"every node of {t.of[0]}"
        if t.of and t.of[0] == "ctx":
            return "the context"
        made = self.producers.get(where)
        which = str(made.attrs["which"]) if made is not None and made.opcode == "tree.nodes" else "nodes"
        given = ", on what the target remembers" if "given" in extra else ""
        return f"the {which} of {t.of[0]}{given}"


def _size(t: Type) -> str:
    sizes = [f"<= {d.bound}" if d.bound is not None else d.kind for d in t.dims]
    return t.elem + (f"[{', '.join(sizes)}]" if sizes else "")
