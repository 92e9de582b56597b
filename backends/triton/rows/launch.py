"""Launching of row programs: kernels by layout and shape, allocation of outputs and partial results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.placement import home
from decgraph.backends.triton.rows.emit import Emitter, Kernel, kernel_texts
from decgraph.backends.triton.rows.folds import power
from decgraph.backends.triton.rows.program import RowProgram, reached
from decgraph.backends.triton.source import HEARD, load
from decgraph.backends.triton.tuned import Config, config

SMALLEST, LARGEST = 16, 4096
"""Entries of a row that a program loads at a time."""

_TYPES = {torch.float32: "*fp32", torch.float64: "*fp64", torch.bfloat16: "*bf16", torch.float16: "*fp16"}
_TENSORS = {"*i32": torch.int32, "*i64": torch.int64, "*u1": torch.bool}


def usual(size: int, rows: int, largest: int = LARGEST) -> Config:
    """Default sizes: a row is split where rows alone cannot fill a device."""
    if size <= largest or rows >= 512:
        return Config(min(largest, max(SMALLEST, power(size))), warps=max(1, min(8, power(size) // 256)), splits=1)
    blocks = -(-size // largest)
    return Config(largest, warps=8, splits=max(1, min(blocks, 64, -(-1024 // max(rows, 1)))))


def _within_reach(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tensors where kernels can read them: rows of a table, or of `uniform(vocab)`, are the host's."""
    flat = [x for v in given.values() for x in (v if isinstance(v, tuple) else (v,)) if isinstance(x, Tensor)]
    if all(x.device.type != "cpu" for x in flat):
        return given
    device = next((x.device for x in flat if x.device.type != "cpu"), home({}))
    if device.type == "cpu":
        return given
    move: Any = lambda x: x.to(device) if isinstance(x, Tensor) else x
    return {name: tuple(map(move, v)) if isinstance(v, tuple) else move(v) for name, v in given.items()}


