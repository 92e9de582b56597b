"""A folder's generation_config.json, left to a request's defaults: the tokens of transformers' `generate`, or a refusal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models.hf_models import llama

import decgraph

IDS = [5, 9, 50, 5, 9, 50, 5, 9]
ALIKE: tuple[dict[str, Any], ...] = (
    {"no_repeat_ngram_size": 2},
    {"max_new_tokens": 3},
    {"max_length": 11},
    {"min_length": 16, "eos_token_id": 5, "exponential_decay_length_penalty": [2, 1.5], "repetition_penalty": 1.3},
    {"suppress_tokens": [5, 9, 500], "begin_suppress_tokens": [7]},
    {"min_new_tokens": 8, "eos_token_id": list(range(0, 60, 2))},
    {"bad_words_ids": [[5], [9, 50]], "sequence_bias": [[[7], 2.0], [[21, 11], -5.0]]},
    {"encoder_repetition_penalty": 3.0, "encoder_no_repeat_ngram_size": 1},
    {"forced_bos_token_id": 7, "forced_eos_token_id": 8},
    {"watermarking_config": {"greenlist_ratio": 0.25, "bias": 8.0}},
    {"typical_p": 0.3, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1, "top_h": 0.5, "renormalize_logits": True},
)
REFUSED: tuple[dict[str, Any], ...] = (
    {"num_beams": 3},
    {"guidance_scale": 2.0},
    {"max_time": 9.0},
    {"penalty_alpha": 0.6},
    {"token_healing": True},
    {"num_return_sequences": 2},
    {"max_length": 8},
    {"min_length": "x"},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llama(4).save_pretrained(tmp_path)
    return tmp_path


def told(folder: Path, settings: dict[str, Any]) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2, "pad_token_id": 0, **settings}))


@pytest.mark.quick(first=5)
@pytest.mark.parametrize("algorithm", ["autoregressive", "prompt_lookup"])
@pytest.mark.parametrize("settings", ALIKE, ids=lambda one: " ".join(one))
def test_greedy_tokens_are_generate_s(settings: dict[str, Any], algorithm: str, folder: Path) -> None:
    import transformers

    told(folder, settings)
    module = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    limit = {} if settings.keys() & {"max_length", "max_new_tokens"} else {"max_new_tokens": 12}
    ids = torch.tensor([IDS])
    wanted = module.generate(ids, attention_mask=torch.ones_like(ids), **limit)[0, len(IDS) :].tolist()  # type: ignore[operator]
    ours = {"max_tokens": 12} if limit else {}
    assert list(decgraph.run(algorithm, IDS, {"target": str(folder)}, **ours).tokens) == wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", REFUSED, ids=lambda one: " ".join(one))
def test_what_a_request_cannot_do_is_refused_by_name(settings: dict[str, Any], folder: Path) -> None:
    told(folder, settings)
    with pytest.raises(decgraph.DecError, match="generation settings") as error:
        decgraph.run("autoregressive", IDS, {"target": str(folder)})
    assert "min_length" in settings or next(iter(settings)) in str(error.value)


@pytest.mark.parametrize("settings", [{}, {"top_k": 3}, {"typical_p": 0.6}, {"top_h": 0.4, "temperature": 2.0}])
def test_draws_are_from_what_generate_draws_from(settings: dict[str, Any], folder: Path) -> None:
    """No token that `generate`'s own distribution excludes, and the caller's word before the file's."""
    import transformers

    told(folder, {"do_sample": True, **settings})
    module: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = torch.tensor([IDS])
    out = module.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, output_scores=True,
                          return_dict_in_generate=True)  # fmt: skip
    allowed = set(out.scores[0][0].isfinite().nonzero()[:, 0].tolist())
    session = decgraph.load("autoregressive").session(target=str(folder))
    drawn = {result.tokens[0] for result in session.generate([IDS] * 200, max_tokens=1)}
    assert drawn <= allowed and (len(drawn) > 1 or len(allowed) == 1)
    best = decgraph.run("autoregressive", IDS, {"target": str(folder)}, max_tokens=1, temperature=0).tokens[0]
    assert best == int(module(ids).logits[0, -1].argmax())
