"""As many decoder architectures as transformers has: generate's tokens, by the decoder or not as docs/architectures.md says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from architecture_table import ROWS, architecture, page

import decgraph

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architectures.md"
ALONE = torch.tensor([[5, 9, 50, 5, 9, 50, 5, 9]])
IDS = torch.tensor([[0, 0, 0, 40, 5, 9, 50, 5], [40, 5, 9, 11, 5, 9, 51, 9], [0, 0, 70, 44, 13, 20, 52, 44]])


def decoded(model: Any, ids: torch.Tensor, **more: Any) -> list[list[int]]:
    mask = (ids != 0).long()
    out = model.generate(
        ids, attention_mask=mask, do_sample=False, max_new_tokens=20, eos_token_id=None, pad_token_id=0, **more
    )
    return out.tolist()  # type: ignore[no-any-return]


@pytest.mark.quick("gpt2", "mixtral", "gpt_oss")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ROWS)
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


def test_the_page_says_what_is_tested() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python tests/architecture_table.py > docs/architectures.md"
    assert sum(row.way == "decoder" for row in ROWS.values()) >= 65
