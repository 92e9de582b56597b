"""Jacobi decoding of a block: every token is replaced by what the model says behind those before it, until none changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from transformers import DynamicCache

from lab.recordings import Case, Recording, tabled
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream


class Seq2Seq:
    """A table as the decoder of an encoder-decoder model of transformers' interface, whose encoder says nothing. fed: the
    tokens of each call."""

    name_or_path = "table"

    def __init__(self, model: TableLM) -> None:
        self.model, self.fed = model, list[list[int]]()

    def eval(self) -> None:
        """Nothing to set."""

    def __call__(self, *_: Any, decoder_input_ids: torch.Tensor, past_key_values: Any = None, **__: Any) -> Any:
        self.fed.append(decoder_input_ids[0].tolist())
        cache = DynamicCache()
        if past_key_values is not None:
            cache.update(past_key_values[0][0], past_key_values[0][1], 0)
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


RECORDINGS = [
    Recording(
        "jacobi",
        "teelinsan/parallel-decoding",
        "0605a6c3f44fadb2aee58a11082217eb2da4f3c8",
        "src/ipi/decoders/jacobi.py, JacobiDecoder.decode",
        jacobi,
        tabled(
            "{seed} {length} {cache}",
            "seed size length cache",
            ((1, 8, 6, True), (2, 8, 12, True), (3, 4, 20, True), (4, 12, 9, False), (5, 3, 24, True), (6, 3, 16, False)),
            prompt=(0,),
        ),
        "greedy",
        "length: target_len without the token that the decoder starts from, which is the prompt here; the first guesses are "
        "padding; by call, the block that the call reads without its last token, to the first call that changes none of it",
    )
]
