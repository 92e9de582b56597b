"""Settings of transformers' `generate` that no recording has: a text that it writes is replayed as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fidelity import models
from fidelity.entry import Case
from fidelity.settings_requests import penalties, shaping, theirs
from fidelity.watched import run

PROMPT = [8, 7, 25, 20, 19]


def recorded(parameters: dict[str, Any]) -> Case:
    """A case, as a recording has it."""
    made = theirs().generate(
        torch.tensor([PROMPT]), do_sample=False, pad_token_id=0, output_scores=True, return_dict_in_generate=True, **parameters
    )
    text, steps = made.sequences[0].tolist(), []
    for scores, token in zip(made.scores, text[len(PROMPT) :], strict=True):
        best = torch.topk(scores[0], 3)
        forbidden = torch.isneginf(scores[0]).nonzero().flatten().tolist()
        top = list(zip(best.indices.tolist(), best.values.tolist(), strict=True))
        steps.append({"token": token, "top": top, "forbidden": forbidden})
    return {
        "id": "own",
        "parameters": parameters,
        "prompt": PROMPT,
        "output": text,
        "steps": steps,
        "target_forwards": len(steps),
    }


@pytest.mark.budget(20)  # the first one loads transformers' generation
@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize(
    "parameters",
    [
        {"forced_eos_token_id": 2},
        {"suppress_tokens": [5, 19]},
        {"begin_suppress_tokens": [15, 5]},
        {"bad_words_ids": [[19], [5, 3]]},
    ],
    ids=lambda p: next(iter(p)),
)
def test_forced_and_suppressed_tokens(parameters: dict[str, Any], backend: str) -> None:
    case = recorded({"max_new_tokens": 6, **parameters})
    assert case["output"] != recorded({"max_new_tokens": 6})["output"]
    assert penalties(case, backend).differing == ()


REPEATS = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.3}


@pytest.mark.parametrize("ends", [[20], [20, 15]])
@pytest.mark.parametrize("more", [REPEATS, {"min_new_tokens": 6}], ids=["repeats", "least"])
def test_beams_with_settings_and_several_ends(ends: list[int], more: dict[str, Any]) -> None:
    asked = {"max_new_tokens": 12, "num_beams": 3, "num_return_sequences": 3, "length_penalty": 2.0, **more}
    rows = theirs().generate(torch.tensor([PROMPT]), do_sample=False, pad_token_id=0, eos_token_id=ends, **asked).tolist()
    whole = {"k": 3, "alpha": 2.0, "patient": True, "settings": shaping(asked, PROMPT, ends, adjusts=True)}
    done = run("beam", PROMPT, {"target": models.causal("target")}, "torch", max_tokens=12, eos=ends, **whole)
    for ours, row in zip(done.result.results, rows, strict=True):
        text = [*PROMPT, *map(int, ours)][: len(row)] if list(map(int, ours))[: len(PROMPT)] != PROMPT else list(map(int, ours))
        assert text == row[: len(text)] and set(row[len(text) :]) <= {0, ends[0]}  # rows are filled up behind an end


def test_guidance_with_settings() -> None:
    asked = {"max_new_tokens": 12, "guidance_scale": 2.0, **REPEATS}
    (row,) = theirs().generate(torch.tensor([PROMPT]), do_sample=False, pad_token_id=0, **asked).tolist()
    model = {"target": models.causal("target")}
    done = run("cfg", PROMPT, model, "torch", max_tokens=12, scale=2.0, negative=[], settings=shaping(asked, PROMPT))
    assert list(done.tokens) == row
