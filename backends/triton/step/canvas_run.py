"""The entry point for masked models: requests decoded on the device in lockstep.

A machine does not change until its canvas is decided; then it commits the canvas as its own driver would. So a run that is not
supported here, or meets a case that needs its driver (rows without an allowed token, NaN logits), is returned with the reason,
and the driver commits the same tokens or raises the right error.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.triton.placement import captures, home
from decgraph.backends.triton.step import canvas_choices, canvas_vectors, canvases
from decgraph.backends.triton.step.canvas_graphs import CudaRecorder, Recorder
from decgraph.backends.triton.step.canvas_model import CanvasModel, HFCanvas
from decgraph.backends.triton.step.canvas_rows import Shaper, Stream
from decgraph.backends.triton.step.canvas_step import CANVAS, CanvasEvaluator
from decgraph.backends.triton.step.canvas_table import TableCanvas
from decgraph.backends.triton.step.canvas_values import skeleton
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.keys import int32_words
from decgraph.ir.memo import memo_of
from decgraph.ir.table import lookup
from decgraph.ir.values import Module, Op
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.table import TableModel

KEPT = 4
"""Programs, by size, whose buffers and captured iterations are kept."""
FLOW = ("const", "segment", "if", "for", "while")
assert canvases and canvas_vectors and canvas_choices  # they register implementations of ops


def canvas_reason(module: Module, function: str, request: Any, models: Mapping[str, Any]) -> str | None:
    """Why a program is not supported here, or None. Limits of sizes (a table too large) are found when it is run."""
    f = module.functions[function]
    masked = [p.name for p in f.params if p.value.type.elem == "model"]
    if not masked or any(models[name].kind != "masked" for name in masked):
        return "its models are not masked models"
    if f.states:
        return "it keeps states"
    news = [op for op in f.body.ops if op.opcode == "canvas.new"]
    if len(news) != 1 or sum(op.opcode == "canvas.new" for op in f.body.walk()) != 1:
        return "it does not fill one canvas"
    for op in f.body.walk():
        if op.opcode not in CANVAS and op.opcode not in FLOW and (op.regions or not _hosted(op)):
            return f"`{op.opcode}` is not implemented for canvases on the device"
    for name in masked:
        model = models[name]
        if not isinstance(model, HFMasked | TableModel):
            return f"{model.name!r} is a {type(model).__name__}, which is not implemented on the device"
        if model.shift:
            return f"{model.name!r} predicts a position from the one before it, which is not implemented on the device"
        if model.visibility != "full" and model.visibility[0] != "block":
            return f"the visibility of {model.name!r} is not implemented on the device"
    return Shaper.reason(request)


def _hosted(op: Op) -> bool:
    """Whether an op can run on the host: pure, and with static operands."""
    kinds = ("tree", "path", "node", "memory", "model", "canvas", "hidden", "embedding", "index", "automaton", "list")
    entry = lookup(op.opcode)
    return entry.batch != "host" and not any(v.type.elem in kinds for v in (*op.operands, *op.results))


@dataclass
class Ran:
    """The result of one run: the reason why it was not run here (None: it was), and its cost.

    calls: by model. iterations: iterations of loops on the device; wasted: those after the sequence's last one. reads: flags
    read.
    """

    why: str | None
    calls: dict[str, int]
    iterations: int = 0
    wasted: int = 0
    reads: int = 0


def run_canvases(
    machines: Sequence[Any], *, every: int = 1, graphs: bool | None = None, kernels: bool | None = None
) -> list[Ran]:
    """Run machines of one program (of backends.torch.machine.Machine or a subclass), those of equal sizes and shaping in
    lockstep. every: iterations between two reads of a loop's flag. graphs: whether iterations are captured, kernels: whether
    generated kernels decide cells and attend (None: for models on CUDA).

    A machine whose `Ran.why` is set is unchanged; run its driver. Others have committed and finished.
    """
    out: list[Ran | None] = [None] * len(machines)
    groups: dict[Any, list[int]] = {}
    for n, m in enumerate(machines):
        why = canvas_reason(m.module, m.function.name, m.request, m.models)
        if why is not None:
            out[n] = Ran(why, {})
            continue
        groups.setdefault(_alike(m), []).append(n)
    for alike, group in groups.items():
        members = [machines[n] for n in group]
        refused = _kept_with(members[0].main).refused
        if alike not in refused:
            try:
                got = _run(members, every, graphs, kernels)
            except NotCapturable as reason:  # so that it is not tried again with every request
                refused[alike] = str(reason)
        if alike in refused:
            got = [Ran(refused[alike], {}) for _ in group]
        for n, ran in zip(group, got, strict=True):
            out[n] = ran
    return [r for r in out if r is not None]


def _alike(m: Any) -> Any:
    """The key that machines in one lockstep batch share."""
    params = tuple(sorted((k, skeleton(v)) for k, v in m.params.items()))
    return (m.function, params, tuple(sorted((k, id(v)) for k, v in m.models.items())), _length(m), Shaper.key(m.request))


def _length(m: Any) -> int:
    """The cells of a machine's canvas."""
    new = next(op for op in m.function.body.ops if op.opcode == "canvas.new")
    known = {p.value: m.params.get(p.name) for p in m.function.params}
    known.update({op.result: op.attrs["value"] for op in m.function.body.ops if op.opcode == "const"})
    asked = known.get(new.operands[0])
    return -1 if asked is None else min(int(asked), int(m.canvas_room()))


