"""Tokens that transformers forces, suppresses or bans, which no recording has: a text of its `generate` is replayed as one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fidelity.entry import Case
from fidelity.settings_requests import penalties, theirs

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
