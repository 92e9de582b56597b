"""How close the decisions of a run were: the reference, writing down by how much each of its choices was won.

Two backends that round differently may part only where a choice was all but a tie: a race whose second came in right behind
the winner, a coin at its threshold, a score next to the one that it is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.ir.data.dist import Dist
from decgraph.runtime import noise

TIE = 1e-3
"""Declared near-ties: relative margins below this."""

COMPARES = {"lt", "le", "gt", "ge", "eq", "ne"}
CHOOSES = {"arg", "select.top", "sort", "rank", "first_max", "pairs.top"}


@dataclass(frozen=True)
class Close:
    """A decision: how many tokens had been committed, the op, and the relative margin it was won by."""

    committed: int
    op: str
    margin: float


def relative(a: Any, b: Any) -> float:
    """The smallest distance between entries, relative to their size; entries that are exactly equal are no near-tie."""
    a, b = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64))
    with np.errstate(invalid="ignore"):
        gap = np.abs(a - b) / np.maximum(np.maximum(np.abs(a), np.abs(b)), 1e-300)
    gap = gap[np.isfinite(gap)]
    return float(gap.min()) if gap.size else np.inf


def leading(values: Any, k: int) -> float:
    """How close any two neighbours among the k + 1 largest are."""
    top = np.sort(np.asarray(values, np.float64).ravel())[::-1][: k + 1]
    return relative(top[:-1], top[1:]) if len(top) > 1 else np.inf


class Margins(ReferenceMachine):
    """The reference, with the margins of its decisions in `closest`."""

    def __init__(self, *args: Any, **more: Any) -> None:
        self.closest: list[Close] = []
        super().__init__(*args, **more)
        self.table = {name: _watched(self, row) for name, row in self.table.items()}

    def note(self, op: str, margin: float) -> None:
        self.closest.append(Close(self.committed(), op, margin))

    def draw(self, op: Any, row: Any, face: str, key: Any, lane: int, index: Any) -> Any:
        q = np.asarray(row.face(face), dtype=np.float64)
        if self.request.greedy:  # a point: it was decided where the likeliest token was found
            self.note("draw", leading(row.face("raw"), 1))
        times = noise.exponentials(self.key(key, (lane,), row, index), len(q))
        with np.errstate(divide="ignore"):
            self.note("draw", leading(q / times, 1))
        return super().draw(op, row, face, key, lane, index)

    def flip(self, op: Any, p: Any, key: Any, lane: int) -> bool:
        self.note("bernoulli", relative(p, noise.unit(self.key(key, (lane,)))))
        return super().flip(op, p, key, lane)


class _Watching:
    """A row of the op table whose meaning notes margins first."""

    def __init__(self, machine: Margins, row: Any) -> None:
        self.machine, self.row = machine, row

    def meaning(self, m: Any, op: Any, *args: Any) -> Any:
        note = self.machine.note
        if op.opcode == "map":
            if op.attrs["fn"] in COMPARES and any(v.type.elem in ("real", "prob") for v in op.operands):
                note("map", relative(*(a.vector() if isinstance(a, Dist) else a for a in args[:2])))
        elif op.opcode == "topk":
            q = args[0].vector() if isinstance(args[0], Dist) else np.asarray(args[0])
            for row in q.reshape(-1, q.shape[-1]):
                note("topk", leading(row, int(args[1])))
        elif op.opcode in ("draw.many", "draw.race"):
            note(op.opcode, 0.0)  # whole orders: not looked into
        else:
            keys = [a for a in args if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
            keys += [a.vector() for a in args if isinstance(a, Dist)]
            for a in keys[:1]:
                for row in a.reshape(-1, a.shape[-1]) if a.size else ():
                    note(op.opcode, leading(row, len(row)))
        return self.row.meaning(m, op, *args)


def _watched(machine: Margins, row: Any) -> Any:
    return _Watching(machine, row) if row.name in CHOOSES | {"map", "topk", "draw.many", "draw.race"} else row


def closest_of_step(session: Any, request: Any, committed: int) -> Close:
    """The closest decision that the reference took in the step that committed token number `committed`."""
    made: list[Any] = []
    watching(session, made).run(request)
    machine = made[0]
    begun = max((c.committed for c in machine.closest if c.committed <= committed), default=0)
    return min((c for c in machine.closest if c.committed == begun), key=lambda c: c.margin)


def watching(session: Any, made: list[Any]) -> Any:
    """The session on the watching machine; machines are put into `made`."""
    from decgraph.runtime.session import Session

    def machine(*args: Any, **more: Any) -> Margins:
        made.append(Margins(*args, **more))
        return made[-1]

    return Session(session.module, session.models, session.params, machine=machine, tokenizer=session.tokenizer)


__all__ = ["TIE", "Close", "Margins", "closest_of_step"]
