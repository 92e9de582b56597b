"""Where drafting ends: trees that do not reach where a draft is of no use, and loops that stop when nothing fits.

A draft is of no use after the last token that the request may have ("limit"), or under a token that ends the text ("ends").
Nor does a draft save anything in the very last place: the row that would accept it could as well emit a token there ("place",
"greedy place"). That is so where the rule always emits at a leaf, where the evidence has a row for every node, and where what
it emits is, by the algorithm's claim, the token that would have been committed anyway: always for `in tokens`, for other claims
in greedy requests. So a shorter limit still gives a beginning of the same text. Attribute `until` of tree.new and
tree.continue says which of these hold: of trees that are verified, since others are not drafts of the text, of which a
session keeps no more than what was accepted, and that no part of the program counts on: whose nodes are not picked by number,
and whose growths name a place only in loops that stop when nothing fits.

Attribute `fills` of a loop says where its iterations read first, "t.leaves": none is begun once nothing fits under those nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from decgraph.ir.values import Claim, Function, Module, Op, Region, Value

ASKS = ("leaves", "frontier", "new")


def note_places(module: Module) -> None:
    """Write attributes `fills` and `until` where they hold (in place: for modules just created)."""
    for function in module.functions.values():
        ops = list(function.body.walk())
        for op in ops:
            found = looked_first(op) if op.opcode in ("for", "while") else None
            if found is not None:
                op.attrs["fills"] = found
        ends = ends_of(function)
        for op in ops:
            if op.opcode in ("tree.new", "tree.continue") and ends.get(op.attrs["tree"]):
                op.attrs["until"] = ends[op.attrs["tree"]]


def looked_first(op: Op) -> str | None:
    """Where the iterations of a loop first call a model, or grow, if that is at nodes of the tree that they carry:
    "t.leaves"."""
    body = op.regions[-1]
    trees = {v: v for v in body.args if v.type.elem == "tree" and v.type.of[1] == "token"}
    places: dict[Value, str] = {}
    for o in body.walk():
        if o.opcode == "tree.grow":
            return next(iter(places.values()), None) if o.operands[0] in trees else None
        if o.opcode == "tree.nodes" and o.operands[0] in trees and o.attrs["which"] in ASKS:
            places[o.result] = f"{o.operands[0].type.of[0]}.{o.attrs['which']}"
        if o.opcode == "model.eval":
            return places.get(o.operands[1])
        if o.opcode in ("for", "while", "each", "run", "model.evals"):
            return None
    return None


def ends_of(function: Function) -> dict[str, tuple[str, ...]]:
    """Where the trees of a function end before the context window does, by name."""
    ops = list(function.body.walk())
    committed = {v for op in ops if op.opcode == "commit" for v in op.operands}
    walks: dict[str, list[Op]] = {}
    for op in ops:
        if op.opcode == "tree.walk":
            walks.setdefault(str(op.operands[0].type.of[0]), []).append(op)
    stops = [op for op in ops if "fills" in op.attrs]
    stopping = {id(o): str(op.attrs["fills"]).rpartition(".")[0] for op in stops for o in op.regions[-1].walk()}
    picked, placed = set(), set()
    for op in ops:
        if op.opcode == "tree.grow" and op.attrs.get("has_at") and not op.attrs.get("chain"):
            name = str(op.operands[0].type.of[0])
            placed.add(name)
            if stopping.get(id(op)) != name:
                picked.add(name)
        if op.opcode == "gather" and len(op.operands) > 1 and op.operands[1].type.elem != "node":
            names = {str(d.of) for d in op.operands[0].type.dims if d.kind in ("nodes", "part")}
            picked |= names - {stopping.get(id(op), "")}
    outlived = remembered(function)
    how, out = _how(function.claims), {}
    for name, found in walks.items():
        if name in picked or found[0].operands[0].type.of[1] != "token" or any(op.result not in committed for op in found):
            continue
        if name in outlived:
            continue
        words = ["limit"]
        if how and all(emits_at_leaves(op) for op in found):
            words.append("place" if how == "tokens" else "greedy place")
        if name not in placed:
            words.append("ends")
        out[name] = tuple(words)
    return out


def remembered(function: Function) -> set[str]:
    """Trees of which a session or a batch keeps more than what was accepted: what a model said at their nodes, or what stands
    in their columns. A draft after the limit is of use there: to the next request."""
    lasting = {s.name for s in function.states if s.scope != "sequence"}
    trees = {str(v.type.of[0]) for op in function.body.walk() for v in op.results if v.type.elem == "tree"} if lasting else ()
    return {name for name in trees if any(op.attrs["state"] in lasting for op in _writes_of(function, name))}


def _writes_of(function: Function, tree: str) -> list[Op]:
    """The writes of states that depend on a tree in another way than by what was accepted of it."""
    seen: set[Value] = set()
    ops, before = list(function.body.walk()), -1
    while len(seen) != before:  # loops hand values back
        before = len(seen)
        for op in ops:
            of_tree = any(v.type.elem == "tree" and str(v.type.of[0]) == tree for v in op.operands)
            if op.opcode != "tree.walk" and (of_tree or any(v in seen for v in op.operands)):
                seen.update(op.results)
                seen.update(v for r in op.regions for v in r.args)
            elif any(v in seen for r in op.regions for v in r.yields):
                seen.update(op.results)
    return [op for op in ops if op.opcode == "state.write" and any(v in seen for v in op.operands)]


def loop_tree(op: Op) -> int:
    """Which of a loop's carried values the tree of its `fills` is; -1 where it carries it no more."""
    name = str(op.attrs["fills"]).rpartition(".")[0]
    carried = [r.type for r in op.results]
    return next((n for n, t in enumerate(carried) if t.elem == "tree" and t.of[0] == name), -1)


