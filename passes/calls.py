"""Each model call of a program explained: why it is there, how often it happens, what it computes, what it is fused with, what
of it is reused, what the step waits for after it, and what a change would save. For `decgraph explain --cost`.

Every call that the program writes has one entry, also one that the passes merged with an equal one or dropped. What is said of
it is what the passes decided (tree_fusion, reuse, batching) and counted (passes/cost.py); nothing is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace

from decgraph.ir.values import Function, Loc, Module, Op, Region, Value
from decgraph.passes import obstacles
from decgraph.passes.cost import CallCost, CostWalker, Frequency
from decgraph.passes.manager import optimise
from decgraph.passes.motion import CALLS
from decgraph.passes.obstacles import Obstacle
from decgraph.passes.placement import waits
from decgraph.passes.plan import Plan
from decgraph.passes.purposes import Purpose, Purposes
from decgraph.passes.reuse import reuse_by_op
from decgraph.passes.tree_fusion import parts_of

TextOf = Callable[[str], str]
"""The text of a file that locations name; "" where there is none."""

STEP, RUN, EARLY = "a step", "a run", "before the first step"


@dataclass(frozen=True)
class ExplainedCall:
    """One model call of the program.

    model: with how it is derived. line, column: of the program; file: where it stands, of a helper's line its file. expression:
    as it is written. when: "a step" (or "a run", of a program without steps) or "before the first step". times: in words, at
    most `most` (None: no static bound). why: what its result is for. rows: at which places, at most `rows_most`. asked,
    computed: of which tokens, and how much of that is computed; cached: why the rest is not. reuse: the store that it
    continues, or "" and why not. fused: the lines it is one call with; apart: why it is not one with others. batch: whose
    calls share its forward. waits: what the step waits for after it. changes: what in the program would let a pass do more.
    """

    model: str
    line: int
    column: int
    file: str
    expression: str
    kind: str
    when: str
    times: str
    most: int | None
    why: tuple[str, ...]
    rows: str
    rows_most: int | None
    asked: str
    computed: str
    cached: tuple[str, ...]
    reuse: str
    not_reused: str
    fused: tuple[int, ...]
    apart: tuple[str, ...]
    batch: str
    waits: tuple[str, ...]
    changes: tuple[str, ...]

    def text(self) -> str:
        most = f", at most {self.most}" if self.most is not None and self.times != str(self.most) else ""
        rows = f", at most {self.rows_most}" if self.rows_most is not None else ""
        out = [f"line {self.line}  {self.expression}"]
        said = [
            ("model", f"{self.model}, {self.times} x {self.when}{most}"),
            *(("why", why) for why in self.why or ("nothing needs its result",)),
            ("rows", f"{self.rows}{rows}"),
            ("computes", f"{self.computed}; reads {self.asked}" if self.computed else self.asked),
            *(("reuse", line) for line in (self.cached or ((f"none: {self.not_reused}",) if self.not_reused else ()))),
            *(("fused", f"with line {line} (tree_fusion)") for line in self.fused),
            *(("fused", line) for line in self.apart),
            ("batch", self.batch),
            *(("waits", line) for line in self.waits),
            *(("change", line) for line in self.changes),
        ]
        last = ""
        for name, words in said:
            if words:
                out.append(f"  {'' if name == last else name:<8}  {words}")
                last = name
        return "\n".join(out)


@dataclass(frozen=True)
class Saving:
    """What another value of a parameter changes: `calls` holds (model, line, calls before, calls after)."""

    param: str
    before: int
    after: int
    calls: tuple[tuple[str, int, int, int], ...]

    def __str__(self) -> str:
        said = "; ".join(f"{model} (line {line}) {a} -> {b} calls" for model, line, a, b in self.calls)
        return f"{self.param} {self.before} -> {self.after}: {said}"


@dataclass(frozen=True)
class Calls:
    """The report: `text()` for people, `to_json()` for programs."""

    name: str
    step: str
    calls: tuple[ExplainedCall, ...]
    savings: tuple[Saving, ...] = ()

    def text(self) -> str:
        out = [f"{self.name}: the model calls of {self.step}"]
        out += [f"\n{call.text()}" for call in self.calls] or ["\nnone"]
        if self.savings:
            out += ["\nparameters", *(f"  {saving}" for saving in self.savings)]
        return "\n".join(out)

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def _repr_html_(self) -> str:
        from decgraph.html import fragment

        return fragment(self)


def calls_of(
    module: Module,
    params: Mapping[str, object] | None = None,
    *,
    plan: Plan | None = None,
    text_of: TextOf = lambda path: "",
    savings: bool = True,
) -> Calls:
    """Every model call of a module's algorithm as it was lowered, explained by what the passes of a plan make of it.

    params: values that are known, as for `optimise`. text_of: the texts that the calls are shown from. savings: whether halved
    parameters are tried, which optimises the module once more for each.
    """
    made = optimise(module, params, plan=plan)[0]
    explainer = Explainer(module, made, text_of)
    found = tuple(explainer.function(module.main, ()))
    return Calls(module.main, explainer.step, found, tuple(saved(module, params or {}, plan)) if savings else ())


class Explainer:
    """A module before and after the passes. what: of every call of the module after, by the ops of the runs around it."""

    def __init__(self, module: Module, compiled: Module, text_of: TextOf) -> None:
        self.module, self.compiled, self.text_of = module, compiled, text_of
        walker = CostWalker(compiled, compiled.entry)
        loop = walker.loop()
        self.step = "one decoding step (an iteration of `while not done`)" if loop is not None else "a whole run"
        self.when = STEP if loop is not None else RUN
        early = CostWalker(compiled, compiled.entry)
        for op in compiled.entry.body.ops:
            if op is not loop and loop is not None:
                early.walk(Region((), (op,), ()), Frequency())
        walker.walk(loop.regions[1] if loop is not None else compiled.entry.body, Frequency())
        self.what = {**{k: (c, EARLY) for k, c in early.by_op.items()}, **{k: (c, self.when) for k, c in walker.by_op.items()}}
        self.within: list[str] = []

    def function(self, name: str, runs: tuple[Op, ...]) -> Iterator[ExplainedCall]:
        """The calls of a function, and of those that it runs, in the order of the text."""
        if name in self.within or name not in self.module.functions:
            return
        self.within.append(name)
        before, after = self.module.functions[name], self.compiled.functions[name]
        facts = AfterPasses(after)
        for op in before.body.walk():
            now = facts.now(op)
            if op.opcode in CALLS:
                yield self.call(before, facts, op, now, runs)
            elif op.opcode == "run" and now is not None:
                yield from self.function(str(op.attrs["callee"]), (*runs, now))
        self.within.remove(name)

    def call(self, before: Function, facts: AfterPasses, op: Op, now: Op | None, runs: tuple[Op, ...]) -> ExplainedCall:
        loc = op.loc.called or op.loc
        place, expression = self.shown(op.loc)
        if now is None:
            cost = CostWalker(self.module, before).call(op, Frequency())
            twin = facts.twin(op, cost, CostWalker(self.compiled, facts.function))
            words = f"an equal call stands in line {twin.loc.line}, and is made once" if twin is not None else ""
            idle = tuple(map(str, Purposes(before).purposes(op)))
            return ExplainedCall(
                cost.model, loc.line, loc.column, place, expression, op.opcode, self.when, "0", 0,
                (words,) if words else (*idle, "dropped: what it is for is not reached or not needed"),
                cost.place, None, "", "", (), "", "", (), (), "", (), (),
            )  # fmt: skip
        cost, when = self.what.get((*runs, now), (CostWalker(self.compiled, facts.function).call(now, Frequency()), EARLY))
        which = facts.part(op, now)
        why = facts.uses.purposes(now, (now.results[which],))
        kept = facts.reuse.get(now)
        store, cached = (kept.store, kept.reasons) if kept is not None else (str(now.attrs.get("reuse", "")), ())
        if store and kept is None:
            cached = ("its store begins here: the calls of every step continue it",)
        obstacle = None if store else obstacles.reuse(facts.function, now)
        fused = tuple(sorted({o.loc.line for o in facts.fused(before, op, now)}))
        apart = obstacles.fusion(facts.function, facts.regions, now)
        group = now.attrs.get("joint")
        shared = str(group).removesuffix("@step")
        alone = obstacles.batch(facts.function, now) if group is None else None
        own = CostWalker(self.module, before).call(op, Frequency())
        changes = [o.change for o in (*apart, *((obstacle,) if obstacle else ()), *((alone,) if alone else ())) if o.change]
        rows = replace(cost, place=own.place if len(parts_of(now)) > 1 else cost.place)
        return ExplainedCall(
            cost.model, loc.line, loc.column, place, expression, op.opcode, when, cost.times, cost.most,
            tuple(map(str, why)), rows.place, facts.rows(op), cost.asked, cost.computed,
            cached, store, obstacle.why if obstacle else "",
            fused, tuple(o.why for o in apart),
            f"alone: {alone.why}" if alone is not None else f"one forward for all sequences that wait for {shared}",
            facts.waited(why), tuple(dict.fromkeys(changes)),
        )  # fmt: skip

    def shown(self, loc: Loc) -> tuple[str, str]:
        """The file of a place, and what is written there on one line."""
        path, lines = loc.path, self.text_of(loc.path).splitlines()
        if not 0 < loc.line <= len(lines):
            return path, ""
        if loc.end_line == loc.line:
            return path, " ".join(lines[loc.line - 1][loc.column - 1 : loc.end_column - 1].split())
        if loc.end_line > loc.line:
            chosen = lines[loc.line - 1 : loc.end_line]
            chosen[-1] = chosen[-1][: loc.end_column - 1]
            chosen[0] = chosen[0][loc.column - 1 :]
            return path, " ".join(" ".join(chosen).split())
        return path, lines[loc.line - 1][loc.column - 1 :].strip()


class AfterPasses:
    """What is known of one function after the passes."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.uses = Purposes(function)
        self.reuse = reuse_by_op(function)
        self.regions: dict[Op, Region] = {}
        self.by_value: dict[Value, Op] = {}
        self.by_place: dict[tuple[object, ...], Op] = {}
        self.trees: dict[str, int] = {}
        self.look(function.body)
        self.waits = waits(function)

    def look(self, region: Region) -> None:
        for op in region.ops:
            self.regions[op] = region
            self.by_value.update(dict.fromkeys(op.results, op))
            self.by_place.setdefault(key(op), op)
            if op.opcode == "tree.new" and isinstance(op.attrs.get("capacity"), int):
                self.trees[str(op.attrs["tree"])] = int(op.attrs["capacity"])
            for r in op.regions:
                self.look(r)

    def now(self, op: Op) -> Op | None:
        """What an op of the function before the passes is after them; None where it is no more."""
        if op.results and op.results[0] in self.by_value:
            return self.by_value[op.results[0]]
        return self.by_place.get(key(op))

    def part(self, op: Op, now: Op) -> int:
        """Which of a joined call's results is an op's."""
        return now.results.index(op.results[0]) if op.results[0] in now.results else 0

    def fused(self, before: Function, op: Op, now: Op) -> list[Op]:
        """The other calls of the program that are one with an op after the passes."""
        if len(now.results) < 2:
            return []
        return [o for o in before.body.walk() if o is not op and o.opcode in CALLS and self.now(o) is now]

    def twin(self, op: Op, cost: CallCost, walker: CostWalker) -> Op | None:
        """The call that an op which is no more was merged with: of the same model at the same place."""
        for other in self.regions:
            if other.opcode == op.opcode:
                same = walker.call(other, Frequency())
                if (same.model, same.place) == (cost.model, cost.place):
                    return other
        return None

    def rows(self, op: Op) -> int | None:
        """How many distributions a call gives at most; None where there is no static bound, and for memories."""
        if op.opcode == "model.memory":
            return None
        most = 1
        for d in op.results[0].type.dims:
            bound = d.bound if d.bound is not None else self.trees.get(d.of) if d.kind in ("nodes", "part") else None
            if bound is None:
                return None
            most *= bound
        return most

    def waited(self, why: tuple[Purpose, ...]) -> tuple[str, ...]:
        """What the step waits for where a call's result is used."""
        lines = {p.line for p in why if p.kind not in ("draft", "model", "shape")}
        return tuple(f"for the host: {w}" for w in self.waits if w.line in lines)


