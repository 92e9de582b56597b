"""Pieces of a text that are drawn several times, of which one is kept."""

from __future__ import annotations

import copy
import gc
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Optional, Union

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    DynamicCache,
    EncoderDecoderCache,
    LogitsProcessorList,
    StaticCache,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
)
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria

from lab.recordings import Case
from lab.recordings.steps import models
from lab.recordings.tables import Generates, Letters, Stream, TableLM, draws_of
from lab.recordings.upstream import Upstream

MARKS = ".,\n?!:;)]}"
CNTP = "custom_transformers_packages/math_truthfulqa/transformers/generation/utils.py"


class Loops(TableLM):
    """With what transformers' generation mixin gives its loops, without a cache. begun: the lengths at which its loop began."""

    def _get_initial_cache_position(self, input_ids: Any, model_kwargs: Any) -> Any:
        self.begun: list[int] = []
        return model_kwargs

    def _has_unfinished_sequences(self, finished: Any, synced: bool, cur_len: int, max_length: int, **_: Any) -> bool:
        self.begun.append(cur_len)
        return not finished and cur_len < max_length

    def prepare_inputs_for_generation(self, input_ids: Any, **_: Any) -> dict[str, Any]:
        """The whole text."""
        return {"input_ids": input_ids}

    def _update_model_kwargs_for_generation(self, outputs: Any, model_kwargs: Any, **_: Any) -> Any:
        return model_kwargs


def cautious(upstream: Upstream, case: Case) -> dict[str, Any]:
    sees = {
        "torch": torch,
        "nn": nn,
        "np": np,
        "copy": copy,
        "gc": gc,
        "DynamicCache": DynamicCache,
        "StaticCache": StaticCache,
    }
    hints = {"Optional": Optional, "Union": Union, "GenerateNonBeamOutput": Any, "GenerationConfig": Any}
    hints |= {"LogitsProcessorList": LogitsProcessorList, "StoppingCriteriaList": StoppingCriteriaList}
    more = {"EncoderDecoderCache": EncoderDecoderCache, "print": lambda *_: None}
    name = "_sample_reflect_perplexity"
    loop = upstream.names(CNTP, name, of="GenerationMixin", **sees, **hints, **more)[name]
    model, eos = Loops(models(case)["target"]), list(case["eos"])
    settings = SimpleNamespace(
        _pad_token_tensor=torch.tensor(-1), output_attentions=False, output_hidden_states=False, output_scores=False,
        output_logits=False, return_dict_in_generate=False, max_length=len(case["prompt"]) + case["limit"], do_sample=True,
        max_trials=case["most"], entropy_threshold_low=case["low"], entropy_threshold_high=case["high"],
    )  # fmt: skip
    ends = StoppingCriteriaList([MaxLengthCriteria(settings.max_length), *([EosTokenCriteria(eos)] if eos else [])])
    tokenizer = SimpleNamespace(encode=lambda text, **_: Letters(MARKS).encode(text))
    warper = LogitsProcessorList([TemperatureLogitsWarper(case["temperature"])])
    ids = torch.tensor([case["prompt"]])
    with draws_of(Stream(case["seed"])):
        text = loop(model, ids, LogitsProcessorList(), ends, settings, False, None, warper, tokenizer)[0].tolist()
    cuts = sorted({*model.begun, len(text)})
    return {"tokens": text[len(case["prompt"]) :], "committed": [text[a:b] for a, b in pairwise(cuts)]}


class Samples(Generates):
    """With transformers' generate for one sequence with its scores, and how likely it says that its tokens were."""

    def generate(self, input_ids: torch.Tensor, **how: Any) -> Any:
        """See transformers."""
        self.config.eos_token_id = how["eos_token_id"][0]
        text = super().generate(input_ids, max_new_tokens=how["max_new_tokens"], temperature=how["temperature"])
        rows = [self.row(text[0, :n].tolist())[None] / how["temperature"] for n in range(input_ids.shape[1], text.shape[1])]
        return SimpleNamespace(sequences=text, scores=rows)

    def compute_transition_scores(self, sequences: torch.Tensor, scores: list[torch.Tensor], **_: Any) -> torch.Tensor:
        """float[1, T]: the logarithms of the probabilities of the last tokens."""
        new = sequences[0, -len(scores) :]
        return torch.stack([torch.log_softmax(s, -1)[0, x] for s, x in zip(scores, new, strict=True)])[None]


class LlamaLetters(Letters):
    """A tokenizer of GRACE's, which knows models by its class's name; its special tokens are no tokens of the table."""

    cls_token, sep_token, pad_token_id, cls_token_id, sep_token_id, unk_token_id, eos_token_id = "c", "s", -1, -2, -3, -4, -5

    def encode(self, text: str, **_: Any) -> list[int]:
        """The calculator's marks are no tokens of the table either."""
        return [-6] if text in ("<<", ">>") else super().encode(text)


def grace(upstream: Upstream, case: Case) -> dict[str, Any]:
    name = "_generate_step_with_score_disc"
    loop = upstream.names("grace/reason.py", name, torch=torch, tqdm=lambda x, **_: x, pad_sequence=pad_sequence)[name]
    made, letters = models(case), LlamaLetters("|")
    reader = TableLM(made["reader"])

    def scores(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        texts = [[x for x in row if x >= 0] for row in input_ids.tolist()]
        sure = torch.stack([torch.softmax(reader.row(t).double(), -1).max() for t in texts])
        return torch.log(sure / (1 - sure)).float()

    settings = SimpleNamespace(
        max_steps=case["steps"], step_sampling_method="random", sampling_batch_size=1, max_step_length=case["reach"], top_p=1.0,
        top_k=None, sample_calc=False, normalize_disc_scores=True, step_selection_method="greedy",
    )  # fmt: skip
    ids, model = torch.tensor([case["prompt"]]), Samples(made["target"])
    with draws_of(Stream(case["seed"])):
        found = loop(
            model, SimpleNamespace(device="cpu", forward_scores=scores), case["beta"], case["k"], ids, ids, 1,
            case["temperature"], 1.0, 0, [[-1]], -1, -5, 0, torch.ones_like(ids), True, {}, letters.decode(case["prompt"]),
            letters, letters, settings,
        )  # fmt: skip
    return {"tokens": found[0].tolist()}


RECORDINGS = {
    "cautious": cautious,
    "discriminator_guided": grace,
}
