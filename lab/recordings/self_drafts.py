"""Drafts of the target itself: KNN-SSD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import DynamicCache, LlamaForCausalLM

from lab.recordings import GOLDEN, Case
from lab.recordings.upstream import Upstream


class Skipping:
    """The recordings' target as the forks of Draft & Verify call it: a cache is a list of keys and values, and in `self_draft`
    some attentions and MLPs are left out. verified: the tokens of every call of the whole model."""

    def __init__(self) -> None:
        self.model = LlamaForCausalLM.from_pretrained(GOLDEN.parent / "ar/models/target")
        self.device, self.skipped, self.drafting = torch.device("cpu"), (set[int](), set[int]()), False
        self.verified = list[list[int]]()

    def set_skip_layers(self, attention: Sequence[int], mlp: Sequence[int]) -> None:
        """What drafts leave out."""
        self.skipped = ({*attention}, {*mlp})

    @contextmanager
    def self_draft(self) -> Iterator[None]:
        """Calls are drafts."""
        self.drafting = True
        yield
        self.drafting = False

    def described(self, text: Sequence[int]) -> np.ndarray:
        """float32[H]: the mean of a text's last states."""
        with torch.no_grad():
            states = self.model(torch.tensor([text]), output_hidden_states=True).hidden_states[-1]
        return np.asarray(states[0].mean(0).numpy())

    def __call__(self, input_ids: torch.Tensor, past_key_values: Any, output_hidden_states: bool = False, **_: Any) -> Any:
        if not self.drafting:
            self.verified.append(input_ids[0].tolist())
        layers, cache = self.model.model.layers, DynamicCache()
        for i, (keys, values) in enumerate(past_key_values or ()):
            cache.update(keys, values, i)
        before = max((k.shape[2] for k, _ in past_key_values or ()), default=0)
        places = torch.arange(before, before + input_ids.shape[1])
        nothing = {"self_attn": lambda hidden_states, **_: (0 * hidden_states, None), "mlp": lambda x: 0 * x}
        with ExitStack() as out:
            for part, skipped in zip(nothing, self.skipped, strict=True):
                for i in skipped if self.drafting else ():
                    out.enter_context(mock.patch.object(getattr(layers[i], part), "forward", nothing[part]))
            done = self.model(
                input_ids, past_key_values=cache, position_ids=places[None], use_cache=True,
                output_hidden_states=output_hidden_states,
            )  # fmt: skip
        kept = [(layer.keys, layer.values) for layer in cache.layers]
        return _Out(logits=done.logits, past_key_values=kept, hidden_states=done.hidden_states)


class _Out(SimpleNamespace):
    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def knn_ssd(upstream: Upstream, case: Case) -> dict[str, Any]:
    model = Skipping()
    stored = np.stack([model.described(text) for text in case["stored"]])

    def kneighbors(rows: np.ndarray) -> Any:
        """scikit-learn's nearest neighbour by the cosine."""
        unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
        return None, (unit(rows) @ unit(stored).T).argmax(-1, keepdims=True)

    sets = {f"{i}_": {"attention": a, "mlp": m} for i, (a, m) in enumerate(zip(case["attention"], case["mlp"], strict=True))}
    module = upstream.module("evaluation_llama/inference_knn.py", absent=("fastchat", "evaluation_llama"))
    ids, _, _, kept, *_ = module.knn_forward(
        torch.tensor([case["prompt"]]), model, "", SimpleNamespace(kneighbors=kneighbors), range(len(stored)), sets,
        SimpleNamespace(eos_token_id=next(iter(case["eos"]), -1)), case["limit"], case["gamma"], case["eta"],
    )  # fmt: skip
    start, output = len(case["prompt"]), ids[0].tolist()
    end = start + case["limit"]
    ends = [i + 1 for i in range(start, len(output)) if output[i] in case["eos"]]
    columns: dict[str, Any] = {"tokens": output[: min([end, *ends])], "drafted": [], "accepted": []}
    root = start + 1
    for tokens, n in zip(model.verified[1:], kept[1:], strict=True):
        if end > root + 1:  # for the last token they draft as well
            columns["drafted"].append([tokens[1 : i + 1] for i in range(1, len(tokens))])
            columns["accepted"].append(min([n - 1, *(e - root for e in ends)]))
        root += n
    return columns


RECORDINGS = {
    "knn_ssd": knn_ssd,
}