def key(op: Op) -> tuple[object, ...]:
    """Where an op stands, for copies that passes made of it."""
    loc, called = op.loc, op.loc.called
    return op.opcode, loc.path, loc.line, loc.column, loc.end_line, loc.end_column, called and (called.line, called.column)


def saved(module: Module, params: Mapping[str, object], plan: Plan | None) -> Iterator[Saving]:
    """For each whole number that the calls of a step depend on: what half of it saves, the others as they are."""
    known = {p.name: p.default for p in module.entry.params if p.has_default and p.value.type.elem == "int"} | dict(params)
    now = counted(module, known, plan)
    for p in module.entry.params:
        value = known.get(p.name)
        if p.value.type.elem != "int" or p.value.type.dims or not isinstance(value, int) or value < 2:
            continue
        half = max(int(p.low) if p.low is not None else 1, value // 2)
        if half >= value:
            continue
        then = counted(module, {**known, p.name: half}, plan)
        changed = tuple((model, line, a, then.get((model, line), 0)) for (model, line), a in now.items()
                        if then.get((model, line), 0) < a)  # fmt: skip
        if changed:
            yield Saving(p.name, value, half, changed)


def counted(module: Module, params: Mapping[str, object], plan: Plan | None) -> dict[tuple[str, int], int]:
    """How many calls a step makes at most, by model and line, where that is known."""
    from decgraph.passes.cost import cost_of

    out: dict[tuple[str, int], int] = {}
    for call in cost_of(optimise(module, params, plan=plan)[0]).calls:
        if call.most is not None:
            out[call.model, call.line] = out.get((call.model, call.line), 0) + call.most
    return out


__all__ = ["Calls", "ExplainedCall", "Obstacle", "Saving", "calls_of"]
