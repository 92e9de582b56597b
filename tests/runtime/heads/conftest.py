"""A target of four layers with random weights, for heads that read its states."""

from __future__ import annotations

from pathlib import Path

import pytest
from lib.models.hf_models import llama

from decgraph.runtime.models import hf
from decgraph.runtime.models.hf_causal import HFCausal


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("target") / "llama"
    llama(0, layers=4).save_pretrained(path)
    return path


@pytest.fixture
def target(folder: Path) -> HFCausal:
    made = hf.load_causal(folder)
    assert isinstance(made, HFCausal)
    return made