def _how(claims: Iterable[Claim]) -> str:
    modes = {c.mode for c in claims if c.kind == "refines" and not c.setting}
    always = {c.mode for c in claims if c.kind == "refines" and not c.conditional}
    return "tokens" if "tokens" in always else "greedy" if modes else ""


def emits_at_leaves(walk: Op) -> bool:
    """Whether verification that ends at a node without children emits a token there, whatever the node."""
    tree, evidence = walk.operands[0].type, walk.operands[1].type
    if tree.of[1] != "token" or not evidence.dims or evidence.dims[0].kind != "nodes" or evidence.dims[0].of != tree.of[0]:
        return False
    region, known = walk.regions[0], dict[Value, Flag]()
    if walk.attrs["scope"] == "tree":
        return _Known(known).run(region)[2] is True
    has, _, emits, _ = _Known(known, empty=region.args[2]).run(region)
    return has is False and emits is True


Flag = bool | int | None


class _Known:
    """What is known of flags and counts where there are no children: Python's values, and None for what is not known."""

    def __init__(self, known: dict[Value, Flag], empty: Value | None = None) -> None:
        self.known, self.empty = known, empty

    def run(self, region: Region) -> list[Flag]:
        """What is known of a region's results."""
        for op in region.ops:
            for r, v in zip(op.results, self.results(op), strict=True):
                self.known[r] = v
        return [self.known.get(v) for v in region.yields]

    def results(self, op: Op) -> list[Flag]:
        """What is known of an op's results."""
        xs = [self.known.get(v) for v in op.operands]
        nothing: list[Flag] = [None] * len(op.results)
        match op.opcode:
            case "const":
                return [op.attrs["value"] if isinstance(op.attrs["value"], bool | int) else None]
            case "len" if op.operands[0] is self.empty:
                return [0]
            case "map" if op.attrs["fn"] in _LOGIC:
                return [_LOGIC[op.attrs["fn"]](*xs)]
            case "if":
                if isinstance(xs[0], bool):
                    return self.run(op.regions[0 if xs[0] else 1])
                a, b = (self.run(r) for r in op.regions)
                return [x if x == y and type(x) is type(y) else None for x, y in zip(a, b, strict=True)]
            case "for" if isinstance(xs[0], int) and isinstance(xs[1], int) and xs[1] <= xs[0]:
                return xs[2:]
        return nothing


_LOGIC: Mapping[str, Callable[..., Flag]] = {
    "not": lambda a: None if a is None else not a,
    "or": lambda a, b: True if a is True or b is True else None if a is None or b is None else False,
    "and": lambda a, b: False if a is False or b is False else None if a is None or b is None else True,
}

__all__ = ["ends_of", "emits_at_leaves", "looked_first", "loop_tree", "note_places"]
