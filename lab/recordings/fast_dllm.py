"""Fast-dLLM's and LLaDA's decoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Optional

import numpy as np
import torch

from lab.recordings import Case, Recording, tabled
from lab.recordings.canvases import BLOCKS, MaskedLM, canvas, filled, races
from lab.recordings.upstream import Upstream

FAST = ("NVlabs/Fast-dLLM", "f6b35ec3f1b16e1b3d3357938046559ae2d350fa")
FILE = "llada/generate.py"


def fast_dllm(upstream: Upstream, case: Case, decode: str, setting: str, name: str) -> dict[str, Any]:
    rules = ("add_gumbel_noise", "get_num_transfer_tokens", "get_transfer_index", "get_transfer_index_dynamic")
    sees = {"torch": torch, "np": np, "F": torch.nn.functional, "Optional": Optional, "Callable": Callable}
    loop = upstream.names(FILE, decode, *rules, **sees)[decode]
    return filled(case, lambda *a, **k: loop(*a, **k)[0], steps=case["length"], **{setting: case[name]})


def recorded(program: str, decode: str, rule: str, setting: str, name: str, rows: tuple[tuple[Any, ...], ...]) -> Recording:
    """Of one of the two loops with a cache."""
    cases = tabled(f"{{seed}} {{block}} {{{name}}} {{temperature}}", f"{BLOCKS} {name}", rows, prompt=(1, 2))
    for at, case in enumerate(cases.values()):
        case["prompt"] = (1, 2, 0)[: 1 + at % 3]
    run = partial(fast_dllm, decode=decode, setting=setting, name=name)
    notes = f"{name}: {setting}; remasking low_confidence; as many steps as cells, so that no block is left open"
    return Recording(program, *FAST, f"{FILE}, {decode} and {rule}", run, cases, "greedy, sampled", notes)


class Guided(MaskedLM):
    """Asked about two canvases at once: behind the prompt, and behind as many masks. Each is a call."""

    def __call__(self, x: torch.Tensor, *_: Any, **more: Any) -> Any:
        """x: int64[2, n]."""
        return SimpleNamespace(logits=torch.cat([super(Guided, self).__call__(row[None]).logits for row in x]))


def llada_guided(upstream: Upstream, case: Case) -> dict[str, Any]:
    generate = upstream.module("generate.py", absent=("transformers",)).generate
    length, size, prompt = case["length"], case["size"], torch.tensor([case["prompt"]])
    model = Guided(canvas(size, case["seed"]), prompt.shape[1] + length)
    with races(model, case["seed"]):
        out = generate(
            model, prompt, torch.ones_like(prompt), case["steps"], length, case["block"], case["temperature"], case["scale"],
            mask_id=size,
        )  # fmt: skip
    return {"output": out[0].tolist(), "canvases": model.canvases[::2]}


RECORDINGS = [
    recorded(
        "fast_dllm_prefix", "generate_with_prefix_cache", "get_transfer_index", "threshold", "tau",
        (
            (1, 6, 12, 6, 0.0, 0.9), (2, 4, 16, 8, 0.0, 0.6), (3, 4, 16, 16, 0.0, 0.5), (4, 3, 16, 4, 0.0, 0.7),
            (5, 6, 12, 6, 1.0, 0.9), (6, 4, 16, 8, 0.7, 0.5), (7, 3, 16, 16, 1.3, 0.4), (8, 4, 12, 4, 1.0, 0.6),
        ),
    ),
    recorded(
        "fast_dllm_factor", "generate_with_dual_cache", "get_transfer_index_dynamic", "factor", "factor",
        (
            (1, 6, 12, 6, 0.0, 1.0), (2, 4, 16, 8, 0.0, 1.0), (3, 4, 16, 16, 0.0, 2.0), (4, 3, 16, 4, 0.0, 0.5),
            (5, 6, 12, 6, 1.0, 1.0), (6, 4, 16, 8, 0.7, 1.5), (7, 3, 16, 16, 1.3, 0.8), (8, 4, 12, 4, 1.0, 0.6),
        ),
    ),
    Recording(
        "llada_guided",
        "ML-GSAI/LLaDA",
        "b7e6c3565f194352da44b38dd12b6970597309f3",
        "generate.py, generate with cfg_scale",
        llada_guided,
        tabled(
            "{seed} {block} {steps} {scale} {temperature}",
            f"{BLOCKS} steps scale prompt",
            (
                (1, 6, 8, 8, 0.0, 4, 0.5, (1, 2)), (2, 4, 8, 4, 0.0, 8, 2.0, (1,)), (3, 4, 12, 4, 0.0, 3, 1.0, (1, 2, 0)),
                (8, 5, 8, 8, 0.0, 8, 3.5, (1, 2)), (5, 6, 12, 6, 1.0, 6, 1.0, (2,)), (6, 4, 12, 4, 0.7, 12, 0.5, (1, 2, 3)),
                (7, 5, 8, 8, 1.3, 4, 2.0, (1, 4)),
            ),
        ),
        "greedy, sampled",
        "scale: cfg_scale; remasking low_confidence; an attention mask of ones, without which the published call fails; "
        "canvases: before each call of two, that behind the prompt",
    ),
]  # fmt: skip
