"""As many decoder architectures as transformers has: generate's tokens, by the decoder or not as docs/architectures.md says."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models.architecture_table import KEPT, ROWS, architecture, page
from lib.models.hf_models import noisy

import decgraph
from decgraph.runtime.models.engine.hybrid import HybridEngine
from decgraph.runtime.models.forwards import ForwardChoice

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architectures.md"
ALONE = torch.tensor([[5, 9, 50, 5, 9, 50, 5, 9]])
IDS = torch.tensor([[0, 0, 0, 40, 5, 9, 50, 5], [40, 5, 9, 11, 5, 9, 51, 9], [0, 0, 70, 44, 13, 20, 52, 44]])


DRAFTING: dict[str, dict[str, Any]] = {
    "autoregressive": {},
    "prompt_lookup": {"k": 4},
    "speculative": {"gamma": 3},
    "sequoia": {"shape": "[[0], [1], [0, 0], [0, 1], [1, 0]]"},
}


def decoded(model: Any, ids: torch.Tensor, **more: Any) -> list[list[int]]:
    mask = (ids != 0).long()
    out = model.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=20, eos_token_id=None, pad_token_id=0, **more
    )
    return out.tolist()  # type: ignore[no-any-return]


@pytest.mark.quick("gpt2", "mixtral", "gpt_oss")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.word != KEPT])
def test_tokens_are_those_of_generate(name: str) -> None:
    row, model = ROWS[name], architecture(name)
    for ids in (ALONE, IDS):
        for algorithm in ("autoregressive", "prompt_lookup"):
            door = decgraph.hf(algorithm)
            if row.way == "refused":
                with pytest.raises(decgraph.DecError, match=row.word):
                    decoded(model, ids, custom_generate=door)
                continue
            assert decoded(model, ids, custom_generate=door) == decoded(model, ids)
            (forward,) = door.last[0].forwards.values()
            assert forward.way == row.way and row.why in forward.reason, forward


@pytest.mark.quick("qwen3_next")
@pytest.mark.budget(4)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.word == KEPT])
def test_hybrids_verify_a_draft_in_one_forward(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four algorithms, alone and in a batch: `generate`'s tokens, and no more forwards than the longest row has calls."""
    model, drafter, forwards = architecture(name), noisy(architecture(name), 0.01), Counter[int]()
    stepped = HybridEngine._stepped

    def counted(self: HybridEngine, *given: Any) -> torch.Tensor:
        forwards[id(self)] += 1
        return stepped(self, *given)

    monkeypatch.setattr(HybridEngine, "_stepped", counted)
    for ids in (ALONE, IDS):
        wanted = decoded(model, ids)
        for algorithm, given in DRAFTING.items():
            two = {"drafter": drafter} if algorithm in ("speculative", "sequoia") else {}
            door = decgraph.hf(algorithm, **given, **two)
            forwards.clear()
            assert decoded(model, ids, custom_generate=door) == wanted
            calls = [result.stats.target_calls for result in door.last]
            # Prompts of several lengths may be read in forwards of their own.
            assert min(forwards.values()) <= max(calls) + len(ids) - 1, (forwards, calls)  # the drafter's are more
            assert not two or all(n < 20 for n in calls)
            assert door.last[0].forwards["target"] == ForwardChoice("module", KEPT)


def test_the_page_says_what_is_tested() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/lib/models/architecture_table.py > docs/architectures.md"
    assert sum(row.way == "decoder" for row in ROWS.values()) >= 65
