"""Decoders of models that are block-causal, or causal but for a window at the end: SDAR, Fast-dLLM v2, LLaDA2's, SDLM."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Optional

import torch
import torch.nn.functional as F
from transformers import BatchEncoding

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.canvases import MaskedLM, canvas, races
from lab.recordings.upstream import Upstream


class Blocks(MaskedLM):
    """A block-causal model: a call sees the stored cells and its own."""

    def __init__(self, case: Case, length: int, shift: bool = False) -> None:
        super().__init__(canvas(case["size"], case["seed"], ("block", case["block"])), length, shift)
        self.stored: dict[int, int] = {}

    def ask(self, at: Sequence[int], tokens: Sequence[int], store: bool) -> torch.Tensor:
        """float32[1, n, V] for these cells, which hold these tokens."""
        seen = self.stored | dict(zip(at, tokens, strict=True))
        if store:
            self.stored = seen
        return self.answered(seen, at)

    def rows(self, seen: dict[int, int], at: Sequence[int]) -> torch.Tensor:
        """See MaskedLM: the last row may predict a cell that is not there yet."""
        behind = max(seen) + 1
        return super().rows(seen | ({behind: self.table.vocab.size} if self.shift and behind < self.length else {}), at)

    def result(self, out: Sequence[int]) -> dict[str, Any]:
        """What a run says; canvases are read up to the last decided cell."""
        return {"output": [*out], "canvases": [known(c) for c in self.canvases]}


def known(canvas: Sequence[int]) -> list[int]:
    """A canvas up to its last decided cell."""
    return [*canvas[: max(i + 1 for i, x in enumerate(canvas) if x >= 0)]]


class Stored(Blocks):
    """As SDAR's loop calls it."""

    def __call__(self, x: torch.Tensor, position_ids: torch.Tensor, store_kv: bool, **_: Any) -> Any:  # type: ignore[override]
        """x int64[1, n] at positions int64[1, n]."""
        return SimpleNamespace(logits=self.ask(position_ids[0].tolist(), x[0].tolist(), store_kv))


def sdar(upstream: Upstream, case: Case) -> dict[str, Any]:
    names = ("top_k_logits", "top_p_logits", "sample_with_temperature_topk_topp", "get_num_transfer_tokens")
    code = upstream.names("generate.py", *names, "block_diffusion_generate", torch=torch, F=F, DynamicCache=lambda: None)
    model = Stored(case, len(case["prompt"]) + case["length"])
    with races(model, case["seed"]):
        out = code["block_diffusion_generate"](
            model, {"input_ids": torch.tensor([case["prompt"]])}, case["size"], gen_length=case["length"],
            block_length=case["block"], denoising_steps=case["steps"], temperature=case["temperature"],
            top_k=case["top_k"] or 0, top_p=case["top_p"] or 1.0, remasking_strategy=case["order"],
            confidence_threshold=case["tau"],
        )  # fmt: skip
    return model.result(out[0].tolist())


class Version2(Blocks):
    """As Fast-dLLM v2's loop calls itself. A sub-block is computed on the rest of its block as the last whole call left it."""

    def forward(
        self, input_ids: torch.Tensor, update_past_key_values: bool, use_block_cache: bool = False,
        block_past_key_values: Any = None, replace_position: int | None = None, **_: Any,
    ) -> Any:  # fmt: skip
        """input_ids int64[1, n]: what is not stored yet; or behind it from replace_position on, with the block's cells kept."""
        begin, tokens = len(self.stored), input_ids[0].tolist()
        at = [begin + (replace_position or 0) + i for i in range(len(tokens))]
        stored = self.stored
        self.stored = stored | (block_past_key_values or {})
        rows = self.ask(at, tokens, update_past_key_values)
        self.stored = self.stored if update_past_key_values else stored
        kept = dict(zip(at, tokens, strict=True)) if use_block_cache and replace_position is None else block_past_key_values
        return SimpleNamespace(logits=rows, past_key_values=self.stored, block_past_key_values=kept)


