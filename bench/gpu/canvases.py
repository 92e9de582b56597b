"""A large masked model on the device: a forward of a whole canvas and of a block, and decoding with and without a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from decgraph.bench.contenders import request_of, run
from decgraph.bench.gpu import lab as labs
from decgraph.bench.gpu.forwards import ALLOWED, apart, inputs, milliseconds
from decgraph.bench.gpu.lab import Lab
from decgraph.bench.gpu.report import Items, Row
from decgraph.bench.gpu.sides import counted, masked_session, profiled
from decgraph.bench.prompts import of_ids
from decgraph.bench.timing import in_turns
from decgraph.runtime.models.capture.make import capture


def stage(lab: Lab) -> Items:
    lab.forget()
    made: list[Any] = []
    yield "a model of this size", partial(building, lab, made)
    yield "forwards", lambda: forwards(lab, made[0])
    yield "fast_dllm and uncached", lambda: decoding(lab, made[0])


def building(lab: Lab, made: list[Any]) -> Row:
    """Making it."""
    made.append(labs.masked(dict(lab.sizes.masked), lab.device, lab.sizes.dtype))
    count = sum(p.numel() for p in made[0].parameters())
    return {"parameters": count, "floor_ms": lab.floor(made[0]), "says": f"{count / 1e9:.3f}e9 parameters"}


@torch.no_grad()
def forwards(lab: Lab, module: Any) -> Row:
    """Milliseconds of a forward, without the output matrix: the module's own over the canvas, the captured one over the
    canvas, and over one block that sees all of it."""
    sizes = lab.sizes
    rows = sizes.canvas_prompt + sizes.canvas
    notices: list[str] = []
    step = capture(module, notice=notices.append)
    if step is None:
        return {"right": False, "says": f"not captured: {notices}"}
    seen = dict.fromkeys(step.kinds)  # every cell sees every row
    whole, block = ((*inputs(module.config, n, rows, lab.device, sizes.dtype)[:5], seen) for n in (rows, sizes.block))
    own = lambda: module.base_model(input_ids=whole[0]).last_hidden_state
    gap = apart(step(*whole).clone(), own())
    found = {"module, canvas": milliseconds(lab, own), "captured, canvas": milliseconds(lab, partial(step, *whole)),
             "captured, block": milliseconds(lab, partial(step, *block))}
    floor = lab.floor(module, rows, base=True)
    says = ", ".join(f"{name} {took['median']:.2f}" for name, took in found.items())
    return {"cells": rows, "block": sizes.block, "operations": step.nodes, "gap": gap, "right": gap < ALLOWED[sizes.dtype],
            "floor_ms": floor, **found, "says": f"{says}, floor of a block {floor:.2f} ms"}


def decoding(lab: Lab, module: Any) -> Row:
    """fast_dllm with its dual cache against the same program without a cache. The scores are random, so nothing is sure and
    every call decides one cell."""
    sizes = lab.sizes
    (prompt,) = of_ids(int(module.config.vocab_size) - 1, 1, sizes.canvas_prompt)
    request = request_of(prompt, sizes.canvas)
    sessions = {name: masked_session(name, module, length=sizes.canvas, block=sizes.block)
                for name in ("fast_dllm", "fast_dllm_uncached")}
    contenders: Any = {name: partial(_run, session, request) for name, session in sessions.items()}
    times = in_turns(contenders, 1, max(1, sizes.rounds - 1))
    calls = {name: run(session, request).stats.target_calls for name, session in sessions.items()}
    each = {name: 1000 * times.seconds(name).median / calls[name] for name in sessions}
    ratio = times.ratio("fast_dllm_uncached", "fast_dllm")
    row = counted(lab, sessions["fast_dllm"], request)
    floor = lab.floor(module, len(prompt) + sizes.canvas)
    return {"calls": calls, "ms_per_call": each, "ratio": ratio.to_json(), "a_step": row, "floor_ms": floor,
            "profile": profiled(lab, contenders["fast_dllm"]),
            "says": f"{ratio.median:.2f} times as fast as uncached; a call {each['fast_dllm']:.2f} ms, "
                    f"{each['fast_dllm'] / floor:.2f} floors, uncached {each['fast_dllm_uncached']:.2f}; "
                    f"{row['waits_of_machine'] + row['waits_of_engines']:.2f} waits a call"}  # fmt: skip


def _run(session: Any, request: Any, _: int = 0) -> object:
    return run(session, request)
