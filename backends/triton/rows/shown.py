"""The kernels of a segment that has not run, for reading and for compiling: traced over rows without data.

Shown is the default case: float32 logits, temperature one, no constraints. Results of ops outside kernels are placeholders of
their type, since only shapes matter here.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.draws import TorchDraws
from decgraph.backends.torch.rows import Rows, TorchDist, TorchVectors
from decgraph.backends.triton.rows.launch import Made
from decgraph.backends.triton.rows.segment import VocabularyCall
from decgraph.backends.triton.rows.trace import Group, Trace, Waiting, structure
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.types import Type
from decgraph.ir.values import Op
from decgraph.runtime.noise import Key
from decgraph.runtime.request import Request

EACH = 16  # of every dimension
SOME = 8  # what integers are


def shown(op: Op, size: int = 128256, kind: torch.dtype = torch.float32) -> dict[str, str]:
    """Kernel texts by name; empty where no op has a kernel in the default case."""
    return {m.program.name: m.text() for m in made_of(op, size, kind)}


def kernel_texts(call: VocabularyCall) -> dict[str, str]:
    """The Triton text of every kernel of a call, by name: of those that have run, else of `shown`."""
    return {m.program.name: m.text() for m in call.made.values()} if call.made else shown(call.op)


def made_of(op: Op, size: int = 128256, kind: torch.dtype = torch.float32) -> list[Made]:
    """The row programs of a segment in the default case, for rows of `size` entries in a dtype."""
    call = _Shown(op, size, kind)
    m = SimpleNamespace(request=Request(prompt=(0,)), vocab_size=size, key=lambda *a, **k: Key(0, 0, 0))
    call.call(m, *(call.made_up(v.type) for v in op.operands))
    return list(call.made.values())


class _Shown(VocabularyCall):
    """A call over placeholders, which launches nothing."""

    def __init__(self, op: Op, size: int, kind: torch.dtype) -> None:
        super().__init__(op)
        self.size, self.kind = size, kind
        self.source = Rows(self.rows(EACH), Request(prompt=(0,)), positions=np.zeros(EACH, np.int64))

    def rows(self, *shape: int) -> Tensor:
        return torch.empty(*shape, self.size, dtype=self.kind, device="meta")

    def trace(self, m: Any) -> Trace:
        return _Dry(m, self.name, self.made)

    def run(self, m: Any, trace: Trace, step: Op, args: list[Any]) -> Any:
        if step.opcode == "face" or step.opcode == "gather" and isinstance(args[0], TorchDist):
            return super().run(m, trace, step, args)
        if step.opcode == "draw.get" and step.attrs["field"] == "law":
            return super().run(m, trace, step, args)
        made = tuple(self.made_up(r.type) for r in step.results)
        return made[0] if len(made) == 1 else made

    def made_up(self, t: Type) -> Any:
        """A placeholder of a type: only its shape matters."""
        shape = (EACH,) * len([d for d in t.dims if d.kind != "vocab"])
        if t.elem in ("dist", "scores"):
            index = np.arange(int(np.prod(shape))).reshape(shape) % EACH
            face = t.of[1] if t.elem == "dist" and len(t.of) > 1 else "logits"
            return TorchDist(self.source, index if shape else np.zeros((), np.int64), str(face))
        if t.elem == "draw":
            zeros = np.zeros(shape, np.int64)
            return TorchDraws(zeros, self.source, zeros)
        if t.elem == "noise":
            return NoiseKey("site", ())
        if t.dims and t.dims[-1].kind == "vocab":
            return torch.empty(*shape, self.size, dtype=torch.float32, device="meta")
        if t.elem in ("real", "prob"):
            return np.full(shape, 0.5) if shape else 0.5
        if t.elem == "token":
            return np.zeros(shape, np.int64) if shape else 0
        return np.full(shape, SOME, np.int64) if shape else SOME


class _Dry(Trace):
    """Builds the programs of a trace, and placeholders of the right shapes for their results."""

    def flush(self) -> None:
        todo = [w for w in self.waiting if w.wanted and not w.known]
        self.waiting = [w for w in self.waiting if not w.wanted]
        for g in self.groups.values():
            mine = [w for w in todo if w.group is g]
            if mine:
                self.outputs(g, mine)
                key = (structure(g.program), g.size)
                self.made.setdefault(key, Made(self.named(g.program), g.size))
        self.groups = {}
        for w in todo:
            w.known = True
            w.value = self.made_up(w)

    def made_up(self, w: Waiting) -> Any:
        if hasattr(w, "dist"):
            rows = torch.empty(*w.shape, w.group.size, device="meta")
            flat = rows.reshape(-1, w.group.size)
            index = np.arange(int(flat.shape[0])).reshape(w.shape)
            return TorchDist(TorchVectors(flat, self.m.request), index) if w.dist else rows
        arrays = [
            np.zeros(
                (*w.shape, *([n.args[0].attrs["k"]] if n.shape == "several" else [])),
                np.int64 if n.type == "int" else np.float64,
            )
            for n in w.nodes
        ]
        return w.finish(*arrays)  # type: ignore[attr-defined]


__all__ = ["Group", "kernel_texts", "made_of", "shown"]