@dataclass
class _Kept:
    """What is cached on a model, as its engine is, and freed with it. evaluators: the latest, by program and
    sizes; refused: by program and length, why it cannot run so."""

    evaluators: OrderedDict[Any, CanvasEvaluator] = field(default_factory=OrderedDict)
    refused: dict[Any, str] = field(default_factory=dict)


def _kept_with(model: Any) -> _Kept:
    return memo_of(model).once("canvas evaluators", _Kept)


def evaluator_for(
    machines: Sequence[Any], every: int = 1, recorder: Recorder | None = None, kernels: bool | None = None
) -> CanvasEvaluator:
    """The evaluator of machines with equal keys, built once for their program and sizes. kernels: whether generated kernels are
    used (None: for models on CUDA). Raises NotCapturable."""
    m, length = machines[0], _length(machines[0])
    if length < 1:
        raise NotCapturable("the length of the canvas is not a parameter, or it does not fit")
    width = max(len(x.tokens) for x in machines)
    known = _kept_with(m.main).evaluators
    key = (_alike(m), len(machines), width, every, type(recorder), kernels)
    if key not in known:
        while len(known) >= KEPT:
            known.popitem(last=False)
        batch = len(machines)
        models = {name: device_model(model, batch, width, length, kernels, home(m.models)) for name, model in m.models.items()}
        device = next(iter(models.values())).device
        size, generated = m.vocab_size, device.type == "cuda" if kernels is None else kernels
        shaper = Shaper(m.request, size, device, kernels=generated)
        made = CanvasEvaluator(
            m.function,
            models,
            batch,
            length,
            shaper,
            Stream(batch, device),
            torch.zeros(batch, dtype=torch.int64, device=device),
            every=every,
            recorder=recorder,
        )
        made.fields = {"greedy": m.request.greedy, "canvas_room": length, "vocab_size": size, "mask": m.mask_token}
        known[key] = made
    known.move_to_end(key)
    return known[key]


def device_model(
    model: Any, batch: int, width: int, length: int, kernels: bool | None = None, device: torch.device | None = None
) -> CanvasModel:
    """A masked model at a size. device: of a table (None: where kernels run). Raises NotCapturable for one that is not
    implemented on the device."""
    if isinstance(model, TableModel):
        why = TableCanvas.reason(model, length)
        if why is not None:
            raise NotCapturable(why)
        return TableCanvas(model, batch, length, home({}) if device is None else device)
    if isinstance(model, HFMasked):
        return HFCanvas(engine_of(model), batch, width, length, kernels=kernels)
    raise NotCapturable(f"{model.name!r} is not implemented on the device")


def _run(machines: Sequence[Any], every: int, graphs: bool | None, kernels: bool | None) -> list[Ran]:
    where = home(machines[0].models)
    captured = captures(where) if graphs is None else graphs
    e = evaluator_for(machines, every, CudaRecorder(where) if captured else None, kernels)
    begin(e, machines)
    run_body(e, machines[0])
    return finish(e, machines)


def begin(e: CanvasEvaluator, machines: Sequence[Any]) -> None:
    """Write the requests to the buffers: prompts, seeds, numbers."""
    e.start()
    prompts = [list(m.tokens) for m in machines]
    for model in e.models.values():
        model.begin(prompts)
    words = np.stack([int32_words(m.request.request_id) for m in machines])
    seeds = np.array([[m.request.seed & 0xFFFFFFFF, m.request.seed >> 32] for m in machines], dtype=np.int64)
    e.stream.request.copy_(torch.from_numpy(words))
    e.stream.seeds.copy_(torch.from_numpy(seeds))
    e.base.copy_(torch.tensor([len(p) for p in prompts], dtype=torch.int64))


def run_body(e: CanvasEvaluator, m: Any) -> None:
    """Run the program. Raises NotCapturable."""
    values = [e.models[p.name] if p.value.type.elem == "model" else m.parameter(p) for p in m.function.params]
    e.env.update(zip((p.value for p in m.function.params), values, strict=True))
    for op in m.function.body.ops:
        e.op(op)
    if e.committed is None:
        raise NotCapturable("nothing was committed")


def finish(e: CanvasEvaluator, machines: Sequence[Any]) -> list[Ran]:
    """Read the canvases back, once, and let every machine commit its own."""
    assert e.committed is not None
    names = list(e.models)
    columns = [e.bad.long(), e.committed.decided, *(e.calls[name] for name in names)]
    told = torch.cat((torch.stack(columns, 1), e.committed.tokens), 1).cpu().numpy()
    out = []
    for m, row in zip(machines, told, strict=True):
        if row[0]:
            out.append(Ran("a row had no finite scores, which only the driver handles", {}))
            continue
        calls = {name: int(n) for name, n in zip(names, row[2:], strict=False)}
        for name, n in calls.items():
            model = m.models[name]
            for _ in range(n):
                m.tally.call(model.name, model is m.main)
        m.decided += int(row[1])
        m.tally.unmasked += int(row[1])
        tokens = row[2 + len(names) :].astype(np.int64)
        m.commit(Canvas(m.context(), tokens, len(tokens)))
        m.syncs += (e.reads + 1) if e.device.type != "cpu" else 0
        m.finish()
        m.release()
        out.append(Ran(None, calls, e.iterations, e.iterations - max(calls.values(), default=0), e.reads))
    return out
