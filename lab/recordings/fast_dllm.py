"""Fast-dLLM's and LLaDA's decoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Optional
from unittest import mock

import numpy as np
import torch

from lab.recordings import Case, Recording, tabled
from lab.recordings.canvases import BLOCKS, MaskedLM, canvas, filled, races
from lab.recordings.grids import MASK, logits, rows, table, uniforms
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
    notes += "; its file was laid out by hand from a stored copy"
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


END = 126081
"""LLaDA's end of text, which is token 3 here."""


def above_others(place: Any, sure: Any) -> float:
    """A stand-in for the trained filter, of a whole block's confidences: is this cell above the others' mean?"""
    rest = [float(s) for i, s in enumerate(sure) if i != int(place)]
    return min(1.0, max(0.0, 0.5 + float(sure[int(place)]) - sum(rest) / len(rest)))


def learn2pd_eot(upstream: Upstream, case: Case) -> dict[str, Any]:
    rules = ("add_gumbel_noise", "get_num_transfer_tokens")
    sees = {"torch": torch, "np": np, "F": torch.nn.functional, "LLaDAModelLM": Any, "LogisticRegression": Any}
    loop = upstream.names(FILE, "generate_l2p_eot", *rules, **sees)["generate_l2p_eot"]
    model, seed, block, start = table(case["seed"], 4), case["seed"], case["block"], len(case["prompt"])
    calls, mask, columns = list[int](), 126336, [0, 1, 2, END]

    def network(x: torch.Tensor) -> Any:
        cells = [MASK if i == mask else 3 if i == END else int(i) for i in x[0]]
        calls.append(len(cells))
        found = rows(model, dict(enumerate(cells)), start + case["length"], range(len(cells)))
        out = torch.full((1, len(cells), END + 1), -torch.inf)
        out[0][:, columns] = logits(found)
        return SimpleNamespace(logits=out)

    def like(x: torch.Tensor, **_: Any) -> torch.Tensor:
        out = torch.full(x.shape, 0.5, dtype=torch.float64)
        for i in range(start, x.shape[1]):
            out[0, i, columns] = torch.from_numpy(uniforms(seed, len(calls) - 1, (i - start,), 4))
        return out

    def small(sure: torch.Tensor) -> torch.Tensor:
        given = [*sure[0].tolist(), *[0.0] * (block - sure.shape[1])]
        return torch.logit(torch.tensor([[above_others(i, given) for i in range(sure.shape[1])]], dtype=torch.float64))

    asked = type("Asked", (), {"device": "cpu", "__call__": lambda self, x: network(x)})()
    with mock.patch.object(torch, "rand_like", like):
        prompt = torch.tensor([case["prompt"]])
        out = loop(asked, small, case["tau"], prompt, case["steps"], case["length"], block, case["temperature"], mask_id=mask)
    return {"output": [3 if i == END else i for i in out[0].tolist()], "live": calls}


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
    Recording(
        "learn2pd_eot",
        "ims-kdks/Learning-to-Parallel-Decoding",
        "342293ce0a69d3e9917e445c647bed359e99aa80",
        f"{FILE}, generate_l2p_eot",
        learn2pd_eot,
        tabled(
            "{seed} {length} {block} {temperature}",
            "seed length block steps temperature prompt",
            [
                (seed, length, block, steps, temperature, (1, 2, 0)[: 1 + seed % 3])
                for seed in (3, 6, 9, 12, 31, 35)
                for length, block, steps, temperature in ((12, 6, 6, 0.0), (12, 6, 6, 1.0), (12, 4, 12, 0.0), (18, 6, 9, 1.0))
            ],
            tau=0.7, ends=[3],
        ),
        "greedy, sampled",
        "tau: accept_thres; the end token is token 3; the filter is a stand-in: where a block was cut theirs "
        "is given too few numbers and fails, this one takes zeros for them; live: how many positions each call sees"
        "; its file was laid out by hand from a stored copy",
    ),
]  # fmt: skip