class Made:
    """A row program for one vocabulary size. Kernels are generated per (block, splits), and loaded when first launched."""

    def __init__(self, program: RowProgram, size: int) -> None:
        self.program, self.size = program, size
        self.real = torch.float64 if program.wide else torch.float32
        # sorting a block and its noise need registers; compiling the sort of a long block takes seconds
        nodes = reached([n for _, n in program.outputs])
        heavy = any(n.kind == "noise" or n.kind == "best" and n.attrs["k"] > 4 for n in nodes)
        self.largest = LARGEST // 2 if heavy else LARGEST
        self._known: dict[tuple[int, bool], tuple[Emitter, list[Kernel], str]] = {}

    def kernels(self, block: int, *, split: bool) -> tuple[Emitter, list[Kernel], str]:
        """(emitter, kernels, text) of a layout."""
        key = (block, split)
        if key not in self._known:
            emitter = Emitter(self.program, self.size, block, split=split)
            made = emitter.kernels()
            self._known[key] = emitter, made, kernel_texts(self.program, made)
        return self._known[key]

    def text(self) -> str:
        """The source of the layouts generated so far; where there is none, of the default one for 64 rows."""
        if not self._known:
            c = self.sizes(64)
            self.kernels(c.block, split=c.splits > 1)
        return "\n\n".join(text for _, _, text in self._known.values())

    def sizes(self, rows: int) -> Config:
        """The sizes of a launch over so many rows."""
        key = (self.program.name, self.size, min(1024, power(max(rows, 1))))
        return config("rows", key, usual(self.size, rows, self.largest))

    def run(self, rows: int, given: Mapping[str, Any], sizes: Config | None = None) -> dict[str, Tensor]:
        """The outputs by name: vectors [R, V], numbers [R], several [R, k].

        given: by the name of the input: Tensor [N, V] for rows (last axis dense), Tensor [V] for shared vectors, float[R] or
        int64[R] for numbers and tokens, a float for settings, (words int32[R, 3], seeds int64[R, 2]) for noise, int64[R, k]
        for members; `name_at` int64[R] for rows that are gathered. All on one device, without synchronisation.
        """
        c = sizes or self.sizes(rows)
        split = c.splits > 1
        emitter, kernels, text = self.kernels(c.block, split=split)
        bound, device = self._bound(_within_reach(given))
        out: dict[str, Tensor] = {}
        for name, n in self.program.outputs:
            shape = {"vector": (rows, self.size), "number": (rows,)}.get(n.shape) or (rows, n.args[0].attrs["k"])
            kind = {"bool": torch.bool, "int": torch.int64}.get(n.type, self.real)
            out[name] = bound[f"{name}_out"] = torch.empty(shape, dtype=kind, device=device)
        for hear in HEARD:
            hear(self.program.name, text)
        if not rows or device.type == "meta":
            return out
        iterations = -(-self.size // (c.block * c.splits))
        for p in emitter.partials:
            kind = {"real": self.real, "int": torch.int32}.get(p.type, torch.int64)
            bound[p.name] = torch.empty(rows * c.splits * p.tail, dtype=kind, device=device)
        sized = {"V": self.size, "BLOCK": c.block, "ITERATIONS": iterations, "SPLITS": c.splits, "SPLITS_P": power(c.splits)}
        scope = load(self.program.name, text)
        for k in kernels:
            grid = (rows, c.splits) if k.grid == "split" else (rows,)
            with np.errstate(all="ignore"):  # the interpreter computes with NumPy, in lanes that are masked too
                scope[k.name][grid](
                    *(bound[p] for p in k.params), *(sized[x] for x in k.constexprs), num_warps=c.warps, num_stages=c.stages
                )
        return out

    def _bound(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], torch.device]:
        """Parameters by name, and the device."""
        bound: dict[str, Any] = {}
        device = torch.device("cpu")
        for name, n in self.program.inputs.items():
            x = given[name]
            if n.kind == "noise":
                bound[f"{n.name}_words"], bound[f"{n.name}_seeds"] = x[0].contiguous(), x[1].contiguous()
                device = x[0].device
                continue
            if n.kind == "setting":
                continue
            if n.kind == "number" and n.type == "real":
                x = x.to(self.real)
            if n.kind == "row":
                if x.stride(-1) != 1 and x.shape[-1] > 1:
                    x = x.contiguous()
                bound[f"{n.name}_stride"] = x.stride(0)
                if n.attrs["gathered"]:
                    bound[f"{n.name}_at"] = given[f"{name}_at"].contiguous()
            else:
                x = x.contiguous()  # an expanded entry would be read past its memory
            bound[n.name] = x
            device = x.device
        for name, n in self.program.inputs.items():
            if n.kind == "setting":  # a scalar is passed as float32
                value = float(given[name])
                bound[n.name] = torch.full((1,), value, dtype=self.real, device=device) if self.program.wide else value
        return bound, device

    def specs(self, rows: int, kind: torch.dtype = torch.bfloat16, sizes: Config | None = None) -> list[Spec]:
        """The kernels of a launch, to be compiled where there is no device. kind: the dtype of the rows given."""
        c = sizes or self.sizes(rows)
        emitter, kernels, text = self.kernels(c.block, split=c.splits > 1)
        real = _TYPES[self.real]
        sized = {
            "V": self.size,
            "BLOCK": c.block,
            "ITERATIONS": -(-self.size // (c.block * c.splits)),
            "SPLITS": c.splits,
            "SPLITS_P": power(c.splits),
        }
        return [
            Spec(
                f"rows.{k.name}",
                k.name,
                {
                    p: _TYPES[kind]
                    if t == "*row"
                    else real
                    if t == "*real"
                    else "*i1"
                    if t == "*u1"
                    else (real if self.program.wide else "fp32")
                    if t == "setting"
                    else t
                    for p, t in k.params.items()
                },
                {x: sized[x] for x in k.constexprs},
                text=text,
                warps=c.warps,
                stages=c.stages,
                aligned=tuple(p for p in k.params if p.endswith("_stride") and self.size % 16 == 0),
            )
            for k in kernels
        ]
