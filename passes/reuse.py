"""reuse: every exact model call continues a store of what its model has computed in this sequence.

>>> from decgraph.passes.example import after
>>> body = '''
...   %c: node<ctx> = context()
...   %two: int = const(value = 2, type = !int)
...   %small: model<causal,V,target,causal> = model.derive(%target, %two, how = "exit")
...   %m: memory<target> = model.memory(%target, %c)
...   %p: dist<V,shaped> = model.eval(%target, %c)
...   %q: dist<V,shaped> = model.eval(%small, %c)
...   %r: dist<V,shaped> = model.eval(%small, %c, %m, with = ("given",))
...   return(%p, %q, %r, has_tree = false)
... '''
>>> print(after("reuse", body))
%c: node<ctx> = context()
%two: int = const(value = 2, type = !int)
%small: model<causal,V,target,causal> = model.derive(%target, %two, how = "exit")
%m: memory<target> = model.memory(%target, %c, reuse = "target")
%p: dist<V,shaped> = model.eval(%target, %c, reuse = "target")
%q: dist<V,shaped> = model.eval(%small, %c, reuse = "target.exit(2)")
%r: dist<V,shaped> = model.eval(%small, %c, %m, with = ("given",))
return(%p, %q, %r, has_tree = false)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from decgraph.ir.ops.common import is_text
from decgraph.ir.values import Function, Module, Op, Region, Value
from decgraph.ir.walk import map_functions, producers, rebuild
from decgraph.passes.motion import CALLS
from decgraph.passes.plan import Pass, Plan
from decgraph.passes.tree_fusion import parts_of


@dataclass(frozen=True)
class Reuse:
    """One call: its store, line, what it is a function of, what is computed of that, and why the rest is cached."""

    store: str
    line: int
    asked: str
    computed: str
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.store}, line {self.line}: computes {self.computed}; reads {self.asked}"


def reuses(function: Function) -> list[Reuse]:
    """Every call of a step that continues a store, in order."""
    return list(reuse_by_op(function).values())


def reuse_by_op(function: Function) -> dict[Op, Reuse]:
    """The same, by the op that calls."""
    return ReuseAnalysis(function).run()


def step_of(function: Function) -> Region:
    """One iteration of the loop that commits, or for programs without it the whole run."""
    loop = next((op for op in function.body.ops if op.opcode == "while" and op.attrs.get("bound") == "done"), None)
    return loop.regions[1] if loop is not None else function.body


@dataclass(frozen=True)
class CallPlace:
    """Where a part of a call stands. kind: "context", "parent", "tree", "nodes", "canvas", "canvases"; which: of the nodes."""

    kind: str
    tree: str = ""
    which: str = ""

    def asked(self) -> str:
        match self.kind:
            case "context":
                return "c"
            case "parent":
                return "c - 1"
            case "tree":
                return f"c + n({self.tree})"
            case "nodes":
                return f"c + the way to {self.which} of {self.tree}"
            case "canvas":
                return "c + the cells of the canvas"
        return f"(c + the cells of the canvas) for every canvas of {self.tree}"


class ReuseAnalysis:
    """One function's calls, step by step as they stand."""

    def __init__(self, function: Function) -> None:
        self.body = function.body
        self.step = step_of(function)
        self.producers = producers(function.body)
        self.calls = [(op, inside) for op, inside in nested(self.step, False) if op.opcode in CALLS and op.attrs.get("reuse")]
        self.commits = [op for op, _ in nested(self.step, False) if op.opcode == "commit"]

    def run(self) -> dict[Op, Reuse]:
        seen: dict[str, list[CallPlace]] = {}
        out: dict[Op, Reuse] = {}
        for op, looped in self.calls:
            store = str(op.attrs["reuse"])
            before = seen.setdefault(store, [])
            places = self.places(op)
            out[op] = self.one(op, store, places, before, looped)
            before += places
        return out

    def places(self, op: Op) -> list[CallPlace]:
        if op.opcode == "model.memory":
            return [self.place(op.operands[1])]
        out, at = [], 1
        for names in parts_of(op):
            out.append(self.place(op.operands[at]))
            at += 1 + len(names)
        return out

    def place(self, v: Value) -> CallPlace:
        t = v.type
        if t.elem == "canvas":
            return CallPlace("canvas", str(t.of[0]))
        if t.elem == "tree":
            return CallPlace("canvases" if t.of[1] == "edit" else "tree", str(t.of[0]))
        made = self.producers.get(v)
        if t.elem == "path" or t.of[0] == "ctx":
            return CallPlace("parent" if made is not None and made.attrs.get("parent") else "context")
        if made is not None and made.opcode == "tree.nodes":
            which = {"all": "all nodes"}.get(str(made.attrs["which"]), f"the {made.attrs['which']}")
        else:
            which = v.name or "some nodes"
        return CallPlace("nodes", str(t.of[0]), which)

    # -- what is computed
    def one(self, op: Op, store: str, places: list[CallPlace], before: list[CallPlace], looped: bool) -> Reuse:
        if places[0].kind in ("canvas", "canvases"):
            return self.canvas(op, store, places, before)
        reasons: list[str] = ["cached: the committed prefix"]
        terms: list[str] = []
        features = op.opcode != "model.memory" and op.operands[0].type.of[0] == "features"
        if all(p.kind == "parent" for p in before):  # the context's last token was not among these
            terms.append(self.pending(store, features, reasons, places))
        for place in places:
            terms += self.nodes(place, [*before, *places[: places.index(place)]], looped, reasons)
        shown = " + ".join(t for t in terms if t) or "nothing"
        if op.attrs.get("part") == "heads" or op.opcode == "model.memory":
            reasons.append("read from the features that the last call left")
        return Reuse(store, op.loc.line, " and ".join(dict.fromkeys(p.asked() for p in places)), shown, tuple(reasons))

    def pending(self, store: str, features: bool, reasons: list[str], places: list[CallPlace]) -> str:
        """Committed tokens that the store does not hold when the step begins, by what the last step committed."""
        if places[0].kind == "parent" and len(places) == 1:
            later = [p for op, _ in self.calls if op.attrs["reuse"] == store for p in self.places(op) if p.kind != "parent"]
            if later:
                return ""  # all but the last token were computed when they were verified
        walked = {self.walked(c) for c in self.commits} - {""}
        mine = [p for op, _ in self.calls if op.attrs["reuse"] == store for p in self.places(op)]
        if features:
            reasons.append("slots below the root were computed from its own features and are computed again from the target's")
            return "what was committed"
        if walked and any(p.kind == "tree" and p.tree in walked for p in mine):
            reasons.append("cached: the accepted path of the last verification, gathered; not the token emitted there")
            return "1"
        if walked and any(p.tree in walked for p in mine):
            reasons.append("cached: its own drafts that were accepted; it was not called on the last of them")
            return "1 (2 where every draft was accepted)"
        if (
            len(self.commits) == 1
            and self.commits[0].operands[0].type.elem in ("draw", "token")
            and (not self.commits[0].operands[0].type.dims)
        ):
            return "1"
        return "what was committed"

    def walked(self, commit: Op) -> str:
        """The tree whose accepted path is committed, or ""."""
        op = self.producers.get(commit.operands[0])
        return str(op.operands[0].type.of[0]) if op is not None and op.opcode == "tree.walk" else ""

    def nodes(self, place: CallPlace, before: list[CallPlace], looped: bool, reasons: list[str]) -> list[str]:
        if place.kind in ("context", "parent"):
            return []
        if any(p.tree == place.tree for p in before):
            reasons.append(f"cached: the nodes of {place.tree} that an earlier call of this step computed")
            return [f"the other nodes of {place.tree}"]
        if place.kind == "tree":
            return [f"n({place.tree})"]
        if looped:
            reasons.append(f"cached: the nodes of {place.tree} that earlier iterations computed")
            return [f"{place.which} of {place.tree}, each node once"]
        return [f"the way to {place.which} of {place.tree}"]

    def canvas(self, op: Op, store: str, places: list[CallPlace], before: list[CallPlace]) -> Reuse:
        """A masked model computes a canvas as a whole; the same canvas twice in a row is computed once."""
        others = [p for o, _ in self.calls if o is not op and o.attrs["reuse"] == store for p in self.places(o)]
        asked = " and ".join(p.asked() for p in places)
        if places[0].kind == "canvas" and any(p.kind == "canvases" for p in others):
            reason = "cached: the canvas that was accepted is one of those that the last verification computed"
            return Reuse(store, op.loc.line, asked, "nothing", (reason,))
        roots = {o.operands[0] for o in self.body.walk() if o.opcode == "tree.new" and o.attrs["tree"] == places[0].tree}
        if places[0].kind == "canvases" and any(o.operands[1] in roots for o, _ in self.calls if o.attrs["reuse"] == store):
            reason = "cached: the canvas at the root, computed by the call before it or by the last verification"
            computed = f"(c + the cells of the canvas) for all but the root of {places[0].tree}"
            return Reuse(store, op.loc.line, asked, computed, (reason,))
        return Reuse(store, op.loc.line, asked, "all", ("cached: a canvas that is the same as in the last call",))


