"""Jacobi decoding of a block: every token is replaced by what the model says behind those before it, until none changes."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from transformers import DynamicCache

from lab.recordings import Case
from lab.recordings.tables import OnCPU, TableLM, untied
from lab.recordings.upstream import Upstream


class Seq2Seq:
    """A table as the decoder of an encoder-decoder model of transformers' interface, whose encoder says nothing. fed, at: the
    tokens of each call, and where they stand."""

    name_or_path = "table"
    config: Any = None

    def __init__(self, model: TableLM) -> None:
        self.model, self.fed, self.at = model, list[list[int]](), list[int]()

    def eval(self) -> None:
        """Nothing to set."""

    def __call__(self, *_: Any, decoder_input_ids: torch.Tensor, past_key_values: Any = None, **__: Any) -> Any:
        self.fed.append(decoder_input_ids[0].tolist())
        cache = DynamicCache()
        if past_key_values is not None:
            cache.update(past_key_values[0][0], past_key_values[0][1], 0)
        self.at.append(cache.get_seq_length())
        out = self.model(decoder_input_ids, past_key_values=cache)
        layer = out.past_key_values.layers[0]
        return SimpleNamespace(
            logits=out.logits, past_key_values=((layer.keys, layer.values, None, None),), encoder_last_hidden_state=None
        )


def jacobi(upstream: Upstream, case: Case) -> dict[str, Any]:
    absent = ("datasets", "dotenv", "git", "pandas", "src.viz")
    decoder = upstream.module("src/ipi/decoders/jacobi.py", ".", absent).JacobiDecoder
    pad = case["prompt"][0]
    tokenizer = SimpleNamespace(pad_token_id=pad, eos_token_id=None, model_max_length=512)
    model = Seq2Seq(TableLM(untied(case["size"], case["seed"], window=None)))
    decode = decoder(tokenizer, model, None, device="cpu", use_logits_preprocessor=False, use_cache=case["cache"]).decode
    tokens, _ = decode(torch.zeros(1, 1, dtype=torch.long), None, target_len=case["length"] + 1)
    block = tokens[0].tolist()
    guesses = [(block[: len(block) - len(fed)] + fed)[1:-1] for fed in model.fed]
    return {"tokens": block, "guesses": guesses[: guesses.index(block[1:-1]) + 1]}


def gs_jacobi(upstream: Upstream, case: Case) -> dict[str, Any]:
    absent = ("datasets", "dotenv", "git", "more_itertools", "pandas", "src.viz")
    module: Any = upstream.module("src/ipi/decoders/hybrid_jacobi.py", ".", absent)
    module.sliced = lambda xs, n: [xs[i : i + n] for i in range(0, len(xs), n)]
    begin, eos, length, block = case["prompt"][0], (*case["eos"], -1)[0], 1 + case["expected"], case["block"]
    tokenizer = SimpleNamespace(pad_token_id=0, eos_token_id=eos, model_max_length=512)
    model = Seq2Seq(TableLM(untied(case["size"], case["seed"], window=None)))
    model.config = SimpleNamespace(max_length=512 if case["eos"] else length + 1)
    start = torch.tensor([[begin, *[(*case["eos"], 0)[0]] * case["expected"]]])
    decode = module.HybridJacobiDecoder(tokenizer, model, block, None, None, device="cpu", use_logits_preprocessor=False).decode
    text = decode(torch.zeros(1, 1, dtype=torch.long), None, None, start, start)[0][0].tolist()
    guesses = []
    for at, fed in zip(model.at, model.fed, strict=True):
        known = at // block * block
        if known + block < length:
            guesses.append([*text[known + 1 : at], *fed[known == at :]])
    return {"tokens": text, "guesses": guesses}


class Room(TableLM):
    """A model whose cache is a pair of the authors' `KVCache`; a mask has ones where a token is seen."""

    def forward(self, input_ids: Any, past_key_values: Any, attention_mask: Any = None, **more: Any) -> Any:  # type: ignore[override]
        """See TableLM."""
        (keys, values), mask = past_key_values[0], None if attention_mask is None else attention_mask.bool()
        cache = SimpleNamespace(
            get_seq_length=lambda: int(keys.current_length), update=lambda k, v, layer: (keys.cat(k), values.cat(v))
        )
        return super().forward(input_ids, mask, past_key_values=cache, **more)


def tr_jacobi(upstream: Upstream, case: Case) -> dict[str, Any]:
    model, prompt = Room(untied(case["size"], case["seed"], window=case["window"])), torch.tensor([case["prompt"]])

    def places(_: int, size: Any) -> torch.Tensor:
        """In the place of random ones: column after column, and row after row for the copied chain."""
        columns = torch.arange(size[1]).expand(size).clone()
        columns[:, case["k"]] = torch.arange(size[0])
        return columns[:, : size[1]]

    with OnCPU(), mock.patch.object(torch, "randint", places):
        loop = upstream.module("model/noise_forward.py", ".").noise_forward
        written, *_ = loop(prompt, model, SimpleNamespace(eos_token_id=(*case["eos"], -1)[0]), case["limit"])
    text = written[0].tolist()
    ended = next((i + 1 for i in range(len(prompt[0]), len(text)) if text[i] in case["eos"]), len(text) + 1)
    calls = [
        rows for (rows,) in model.calls[1:] if len(rows[0]) < ended
    ]  # an end token that the target writes is read once more
    trees = [[tuple(text[len(rows[0]) :]) for text in rows[1:]] for rows in calls]
    starts = [*(len(rows[0]) for rows in calls), ended + (len(calls) == len(model.calls) - 1 and ended <= len(text))]
    return {
        "tokens": text[:ended],
        "drafted": [sorted({p for p in tree if not any(q[:-1] == p for q in tree)}) for tree in trees],
        "accepted": [b - a - 1 for a, b in pairwise(starts)],
    }


RECORDINGS = {
    "jacobi": jacobi,
    "gs_jacobi": gs_jacobi,
    "tr_jacobi": tr_jacobi,
}
