"""The reference's cached rows of keys, values and states: as nodes of a forest of paths, and as memories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.interface import Cell, LayerMemory, Memory, Path, SoftCell
from decgraph.runtime.models.soft_inputs import inputs
from decgraph.runtime.models.tape import SeenRows, Tape

_FIRST = 256  # nodes a forest has room for at first


class Forest:
    """Paths as a forest of nodes, with the keys, values and states that were computed at each. A path has nodes from position
    `start` on; what lies before comes from a given memory."""

    def __init__(self) -> None:
        self._ids: dict[tuple[int, int, int | SoftCell], int] = {}  # (start, or -1 below a node; parent; token) -> node
        self._sees = np.zeros((0, 0), bool)
        self.positions: list[int] = []
        self.tokens: list[int | SoftCell] = []
        self._done = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._states: dict[int, Tensor] = {}
        self._last: Tensor | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, path: Path, start: int) -> list[int]:
        """The nodes of `path` from position `start` on, created where they are missing."""
        nodes: list[int] = []
        for i in range(start, len(path)):
            key = (start if i == start else -1, nodes[-1] if nodes else -1, path[i])
            if key not in self._ids:
                self._ids[key] = len(self.tokens)
                self.tokens.append(path[i])
                self.positions.append(i)
                self._grow(nodes[-1] if nodes else None)
            nodes.append(self._ids[key])
        return nodes

    def _grow(self, parent: int | None) -> None:
        node = len(self.tokens) - 1
        if node >= len(self._sees):
            bigger = np.zeros((max(_FIRST, 2 * node), max(_FIRST, 2 * node)), bool)
            bigger[: len(self._sees), : len(self._sees)] = self._sees
            self._sees = bigger
        if parent is not None:
            self._sees[node] = self._sees[parent]
        self._sees[node, node] = True

    def compute(self, net: Net, given: Memory | None) -> None:
        """One forward for the nodes added since the last one, on top of the memory."""
        fresh, old = list(range(self._done, len(self))), self._done
        if not fresh:
            return
        tape, last = self._forward(net, fresh, np.flatnonzero(self._sees[old : len(self), :old].any(axis=0)), given)
        for kept, new in ((self._keys, tape.keys), (self._values, tape.values), (self._states, tape.states)):
            for layer, rows in new.items():
                kept[layer] = _append(kept.get(layer), rows, old)
        self._last = _append(self._last, last, old)
        self._done = len(self)

    def _forward(
        self, net: Net, fresh: Sequence[int], seen: np.ndarray, given: Memory | None, attended: Tensor | None = None
    ) -> tuple[Tape, Tensor]:
        """The forward of the nodes `fresh` on top of the computed nodes `seen` and the memory, and its last states."""
        at = net.decoder.device
        positions = torch.tensor([self.positions[n] for n in fresh], device=at)
        held = held_of(given, positions, ()) if given is not None else {}
        if len(seen):
            rows = torch.from_numpy(seen).to(at)
            where = torch.tensor([self.positions[n] for n in seen], device=at)
            visible = torch.from_numpy(self._sees[np.ix_(np.array(fresh), seen)]).to(at)
            for layer, keys in self._keys.items():
                own = SeenRows(keys[rows], self._values[layer][rows], where, visible)
                held[layer] = joined(held[layer], own) if layer in held else own
        among = torch.from_numpy(self._sees[np.ix_(np.array(fresh), np.array(fresh))]).to(at)
        tape = Tape(positions, among, held, attended=attended)
        return tape, net.run(inputs(net.decoder.looked_up, [self.tokens[n] for n in fresh], at), tape)

    def attention(self, net: Net, given: Memory | None, path: Path, start: int, last: int) -> list[float]:
        """How much attention each position of a path gets from its last `last` positions, of those from `start` on: the mean
        over queries, layers and heads. What lies before these positions is computed once; they are computed again in every
        call."""
        first = max(start, len(path) - max(1, last))
        before = self.add(path[:first], start)
        self.compute(net, given)
        queries = self.add(path, start)[len(before) :]
        attended = torch.zeros(
            max(len(path), 0 if given is None else given.length), dtype=torch.float64, device=net.decoder.device
        )
        tape, _ = self._forward(net, queries, np.array(before, dtype=np.int64), given, attended)
        return [float(w) for w in attended[: len(path)] / max(1, len(tape.keys))]

    def last(self, nodes: Sequence[int]) -> Tensor:
        """The last hidden states [n, width] of computed nodes."""
        assert self._last is not None
        return self._last[list(nodes)]

    def states(self, layer: int, nodes: Sequence[int]) -> Tensor:
        """The states entering a layer [n, width] of computed nodes."""
        return self._states[layer][list(nodes)]

    def memory(self, family: str, layers: int, path: Path, nodes: Sequence[int], keep: Iterable[int]) -> Memory:
        """The memory of a path's computed nodes, at the positions `keep`."""
        assert self._last is not None
        wanted = set(keep)
        at = {self.positions[n]: n for n in nodes if self.positions[n] in wanted}
        return memory_of(self._keys, self._values, self._states, self._last, family, layers, path, at)


def _append(kept: Tensor | None, new: Tensor, used: int) -> Tensor:
    """`kept` with `new` written after its first `used` rows, in a larger tensor when there is no room.

    Rows before `used` are never written again, so views of them that a memory holds stay what they are.
    """
    need = used + len(new)
    if kept is None or len(kept) < need:
        bigger = new.new_empty((max(_FIRST, 2 * need), *new.shape[1:]))
        if kept is not None:
            bigger[:used] = kept[:used]
        kept = bigger
    kept[used:need] = new
    return kept


def joined(a: SeenRows, b: SeenRows) -> SeenRows:
    """Both layers' cached rows."""
    return SeenRows(
        torch.cat([a.keys, b.keys]),
        torch.cat([a.values, b.values]),
        torch.cat([a.positions, b.positions]),
        torch.cat([a.visible, b.visible], dim=1),
    )


def held_of(given: Memory, positions: Tensor, fresh: Iterable[int]) -> dict[int, SeenRows]:
    """A memory's rows by layer, for queries at `positions` int64[n], which see what is before them. Positions
    in `fresh` are overridden and left out."""
    out: dict[int, SeenRows] = {}
    dropped = set(fresh)
    for layer, rows in enumerate(given.layers):
        where = [i for i in sorted(rows.kv) if i not in dropped]
        if where:
            at = torch.tensor(where, device=positions.device)
            out[layer] = SeenRows(
                torch.stack([rows.kv[i][0] for i in where]),
                torch.stack([rows.kv[i][1] for i in where]),
                at,
                at[None] < positions[:, None],
            )
    return out


def memory_of(
    keys: Mapping[int, Tensor],
    values: Mapping[int, Tensor],
    states: Mapping[int, Tensor],
    last: Tensor,
    family: str,
    layers: int,
    cells: Sequence[Cell],
    at: Mapping[int, int],
) -> Memory:
    """The memory of computed rows. keys, values [n, heads, D] and states [n, width] by layer; last: [n, width]; at: the row of
    each position that is kept."""
    return Memory(
        family,
        len(cells),
        tuple(
            LayerMemory(
                {i: (keys[k][n], values[k][n]) for i, n in at.items()} if k in keys else {},
                {i: states[k][n] for i, n in at.items()} if k in states else {},
            )
            for k in range(layers)
        ),
        {i: last[n] for i, n in at.items()},
        {i: cells[i] for i in at},
    )
