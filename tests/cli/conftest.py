"""Models without files for the verbs that decode: tables over four letters, and a tokenizer for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from decgraph.models import Bound
from decgraph.runtime.models.table import TableAdapter, TableFeatures, TableModel
from decgraph.runtime.text import Detokenizer, detokenizer_of

LETTERS = "abc\n"


class Letters:
    """A tokenizer whose tokens are letters."""

    detokenizer: Detokenizer = detokenizer_of(LETTERS)

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(LETTERS.index(c) if c in LETTERS else 0 for c in text)

    def decode(self, tokens: tuple[int, ...]) -> str:
        return self.detokenizer.text(tokens)

    def token(self, text: str) -> int | None:
        return LETTERS.index(text) if len(text) == 1 and text in LETTERS else None


def bind_tables(function: Any, given: Any, **_: Any) -> Bound:
    """A table model for every parameter, as decgraph.models.bind gives real ones."""
    target = TableModel(4, seed=1, name="target", heads=3)
    models: dict[str, Any] = {}
    for p in function.params:
        if p.value.type.elem == "model":
            kind = p.value.type.of[0]
            others: dict[str, Callable[[], Any]] = {
                "causal": lambda: TableModel(4, seed=2, name="drafter") if "target" in models else target,
                "features": lambda: TableFeatures(target, seed=5),
                "layers": lambda: TableAdapter(target, seed=6),
                "masked": lambda: TableModel(4, seed=7, kind="masked", name="masked"),
            }
            models[p.name] = others[kind]()
    return Bound(models, Letters())


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """`decgraph run` decodes with table models over the letters a, b, c and the line end."""
    monkeypatch.setattr("decgraph.models.bind", bind_tables)
