"""Trees that reach one token behind the context window: the token that follows from the last position, and that no model reads.

Decoding token by token commits that token, so a tree whose texts are committed as they stand may hold it too. `ended` is true
of such a node, and no model can be asked what follows it. So a tree holds one only where every op that asks a model asks
at nodes that have not ended: roots, and what is left of nodes where the program looked at `ended` first, as in

    live = now where not ended(now)
    repeat room while not any(ended(now)): ...

Attribute `unread` of tree.new says so. Of trees that are verified, pruned or continued nothing is said: their nodes are read.
"""

from __future__ import annotations

from collections.abc import Iterator

from decgraph.ir.values import Function, Module, Op, Region, Value

CHOOSES = frozenset(
    {"arg", "compact", "concat", "gather", "list", "scatter", "select.top", "slice", "sort", "take_first", "tile"}
)
"""Ops whose nodes are among those that they are given."""
LOOKS = CHOOSES | frozenset(
    {
        "break", "commit", "contains", "each", "ended", "for", "if", "index.ask", "len", "map", "reduce", "return", "text_of",
        "tree.front", "tree.get", "tree.grow", "tree.nodes", "tree.set", "tree.size", "tree.down", "tree.up", "warp", "while",
        "adjust", "verdict",
    }
)  # fmt: skip
"""Ops that take nodes and ask no model."""
ASKS = frozenset({"model.eval", "model.states", "run"})
"""Ops that take nodes, with their tree behind, and ask a model what follows them."""


def note_last_places(module: Module) -> None:
    """Write attribute `unread` where it holds (in place: for modules just created)."""
    for function in module.functions.values():
        for op in function.body.walk():
            if op.opcode == "tree.new" and reaches_behind(function, op):
                op.attrs["unread"] = True


def reaches_behind(function: Function, new: Op) -> bool:
    """Whether the tree that an op makes may hold the token behind the last position."""
    tree = str(new.result.type.of[0])
    ops = list(function.body.walk())
    if not new.operands or new.operands[0].type.elem != "node" or new.operands[0].type.of[0] != "ctx":
        return False
    if sum(op.opcode == "tree.new" and op.attrs["tree"] == tree for op in ops) != 1:
        return False
    committed = {v for op in ops if op.opcode in ("commit", "return") for v in op.operands}
    if not any(v.type.elem == "tree" and v.type.of[0] == tree for v in committed):
        return False
    return _Reader(function, tree).guarded()


