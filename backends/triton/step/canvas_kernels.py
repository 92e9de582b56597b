"""Kernels of symbols (canvas_symbols.py): a graph of small vectors in one launch, a program a sequence.

A vector is in the lanes of a program. Permutations (sorting, gathering, scattering) go through scratch memory of the program,
with a barrier in between; a sort counts, for each lane, how many come before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.attention.sizes import power
from decgraph.backends.triton.cubin import Spec
from decgraph.backends.triton.source import HEADER, Text, load
from decgraph.backends.triton.step.canvas_symbols import COMPUTE, Symbol
from decgraph.backends.triton.tuned import Config, config

CHUNK = 16
"""Lanes that a sort compares all others with at a time."""
_TYPES = {torch.bool: "tl.int1", torch.int64: "tl.int64", torch.float32: "tl.float32", torch.float64: "tl.float64"}
_POINTERS = {torch.bool: "*i1", torch.int64: "*i64", torch.float32: "*fp32", torch.float64: "*fp64"}
_PAIRS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "and": "&",
    "or": "|",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
_ORDERS = ("lt", "le", "gt", "ge", "eq", "ne")
Wanted = tuple[Symbol, Tensor | None]


_HEARING: list[list[Kernel]] = []


@contextmanager
def heard() -> Iterator[list[Kernel]]:
    """Record the kernels that are launched inside."""
    kernels: list[Kernel] = []
    _HEARING.append(kernels)
    try:
        yield kernels
    finally:
        _HEARING.remove(kernels)


def launch(wanted: Sequence[Wanted]) -> None:
    """Compute symbols, each into the tensor beside it or a new one, which becomes its value. A destination may
    also be an input: a program reads its sequence's vectors first and writes last."""
    kernel = Kernel([s for s, _ in wanted])
    for kernels in _HEARING:
        kernels.append(kernel)
    first = wanted[0][0]
    outs = []
    for s, out in wanted:
        made = torch.empty(tuple(s.shape), dtype=s.dtype, device=s.device) if out is None else out
        outs.append(made)
    batch, device = int(first.shape[0]), first.device
    whole = torch.empty(batch, max(1, kernel.whole), dtype=torch.int64, device=device)
    real = torch.empty(batch, max(1, kernel.real), dtype=torch.float64, device=device)
    scope = load("canvas", kernel.text)
    with np.errstate(all="ignore"):  # the interpreter computes with NumPy, in masked lanes too
        scope["canvas_step"][(batch,)](*kernel.tensors, *outs, whole, real, num_warps=kernel.sizes.warps)
    for (s, _), made in zip(wanted, outs, strict=True):
        s.value = made


COMPUTE.append(launch)


