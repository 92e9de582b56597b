"""Tracing one call of a vocabulary segment: ops on rows become row programs, one for each shape of rows; all other ops
wait until the programs' numbers are on the host, after one transfer.

The program of an op depends on the representation of its operands (logits, probabilities, one-hot, float64), so a call is
traced each time; equal traces share their kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.ops.distributions import dist_of
from decgraph.backends.torch.rows import Sparse, TorchDist, TorchVectors
from decgraph.backends.torch.transfer import fetched, remote
from decgraph.backends.triton.rows import inputs
from decgraph.backends.triton.rows.launch import Made
from decgraph.backends.triton.rows.program import Node, RowProgram, reached
from decgraph.ir.values import Op

Shape = tuple[int, ...]


@dataclass
class Group:
    """The row program of all rows of one shape, with its inputs. made: the values of its outputs."""

    program: RowProgram
    shape: Shape
    size: int
    given: dict[str, Any] = field(default_factory=dict)
    bound: dict[Any, Node] = field(default_factory=dict)
    keep: list[Any] = field(default_factory=list)  # keeps objects alive whose ids are keys of `bound`
    device: Any = None


class Waiting:
    """The future result of a kernel. `value` is set once the group has run."""

    def __init__(self, group: Group, *nodes: Node) -> None:
        self.group, self.nodes = group, nodes
        self.value: Any = None
        self.known = False
        self.wanted = False

    @property
    def shape(self) -> Shape:
        return self.group.shape


class Vector(Waiting):
    """Numbers or probabilities [*shape, V]. like: the dist whose places it keeps; dist: whether it becomes a Dist."""

    def __init__(self, group: Group, node: Node, *, dist: bool = False, like: Any = None) -> None:
        super().__init__(group, node)
        self.dist, self.like = dist, like


class Numbers(Waiting):
    """Numbers, tokens or k of each [*shape]; `finish` computes the value from the transferred arrays."""

    def __init__(self, group: Group, finish: Callable[..., Any], *nodes: Node) -> None:
        super().__init__(group, *nodes)
        self.finish = finish


class Trace:
    """One call. made: compiled programs, by structure; name: of the segment."""

    def __init__(self, m: Any, name: str, made: dict[Any, Made]) -> None:
        self.m, self.name, self.made = m, name, made
        self.groups: dict[tuple[Shape, int], Group] = {}
        self.waiting: list[Waiting] = []
        self.op: Op | None = None
        self.hint = ""

    # -- rows ----------------------------------------------------------------------------------------------------------

    def group(self, shape: Shape, size: int) -> Group:
        """The program of rows of a shape."""
        key = (shape, size)
        if key not in self.groups:
            self.groups[key] = Group(RowProgram(self.name), shape, size)
        g = self.groups[key]
        g.program.op, g.program.hint = self.op, self.hint
        return g

    def table(self, g: Group, table: Tensor, index: np.ndarray | None, name: str, *, scores: bool) -> Node:
        """Rows of a tensor [N, V] as an input: all of them, or those at `index` int64[R]."""
        key = (id(table), None if index is None else index.tobytes(), scores)
        if key not in g.bound:
            if table.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
                table = table.float()
            rows, at = (table, None) if index is None else inputs.picked(table, index.reshape(-1))
            name = self.fresh(g, name)
            g.bound[key] = g.program.row(name, scores=scores, gathered=at is not None)
            g.keep.append(table)
            g.given[name] = rows
            if at is not None:
                g.given[f"{name}_at"] = at
            g.device = rows.device if g.device is None or rows.device.type != "cpu" else g.device
            g.program.wide |= rows.dtype == torch.float64
        return g.bound[key]

    def heat(self, g: Group, temperature: float) -> Node | float:
        """A temperature as an input, where it is not one."""
        if temperature == 1:
            return 1.0
        key = ("temperature", temperature)
        if key not in g.bound:
            name = self.fresh(g, "temperature")
            g.bound[key], g.given[name] = g.program.setting(name), temperature
        return g.bound[key]

    def fresh(self, g: Group, name: str) -> str:
        n, base = 1, name if name.isidentifier() else "rows"
        name = base
        while name in g.given:
            n += 1
            name = f"{base}_{n}"
        return name

    def column(self, g: Group, values: Any, name: str, *, ints: bool = False) -> Node:
        """A number (or token) of each row, from the host."""
        a = np.ascontiguousarray(np.broadcast_to(np.asarray(values, np.int64 if ints else np.float64), g.shape).reshape(-1))
        name = self.fresh(g, name)
        g.given[name] = torch.from_numpy(a.copy())
        return g.program.token(name) if ints else g.program.number(name)

    def dist(self, d: TorchDist, name: str) -> tuple[Group, Node]:
        """The probabilities (or logits) of an array of distributions. Raises DecError for a row without mass."""
        rows, index = d.rows, d.index
        points = inputs.points_of(rows, d.face)
        g = self.group(index.shape, rows.size)
        if points is not None:
            rows.require_mass(index, d.face)
            g.device = g.device or rows.scores.device
            g.program.wide |= rows.scores.dtype == torch.float64
            return g, g.program.point(self.column(g, points[index], f"{name}_token", ints=True))
        cached = None if isinstance(rows, TorchVectors) else rows._faces.get(d.face)
        if (
            isinstance(rows, TorchVectors)
            or d.face == "shaped"
            and inputs.truncates(rows)
            or cached is not None
            and d.face != "logits"
        ):
            table = inputs.table_of(rows, d.face)
            node = self.table(g, table, index, name, scores=False)
        else:
            table = inputs.shaped_logits(rows) if d.face == "shaped" else inputs.logits_of(rows)
            node = self.table(g, table, index, name, scores=True)
            if d.face != "logits":
                node = g.program.softmax(node, self.heat(g, float(rows.request.temperature) if d.face == "shaped" else 1.0))
        rows.require_mass(index, d.face)
        return g, node

    def vector(self, x: Any, name: str) -> tuple[Group, Node]:
        """Anything with a vocabulary axis. Raises TypeError for what has none."""
        if isinstance(x, Waiting) and x.known:
            x = x.value
        if isinstance(x, Vector):
            return x.group, x.nodes[0]
        if isinstance(x, TorchDist):
            return self.dist(x, name)
        if isinstance(x, Sparse):
            x = x.dense()
        if isinstance(x, np.ndarray):
            x = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))
        if not isinstance(x, Tensor):
            raise TypeError(f"{type(x).__name__} has no vocabulary")
        g = self.group(tuple(x.shape[:-1]), int(x.shape[-1]))
        return g, self.table(g, x.reshape(-1, x.shape[-1]), None, name, scores=False)

    # -- results -------------------------------------------------------------------------------------------------------

    def numbers(self, g: Group, finish: Callable[..., Any], *nodes: Node) -> Numbers:
        """Future numbers: `finish(*arrays)` gets them as [*shape] (several: [*shape, k]) on the host."""
        out = Numbers(g, finish, *nodes)
        self.waiting.append(out)
        return out

    def rows(self, g: Group, node: Node, *, dist: bool = False, like: Any = None) -> Vector:
        """A vector to come."""
        out = Vector(g, node, dist=dist, like=like)
        self.waiting.append(out)
        return out

    def flush(self) -> None:
        """Run the wanted programs: one launch (or one for each pass) per shape of rows, one transfer for all numbers."""
        todo = [w for w in self.waiting if w.wanted and not w.known]
        self.waiting = [w for w in self.waiting if not w.wanted]
        came: dict[int, list[Tensor]] = {id(w): [] for w in todo}
        for g in self.groups.values():
            mine = [w for w in todo if w.group is g]
            if mine:
                self.run(g, mine, came)
        self.groups = {}
        arrays = self.transferred([t for w in todo if isinstance(w, Numbers) for t in came[id(w)]])
        for w in todo:
            w.known = True
            if isinstance(w, Numbers):
                w.value = w.finish(*(next(arrays).reshape(w.shape + (() if n.shape == "number" else (-1,))) for n in w.nodes))
            else:
                assert isinstance(w, Vector)
                t = came[id(w)][0].reshape(*w.shape, w.group.size)
                w.value = dist_of(self.m, t, w.like) if w.dist else t

    @staticmethod
    def outputs(g: Group, mine: Sequence[Waiting]) -> dict[int, str]:
        """Add the wanted outputs to a group's program; returns their names by node."""
        g.program.outputs = []
        names: dict[int, str] = {}
        for n in (n for w in mine for n in w.nodes):
            if id(n) not in names:
                base = n.name or n.args[0].name
                names[id(n)] = base if base not in names.values() else f"{base}_{len(names) + 1}"
                g.program.output(names[id(n)], n)
        return names

    def run(self, g: Group, mine: Sequence[Waiting], came: dict[int, list[Tensor]]) -> None:
        """Launch a group's program; appends the results, tensors [R] or [R, k], to `came`."""
        p = g.program
        names = self.outputs(g, mine)
        key = (structure(p), g.size)
        if key not in self.made:
            self.made[key] = Made(self.named(p), g.size)
        made = self.made[key]
        rows = int(np.prod(g.shape))
        given = {name: self.placed(x, g.device) for name, x in g.given.items()}
        used = set(made.program.inputs)
        out = made.run(rows, {n: x for n, x in given.items() if n in used or n.removesuffix("_at") in used})
        for w in mine:
            came[id(w)] = [out[names[id(n)]] for n in w.nodes]

    def named(self, p: RowProgram) -> RowProgram:
        """The program under a name of its own, with the inputs that its outputs need."""
        out = RowProgram(f"{self.name}_{len(self.made) + 1}" if self.made else self.name, wide=p.wide)
        out.outputs = list(p.outputs)
        live = {id(n) for n in reached([n for _, n in p.outputs])}
        out.inputs = {name: n for name, n in p.inputs.items() if id(n) in live}
        return out

    @staticmethod
    def placed(x: Any, device: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(Trace.placed(t, device) for t in x)
        return x if device is None or isinstance(x, float) or x.device == device else x.to(device)

    @staticmethod
    def transferred(tensors: list[Tensor]) -> Any:
        """Tensors of any shape as arrays, in one transfer (float64 represents every token and every float32)."""
        if len(tensors) < 2 or not any(remote(t) for t in tensors):
            return iter([fetched(t) for t in tensors])
        flat = fetched(torch.cat([t.reshape(-1).double() for t in tensors]))
        out, first = [], 0
        for t in tensors:
            out.append(flat[first : first + t.numel()].astype(fetched_type(t)))
            first += t.numel()
        return iter(out)


def fetched_type(t: Tensor) -> Any:
    """The NumPy type of a tensor's values."""
    return torch.empty(0, dtype=t.dtype).numpy().dtype


def structure(p: RowProgram) -> Any:
    """The key of a program's text: equal structures share kernels."""
    place: dict[int, int] = {}
    out: list[Any] = [p.wide]
    for n in reached([n for _, n in p.outputs]):
        place[id(n)] = len(place)
        out.append((n.kind, n.name, tuple(place[id(a)] for a in n.args), repr(sorted(n.attrs.items()))))
    return (*out, tuple((name, place[id(n)]) for name, n in p.outputs))
