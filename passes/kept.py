"""What a call with `reuse` computes of what it is a function of, in symbols: for the report of the pass reuse and for the cost
report.

c is the number of tokens of context, n the number of drafted nodes of a tree. What is said holds from the second step on: in
the first, the prompt is computed too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from decgraph.ir.values import Function, Op, Region, Value
from decgraph.ir.walk import definitions
from decgraph.passes.motion import CALLS
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


def kept(function: Function) -> list[Reuse]:
    """Every call of a step that continues a store, in order."""
    return list(kept_by_op(function).values())


def kept_by_op(function: Function) -> dict[Op, Reuse]:
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
        self.made = definitions(function.body)
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
        made = self.made.get(v)
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
        op = self.made.get(commit.operands[0])
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
