"""Fast-dLLM's and LLaDA's decoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Optional
from unittest import mock

import numpy as np
import torch

from lab.recordings import Case
from lab.recordings.canvases import MaskedLM, canvas, filled, races
from lab.recordings.grids import MASK, logits, rows, table, uniforms
from lab.recordings.upstream import Upstream

FILE = "llada/generate.py"


def fast_dllm(upstream: Upstream, case: Case, decode: str, setting: str, name: str) -> dict[str, Any]:
    rules = ("add_gumbel_noise", "get_num_transfer_tokens", "get_transfer_index", "get_transfer_index_dynamic")
    sees = {"torch": torch, "np": np, "F": torch.nn.functional, "Optional": Optional, "Callable": Callable}
    loop = upstream.names(FILE, decode, *rules, **sees)[decode]
    return filled(case, lambda *a, **k: loop(*a, **k)[0], steps=case["length"], **{setting: case[name]})


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


RECORDINGS = {
    "fast_dllm_prefix": partial(fast_dllm, decode="generate_with_prefix_cache", setting="threshold", name="tau"),
    "fast_dllm_factor": partial(fast_dllm, decode="generate_with_dual_cache", setting="factor", name="factor"),
    "llada_guided": llada_guided,
    "learn2pd_eot": learn2pd_eot,
}
