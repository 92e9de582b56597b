"""Blocks that are called until they stay as they are: the Jacobi decoding of CLLMs."""

from __future__ import annotations

from collections import Counter
from types import MethodType, SimpleNamespace
from typing import Any, Optional

import numpy as np
import torch

from lab.recordings import Case
from lab.recordings.tables import Legacy, OnCPU, Stream, TableLM, untied
from lab.recordings.upstream import Upstream


class Llama:
    """A table in the place of Llama's parts: tokens are their embeddings, scores the states."""

    def __init__(self, table: TableLM) -> None:
        self.table, self.config = table, SimpleNamespace(pretraining_tp=1)
        self.model = SimpleNamespace(
            embed_tokens=lambda x: x, layers=[self.layer], norm=lambda x: x, _use_flash_attention_2=True
        )  # fmt: skip
        self.lm_head = lambda x: x

    def layer(self, tokens: torch.Tensor, position_ids: Any, past_key_value: Any, **_: Any) -> tuple[torch.Tensor, Any]:
        """The only layer."""
        out = self.table(tokens, position_ids=position_ids, past_key_values=past_key_value)
        return out.logits, past_key_value


def consistency_llm(upstream: Upstream, case: Case) -> dict[str, Any]:
    given = {"torch": torch, "Cache": Legacy, "DynamicCache": Legacy, "Optional": Optional, "List": list, "Tuple": tuple}
    path, stream = "cllm/cllm_llama_modeling.py", Stream(case["seed"])
    theirs = upstream.names(path, "jacobi_forward_profiling", "delete_false_key_value", **given)

    def choices(tokens: torch.Tensor, k: int) -> list[int]:
        """Each is drawn by a race of the vocabulary, a token as likely as it is frequent."""
        many = Counter(tokens.tolist())
        p = np.array([many[x] / len(tokens) for x in range(case["size"])])
        return [stream.draw(p) for _ in range(k)]

    model: Any = Llama(TableLM(untied(case["size"], case["seed"], window=None)))
    model.jacobi_forward = MethodType(theirs["jacobi_forward_profiling"], model)
    loop = upstream.names(
        "eval/gsm8k/speedup.py", "jacobi_generate", torch=torch, random=SimpleNamespace(choices=choices)
    )["jacobi_generate"]  # fmt: skip
    prompt, tokenizer = torch.tensor([case["prompt"]]), SimpleNamespace(eos_token_id=(*case["eos"], -1)[0])
    inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
    Legacy.delete_false_key_value = theirs["delete_false_key_value"]  # type: ignore[attr-defined]
    with OnCPU():
        written, *_ = loop(inputs, model, tokenizer, case["length"], case["limit"] - 1)
    text = [*case["prompt"], *written.tolist()]
    calls = [(len(rows[0]), rows[-1][len(rows[0]) :]) for (rows,) in model.table.calls[1:]]
    ended = next((i + 1 for i in range(len(prompt[0]), len(text)) if text[i] in case["eos"]), len(text))
    return {"tokens": text[:ended], "calls": calls}


RECORDINGS = {
    "consistency_llm": consistency_llm,
}
