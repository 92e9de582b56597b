"""Decoders on table models, which need no torch, and files of rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from lib.models.table_decoders import table_decoder

from decgraph.scale.decoder import Decoder


@pytest.fixture
def decoder() -> Decoder:
    return table_decoder()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[Sequence[Any]], Path]:
    """Writes values as lines of JSON; texts that begin with ! as they are."""

    def made(values: Sequence[Any], name: str = "rows.jsonl") -> Path:
        file = tmp_path / name
        lines = [v[1:] if isinstance(v, str) and v.startswith("!") else json.dumps(v) for v in values]
        file.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
        return file

    return made