class Kernel:
    """The kernel of some symbols. tensors: its inputs; whole, real: int64 and float64 entries of scratch memory of a program;
    sorted: lanes of the widest vector that is sorted, which is what takes registers."""

    def __init__(self, wanted: Sequence[Symbol]) -> None:
        self.tensors: list[Tensor] = []
        self.whole = self.real = self.sorted = 0
        self._names: dict[int, str] = {}
        self._leaves: dict[tuple[int, int], str] = {}
        self._lines = Text()
        self._lines.depth = 1
        self.wanted = list(wanted)
        for s in wanted:
            self._node(s)
        lanes = power(max(self.sorted, 1))
        self.sizes = config("canvas", (lanes,), Config(lanes, warps=2 if lanes <= 64 else 8 if lanes <= 512 else 16))
        self.text = self._text()

    def _text(self) -> str:
        t = Text()
        for line in HEADER.splitlines():
            t.line(line)
        t.line()
        t.line("@triton.jit")
        read, made = (f"in_{n}" for n in range(len(self.tensors))), (f"out_{n}" for n in range(len(self.wanted)))
        with t.block(f"def canvas_step({', '.join((*read, *made))}, whole, real):"):
            t.line("b = tl.program_id(0).to(tl.int64)")
            t.line(f"whole += b * {max(1, self.whole)}")
            t.line(f"real += b * {max(1, self.real)}")
        text = str(t) + str(self._lines).rstrip("\n") + "\n"
        s = Text()
        s.depth = 1
        s.line("tl.debug_barrier()    # a destination may be another lane's input")
        for n, symbol in enumerate(self.wanted):
            size = self._lanes(symbol)
            name = self._names[id(symbol)]
            if size == 0:
                s.line(f"tl.store(out_{n} + b, {name})")
            else:
                lane = self._lane(size)
                s.line(f"tl.store(out_{n} + b * {size} + {lane}, {name}, mask={lane} < {size})")
        return text + str(s)

    # -- values
    @staticmethod
    def _lanes(x: Any) -> int:
        """How many lanes a value has; 0: it is one number."""
        return int(x.shape[-1]) if isinstance(x, Tensor) and x.ndim == 2 and x.shape[1] > 1 else 0

    def _lane(self, size: int) -> str:
        return f"tl.arange(0, {power(size)})"

    def _name(self, op: str) -> str:
        return f"{op}_{len(self._names)}"

    def _node(self, s: Any, lanes: int = 0) -> str:
        """The name (or the text) of an operand; `lanes`: of the other operand, for tensors that are not symbols."""
        if isinstance(s, bool | int | float):
            return str(s) if not isinstance(s, float) or np.isfinite(s) else f'float("{s}")'
        if not isinstance(s, Symbol) or s.value is not None:
            return self._leaf(s if not isinstance(s, Symbol) else s.value, lanes)
        if id(s) not in self._names:
            made = getattr(self, "_op_" + s.op, None)
            name = made(s) if made is not None else self._elementwise(s)
            self._names[id(s)] = name
        return self._names[id(s)]

    def _leaf(self, t: Tensor, lanes: int) -> str:
        """A tensor, loaded: aligned at its last axis, as torch broadcasts; one with two axes has the sequence first."""
        vector = t.ndim == 2 and t.shape[1] > 1 or t.ndim == 1 and lanes > 0 and t.shape[0] > 1
        key = (id(t), int(vector))
        if key not in self._leaves:
            pointer = self._pointer(t)
            name = self._leaves[key] = f"given_{len(self._leaves)}"
            if vector:
                size = int(t.shape[-1])
                row = f" + b * {t.stride(0)}" if t.ndim == 2 and t.shape[0] > 1 else ""
                lane = self._lane(size)
                self._lines.line(f"{name} = tl.load({pointer}{row} + {lane} * {t.stride(-1)}, mask={lane} < {size}, other=0)")
            else:
                row = f" + b * {t.stride(0)}" if t.ndim and t.shape[0] > 1 else ""
                self._lines.line(f"{name} = tl.load({pointer}{row})")
            if t.dtype == torch.bool:
                self._lines.line(f"{name} = {name} != 0")
        return self._leaves[key]

    def _pointer(self, t: Tensor) -> str:
        for n, known in enumerate(self.tensors):
            if known is t:
                return f"in_{n}"
        self.tensors.append(t)
        return f"in_{len(self.tensors) - 1}"

    def _set(self, op: str, value: str) -> str:
        name = self._name(op)
        self._lines.line(f"{name} = {value}")
        return name

    def _as(self, x: Any, kind: torch.dtype, lanes: int) -> str:
        """An operand in a type."""
        text = self._node(x, lanes)
        if isinstance(x, Tensor):
            if x.dtype == kind:
                return text
            return f"({text} != 0)" if kind == torch.bool else f"{text}.to({_TYPES[kind]})"
        if kind == torch.bool:
            return "(b >= 0)" if x else "(b < 0)"
        return f"tl.full((), {text}, {_TYPES[kind]})"

    # -- operations
    def _elementwise(self, s: Symbol) -> str:
        lanes, op, args = self._lanes(s), s.op, s.args
        if op == "not":
            return self._set(op, f"~{self._node(args[0], lanes)}")
        if op in ("isnan", "isfinite"):
            x = self._node(args[0], lanes)
            return self._set(op, f"{x} != {x}" if op == "isnan" else f"tl.abs({x}) < float('inf')")
        if op in _PAIRS or op in ("minimum", "maximum"):
            kind = torch.result_type(*(_known(a) for a in args)) if op in _ORDERS else s.dtype
            a, b = (self._as(x, kind, lanes) for x in args)
            if op in ("and", "or"):  # the interpreter's truth of one number and of lanes is a number
                return self._set(op, self._full(f"({a} {_PAIRS[op]} {b}) != 0", s, args))
            if op in _PAIRS:
                return self._set(op, self._full(f"{a} {_PAIRS[op]} {b}", s, args))
            return self._set(op, self._full(f"tl.{op}({a}, {b})", s, args))
        if op == "where":
            a, b = (self._as(x, s.dtype, lanes) for x in args[1:])
            if s.dtype == torch.bool:  # a literal's type would not be that of a truth value
                c = self._node(args[0], lanes)
                return self._set(op, self._full(f"(({c} & {a}) | (~{c} & {b})) != 0", s, args))
            return self._set(op, self._full(f"tl.where({self._node(args[0], lanes)}, {a}, {b})", s, args))
        x = self._as(args[0], s.dtype, lanes)
        texts = {
            "cast": x,
            "neg": f"-{x}",
            "exp": f"tl.exp({x})",
            "log": f"tl.log({x})",
            "abs": f"tl.abs({x})",
            "relu": f"tl.where({x} < 0, {x} * 0, {x})",
            "trunc": f"tl.where({x} < 0, tl.ceil({x}), tl.floor({x}))",
        }
        return self._set(op, self._full(texts[op], s, args))

    def _full(self, text: str, s: Symbol, args: Sequence[Any]) -> str:
        """An expression over all lanes of its result, where no operand has lanes."""
        lanes = self._lanes(s)
        constants = (a for a in args if isinstance(a, Tensor) and not isinstance(a, Symbol))
        if lanes and not any(map(self._lanes, args)) and not any(a.ndim == 1 for a in constants):
            return (
                f"tl.full(({power(lanes)},), 0, {_TYPES[s.dtype]}) + ({text})"
                if s.dtype != torch.bool
                else (f"(tl.full(({power(lanes)},), 0, tl.int1) | ({text}))")
            )
        return text

    def _op_zeros(self, s: Symbol) -> str:
        lanes = self._lanes(s)
        return self._set(
            "zeros", f"tl.full(({power(lanes)},), 0, {_TYPES[s.dtype]})" if lanes else f"tl.full((), 0, {_TYPES[s.dtype]})"
        )

    _op_empty = _op_zeros

    def _inside(self, x: Any) -> str:
        size = self._lanes(x)
        return f"({self._lane(size)} < {size})"

    def _fold(self, s: Symbol, fold: str, rest: str, kind: torch.dtype) -> str:
        x = s.args[0]
        text = self._as(x, kind, 0)
        if not self._lanes(x):
            return self._set(s.op, text)
        return self._set(s.op, f"{fold}(tl.where({self._inside(x)}, {text}, {rest}), 0)")

    def _op_sum(self, s: Symbol) -> str:
        return self._fold(s, "tl.sum", "0", s.dtype)

    def _op_mean(self, s: Symbol) -> str:
        total = self._fold(s, "tl.sum", "0", s.dtype)
        return self._set("mean", f"{total} / {max(1, self._lanes(s.args[0]))}")

    def _op_amax(self, s: Symbol) -> str:
        return self._fold(s, "tl.max", 'float("-inf")' if s.dtype.is_floating_point else str(-(2**63)), s.dtype)

    def _op_amin(self, s: Symbol) -> str:
        return self._fold(s, "tl.min", 'float("inf")' if s.dtype.is_floating_point else str(2**63 - 1), s.dtype)

    def _op_any(self, s: Symbol) -> str:
        text = self._as(s.args[0], torch.bool, 0)
        if not self._lanes(s.args[0]):
            return self._set("any", text)
        return self._set("any", f"tl.max(tl.where({self._inside(s.args[0])} & {text}, 1, 0), 0) != 0")

    def _op_all(self, s: Symbol) -> str:
        text = self._as(s.args[0], torch.bool, 0)
        if not self._lanes(s.args[0]):
            return self._set("all", text)
        return self._set("all", f"tl.max(tl.where({self._inside(s.args[0])} & ~{text}, 1, 0), 0) == 0")

    def _op_cumsum(self, s: Symbol) -> str:
        text = self._as(s.args[0], s.dtype, 0)
        return self._set("cumsum", f"tl.cumsum({text}, 0)" if self._lanes(s) else text)

    # -- permutations
    def _room(self, kind: torch.dtype, size: int) -> str:
        """A place in memory for a vector."""
        if kind in (torch.float32, torch.float64):
            at, self.real = self.real, self.real + size
            return f"real + {at}"
        at, self.whole = self.whole, self.whole + size
        return f"whole + {at}"

    def _stored(self, x: Any) -> str:
        """A vector's address in scratch memory, as an expression; numbers in float64 or int64."""
        size, kind = max(1, self._lanes(x)), x.dtype
        at, text = self._room(kind, size), self._node(x, self._lanes(x))
        wide = "tl.float64" if kind.is_floating_point else "tl.int64"
        if size == 1:
            self._lines.line(f"tl.store({at}, {text}.to({wide}))")
        else:
            self._lines.line(f"tl.store({at} + {self._lane(size)}, {text}.to({wide}), mask={self._inside(x)})")
        self._lines.line("tl.debug_barrier()")
        return at

    def _loaded(self, s: Symbol, at: str, index: str, mask: str) -> str:
        """Entries of memory, in the type of a symbol."""
        name = self._set(s.op, f"tl.load({at} + {index}{mask})")
        return (
            self._set(s.op, f"{name} != 0")
            if s.dtype == torch.bool
            else (self._set(s.op, f"{name}.to({_TYPES[s.dtype]})") if s.dtype == torch.float32 else name)
        )

    def _op_order(self, s: Symbol) -> str:
        """Places in order of their keys: each lane's rank is counted, then the lane's number stored at its rank."""
        x, size = s.args[0], self._lanes(s)
        if not size:
            return self._set("order", "tl.full((), 0, tl.int64)")
        key, lane, self.sorted = self._node(x, size), self._lane(size), max(self.sorted, size)
        if x.dtype == torch.bool:
            key = self._set("key", f"{key}.to(tl.int64)")
        at, room = self._stored(x), self._room(torch.int64, size)
        rank = self._set("rank", f"tl.zeros(({power(size)},), tl.int32)")
        step = min(CHUNK if size <= 256 else CHUNK // 2, power(size))
        with self._lines.block(f"for start in range(0, {size}, {step}):"):
            self._lines.line(f"other = start + tl.arange(0, {step})")
            self._lines.line(f"rival = tl.load({at} + other, mask=other < {size}, other=0)")
            self._lines.line(f"mine, theirs = {key}[:, None], rival[None, :]")
            earlier = f"other[None, :] < {lane}[:, None]"
            if x.dtype.is_floating_point:
                self._lines.line("mine = mine.to(tl.float64)")
                before = (
                    "(theirs < mine) | ((mine != mine) & (theirs == theirs)) | "
                    f"(((theirs == mine) | ((mine != mine) & (theirs != theirs))) & ({earlier}))"
                )
            else:
                before = f"(theirs < mine) | ((theirs == mine) & ({earlier}))"
            self._lines.line(f"{rank} += tl.sum((({before}) & (other < {size})[None, :]).to(tl.int32), 1)")
        self._lines.line(f"tl.store({room} + {rank}, {lane}.to(tl.int64), mask={lane} < {size})")
        self._lines.line("tl.debug_barrier()")
        return self._set("order", f"tl.load({room} + {lane}, mask={lane} < {size}, other=0)")

    def _op_gather(self, s: Symbol) -> str:
        x, index = s.args
        text = self._node(index, self._lanes(index))
        at, size = self._stored(x), self._lanes(s)
        return self._loaded(s, at, text, f", mask={self._lane(size)} < {size}, other=0" if size else "")

    def _op_cut(self, s: Symbol) -> str:
        x, start = s.args
        at, size = self._stored(x), self._lanes(s)
        lane = self._lane(size)
        return self._loaded(s, at, f"{start} + {lane}", f", mask={lane} < {size}, other=0")

    def _op_item(self, s: Symbol) -> str:
        x, n = s.args
        text = self._node(x, self._lanes(x))
        if not self._lanes(x):
            return self._set("item", text)
        here = f"{self._lane(self._lanes(x))} == {n}"
        if s.dtype == torch.bool:
            return self._set("item", f"tl.max(tl.where(({here}) & {text}, 1, 0), 0) != 0")
        return self._set("item", f"tl.sum(tl.where({here}, {text}, 0), 0)")

    def _op_scatter(self, s: Symbol) -> str:
        base, index, value = s.args
        return self._scattered(s, base, index, value, "")

    def _op_written(self, s: Symbol) -> str:
        tokens, ids, chosen, values = s.args
        return self._scattered(s, tokens, ids, values, self._node(chosen, self._lanes(chosen)))

    def _scattered(self, s: Symbol, base: Any, index: Any, value: Any, chosen: str) -> str:
        size, lanes = self._lanes(s), self._lanes(index)
        where = self._node(index, lanes)
        wide = "tl.float64" if s.dtype.is_floating_point else "tl.int64"
        what = self._as(value, s.dtype, lanes)
        what = f"{what}.to({wide})"
        at = self._stored(base)
        masks = [m for m in (self._inside(index) if lanes else "", chosen) if m]
        mask = f", mask={' & '.join(f'({m})' for m in masks)}" if masks else ""
        self._lines.line(f"tl.store({at} + {where}, {what}{mask})")
        self._lines.line("tl.debug_barrier()")
        lane = self._lane(size) if size else "0"
        return self._loaded(s, at, lane, f", mask={lane} < {size}, other=0" if size else "")

    def spec(self, name: str) -> Spec:
        """The kernel to be compiled where there is no device."""
        signature = {f"in_{n}": _POINTERS[t.dtype] for n, t in enumerate(self.tensors)}
        signature |= {f"out_{n}": _POINTERS[s.dtype] for n, s in enumerate(self.wanted)}
        signature |= {"whole": "*i64", "real": "*fp64"}
        return Spec(name, "canvas_step", signature, text=self.text, warps=self.sizes.warps)


def _known(x: Any) -> Any:
    """An operand as torch's promotion sees it."""
    if isinstance(x, Tensor):
        with torch._C.DisableTorchFunctionSubclass():
            return torch.empty(x.shape, dtype=x.dtype, device="meta")
    return x
