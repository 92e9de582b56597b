"""A canvas program run on the device for B sequences in lockstep: the control flow, and loops whose iterations are captured.

A loop whose iterations call a model runs on the device: the number of the iteration is a tensor, and so is the mask of active
sequences; carried values are updated for those only. So an iteration can be captured as a CUDA graph and replayed. Static
values (blocks, which cells are cached) stay on the host: an iteration is captured once for each combination of them. `while`
reads one flag, whether any sequence is active, before the first iteration and then every `every` iterations; other loops read
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.step.canvas_graphs import (
    MODEL_OPS,
    CapturedIteration,
    Recorder,
    accumulates,
    asks,
    kept_calls,
    write_back,
)
from decgraph.backends.triton.step.canvas_model import CanvasModel
from decgraph.backends.triton.step.canvas_rows import Shaper, Stream
from decgraph.backends.triton.step.canvas_symbols import Symbol, plain
from decgraph.backends.triton.step.canvas_values import (
    DeviceCanvas,
    DeviceCanvasMemory,
    Live,
    Num,
    constant,
    leaves,
    rebuilt,
    skeleton,
)
from decgraph.backends.triton.step.evaluate import Evaluator, NotCapturable, registrar
from decgraph.ir.data.numbers import FLOAT
from decgraph.ir.values import Function, Op, Region

CANVAS: dict[str, Callable[..., Any]] = {}
"""Implementations of ops on the device, `f(s, op, *operands)`; canvases.py and canvas_vectors.py register them."""
EFFECTS = (*MODEL_OPS, "commit", "state.write", "run")


form = registrar(CANVAS)
"""Register the function below as the implementation of ops in canvas programs."""


class CanvasEvaluator(Evaluator):
    """Runs the body of a canvas program. models: by the program's names. every: iterations of a `while` between two reads of
    its flag; each read synchronises, and iterations after the end change nothing but cost time."""

    num, implementations, where = FLOAT, CANVAS, "for canvases on the device"

    def __init__(
        self,
        function: Function,
        models: dict[str, CanvasModel],
        batch: int,
        length: int,
        shaper: Shaper,
        stream: Stream,
        base: Tensor,
        *,
        every: int = 1,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__()
        self.models, self.batch, self.length, self.shaper = models, batch, length, shaper
        self.stream, self.base, self.every, self.recorder = stream, base, max(1, every), recorder
        self.fused = shaper.generated
        self.device = stream.device
        self.fields: dict[str, Any] = {}
        self.active: Tensor | None = None
        self.bad = torch.zeros(batch, dtype=torch.bool, device=self.device)
        self.calls = {name: torch.zeros(batch, dtype=torch.int64, device=self.device) for name in models}
        self.committed: DeviceCanvas | None = None
        self.iterations, self.reads = 0, 0
        self.made: dict[Any, Any] = {}  # calls of this iteration, by operands
        self.kept = kept_calls(function.body)
        self._wrong: list[Tensor] | None = None  # faults of this iteration
        self._buffers: dict[Any, list[Tensor]] = {}
        self._captured: dict[Any, CapturedIteration | None] = {}

    @property
    def vocab_size(self) -> int:
        """How many tokens the main model's vocabulary has."""
        return int(self.fields["vocab_size"])

    # -- running
    def start(self) -> None:
        """Forget the last run; its buffers and captured iterations stay."""
        self.env.clear()
        self.made.clear()
        self.active, self.committed, self._wrong = None, None, None
        self.iterations, self.reads = 0, 0
        for t in (self.bad, *self.calls.values()):
            t.zero_()

    def is_static(self, value: Any) -> bool:
        """See `Evaluator`."""
        return not _away(value)

    def name_of(self, model: CanvasModel) -> str:
        """The program's name of a model."""
        return next(name for name, m in self.models.items() if m is model)

    def keeps(self, op: Op) -> bool:
        """Whether a call's memory is read."""
        return op.opcode == "model.memory" or op in self.kept

    def constant(self, value: Any) -> Tensor:
        """A static value as a tensor; see `constant`."""
        return constant(value, self.device)

    def fault(self, where: Tensor) -> None:
        """Mark sequences at which a driver would have raised an error: bool[B, ...]."""
        wrong = where.flatten(1).any(1)
        wrong = wrong if self.active is None else wrong & self.active
        if self._wrong is None:
            self.bad |= plain(wrong)
        else:
            self._wrong.append(wrong)

    def check(self, most: Tensor) -> None:
        """Mark sequences whose largest scores [B, N] are not all finite."""
        self.fault(~torch.isfinite(self.lazy(most)))

    def lazy(self, t: Tensor) -> Tensor:
        """A tensor [B] or [B, N] as a symbol, where small vectors have kernels; see canvas_symbols.py."""
        return Symbol.leaf(t) if self.fused and self._wrong is not None and not isinstance(t, Symbol) else t

    # -- control flow
    def op_if(self, op: Op) -> Any:
        """A branch; with a data-dependent condition both are computed and each sequence selects its own."""
        cond = self.env[op.operands[0]]
        if not _away(cond):
            out = self.region(op.regions[0 if bool(cond) else 1], ())
        else:
            if any(o.opcode in EFFECTS for r in op.regions for o in r.walk()):
                raise NotCapturable("whether a model is called depends on data", op)
            yes, no = self.region(op.regions[0], ()), self.region(op.regions[1], ())
            out = tuple(self.chosen(cond.data, a, b, op) for a, b in zip(yes, no, strict=True))
        return out[0] if len(op.results) == 1 else out

    def chosen(self, cond: Tensor, a: Any, b: Any, op: Op) -> Any:
        """For each sequence a or b, values of tensors [B, ...]. cond: bool[B]."""
        if a is b or (not _away(a) and not _away(b) and skeleton(a) == skeleton(b)):
            return a
        if isinstance(a, DeviceCanvas) and isinstance(b, DeviceCanvas):
            return DeviceCanvas(torch.where(cond[:, None], a.tokens, b.tokens), torch.where(cond, a.decided, b.decided))
        if isinstance(a, Live) and isinstance(b, Live) and skeleton(a) == skeleton(b):
            return rebuilt(
                a, [torch.where(cond.reshape(-1, *[1] * (x.ndim - 1)), x, y) for x, y in zip(leaves(a), leaves(b), strict=True)]
            )
        numbers = (bool, int, float, np.generic, Num)
        if isinstance(a, numbers) and isinstance(b, numbers):
            x, y = (v.data if isinstance(v, Num) else self.constant(v) for v in (a, b))
            bounds = [v.most if isinstance(v, Num) else int(v) if isinstance(v, int) else None for v in (a, b)]
            most = None if None in bounds else max(n for n in bounds if n is not None)
            return Num(torch.where(cond, x, y), most)
        raise NotCapturable("the branches yield values of different kinds", op)

    def op_while(self, op: Op) -> Any:
        """A `while` loop: iterations while the condition holds for a sequence, up to the loop's bound."""
        carried, most = [self.env[v] for v in op.operands], None
        if op.attrs.get("limited"):
            limit, *carried = carried
            if _away(limit):
                raise NotCapturable("the number of iterations depends on data", op)
            most = max(0, int(limit))
        return self._loop(op, op.regions[1], op.regions[0], 0, most, carried)

    def op_for(self, op: Op) -> Any:
        """A `for` loop. It runs on the device if it calls a model, else it is unrolled."""
        lo, hi, *carried = (self.env[v] for v in op.operands)
        if op.attrs.get("lanes") or _away(lo) or _away(hi):
            raise NotCapturable("the number of iterations depends on data", op)
        body = op.regions[0]
        inner = any(o.opcode in ("for", "while") and asks(o) for o in body.walk())
        if asks(op) and not inner:
            return self._loop(op, body, None, int(lo), int(hi) - int(lo), carried)
        return self._unrolled(op, body, int(lo), int(hi), carried)

    def _unrolled(self, op: Op, body: Region, lo: int, hi: int, carried: list[Any]) -> Any:
        outer, stops, open_ = self.active, bool(op.attrs.get("stops")), self.active
        for i in range(lo, hi):
            if stops and i > lo and open_ is not None and not self._look(open_)[0]:
                break
            out = self.region(body, [i, *carried])
            new = list(out[1:] if stops else out)
            carried = new if open_ is None else self._merged(open_, new, carried, op)
            if stops:
                stop = out[0]
                if not _away(stop):
                    if bool(stop):
                        break
                    continue
                go = ~stop.data
                open_ = go if open_ is None else open_ & go
                self.active = open_
        self.active = outer
        return carried[0] if len(op.results) == 1 else tuple(carried)

    def _merged(self, active: Tensor, new: Sequence[Any], old: Sequence[Any], op: Op) -> list[Any]:
        """Carried values after an iteration: new for the active sequences. Static ones are new for all."""
        return [n if not _away(n) and not _away(o) else self.chosen(active, n, o, op) for n, o in zip(new, old, strict=True)]

    # -- loops on the device
    def _loop(self, op: Op, body: Region, cond: Region | None, lo: int, count: int | None, carried: list[Any]) -> Any:
        """A loop on the device. cond: of a `while`. count: the most iterations (None: unbounded)."""
        outer, stops = self.active, bool(op.attrs.get("stops"))
        looks = cond is not None or stops
        if not looks and outer is None and self.recorder is None and count == 0:
            return carried[0] if len(op.results) == 1 else tuple(carried)
        iteration, active = self._kept(
            (op, "iteration"),
            [
                torch.zeros(1, dtype=torch.int64, device=self.device),
                torch.ones(self.batch, dtype=torch.bool, device=self.device),
            ],
        )
        number = Num(iteration.expand(self.batch))
        iteration.fill_(lo)
        active.fill_(True) if outer is None else active.copy_(outer)
        args = body.args[1:]
        carried = [
            Num(self.constant(v).expand(self.batch)) if accumulates(v, body, a, y) else v
            for v, a, y in zip(carried, args, body.yields[int(stops) :], strict=True)
        ]
        cached = [self._kept((op, "carried", n, skeleton(v)), leaves(v)) for n, v in enumerate(carried)]
        carried = [rebuilt(v, h) for v, h in zip(carried, cached, strict=True)]
        frees = self._frees(op, [body] if cond is None else [cond, body])
        if cond is not None:
            active &= self.truth_of(self.region(cond, [number, *carried])[0])
        guarded = looks and (self.every > 1 or self.batch > 1) or outer is not None
        self.active = active if guarded else None
        done, ahead = 0, 0
        while count is None or done < count:
            if looks or (outer is not None and done == 0):
                if ahead == 0:
                    anybody, everybody = self._look(active)
                    if not anybody:
                        break
                    ahead = self.every
                ahead -= 1

            def one(carried: list[Any] = carried) -> list[Any]:
                return self._iteration(op, body, cond, number, carried, cached, (iteration, active), guarded)

            before = skeleton(carried)
            key = (op, guarded, before, frees, *(m.ragged for m in self.models.values()))
            carried = self._run(key, one, carried)
            done += 1
            self.iterations += 1
            if guarded and skeleton(carried) != before and not self._together(op, done, active, everybody if looks else True):
                raise NotCapturable("static values differ between sequences", op)
        self.active = outer
        out = [rebuilt(v, [t.clone() for t in leaves(v)]) for v in carried]
        return out[0] if len(op.results) == 1 else tuple(out)

    def _together(self, op: Op, done: int, active: Tensor, everybody: bool) -> bool:
        """Whether all sequences were active in the iteration that has just changed static values."""
        return everybody and (done == 1 or self._look(active)[1])

    def _iteration(
        self,
        op: Op,
        body: Region,
        cond: Region | None,
        number: Num,
        carried: list[Any],
        cached: list[list[Tensor]],
        state: tuple[Tensor, Tensor],
        guarded: bool,
    ) -> list[Any]:
        """One iteration: its carried values are in the loop's own tensors afterwards. Nothing is read back."""
        iteration, active = state
        stops = bool(op.attrs.get("stops"))
        self.made.clear()
        self._wrong = []
        old = [rebuilt(v, [self.lazy(t) for t in leaves(v)]) for v in carried]
        open_ = self.lazy(active)
        self.active = open_ if guarded else None
        out = self.region(body, [Num(self.lazy(number.data)), *old])
        new = list(out[1:] if stops else out)
        if guarded:
            new = self._merged(open_, new, old, op)
        if stops:
            open_ = open_ & ~self.truth_of(out[0])
        if cond is not None:
            open_ = open_ & self.truth_of(self.region(cond, [Num(self.lazy(number.data) + 1), *new])[0])
        bad = self.lazy(self.bad)
        for wrong in self._wrong:
            bad = bad | wrong
        self._wrong = None
        wanted = [(open_, active), (bad, self.bad)]
        for value, buffers in zip(new, cached, strict=True):
            fresh = leaves(value)
            if [(t.dtype, t.shape) for t in fresh] != [(t.dtype, t.shape) for t in buffers]:
                raise NotCapturable("a loop carries values whose shape changes", op)
            wanted += zip(fresh, buffers, strict=True)
        write_back(wanted)
        iteration += 1
        self.active = active if guarded else None
        self.made.clear()
        return [rebuilt(value, buffers) for value, buffers in zip(new, cached, strict=True)]

    def _run(self, key: Any, iteration: Callable[[], list[Any]], carried: list[Any]) -> list[Any]:
        """Run an iteration; with a recorder the second one with equal static values is captured, and later ones replay it."""
        if self.recorder is None:
            return iteration()
        known = self._captured.get(key)
        if known is None:
            if key not in self._captured:
                self._captured[key] = None
                return iteration()
            serials = [m.serial for m in self.models.values()]
            replay, after = self.recorder.record(iteration)
            known = self._captured[key] = CapturedIteration(replay, tuple(after))
            for m, serial in zip(self.models.values(), serials, strict=True):
                m.serial = serial  # capturing writes nothing
        known.replay()
        return [self._current(v) for v in known.after]

    def _current(self, value: Any) -> Any:
        """A carried value after a replay: memories get the number of the last write."""
        if not isinstance(value, DeviceCanvasMemory):
            return value
        model = next(m for m in self.models.values() if m.name == value.model)
        model.serial += 1
        return replace(value, serial=model.serial)

    def _kept(self, key: Any, values: list[Tensor]) -> list[Tensor]:
        """Tensors of the loop's own, filled with `values`: captured iterations read and write the same addresses in every
        run."""
        if key not in self._buffers:
            self._buffers[key] = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in values]
        for t, buffer in zip(values, self._buffers[key], strict=True):
            if t is not buffer:
                buffer.copy_(t)
        return self._buffers[key]

    def _frees(self, op: Op, regions: Sequence[Region]) -> tuple[Any, ...]:
        """The static part of the values that a loop reads from outside; their tensors are copied to fixed addresses."""
        if self.recorder is None:
            return ()
        inside = {v for r in regions for v in r.args} | {
            v for r in regions for o in r.walk() for v in (*o.results, *(a for q in o.regions for a in q.args))
        }
        read = [v for r in regions for o in r.walk() for v in (*o.operands, *(y for q in o.regions for y in q.yields))]
        out = []
        for v in dict.fromkeys(read + [y for r in regions for y in r.yields]):
            if v in inside or v not in self.env:
                continue
            value = self.env[v]
            if hasattr(value, "call") or isinstance(value, str):
                continue  # a model
            self.env[v] = rebuilt(value, self._kept((op, "free", v, skeleton(value)), leaves(value)))
            out.append(skeleton(value))
        return tuple(out)

    def truth_of(self, value: Any) -> Tensor:
        """bool[B]"""
        return value.data if isinstance(value, Num) else self.constant(bool(value)).expand(self.batch)

    def _look(self, active: Tensor) -> tuple[bool, bool]:
        """Whether any, and whether every sequence of active bool[B] continues: the only read-back."""
        self.reads += 1
        going = active.tolist()
        return any(going), all(going)


def _away(value: Any) -> bool:
    """Whether a value is not static."""
    if isinstance(value, Tensor):
        return True
    if isinstance(value, list | tuple):
        return any(_away(v) for v in value)
    return bool(getattr(value, "on_device", False))
