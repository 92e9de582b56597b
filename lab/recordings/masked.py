"""Masked decoders that read how sure a drawn token is of the distribution that it was drawn from: Dream's family."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch

from lab.recordings import Case
from lab.recordings.canvases import MaskedLM, canvas, races
from lab.recordings.upstream import Upstream

DREAM = ("DreamGenerationMixin", "DreamGenerationConfig", "DreamModelOutput", "sample_tokens", "top_p_logits", "top_k_logits")


def dream(
    code: Mapping[str, Any],
    case: Case,
    alg: str,
    run: str = "_sample",
    model: type[MaskedLM] = MaskedLM,
    *,
    settings: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A loop of a copy of Dream's generation utilities, whose class is a mixin for models. code: its names; settings: of its
    configuration; more: arguments of the loop."""
    length = len(case["prompt"]) + case["length"]
    made = type("Dream", (model, code["DreamGenerationMixin"]), {})(canvas(case["size"], case["seed"]), length, True, 1)
    config = code["DreamGenerationConfig"](
        mask_token_id=case["size"], max_length=length, alg=alg, steps=case.get("steps", case["length"]),
        temperature=case["temperature"], top_k=case["top_k"], top_p=case["top_p"], **(settings or {}),
    )  # fmt: skip
    with races(made, case["seed"]), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        out = getattr(made, run)(torch.tensor([case["prompt"]]), attention_mask=None, generation_config=config, **more)
    return {"output": out[0].tolist(), "canvases": made.canvases, "computed": made.computed}


def fast_dllm_dream(upstream: Upstream, case: Case) -> dict[str, Any]:
    code = vars(upstream.module("dream/model/generation_utils_block.py"))
    return dream(code, case, THRESHOLD, threshold=case["tau"], block_length=case["block"], dual_cache=True)


def fast_dllm_dream_quota(upstream: Upstream, case: Case) -> dict[str, Any]:
    code = vars(upstream.module("dream/model/generation_utils.py"))
    return dream(code, case, THRESHOLD, threshold=case["tau"], **HOOKS)


def adablock_dream(upstream: Upstream, case: Case) -> dict[str, Any]:
    code = vars(upstream.module("dream/model/generation_utils_adablock.py"))
    return dream(
        code, case, THRESHOLD, "_sample_adablock_cache", threshold=case["tau"], block_length=case["block"], dual_cache=True,
        delimiter_threshold=case["trust"],
    )  # fmt: skip


class Prefilled(MaskedLM):
    """dKV-Cache's model on Dream: cells that one call caches stand as they were, and the next calls compute the others."""

    kept: dict[int, int] | None = None

    def __call__(self, *_: Any, **given: Any) -> Any:
        """input_ids int64[1, n]: the cells that are not cached, by prv_cache_position bool[1, length] if it is given."""
        cached, tokens = given["prv_cache_position"], given["input_ids"][0].tolist()
        at = list(range(self.length)) if cached is None else torch.nonzero(~cached[0]).flatten().tolist()
        rows = self.answered((self.kept or {}) | dict(zip(at, tokens, strict=True)), at)
        if self.kept is None:
            self.kept = {i: tokens[i] for i in torch.nonzero(given["cache_position"][0]).flatten().tolist()}
        return SimpleNamespace(logits=rows)


def dkv_prefill(upstream: Upstream, case: Case) -> dict[str, Any]:
    package = "generation_utils"
    module = upstream.module(f"{package}/dream_generation_utils.py", absent=(package,), __package__=package)
    settings = {"use_cache": True, "cache_type": "prefill"}
    return dream(vars(module), case, case["alg"], model=Prefilled, settings=settings, **HOOKS)


HOOKS: dict[str, Any] = {
    "generation_tokens_hook_func": lambda step, x, logits: x,
    "generation_logits_hook_func": lambda step, x, logits: logits,
}
THRESHOLD = "confidence_threshold"

RECORDINGS = {
    "fast_dllm_dream": fast_dllm_dream,
    "fast_dllm_dream_quota": fast_dllm_dream_quota,
    "adablock_dream": adablock_dream,
    "dkv_prefill": dkv_prefill,
}
