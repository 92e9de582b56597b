"""A large masked model on the device: a forward of a whole canvas and of a block, and decoding with and without a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from decgraph.bench.contenders import request_of, run
from decgraph.bench.prompts import of_ids
from decgraph.bench.timing import alternated
from lab.gpu.forwards import ALLOWED, apart, decoder, inputs, milliseconds
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row
from lab.gpu.sides import counted, masked_session, profiled, waits_seen
from lab.gpu.speed import common


def stage(lab: Lab) -> Items:
    """The items of the stage `masked`."""
    yield "a model of this size", lab.building_masked
    yield "forwards", lambda: forwards(lab, lab.masked())
    yield "fast_dllm and uncached", lambda: decoding(lab, lab.masked())


@torch.no_grad()
def forwards(lab: Lab, module: Any) -> Row:
    """Milliseconds of a forward, without the output matrix: the module's own over the canvas, the decoder's over the
    canvas, and over one block that sees all of it."""
    sizes = lab.sizes
    rows = sizes.canvas_prompt + sizes.canvas
    step: Any = decoder(module)
    if isinstance(step, str):
        return {"right": False, "says": f"no decoder: {step}"}
    seen = dict.fromkeys(step.kinds)  # every cell sees every row
    whole, block = ((*inputs(module.config, n, rows, lab.device, sizes.dtype)[:5], seen) for n in (rows, sizes.block))
    own = lambda: module.base_model(input_ids=whole[0]).last_hidden_state
    gap = apart(step(*whole).clone(), own())
    found = {
        "module, canvas": milliseconds(lab, own),
        "decoder, canvas": milliseconds(lab, partial(step, *whole)),
        "decoder, block": milliseconds(lab, partial(step, *block)),
    }
    floor = lab.floor(module, rows, base=True)
    says = ", ".join(f"{name} {took['median']:.2f}" for name, took in found.items())
    return {
        "cells": rows,
        "block": sizes.block,
        "gap": gap,
        "right": gap < ALLOWED[sizes.dtype],
        "floor_ms": floor,
        **found,
        "says": f"{says}, floor of a block {floor:.2f} ms",
    }


def decoding(lab: Lab, module: Any) -> Row:
    """fast_dllm with its dual cache against the same program without a cache. The scores are random, so nothing is sure and
    every call decides one cell."""
    sizes = lab.sizes
    (prompt,) = of_ids(int(module.config.vocab_size) - 1, 1, sizes.canvas_prompt)
    request = request_of(prompt, sizes.canvas)
    sessions = {
        name: masked_session(name, module, length=sizes.canvas, block=sizes.block)
        for name in ("fast_dllm", "fast_dllm_uncached")
    }
    contenders: Any = {name: partial(_run, session, request) for name, session in sessions.items()}
    times = alternated(contenders, 1, max(1, sizes.rounds - 1))
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


def on_device(lab: Lab) -> Items:
    """The stage `canvas`: the denoising iteration on the device (backend triton)."""
    yield "a model of this size", lab.building_masked
    yield "an iteration", lambda: iteration(lab, lab.masked())


def iteration(lab: Lab, module: Any) -> Row:
    """fast_dllm with its dual cache by backend triton and by backend torch, the same request in turns. The calls that compute
    the whole canvas, one a block, are taken off what a run takes: the others are iterations over a block."""
    sizes = lab.sizes
    (prompt,) = of_ids(int(module.config.vocab_size) - 1, 1, sizes.canvas_prompt)
    request = request_of(prompt, sizes.canvas)
    sessions = {
        backend: masked_session("fast_dllm", module, backend=backend, length=sizes.canvas, block=sizes.block)
        for backend in ("triton", "torch")
    }
    first = lab.seconds(lambda: run(sessions["triton"], request), 1, 0).median
    results = {backend: run(session, request) for backend, session in sessions.items()}
    calls = {backend: result.stats.target_calls for backend, result in results.items()}
    equal = common(results["triton"].tokens, results["torch"].tokens)
    times = alternated({b: partial(_run, session, request) for b, session in sessions.items()}, 1, sizes.rounds)
    whole = whole_ms(lab, module, len(prompt) + sizes.canvas)
    blocks = sizes.canvas // sizes.block
    each = {b: (1000 * times.seconds(b).median - blocks * whole) / max(calls[b] - blocks, 1) for b in sessions}
    floor = lab.floor(module, len(prompt) + sizes.canvas)
    ratio = times.ratio("torch", "triton")
    row: Row = {
        "calls": calls,
        "cells": sizes.canvas,
        "same_tokens_first": equal,
        "first_run_s": first,
        "whole_canvas_ms": whole,
        "ms_per_iteration": each,
        "floor_ms": floor,
        "wanted": 1.25,
        "ratio_wanted": 3.0,
        "over_floor": round(each["triton"] / floor, 3),
        "ratio": ratio.to_json(),
        "profile": profiled(lab, lambda: run(sessions["triton"], request)),
    }
    if lab.cuda:
        row["waits"] = waits_seen(lambda: run(sessions["triton"], request)) / calls["triton"]
    return {
        **row,
        "says": f"{each['triton']:.2f} ms, {row['over_floor']:.2f} floors; eager torch {each['torch']:.2f} ms, a "
        f"request {ratio.median:.2f} times as fast; {row.get('waits', '-')} waits a call; first {equal} of "
        f"{sizes.canvas} cells the same",
    }


@torch.no_grad()
def whole_ms(lab: Lab, module: Any, rows: int) -> float:
    """Milliseconds of the decoder's forward of the whole canvas (the module's own where it has none)."""
    step: Any = decoder(module)
    given = inputs(module.config, rows, rows, lab.device, lab.sizes.dtype)
    if isinstance(step, str):
        return milliseconds(lab, lambda: module.base_model(input_ids=given[0]))["median"]
    whole = (*given[:5], dict.fromkeys(step.kinds))
    return milliseconds(lab, partial(step, *whole))["median"]


def _run(session: Any, request: Any, _: int = 0) -> object:
    return run(session, request)