def fast_dllm_v2(upstream: Upstream, case: Case) -> dict[str, Any]:
    path = "FastDLLM_inferencing/Fast_dLLM_v2_7B/modeling.py"
    code = upstream.names(path, "generate", "sample_with_top_p", of="Fast_dLLM_QwenForCausalLM", torch=torch, F=F)
    made = type("Model", (Version2,), {n: code[n] for n in ("generate", "sample_with_top_p")})
    size, small = len(case["prompt"]) + case["length"], case["small"]
    model = made(case, -(-size // case["block"]) * case["block"], True)

    def part(model: MaskedLM, n: int) -> Sequence[int]:
        """The first sub-block that has masks."""
        first = model.canvases[-1].index(-1) // small * small
        return range(first, first + n)

    out, stored = torch.tensor([case["prompt"]]), None
    with races(model, case["seed"], part):
        for _ in range((size - 1) // case["block"]):  # a call for each block, which forgets what the last block's calls kept
            out, stored, *_ = model.generate(
                out, case["block"], mask_id=case["size"], threshold=case["tau"], small_block_size=small,
                block_size=case["block"], stop_token=-1, top_p=case["top_p"] or 1.0, temperature=case["temperature"],
                use_block_cache=case["hold"], past_key_values=stored,
            )  # fmt: skip
    return model.result(out[0].tolist())


class Prefix(Blocks):
    """As LLaDA2.1's sampler calls it: all cells up to a block's end."""

    def __call__(self, x: torch.Tensor, *_: Any, **__: Any) -> Any:
        """x int64[1, n]."""
        return SimpleNamespace(logits=self.ask(range(x.shape[1]), x[0].tolist(), False))


def joint_threshold(upstream: Upstream, case: Case) -> dict[str, Any]:
    base = type("Base", (), {"return_dict": False})
    code = upstream.names(
        "dllm/pipelines/llada21/sampler.py", "LLaDA21Sampler", "LLaDA21SamplerConfig", "sample_tokens", "top_k_top_p",
        torch=torch, F=F, Optional=Optional, dataclass=dataclass, BaseSampler=base, BaseSamplerConfig=base,
        BaseSamplerOutput=SimpleNamespace,
    )  # fmt: skip
    model, sampler = Prefix(case, len(case["prompt"]) + case["length"]), code["LLaDA21Sampler"]()
    sampler.model, sampler.tokenizer = model, SimpleNamespace(mask_token_id=case["size"], eos_token_id=None)

    def block(model: MaskedLM, n: int) -> Sequence[int]:
        return model.computed[-1][-n:]

    with races(model, case["seed"], block):
        out = sampler.sample(
            [[*case["prompt"]]], code["LLaDA21SamplerConfig"](), block_size=case["block"], max_new_tokens=case["length"],
            max_length=None, temperature=case["temperature"], top_k=case["top_k"], top_p=case["top_p"], threshold=case["tau"],
            editing_threshold=case["edit"], max_post_steps=case["rounds"], num_to_transfer=1, eos_early_stop=False,
            return_dict=False,
        )  # fmt: skip
    return model.result(out[0].tolist())


class Window(MaskedLM):
    """As SDLM calls it without a cache: a text and d - 1 masks. Its last d rows predict the next d cells, of the text and d
    masks."""

    def __init__(self, table: TableModel, d: int) -> None:
        super().__init__(table, 0)
        self.d, self.model = d, SimpleNamespace()

    def __call__(self, *_: Any, **given: Any) -> Any:
        """input_ids int64[1, n]."""
        (cells,) = given["input_ids"].tolist()
        text = cells[: len(cells) - self.d + 1]
        self.length = len(text) + self.d
        self.canvases.append(text)
        self.computed.append(list(range(len(text), self.length)))
        return SimpleNamespace(logits=self.rows(dict(enumerate([*text, *[self.table.vocab.size] * self.d])), self.computed[-1]))


def sdlm(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("sdlm_inference.py", absent=("transformers",))
    model = Window(canvas(case["size"], case["seed"]), case["d"])
    vars(model.config).update(text_mask_token_id=case["size"])
    prompt, length = torch.tensor([case["prompt"]]), case["length"]
    tokenizer = SimpleNamespace(model_max_length=4096, batch_decode=lambda ids, **_: ids.tolist())
    with races(model, case["seed"]), torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
        (out,) = module.SDLM_generate(
            model, tokenizer, BatchEncoding({"input_ids": prompt}), max_gen_len=length, temperature=case["temperature"],
            top_k=case["top_k"], top_p=case["top_p"], threshold=case["tau"], n_future_tokens=case["d"], use_cache=False,
            alg="entropy_conf" if case["entropies"] else "prob_conf",
        )  # fmt: skip
    return {"output": [*case["prompt"], *out[:length]], "canvases": model.canvases}


RECORDINGS = {
    "sdar": sdar,
    "fast_dllm_v2": fast_dllm_v2,
    "joint_threshold": joint_threshold,
    "sdlm": sdlm,
}
