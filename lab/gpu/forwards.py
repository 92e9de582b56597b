"""One cached forward on the device: the module's own, the decoder, the same compiled, the same as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.make import of_module
from decgraph.runtime.models.decoder.module import ModuleDecoder
from decgraph.runtime.models.decoder.shape import Unknown
from decgraph.runtime.models.engine.layout import FULL, SLIDING
from lab.gpu.clocks import graphed
from lab.gpu.lab import Lab
from lab.gpu.report import Items, Row
from lab.gpu.tokens import FAMILIES, module

CELLS = (1, 8, 64)
ALLOWED = {torch.float32: 2e-4, torch.bfloat16: 1e-1}  # of the largest entry
Step = Callable[..., Any]


def stage(lab: Lab) -> Items:
    """The items of the stage `decoder`."""
    for family in FAMILIES:
        yield f"{family} in float32", partial(equal, lab, family, torch.float32)
    yield "llama in bfloat16", partial(equal, lab, "llama", torch.bfloat16)
    yield "models of this size", lab.building
    yield "drafter's step", partial(timed, lab, "drafter")
    yield "target's step", partial(timed, lab, "target")


def compiling(lab: Lab) -> Items:
    """The last stage: should the compiler hang, nothing is lost."""
    lab.forget()
    yield "models of this size", lab.building
    yield "drafter's step, compiled", partial(timed, lab, "drafter", compiles=True)


def inputs(
    config: Any,
    cells: int,
    rows: int,
    device: torch.device,
    dtype: torch.dtype,
    window: int | None = None,
    size: int | None = None,
) -> tuple[Any, ...]:
    """One sequence's last `cells` of `rows` cells, over random keys and values, as a step takes them."""
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    size = int(size or getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    torch.manual_seed(1)
    at = torch.arange(rows - cells, rows, device=device)[None]
    row = torch.arange(rows, device=device)
    full = (row <= at[0, :, None])[None, None]
    near = full if window is None else full & (row > at[0, :, None] - window)[None, None]
    caches = [
        [torch.randn(1, heads, rows, size, device=device, dtype=dtype) for _ in range(config.num_hidden_layers)]
        for _ in range(2)
    ]
    ids = torch.randint(config.vocab_size, (1, cells), device=device)
    return ids, at, at, caches[0], caches[1], {FULL: full, SLIDING: near}


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference over the largest entry of tensors of one shape."""
    one, other = one.double(), other.double()
    return float((one - other).abs().max() / other.abs().max().clamp_min(1e-6))


@torch.no_grad()
def equal(lab: Lab, family: str, dtype: torch.dtype) -> Row:
    """Whether the decoder works on the device, with the module's results."""
    model = module(family, lab.device).to(dtype).requires_grad_(False)
    plain = ModuleDecoder(model.base_model, family)
    step = decoder(model)
    if isinstance(step, str):
        return {"right": False, "says": f"no decoder: {step}"}
    given = inputs(model.config, 3, 40, lab.device, dtype, next((w for w in plain.windows if w is not None), None))
    mine = step(*given).clone()
    gap = apart(mine, plain(*given))
    return {"gap": gap, "right": gap < ALLOWED[dtype], "says": f"{gap:.1e} apart"}


def decoder(model: Any) -> Decoder | str:
    """The decoder of a causal or masked model, or why it has none."""
    try:
        return of_module(model.base_model)
    except Unknown as unknown:
        return str(unknown)


@torch.no_grad()
def timed(lab: Lab, which: str, compiles: bool = False) -> Row:
    """Milliseconds of a forward over 1, 8 and 64 new cells, without the output matrix, over its floor."""
    model = getattr(lab.weights(), which)
    plain = ModuleDecoder(model.base_model, which)
    notices: list[str] = []
    seconds = lab.seconds(lambda: decoder(model), 1, 0).median
    step = decoder(model)
    if isinstance(step, str):
        return {"right": False, "says": f"no decoder: {step}"}
    rows = -(-(lab.sizes.prompt + CELLS[-1]) // 64) * 64
    contenders: dict[str, Step] = {"module": plain, "decoder": step}
    if compiles and lab.cuda:
        contenders["compiled"] = step.compiled(notices.append)
    row: Row = {"made_s": seconds, "rows": rows, "steps": [], "notices": notices}
    says = []
    whole: Step = contenders.get("compiled", step)
    for cells in CELLS:
        given = inputs(model.config, cells, rows, lab.device, lab.sizes.dtype)
        floor = lab.floor(model, rows, base=True)
        found: Row = {"cells": cells, "floor_ms": floor}
        for name, one in contenders.items():
            found[name] = milliseconds(lab, partial(one, *given))
        if lab.cuda:
            try:
                found["graph"] = milliseconds(lab, graphed(partial(whole, *given)))
            except Exception as error:  # what a capture of CUDA's may say
                found["graph_error"] = f"{type(error).__name__}: {error}"[:300]
        row["steps"].append(found)
        ran = [f"{n} {found[n]['median']:.2f}" for n in (*contenders, "graph") if n in found]
        says.append(f"T {cells}: {', '.join(ran)}, floor {floor:.2f} ms")
    return {**row, "says": "; ".join(says)}


def milliseconds(lab: Lab, work: Callable[[], object]) -> dict[str, float]:
    """Median and quartiles."""
    spread = lab.seconds(work, 10 * lab.sizes.rounds)
    return {name: float(f"{1000 * value:.4g}") for name, value in vars(spread).items()}
