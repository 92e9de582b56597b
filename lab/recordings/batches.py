"""Batches whose sequences wait for one another: EQSPEC, whose drafts are as long as the fullest sequence allows."""

from __future__ import annotations

import contextlib
import importlib
import io
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from transformers.generation import candidate_generator

from lab.recordings import Case
from lab.recordings.chains import models
from lab.recordings.tables import Legacy, OnCPU, TableLM
from lab.recordings.upstream import Upstream


class Generating(TableLM):
    """A model that also writes greedily, as transformers' `generate` does: behind an end token there is padding."""

    def row(self, text: Sequence[int]) -> torch.Tensor:
        """A row behind padding is one that is not read: zeros."""
        size = self.table.vocab.size
        return torch.zeros(size) if size in text else super().row(text)

    def generate(self, input_ids: Any, attention_mask: Any, max_new_tokens: int, **more: Any) -> Any:
        """The sequences, in transformers' form."""
        texts, new = [ids[mask].tolist() for ids, mask in zip(input_ids, attention_mask.bool(), strict=True)], list[list[int]]()
        while len(new) < max_new_tokens and not all(self.eos in text for text in texts):
            new.append([more["pad_token_id"] if self.eos in text else int(self.row(text).argmax()) for text in texts])
            for text, token in zip(texts, new[-1], strict=True):
                text.append(token)
        return SimpleNamespace(sequences=torch.cat([input_ids, torch.tensor(new).T], 1))


class Padding:
    """A tokenizer of transformers' interface, of texts that are tokens."""

    def __init__(self, pad: int, eos: int) -> None:
        self.pad_token_id, self.eos_token_id, self.texts = pad, eos, list[list[int]]()

    def __call__(self, prompts: list[list[int]], **_: Any) -> Any:
        return prompts

    def pad(self, prompts: list[list[int]], **_: Any) -> Any:
        """Padded to the left."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[self.pad_token_id] * (longest - len(p)) + [*p] for p in prompts])
        found = SimpleNamespace(input_ids=ids)
        found.to = lambda device: found
        return found

    def decode(self, tokens: torch.Tensor, **_: Any) -> str:
        """The tokens are noted."""
        self.texts.append(tokens.tolist())
        return ""


def exspec(upstream: Upstream, case: Case) -> dict[str, Any]:
    eos, pad, prompts = (*case["eos"], -1)[0], case["size"], case["prompts"]
    target, drafter = (Generating(table) for table in models(case).values())
    drafter.eos, tokenizer = eos, Padding(pad, eos)
    counts: list[list[tuple[int, int]]] = [[] for _ in prompts]
    with (
        upstream.importable("", ("tqdm",)),
        mock.patch.object(candidate_generator, "_crop_past_key_values", None, create=True),
        contextlib.redirect_stdout(io.StringIO()),
        OnCPU(),
    ):
        batch: Any = importlib.import_module("src.custom.batch_speculative")
        verify = batch.batch_oracle_verification
        batch.DynamicCache = verify.__globals__["DynamicCache"] = Legacy
        batch.tqdm = lambda rows, **_: rows

        def verifying(model: Any, texts: torch.Tensor, drafts: torch.Tensor, *more: Any) -> Any:
            """As is, and what it says of the sequences that go on is noted."""
            found = verify(model, texts, drafts, *more)
            for i, (text, prompt) in enumerate(zip(texts, prompts, strict=True)):
                new = text[text != pad].tolist()[len(prompt) :]
                if len(new) < case["limit"] and eos not in new:
                    counts[i].append((min(drafts.shape[1] - 1, int((drafts[i] != pad).sum())), int(found[0][i])))
            return found

        batch.batch_oracle_verification = verifying
        batch.run_speculative_inference(
            target, drafter, tokenizer, prompts, case["limit"], len(prompts), case["gamma"], "cpu", case["cache"]
        )
    texts = [[*p, *t[: t.index(eos) + 1 if eos in t else None]] for p, t in zip(prompts, tokenizer.texts, strict=True)]
    return {"texts": texts, "verified and accepted": counts}


PROMPTS = ((1, 2, 3), (4,), (5, 6, 7, 1, 2), (0, 0))
RECORDINGS = {
    "exspec": exspec,
}
