"""Scores of several models that are added, and scores of passages: proxy-tuning and PE-Rank."""

from __future__ import annotations

import re
import typing
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from lab.recordings import Case
from lab.recordings.scores import drafter, end, ids, plain_one, sampled, table
from lab.recordings.tables import Generating, untied
from lab.recordings.upstream import Upstream


def proxy_tuning(upstream: Upstream, case: Case) -> dict[str, Any]:
    from transformers import LogitsProcessorList, StoppingCriteriaList, TopPLogitsWarper

    given = {"torch": torch, "F": torch.nn.functional, "StoppingCriteriaList": StoppingCriteriaList}
    given |= {"LogitsProcessorList": LogitsProcessorList, "PreTrainedTokenizer": Any, "ModelOutput": Any}
    given |= {n: getattr(typing, n) for n in ("Optional", "Dict", "Any")}
    given["top_k_top_p_filtering"] = lambda scores, top_p: TopPLogitsWarper(top_p)(None, scores)  # of transformers 4
    models = {"base": table(case), "expert": drafter(case), "plain": plain_one(case)}
    load = SimpleNamespace(from_pretrained=lambda name, **_: Generating(models[name]))
    made = upstream.names("modeling/dexperts.py", "DExpertsLlama", **given, AutoModelForCausalLM=load)["DExpertsLlama"]
    tokenizer = SimpleNamespace(eos_token_id=-1 if end(case) is None else end(case), pad_token_id=0)
    both = made("base", "expert", "plain", tokenizer, alpha=case["alpha"], model_kwargs={})
    heat, p = case["temperature"], case.get("settings", {}).get("top_p", 1.0)
    with sampled(case):
        mask = torch.ones_like(ids(case))
        text = both.generate(ids(case), case["limit"], bool(heat), p, heat or 1.0, attention_mask=mask)
    calls = {len(m.calls) for m in (both.base, both.expert, both.antiexpert)}
    return {"tokens": text[0], "calls": max(calls)}


class Passages(Generating):
    """A table that takes the passages' texts, which its embeddings would be made of."""

    def generate(self, rows: torch.Tensor, **given: Any) -> Any:
        """See GenerationMixin."""
        extra = [given.pop(name) for name in ("extra_text_input_ids", "extra_text_attention_mask")]
        assert all(e.shape[0] == 1 for e in extra)
        return super().generate(rows, **given, attention_mask=torch.ones_like(rows))


def pe_rank(upstream: Upstream, case: Case) -> dict[str, Any]:
    """A text of `size` tokens and one more for each passage; the token that begins a ranking is 0, that which ends it 1."""
    name = "ListwiseTextEmbeddingRanker"
    made = upstream.names("src/ranker.py", "Ranker", name, torch=torch, re=re)[name]
    n = case["passages"]
    self = object.__new__(made)
    rows = torch.zeros(n, 1, dtype=torch.long)
    self.device, self.oringinal_vocab_size = "cpu", case["size"]
    self._encoder_tokenizer = mock.Mock(return_value=SimpleNamespace(input_ids=rows), pad_token_id=9)
    self._tokenizer = mock.Mock(bos_token_id=0, eos_token_id=1)
    self._tokenizer.apply_chat_template.return_value = ids(case)
    self._model = Passages(untied(case["size"] + n, case["seed"], window=None), 1)
    return {"ranking": self("a query", [{"content": f"passage {i}"} for i in range(n)])}


RECORDINGS = {
    "proxy_tuning": proxy_tuning,
    "pe_rank": pe_rank,
}