class _Reader:
    """What is known of the nodes of one tree of a function: which may be behind the last position."""

    def __init__(self, function: Function, tree: str) -> None:
        self.function, self.tree = function, tree
        self.producers = {v: op for op in function.body.walk() for v in op.results}
        self.behind: set[Value] = set()

    def guarded(self) -> bool:
        """Whether every op that asks a model asks at nodes that have not ended, and none counts on the tree otherwise."""
        before = -1
        while len(self.behind) != before:  # loops hand values back
            before = len(self.behind)
            for _ in self.unread(self.function.body, frozenset()):
                pass
        return not any(self.unread(self.function.body, frozenset()))

    def ours(self, v: Value, elem: str = "node") -> bool:
        """Whether a value is nodes (or a version) of the tree, or a list of these."""
        t = v.type
        while t.elem == "list":
            t = t.item
        return bool(t.elem == elem and t.of[0] == self.tree)

    def unread(self, region: Region, facts: frozenset[object]) -> Iterator[bool]:
        """For every op that asks a model, or that nothing is known of: whether it may do so behind the last position. Notes
        which values may be there on the way. facts: of which nodes it is known that they have not ended."""
        for op in region.ops:
            yield self.asks_behind(op, facts)
            for inner, known in self.inside(op, facts):
                yield from self.unread(inner, known)
            self.note(op, facts)

    def asks_behind(self, op: Op, facts: frozenset[object]) -> bool:
        nodes = [v for v in op.operands if self.ours(v)]
        trees = [v for v in op.operands if self.ours(v, "tree")]
        if op.opcode in LOOKS or not (nodes or trees):
            return any(self.ours(v, "tree") and v.type.of[1] != "token" for v in op.results)
        if op.opcode not in ASKS or not nodes:
            return True
        return any(v in self.behind and self.key(v) not in facts for v in nodes)

    def inside(self, op: Op, facts: frozenset[object]) -> Iterator[tuple[Region, frozenset[object]]]:
        """The regions of an op, and what is known in them."""
        if op.opcode == "if":
            yield op.regions[0], facts | self.open_if(op.operands[0])
            yield op.regions[1], facts | self.ended_in(op.operands[0])
            return
        for region in op.regions:
            yield region, facts

    def note(self, op: Op, facts: frozenset[object]) -> None:
        """Note which of an op's results may be behind the last position."""
        behind = self.behind
        match op.opcode:
            case "tree.nodes":
                source = self.producers.get(self.version(op.operands[0]))
                fresh = source is not None and source.opcode == "tree.new"
                if self.ours(op.result) and op.attrs["which"] != "root" and not fresh:
                    behind.add(op.result)
            case "compact":
                known = facts | self.open_if(op.operands[1])
                if op.operands[0] in behind and self.key(op.operands[0]) not in known and not self.never(op.operands[1]):
                    behind.add(op.result)
            case "if":
                for n, result in enumerate(op.results):
                    if any(r.yields[n] in behind for r in op.regions):
                        behind.add(result)
            case "for" | "while":
                self.loop(op)
            case "each":
                if any(v in behind for v in op.operands):
                    behind.add(op.regions[0].args[-1])
                if any(v in behind for v in op.regions[0].yields):
                    behind.update(v for v in op.results if self.ours(v))
            case _:
                told = op.opcode in CHOOSES and not any(v in behind for v in op.operands)
                behind.update(v for v in op.results if self.ours(v) and not told)

    def loop(self, op: Op) -> None:
        """Note what a loop carries. A condition that nothing has ended holds wherever the body begins."""
        body, n = op.regions[-1], len(op.results)
        known: frozenset[object] = frozenset()
        if op.opcode == "while":
            known = self.open_if(op.regions[0].yields[0])
        for i, result in enumerate(op.results):
            start, again = op.operands[len(op.operands) - n + i], body.yields[len(body.yields) - n + i]
            if start in self.behind or again in self.behind:
                self.behind.add(result)
                place = len(body.args) - n + i
                looked = op.opcode == "while" and self.key(op.regions[0].args[place]) in known
                if op.opcode == "while":
                    self.behind.add(op.regions[0].args[place])
                if not looked:
                    self.behind.add(body.args[place])

    def key(self, v: Value) -> object:
        """The same for values that are the same nodes: what one version of the tree says of itself, whatever its columns."""
        op = self.producers.get(v)
        if op is None or op.opcode != "tree.nodes" or len(op.operands) != 1:
            return v
        return ("nodes", op.attrs["which"], self.version(op.operands[0]))

    def version(self, tree: Value) -> Value:
        """The version of the tree before its columns were set."""
        while (op := self.producers.get(tree)) is not None and op.opcode == "tree.set":
            tree = op.operands[0]
        return tree

    def open_if(self, condition: Value) -> frozenset[object]:
        """Of which nodes a condition, or every row of a mask, says that they have not ended."""
        op = self.producers.get(condition)
        if op is None:
            return frozenset()
        if op.opcode == "map" and op.attrs["fn"] == "not":
            return self.ended_in(op.operands[0])
        if op.opcode == "map" and op.attrs["fn"] == "and":
            return self.open_if(op.operands[0]) | self.open_if(op.operands[1])
        if op.opcode == "reduce" and op.attrs["fn"] == "all":
            return self.open_if(op.operands[0])
        if op.opcode == "if" and self.constant(op.regions[1]) is False:  # `and` of what is looked at in turn
            return self.open_if(op.operands[0]) | self.open_if(op.regions[0].yields[0])
        return frozenset()

    def never(self, mask: Value) -> bool:
        """Whether a mask is `t.depth < 0`: how programs write that there are no nodes."""
        op = self.producers.get(mask)
        if op is None or op.opcode != "map" or op.attrs["fn"] != "lt":
            return False
        column, bound = (self.producers.get(v) for v in op.operands)
        depth = column is not None and column.opcode == "tree.get" and column.attrs["column"] == "depth"
        return depth and bound is not None and bound.opcode == "const" and bound.attrs["value"] == 0

    def constant(self, region: Region) -> object:
        """What a region of one value yields, where that is a constant."""
        op = self.producers.get(region.yields[0])
        return op.attrs["value"] if op is not None and op.opcode == "const" and len(region.yields) == 1 else None

    def ended_in(self, condition: Value) -> frozenset[object]:
        """Of which nodes a condition, or a row of a mask, is true where they have ended."""
        op = self.producers.get(condition)
        if op is None:
            return frozenset()
        if op.opcode == "ended" and self.ours(op.operands[0]):
            return frozenset({self.key(op.operands[0])})
        if op.opcode == "map" and op.attrs["fn"] == "or":
            return self.ended_in(op.operands[0]) | self.ended_in(op.operands[1])
        if op.opcode == "reduce" and op.attrs["fn"] == "any":
            return self.ended_in(op.operands[0])
        if op.opcode == "if" and self.constant(op.regions[0]) is True:  # `or` of what is looked at in turn
            return self.ended_in(op.operands[0]) | self.ended_in(op.regions[1].yields[0])
        if op.opcode == "each" and not op.attrs.get("filtered"):
            element, told = op.regions[0].args[-1], op.regions[0].yields[0]
            return frozenset({self.key(op.operands[0])} if element in self.ended_in(told) else ())
        return frozenset()


__all__ = ["note_last_places", "reaches_behind"]