def nested(region: Region, looped: bool) -> Iterator[tuple[Op, bool]]:
    """Every op of a region and inside it, and whether it stands in a loop there."""
    for op in region.ops:
        yield op, looped
        for r in op.regions:
            yield from nested(r, looped or op.opcode in ("for", "while", "each"))


def run(module: Module, plan: Plan) -> Module:
    """The module with `reuse` on every call that may have it."""
    return map_functions(module, marked)


def marked(function: Function) -> Function:
    """A function with `reuse` on its exact calls."""
    stores = Stores(function)

    def mark(op: Op) -> tuple[tuple[Op, ...], tuple[Value, ...]] | None:
        name = stores.of(op)
        if op.opcode not in CALLS or name == op.attrs.get("reuse"):
            return None
        attrs = {k: v for k, v in op.attrs.items() if k != "reuse"} | ({"reuse": name} if name else {})
        return (replace(op, attrs=attrs),), op.results

    body = rebuild(function.body, mark)
    return function if body is function.body else replace(function, body=body)


def second(op: Op) -> bool:
    """Whether a call reads other tokens than the request's."""
    return op.opcode == "model.read" or op.opcode == "model.memory" and is_text(op.operands[1].type)


class Stores:
    """Which store each call of a function continues."""

    def __init__(self, function: Function) -> None:
        self.producers = producers(function.body)
        self.params = {p.value: p for p in function.params}

    def of(self, op: Op) -> str:
        """The store's name; "" for a call that computes from scratch."""
        if op.opcode not in CALLS or not self.exact(op) or second(op):  # a second context has its own cache
            return ""
        return self.name(op.operands[0]) or ""

    def name(self, model: Value) -> str | None:
        """What a model is called, the same in every iteration; None for one that is derived by something that changes."""
        if model in self.params:
            return self.params[model].name
        op = self.producers.get(model)
        if op is None or op.opcode != "model.derive":
            return None
        base = self.name(op.operands[0])
        words = [self.word(v) for v in op.operands[1:]]
        if base is None or None in words:
            return None
        names = [f"{n} = " for n in op.attrs.get("named", ())] or [""] * len(words)
        return f"{base}.{op.attrs['how']}({', '.join(f'{n}{w}' for n, w in zip(names, words, strict=True))})"

    def word(self, v: Value) -> str | None:
        """An argument of a derived model that is the same in every iteration: a model, a constant or a parameter."""
        if v.type.elem == "model":
            return self.name(v)
        if v in self.params:
            return self.params[v].name
        op = self.producers.get(v)
        if op is not None and op.opcode == "list":
            items = [self.word(item) for item in op.operands]
            return None if None in items else f"[{', '.join(w for w in items if w is not None)}]"
        return str(op.attrs["value"]) if op is not None and op.opcode == "const" else None

    def exact(self, op: Op) -> bool:
        """Whether a call's value is a function of its place alone."""
        kind = str(op.operands[0].type.of[0])
        if op.opcode == "model.memory" and kind != "causal":
            return False
        at = 1
        names = (tuple(op.attrs.get("with", ())),) if op.opcode == "model.memory" else parts_of(op)
        for extra in names:
            given = op.operands[at + 1 : at + 1 + len(extra)]
            for name, value in zip(extra, given, strict=True):
                if name == "given" and not (kind == "features" and self.from_scratch(value)):
                    return False
            at += 1 + len(extra)
        return True

    def from_scratch(self, memory: Value) -> bool:
        """Whether a memory is all that a model computed of a context, from scratch."""
        op = self.producers.get(memory)
        return (
            op is not None
            and op.opcode == "model.memory"
            and op.operands[0] in self.params
            and "given" not in op.attrs.get("with", ())
            and op.operands[1].type.elem == "node"
            and op.operands[1].type.of[0] == "ctx"
        )


def notes(before: Module, after: Module) -> list[str]:
    """What every call computes of what it is a function of, and why the rest is cached."""
    out = []
    for k in reuses(after.entry):
        out.append(str(k))
        out += [f"  {reason}" for reason in k.reasons]
    return out


PASS = Pass(
    name="reuse",
    reason=(
        "a call says what it is a function of, the whole context and tree. Most of that was computed by earlier "
        "calls: the committed prefix, the accepted path of the last verification, the drafter's own tokens. With "
        "attribute `reuse` naming a store, what is cached there is read and only the rest is computed, "
        "which changes nothing but the time."
    ),
    precondition=(
        "the call is exact: no memory is given that its author chose (a head that is given its target's own memory "
        "is exact; masked calls on memories are left alone), and the model is the same in every iteration (a parameter, "
        "or derived by constants). One store for each model, derived model and sequence. A slot is cached for its "
        "token, its position and all slots before it, so a rejected path is never taken for the accepted one."
    ),
    run=run,
    notes=notes,
)
