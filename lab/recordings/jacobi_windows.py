"""Jacobi windows whose guesses are judged by what they were drawn from a step ago: speculative Jacobi decoding."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers.generation import logits_process

from lab.recordings import Case
from lab.recordings.tables import Legacy, TableLM, untied
from lab.recordings.upstream import Upstream

KINDS = ("guess", "coin", "row", "rest")


def uniforms(seed: int, step: int, kind: str, place: int, n: int) -> np.ndarray:
    """float64[n]: the numbers of a draw. kind: of a new guess, of a coin at a place, of a row of a step, or of the residual,
    which has no place."""
    return np.random.default_rng((seed, step, KINDS.index(kind), place)).random(n)


class Lumina(torch.nn.Module):
    """A table with what the authors' class calls of its base."""

    def __init__(self, table: TableLM, size: int) -> None:
        super().__init__()
        self.table, self.img_vocab = table, torch.arange(size)
        self.config = SimpleNamespace(vocab_size=size, is_encoder_decoder=False)

    def forward(
        self, input_ids: Any, position_ids: Any, cache_position: Any, past_key_values: Any, attention_mask: Any, **_: Any
    ) -> Any:
        """A mask has a row for each new token from the second call on."""
        mask = attention_mask[:, None].bool() if attention_mask.dim() == 3 else attention_mask
        return self.table(input_ids, mask, position_ids, past_key_values, cache_position)

    def _has_unfinished_sequences(self, finished: Any, *_: Any, cur_len: int, max_length: int, **__: Any) -> bool:
        return not finished and cur_len < max_length

    def _extract_past_from_model_output(self, outputs: Any) -> Any:
        return "past_key_values", outputs.past_key_values


class Stop(list[Any]):
    """Stopping criteria that stop nothing."""

    def __call__(self, *_: Any) -> torch.Tensor:
        return torch.tensor([False])


class Same(list[Any]):
    """Processors that change nothing."""

    def __call__(self, tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores


def alone(case: Case) -> list[int]:
    """The prompt with the tokens that the published loop draws alone at first, the likeliest ones."""
    text = [*case["prompt"]]
    for _ in range(1 + case["first"]):
        text.append(int(TableLM(untied(case["size"], case["seed"], window=None)).row(text).argmax()))
    return text


def speculative_jacobi(upstream: Upstream, case: Case) -> dict[str, Any]:
    with (
        upstream.importable("", ("absl", "model")),
        mock.patch.object(logits_process, "LogitsWarper", logits_process.LogitsProcessor, create=True),
    ):
        module: Any = importlib.import_module("scheduler.jacobi_iteration_lumina_mgpt")
    module.Cache = Legacy
    size, seed, first = case["size"], case["seed"], 1 + case["first"]
    table = TableLM(untied(size, seed, window=None))
    model: Any = Lumina(table, size)
    model.__class__ = module.renew_sampler(Lumina)
    model._init_new_params(
        case["first"], 1 << 20, 1 + case["w"], 1.0, None, "random", do_cfg=False, use_chameleon_tokenizer=False
    )  # fmt: skip
    step = lambda: len(table.calls) - first - 1  # of the call that was made last

    def multinomial(p: torch.Tensor, num_samples: int, **_: Any) -> torch.Tensor:
        rows = p.double().numpy()
        if step() < 0:
            return torch.tensor(rows.argmax(-1))[:, None]
        kind = "row" if len(rows) > 1 else "rest"
        waits = [-np.log(uniforms(seed, step(), kind, i, size)) for i in range(len(rows))]
        with np.errstate(divide="ignore"):
            drawn = [np.where(row > 0, w / row, np.inf).argmin() for row, w in zip(rows, waits, strict=True)]
        return torch.tensor(np.array(drawn))[:, None]

    def randint(low: int, high: int, shape: Any) -> torch.Tensor:
        drawn = [int(np.argmin(-np.log(uniforms(seed, step() + 1, "guess", i, size)))) for i in range(shape[1])]
        return torch.tensor([drawn], dtype=torch.long)

    def rand(shape: Any, **_: Any) -> torch.Tensor:
        coins = [0.0, *(float(uniforms(seed, step(), "coin", i, 1)[0]) for i in range(shape[1] - 1))]
        return torch.tensor(coins, dtype=torch.float64)[None, :, None].expand(shape)

    settings = SimpleNamespace(
        pad_token_id=0, _pad_token_tensor=None, output_attentions=False, output_hidden_states=False, output_scores=False,
        output_logits=False, return_dict_in_generate=False, do_sample=True,
        max_length=len(case["prompt"]) + first + case["limit"],
    )  # fmt: skip
    prompt = torch.tensor([case["prompt"]])
    with (
        mock.patch.object(torch, "multinomial", multinomial), mock.patch.object(torch, "randint", randint),
        mock.patch.object(torch, "rand", rand), mock.patch.object(torch.cuda, "Event", mock.MagicMock()),
        mock.patch.object(torch.cuda, "synchronize"),
    ):  # fmt: skip
        text = model._sample(
            prompt, Same([object()]), Stop(), settings, False, None, None,
            past_key_values=Legacy(), attention_mask=torch.ones_like(prompt), use_cache=True,
        )[0].tolist()  # fmt: skip
    rows = [call[0] for call in table.calls[first:]]
    starts = [len(row[0]) for row in rows]
    return {
        "tokens": text,
        "guesses": [row[-1][len(row[0]) :] for row in rows],
        "accepted": [b - a - 1 for a, b in zip(starts, [*starts[1:], len(text)], strict=True)],
    }


RECORDINGS = {
    "speculative_jacobi": speculative_jacobi,
}
