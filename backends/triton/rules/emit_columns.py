"""Ops of rules over several nodes at once: columns of a tree, draws below a node as a vector, folds along paths, selection.

A column is a block of NB lanes, lane n for node n, with a mask of the nodes that it covers: all, the children of the current
node, or those that a condition kept. So selections from columns line up without being moved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from decgraph.backends.triton.rules.emit_rows import FOLDS, RowEmitter
from decgraph.backends.triton.rules.values import Children, Column, Draw, Feature, Nodes, Row, Scalar, TreeOf, Unsupported, Vec
from decgraph.ir.values import Op

STARTS = {"all": "1", "any": "0", "sum": "0.0"}
STEPS = {"all": "({} & {})", "any": "({} | {})", "sum": "({} + {})", "max": "tl.maximum({}, {})", "min": "tl.minimum({}, {})"}


class Columns(RowEmitter):
    """Ops on columns."""

    def column(self, x: Any, op: Op) -> Column:
        """A value as a column; draws below the node are their tokens. Raises Unsupported."""
        if isinstance(x, Children):
            return Column("child_tokens", "i", "children")
        if isinstance(x, Column):
            return x
        raise Unsupported(f"`{op.opcode}` of these vectors", op)

    def put_column(self, op: Op, expression: str, kind: str, mask: str) -> None:
        name = self.named(op.result, op)
        self.text.line(f"{name} = {expression}")
        self.env[op.result] = Column(name, kind, mask)

    def masks(self, columns: Sequence[Column], op: Op) -> str:
        found = {c.mask for c in columns if c.mask}
        if len(found) > 1:
            raise Unsupported("vectors over different nodes are combined", op)
        return found.pop() if found else ""

    def column_map(self, op: Op, xs: Sequence[Any]) -> None:
        args: list[Any] = [x.token if isinstance(x, Draw) else x if isinstance(x, Scalar) else self.column(x, op) for x in xs]
        text, kind = self.formula(op, args)
        self.put_column(op, text, kind, self.masks([a for a in args if isinstance(a, Column)], op))

    # -- the tree
    def op_tree_get(self, op: Op) -> None:
        which = op.attrs["column"]
        if not isinstance(self.env.get(op.operands[0]), TreeOf):
            raise Unsupported("another tree", op)
        if which in ("prob", "point"):
            self.needs.add(which)
            kept = f"tl.load(column_{which} + b * N + index, mask=exists, other=0.0)"
            self.put_column(op, kept if which == "prob" else f"({kept} > 0.5)", "f" if which == "prob" else "b", "")
        elif which == "law":
            self.needs.add("laws")
            self.env[op.result] = Nodes("laws", Column("index.to(tl.int64)", "i", "", ids=True))
        elif which == "token":
            self.put_column(op, "tl.load(tokens + b * N + index, mask=exists, other=0)", "i", "")
        elif which in ("parent", "depth"):
            self.env[op.result] = Column("above.to(tl.int64)" if which == "parent" else "depths", "i")
        else:
            raise Unsupported(f"the column {which} of a tree", op)

    def op_tree_nodes(self, op: Op) -> None:
        which = op.attrs["which"]
        if not isinstance(self.env.get(op.operands[0]), TreeOf):
            raise Unsupported("another tree", op)
        if which == "root":
            self.env[op.result] = self.constant(0, "i")
        elif which in ("all", "drafted", "leaves"):
            mask = "exists"
            if which != "all":
                mask = self.fresh(which)
                self.text.line(f"{mask} = exists & " + ("(index > 0)" if which == "drafted" else "leaf"))
            self.env[op.result] = Column("index.to(tl.int64)", "i", mask, ids=True)
        else:
            raise Unsupported(f"the nodes `{which}` of a tree", op)

    def op_tree_size(self, op: Op) -> None:
        what = "(tl.sum(exists.to(tl.int64)) - 1)" if op.attrs["what"] == "size" else "tl.max(tl.where(exists, depths, 0))"
        self.put(op.result, what, "i", op)

    def op_tree_down(self, op: Op) -> None:
        """Level by level: a node is folded with its parent when its level comes."""
        fn, x = op.attrs["fn"], self.column(self.env.get(op.operands[1]), op)
        t, name = self.text, self.named(op.result, op)
        values = f"{x.text}.to(tl.int32)" if x.kind == "b" else x.text
        root = STARTS.get(fn)
        t.line(f"{name} = {values}" if root is None else f"{name} = tl.where(index == 0, {root}, {values})")
        if x.kind == "i" and root is not None:
            t.line(f"{name} = {name}.to(tl.int64)")
        with t.block("for level in range(1, height + 1):"):
            step = STEPS[fn].format(f"tl.gather({name}, up, 0)", name)
            t.line(f"{name} = tl.where(depths == level, {step}, {name})")
        if x.kind == "b":
            t.line(f"{name}_holds = {name} != 0")
        self.env[op.result] = Column(f"{name}_holds" if x.kind == "b" else name, x.kind)

    def op_tree_up(self, op: Op) -> None:
        """Node by node from the last: each is folded into its parent when its own subtree is complete."""
        fn, x = op.attrs["fn"], self.column(self.env.get(op.operands[1]), op)
        t, name = self.text, self.named(op.result, op)
        t.line(f"{name} = " + (f"{x.text}.to(tl.int32)" if x.kind == "b" else x.text))
        zero = "0.0" if x.kind == "f" else "0"
        with t.block("for back in range(1, N):"):
            t.line(f"{name}_own = tl.sum(tl.where(index == N - back, {name}, {zero}))")
            t.line(
                f"{name}_to = (index == tl.sum(tl.where(index == N - back, up, 0))) & "
                "(tl.sum(((index == N - back) & exists).to(tl.int32)) > 0)"
            )
            t.line(f"{name} = tl.where({name}_to, {STEPS[fn].format(name, f'{name}_own')}, {name})")
        if x.kind == "b":
            t.line(f"{name}_holds = {name} != 0")
        self.env[op.result] = Column(f"{name}_holds" if x.kind == "b" else name, x.kind)

    # -- picking
    def op_gather(self, op: Op) -> None:
        source, *places = (self.env.get(v) for v in op.operands)
        place = places[0]
        if len(places) > 1:
            raise Unsupported("gathering by several indices", op)
        if isinstance(source, Children):
            self.gather_child(op, place)
        elif isinstance(source, Nodes):
            self.gather_row(op, source, place)
        elif isinstance(source, Column) and isinstance(place, Column):
            self.gather_column(op, source, place)
        elif isinstance(source, Column) and isinstance(place, Scalar) and not source.mask:
            real = source.kind == "f"
            x = f"{source.text}.to(tl.int32)" if source.kind == "b" else source.text
            one = f"tl.sum(tl.where(index == {place.text}, {x}, {'0.0' if real else '0'}))"
            self.put(op.result, f"({one} != 0)" if source.kind == "b" else one, source.kind, op)
        else:
            raise Unsupported(f"gathering from {op.operands[0].type}", op)

    def gather_child(self, op: Op, place: Any) -> None:
        if not isinstance(place, Scalar):
            raise Unsupported("several children at once", op)
        if op.operands[1].type.elem == "node":
            self.child_at(op, place.text, self.named(op.result, op))
            return
        name = self.named(op.result, op)
        n = place.text  # below 0 it counts from the end: number -1 is the last child
        there = f"((order == {n}) | (order == {n} + tl.sum(children.to(tl.int32))))"
        self.child_at(op, f"tl.min(tl.where(children & {there}, index, NB)).to(tl.int64)", name)

    def gather_row(self, op: Op, source: Nodes, place: Any) -> None:
        if isinstance(place, Column):
            if not source.at.ids:
                raise Unsupported("rows of rows", op)
            self.env[op.result] = Nodes(source.of, place)
        elif isinstance(place, Scalar) and source.of == "evidence" and source.at.ids:
            name, node = self.named(op.result, op), self.fresh("at_node")
            t = self.text
            t.line(f"{node} = {place.text}")
            t.line(f"{node}_row = {node}")
            with t.block("if ROWS:"):
                t.line(f"{node}_row = tl.load(rows + b * N + {node})")
                t.line(f"fault = tl.where({node}_row < 0, 5, fault)")
            evidence(t, name, f"{node}_row", self.one(), self.constant(-1, "i").text)
            self.env[op.result] = Row(name, node)
        else:
            raise Unsupported("one of several draft distributions", op)

    def gather_column(self, op: Op, source: Column, place: Column) -> None:
        if place.ids:  # the nodes of a mask keep their lanes
            self.env[op.result] = Column(source.text, source.kind, place.mask)
            return
        if source.mask and not source.ids:
            raise Unsupported("a part of a part", op)
        x = f"{source.text}.to(tl.int32)" if source.kind == "b" else source.text
        found = f"tl.gather({x}, tl.where(exists, {place.text}, 0).to(tl.int32), 0)"
        self.put_column(op, f"({found} != 0)" if source.kind == "b" else found, source.kind, place.mask)

    def op_compact(self, op: Op) -> None:
        x, condition = self.env.get(op.operands[0]), self.env.get(op.operands[1])
        if not isinstance(x, Column) or not isinstance(condition, Column):
            raise Unsupported("`where` of these", op)
        mask = self.fresh("kept")
        self.text.line(f"{mask} = exists & {x.mask + ' & ' if x.mask and x.mask != 'exists' else ''}{condition.text}")
        self.env[op.result] = Column(x.text, x.kind, mask, x.ids)

    def column_arg(self, op: Op) -> None:
        """Of the candidates those with the largest first key, of these with the second ...; of the rest the first."""
        first = self.env.get(op.operands[0])
        x = self.column(first, op)
        keys = [self.column(self.env.get(v), op) for v in op.operands[1:]] or [x]
        t, name, down = self.text, self.named(op.result, op), op.attrs["fn"] == "max"
        self.masks([x, *keys] if x.mask != "exists" else [c for c in keys if c.mask], op)
        t.line(f"{name}_of = {x.mask or 'exists'}")
        for key in keys:
            value = key.real() if down else f"(-{key.real()})"
            t.line(f'{name}_best = tl.max(tl.where({name}_of, {value}, float("-inf")))')
            t.line(f"{name}_of = {name}_of & ({value} == {name}_best)")
        t.line(f"{name}_at = tl.min(tl.where({name}_of, index, NB)).to(tl.int64)")
        t.line(f"fault = tl.where({name}_at == NB, 3, fault)")
        if isinstance(first, Children) and len(op.operands) > 1:
            self.child_at(op, f"{name}_at", name)
        elif len(op.operands) == 1 or not x.ids:
            raise Unsupported("the index of the best in a vector", op)
        else:
            self.put(op.result, f"tl.minimum({name}_at, N - 1)", "i", op)

    def column_reduce(self, op: Op) -> None:
        fn, x = op.attrs["fn"], self.column(self.env.get(op.operands[0]), op)
        mask = x.mask or "exists"
        if fn in ("any", "all", "count"):
            inside = f"({mask} & {x.text})" if fn != "all" else f"({mask} & ({x.text} == 0))"
            total = f"tl.sum({inside}.to(tl.int64))"
            self.put(
                op.result,
                total if fn == "count" else f"({total} {'>' if fn == 'any' else '=='} 0)",
                "i" if fn == "count" else "b",
                op,
            )
        elif fn == "sum":
            self.put(op.result, f"tl.sum(tl.where({mask}, {x.text}, {'0.0' if x.kind == 'f' else '0'}))", x.kind, op)
        elif fn in ("max", "min") and x.kind == "f":
            self.put(op.result, f"{FOLDS[fn][2]}(tl.where({mask}, {x.text}, {FOLDS[fn][0]}))", "f", op)
        else:
            raise Unsupported(f"the fold {fn} over nodes", op)

    def op_contains(self, op: Op) -> None:
        x, among = self.scalar(op.operands[0], op), self.column(self.env.get(op.operands[1]), op)
        self.put(op.result, f"(tl.sum((({among.text} == {x.text}) & {among.mask or 'exists'}).to(tl.int32)) > 0)", "b", op)

    # -- distributions at nodes
    def column_lookup(self, op: Op, p: Any, x: Any) -> None:
        if isinstance(p, Row):
            tokens = self.column(x, op)
            wanted = f"tl.where({tokens.mask or 'exists'}, {tokens.text}, -1)"
            self.put_column(op, f"entry({p.handle()}, {wanted})", "f", tokens.mask)
            return
        if not isinstance(p, Nodes):
            raise Unsupported("entries of numbers over the vocabulary at several tokens", op)
        tokens = Column(x.text, "i") if isinstance(x, Scalar) else self.column(x, op)
        t, name = self.text, self.named(op.result, op)
        mask = self.masks([c for c in (p.at, tokens) if c.mask != "exists"], op)
        t.line(f"{name}_node = tl.where(exists, {p.at.text}, 0)")
        if p.of == "laws":
            t.line(f"{name}_row = (index * 0 - 1).to(tl.int64)")
            with t.block("if LAWS:"):
                t.line(f"{name}_row = tl.load(law_rows + b * N + {name}_node, mask=exists, other=-1).to(tl.int64)")
            t.line(f"{name}_base = laws + (b * M + tl.maximum({name}_row, 0)) * V")
            t.line(f"{name}_point = tl.where({name}_row < 0, tl.load(tokens + b * N + {name}_node, mask=exists, other=-2), -1)")
            with t.block("if CERTAIN:"):
                t.line(
                    f"{name}_point = tl.where({name}_row < 0, {name}_point, tl.load(law_points + b * M + "
                    f"tl.maximum({name}_row, 0), mask=exists, other=-2))"
                )
        else:
            t.line(f"{name}_row = {name}_node")
            with t.block("if ROWS:"):
                t.line(f"{name}_row = tl.load(rows + b * N + {name}_node, mask=exists, other=-1)")
                t.line(f"fault = tl.where(tl.max(tl.where(exists & ({name}_row < 0), 1, 0)) > 0, 5, fault)")
            t.line(f"{name}_base = probs + (b * R + tl.maximum({name}_row, 0)) * V")
            t.line(f"{name}_point = tl.where({name}_row < 0, -2, (index * 0 - 1).to(tl.int64))")
            with t.block("if POINTS:"):
                t.line(
                    f"{name}_point = tl.where({name}_row < 0, -2, tl.load(prob_points + b * R + tl.maximum({name}_row, 0), "
                    "mask=exists, other=-2))"
                )
        t.line(f"{name} = entry({name}_point, {name}_base, {self.one()}, tl.where(exists, {tokens.text}, -1))")
        self.env[op.result] = Column(name, "f", mask)

    def column_draw(self, op: Op, x: Any, field: str) -> None:
        if field == "token":
            self.env[op.result] = self.column(x, op)
        elif field == "law" and isinstance(x, Children):
            self.needs.add("laws")
            self.env[op.result] = Nodes("laws", Column("index.to(tl.int64)", "i", "children", ids=True))
        elif field in ("prob", "race", "point") and isinstance(x, Children):
            self.needs.add(field)
            kept = f"tl.load(column_{field} + b * N + index, mask=exists, other=0.0)"
            self.put_column(op, f"({kept} > 0.5)" if field == "point" else kept, "b" if field == "point" else "f", "children")
        else:
            raise Unsupported(f"`.{field}` of these draws", op)

    def column_feature(self, op: Op, kind: str, vec: Row | Vec, nodes: Nodes) -> None:
        """A feature of every node's evidence, at the nodes of a column."""
        if nodes.of != "evidence":
            raise Unsupported("a fold over the draft distributions of several draws", op)
        t, name = self.text, self.named(op.result, op)
        n = self.feature(Feature(name, kind, vec, op=op, key=(kind, repr(vec))))
        t.line(f"{name}_node = tl.where(exists, {nodes.at.text}, 0)")
        with t.block("if ROWS:"):
            t.line(f"{name}_row = tl.load(rows + b * N + {name}_node, mask=exists, other=-1)")
            t.line(f"fault = tl.where(tl.max(tl.where(exists & ({name}_row < 0), 1, 0)) > 0, 5, fault)")
        where = f"(({n} * BN + b * N + {name}_node) * SPLITS)[:, None] + tl.arange(0, SPLITS)[None, :]"
        t.line(f"{name}_parts = tl.load(values + {where})")
        if kind == "arg":
            t.line(f"{name}_tokens = tl.load(whos + {where})")
            t.line(f"{name}_best = tl.max({name}_parts, axis=1)")
            t.line(f"{name} = tl.min(tl.where({name}_parts == {name}_best[:, None], {name}_tokens, V), axis=1).to(tl.int64)")
        else:
            t.line(f"{name} = {FOLDS[kind][2]}({name}_parts, axis=1)")
        self.env[op.result] = Column(name, "i" if kind == "arg" else "f", nodes.at.mask)


def evidence(t: Any, name: str, row: str, one: str, less: str) -> None:
    """Write the handle of a row of the evidence. row, one, less: variables of its number, one and -1."""
    t.line(f"{name}_base = probs + (b * R + tl.maximum({row}, 0)) * V")
    t.line(f"{name}_point = {less}")
    with t.block("if POINTS:"):
        t.line(f"{name}_point = tl.load(prob_points + b * R + tl.maximum({row}, 0))")
    t.line(f"{name}_mass = {one}")
    t.line(f"{name}_slot = {less}")


__all__ = ["Columns", "evidence"]
