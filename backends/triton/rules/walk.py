"""A compiled rule in the torch driver: one transfer of the tree to the device, one of the result back."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.canvases import Canvas, canvas_at
from decgraph.backends.torch.draws import Mixed, TorchDraws
from decgraph.backends.torch.rows import TorchDist, TorchVectors, on_one_device
from decgraph.backends.torch.shaping import nothing_left
from decgraph.backends.torch.transfer import fetched
from decgraph.backends.torch.trees import TorchTree, path_of
from decgraph.backends.torch.walk import decided, report_step, report_tree
from decgraph.backends.triton.placement import home
from decgraph.backends.triton.rules.compile import CompiledRule, rule_of
from decgraph.backends.triton.rules.device import Given, Walked, site_word
from decgraph.backends.triton.rules.values import Captured, Unsupported
from decgraph.errors import DecError
from decgraph.ir.opdef import OpError
from decgraph.ir.ops.draws import NO_PLACE, NoiseKey
from decgraph.runtime import trace

FAULTS = {
    1: "bernoulli of NaN (0 / 0)",
    2: "a draw from a distribution without mass",
    3: "argmax of nothing",
    4: "the rule accepts a token that is not among the children",
    5: "a row is outside the part that was computed",
}
RAISED: dict[int, type[Exception]] = {1: DecError, 2: ValueError, 3: OpError, 4: ValueError, 5: LookupError}


def called(rule: CompiledRule, m: Any, t: TorchTree, evidence: Any, *captured: Any) -> Any:
    """The verification of one request in the torch driver: the accepted path, or the canvas at the accepted node, with the
    tally and the events of backends/torch/walk.py."""
    keys = dict(zip(rule.captured, captured, strict=True))
    rule = rule.variant({v: _kind(k) for v, k in keys.items() if isinstance(k, NoiseKey)})
    edits = isinstance(t.base, Canvas)
    whole = rule.op.attrs["scope"] == "tree"
    read: Any = _Edits(m, t, evidence) if edits else _Evidence(m, t, evidence, whole)
    height = max(1, t.height())
    walked = rule.on_device(_given(rule, m, t, read, keys), depth=height)
    found = fetched(walked.packed)[0]
    node, depth, emitted, fault, slot, _, visited = (int(x) for x in found[: Walked.HEAD])
    path = [0, *(int(n) for n in found[Walked.HEAD : Walked.HEAD + depth])]
    if not edits:  # a row without an allowed token is an error where it was read
        read.require_mass(path[:visited], fault == 5)
    if fault:
        raise RAISED[fault](FAULTS[fault])
    tests = found[Walked.HEAD + height :].reshape(height, 2)
    if edits:
        _report(m, t, path, tests, visited, -1)
        return canvas_at(t, node)
    draw = read.emission(emitted, node, slot, float(found[5:6].view(np.float64)[0]), walked) if emitted >= 0 else None
    if whole:
        report_tree(m, t, node)
    else:
        _report(m, t, path, tests, visited, emitted)
    return path_of(t, node, emitted if emitted >= 0 else None, draw)


def _kind(key: NoiseKey) -> Captured:
    output = key.kind == "output"
    return Captured(key.kind, 0 if output else len(key.counters), output and key.index is not None)


def _report(m: Any, t: TorchTree, path: list[int], tests: np.ndarray, visited: int, emitted: int) -> None:
    """The tally and the events of a verification, in the order of its tests. It ended at a node after the visited ones."""
    for depth, node in enumerate(path[:visited]):
        children = t.children(node)
        accepted = path[depth + 1] if depth + 1 < len(path) else None
        if len(children):
            m.tally.test(depth + 1, bool(tests[depth, 1]))
        if m.listener is not None:
            report_step(m, t, children, accepted, depth)
            if emitted >= 0 and accepted is None:
                m.emit_event(trace.Emitted(emitted, "residual" if len(children) else "bonus" if depth else "plain"))
        if accepted is not None and isinstance(t.base, Canvas):
            decided(m, t.edges[accepted])


class _Evidence:
    """A request's evidence as the kernels read it. table: [R, V], or points: int64[R] where it is certain; row: int64[N], which
    row is which node's (-1: none); token: int64[N]."""

    def __init__(self, m: Any, t: TorchTree, q: TorchDist, whole: bool) -> None:
        self.m, self.q, self.tree = m, q, t
        self.points = q.rows.points(q.face)
        self.table = q.rows.face(q.face) if self.points is None else None
        self.device, self.size, self.placed = home(m.models), q.rows.size, q.rows.positions
        index = q.index.reshape(-1)
        self.row = np.full(len(t), -1, dtype=np.int64)
        at = np.arange(len(index)) if q.at is None else np.asarray(q.at)
        inside = (at >= 0) & (at < len(t))
        self.row[at[inside]] = index[inside]
        empty = q.rows.empty(q.face) if whole else None
        self.dead = empty is not None
        if empty is not None:  # a rule over the tree may read any row: the kernel reports the empty ones
            self.row[(self.row >= 0) & empty[self.row]] = -1
        self.token = t.token.copy()
        self.token[0] = t.base.tokens[t.base.length - 1] if t.base.length else 0

    def require_mass(self, nodes: list[int], outside: bool) -> None:
        """Raises DecError where constraints leave no token at one of the nodes; outside: a row that was not computed was
        read."""
        if outside and self.dead:
            raise nothing_left()
        row = self.row[np.asarray(nodes, dtype=np.int64)]
        self.q.rows.require_mass(row[row >= 0], self.q.face)

    def position(self) -> np.ndarray:
        """int64[N]: the index of the token that would be drawn at each node."""
        if self.placed is None and (self.points is not None or self.certain()):  # no noise is read for one-hot rows
            return np.zeros(len(self.row), dtype=np.int64)
        if self.placed is None:
            raise DecError("`as output` needs an index here: the distribution has no place of its own", hint=NO_PLACE)
        return np.where(self.row >= 0, self.placed[np.maximum(self.row, 0)], 0)

    def certain(self) -> bool:
        """Whether every row has but one token."""
        return self.table is not None and bool(((self.table > 0).sum(-1) <= 1).all())

    def emission(self, token: int, node: int, slot: int, mass: float, walked: Walked) -> TorchDraws | None:
        """The emitted token as a draw; None for one that was not drawn."""
        if slot == -4:
            return None
        tokens, request, size = np.asarray(token, dtype=np.int64), self.m.request, self.q.rows.size
        if slot <= -16 and slot % 2 == 0:
            return self.tree.draw((-16 - slot) // 2)
        if slot <= -16:
            law = self.tree.draw((-17 - slot) // 2).law(request, size)
            return TorchDraws(tokens, law.rows, law.index, law.face)
        if slot == -1:
            return TorchDraws(tokens, self.q.rows, np.asarray(self.row[node]), self.q.face)
        if slot < 0 or walked.scratch is None:
            return TorchDraws(tokens, TorchVectors(None, request, ones=np.array([token]), size=size), np.asarray(0))
        return TorchDraws(tokens, _Scratch(walked.scratch[slot * size : (slot + 1) * size], mass, request), np.asarray(0))


class _Edits:
    """The edits of a tree of canvases, and those of the evidence, as numbers; see `Given`."""

    def __init__(self, m: Any, t: TorchTree, evidence: Any) -> None:
        self.device = home(m.models)
        self.table, self.size = None, int(m.vocab_size)
        made = [evidence[n] if n < len(evidence) else None for n in range(len(t))]
        self.row = np.array([-1 if e is None else n for n, e in enumerate(made)], dtype=np.int64)
        self.points = np.array([self.number(e) for e in made], dtype=np.int64)
        self.token = np.array([self.number(e) for e in t.edges], dtype=np.int64)

    def number(self, e: Any) -> int:
        return -1 if e is None else int(e.position) * self.size + int(e.token)

    def position(self) -> np.ndarray:
        raise Unsupported("a draw from an edit")


class _Scratch(TorchVectors):
    """The scratch row that a token was drawn from, divided by its mass when it is read."""

    __slots__ = ("mass",)

    def __init__(self, weights: Tensor, mass: float, request: Any) -> None:
        super().__init__(weights[None], request)
        self.mass = mass

    def face(self, name: str) -> Tensor:
        return self.scores / self.mass


class _Cargo:
    """Host arrays for one copy to the device, each at an address that 16 divides, so that kernels are not specialised again."""

    def __init__(self) -> None:
        self.words: list[np.ndarray] = []
        self.count = 0
        self.places: dict[str, tuple[int, int, torch.dtype]] = {}

    def put(self, name: str, a: Any, kind: type = np.int64) -> None:
        """An array [..] as a tensor [1, ..] of int64, int32 or float64."""
        flat: np.ndarray = np.ascontiguousarray(a, dtype=kind).reshape(-1)
        size = flat.size * flat.itemsize
        read = np.zeros(-(-size // 16) * 2, dtype=np.int64)
        read.view(np.uint8)[:size] = flat.view(np.uint8)
        self.places[name] = (self.count, flat.size, torch.from_numpy(flat).dtype)
        self.words.append(read)
        self.count += len(read)

    def sent(self, device: torch.device) -> dict[str, Tensor]:
        """Everything, on the device."""
        words = torch.from_numpy(np.concatenate(self.words)).to(device)
        return {name: words[at:].view(dtype)[:n][None] for name, (at, n, dtype) in self.places.items()}


def _given(rule: CompiledRule, m: Any, t: TorchTree, read: Any, keys: dict[Any, Any]) -> Given:
    """One request's tree, draft distributions and noise as inputs of the kernels."""
    needs, cargo, table = rule.needs, _Cargo(), read.table
    cargo.put("token", read.token)
    cargo.put("parent", t.parent)
    cargo.put("row", read.row)
    if read.points is not None:
        cargo.put("p_points", read.points)
    law_row, q = _laws(m, t) if "laws" in needs else (None, None)
    if table is not None:
        table = table.to(read.device)
    if q is not None and law_row is not None:
        cargo.put("law_row", law_row, np.int32)
        q = q.to(read.device)
        if table is not None and table.dtype != q.dtype:
            wide = torch.promote_types(table.dtype, q.dtype)
            table, q = table.to(wide), q.to(wide)
    if "position" in needs:
        cargo.put("position", read.position())
    if "noise" in needs:
        sites = iter([k.site for k in keys.values() if isinstance(k, NoiseKey) and k.kind != "output"])
        names = [next(sites) if s.startswith("captured ") else s for s in rule.sites]
        cargo.put("words", [site_word(m.request.request_id, m.site_prefix + s) for s in names], np.int32)
        cargo.put("seeds", [m.request.seed % 2**32, m.request.seed >> 32])
    prefix = tuple(m.counter_prefix)
    if prefix or rule.ints:
        cargo.put("counters", _words([*prefix, *(_number(keys, x) for x in rule.ints)]), np.int32)
    if rule.reals:
        cargo.put("reals", [float(keys[v]) for v in rule.reals], np.float64)
    named = ("prob", "race", "point")
    for c in named:
        if c in needs:
            cargo.put(c, _column(t, c), np.float64)
    sent = cargo.sent(read.device)
    columns = {c: sent.pop(c) for c in named if c in sent}
    return Given(
        p=None if table is None else table[None].contiguous(),
        q=None if q is None else q[None].contiguous(),
        columns=columns,
        size=read.size,
        prefix=len(prefix),
        **sent,
    )


def _words(numbers: list[Any]) -> np.ndarray:
    """Numbers from -2**31 to 2**32 - 1 as int32 words."""
    return np.array([int(n) % 2**32 for n in numbers], dtype=np.uint32).view(np.int32)


def _number(keys: dict[Any, Any], x: Any) -> int:
    if isinstance(x, tuple):
        key: NoiseKey = keys[x[0]]
        return int(key.index if x[1] == "index" else key.counters[x[1]])
    v = keys[x]
    return int(v.tokens) if hasattr(v, "tokens") else int(v)


def _laws(m: Any, t: TorchTree) -> tuple[np.ndarray | None, Tensor | None]:
    """The row of every node's law, int32[N] (-1: one-hot), and the laws, [M, V]. One vector for each draw of a growth that is
    not one-hot; draws from the same row with replacement share it."""
    law_row = np.full(len(t), -1, dtype=np.int32)
    parts: list[Tensor] = []
    count = 0
    for g, growth in enumerate(t.growths):
        nodes = np.flatnonzero(t.group == g)
        if not len(nodes):
            continue
        drawn = growth.pick(t.place[nodes])
        for where, draws in _together(drawn, nodes):
            if draws.point or draws.rows is None or draws.row is None:
                continue
            certain = draws.rows.points(draws.face)
            if certain is not None and np.array_equal(certain[draws.row], draws.tokens):
                continue
            law = draws.law(m.request, m.vocab_size)
            vectors = law.vector()
            parts.append(vectors.reshape(-1, vectors.shape[-1]))
            law_row[where] = count + np.arange(len(where))
            count += len(where)
    return (law_row, torch.cat(on_one_device(parts))) if parts else (None, None)


def _together(drawn: Any, nodes: np.ndarray) -> list[tuple[np.ndarray, TorchDraws]]:
    """Draws of one growth in vectors whose laws are computed together."""
    if isinstance(drawn, Mixed):
        return [(nodes[i : i + 1], d.pick(np.s_[None])) for i, d in enumerate(drawn.items)]
    return [(nodes, drawn)]


def _column(t: TorchTree, which: str) -> np.ndarray:
    if which == "prob":
        return t.probs()
    out = np.full(len(t), 1.0 if which == "point" else -np.inf)
    for n in range(1, len(t)):
        if t.group[n] >= 0:
            d = t.draw(n)
            out[n] = float(d.point) if which == "point" else -np.inf if d.race is None else float(d.race)
    return out


__all__ = ["CompiledRule", "Unsupported", "called", "rule_of"]
