"""EAGLE-3 folders without `lm_head.weight`: they read the target's output matrix, or its rows at the tokens that they draft."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.models import published_heads as heads
from lib.models.hf_models import V
from lib.models.published_heads import Weights, written
from safetensors.torch import load_file

import decgraph
from decgraph.cli import main as cli
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.base import OUTSIDE
from decgraph.runtime.models.heads.convert import convert
from decgraph.runtime.models.hf_causal import HFCausal

IDS = (1, 5, 9, 11, 44, 9, 3, 20, 31)
READS = [0, 2, 4]


def with_rows(folder: Path, draft: int) -> tuple[dict[str, Any], Weights]:
    """A head whose output matrix is the target's rows, read from the target's file."""
    config, weights = heads.eagle3(draft=draft, reads=READS)
    stored = load_file(folder / "model.safetensors")
    rows = stored.get("lm_head.weight", stored["model.embed_tokens.weight"])
    ids = weights["d2t"] + torch.arange(draft) if "d2t" in weights else torch.arange(draft)
    return config, {**weights, "lm_head.weight": rows[ids].clone()}


def less(weights: Weights) -> Weights:
    return {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}


@pytest.mark.parametrize("draft", [24, V], ids=["mapped", "whole"])
def test_as_if_the_rows_were_written(draft: int, folder: Path, target: HFCausal, tmp_path: Path) -> None:
    """Logits, and tokens and calls of a decoding, are those of the folder that holds the target's rows."""
    config, weights = with_rows(folder, draft)
    both = [written(tmp_path / "own", config, weights), written(tmp_path / "shared", config, less(weights))]
    rows = []
    for at in both:
        head = hf.load_features(at, target)
        rows.append([head.eval([IDS[:n]], target.memory(IDS[:5]))[0].logits for n in (6, 8, 9)])
    for mine, theirs in zip(*rows, strict=True):
        assert mine is not None and theirs is not None and (mine > OUTSIDE).sum() == draft
        np.testing.assert_allclose(mine, theirs, atol=1e-4)  # where a matrix begins in memory changes the last digit
    eagle2 = decgraph.load("eagle2")
    results = [
        eagle2.run(
            list(IDS),
            models={"target": folder, "head": at},
            temperature=0,
            max_tokens=16,
            params={"depth": 3, "k": 2, "budget": 5},
        )
        for at in both
    ]
    assert results[0].tokens == results[1].tokens
    assert results[0].stats.target_calls == results[1].stats.target_calls


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_constraints_that_leave_nothing_of_the_draft_vocabulary_end_no_run(
    temperature: float, folder: Path, tmp_path: Path
) -> None:
    """A grammar may allow only tokens that the head does not draft: the target decides among them."""
    config, weights = with_rows(folder, 24)
    drafted = {int(t) for t in weights["d2t"] + torch.arange(24)}
    others = [t for t in range(V) if t not in drafted]
    models = {"target": folder, "head": written(tmp_path / "head", config, weights)}
    asked: dict[str, Any] = {"temperature": temperature, "max_tokens": 8, "bans": drafted, "seed": 3}
    for backend in ("reference", "torch"):
        found = decgraph.load("eagle2").run(
            list(IDS), models=models, params={"depth": 2, "k": 2, "budget": 3}, backend=backend, **asked
        )
        assert found.error is None and len(found.tokens) == 8 and set(found.tokens) <= set(others)
        alone = decgraph.load("autoregressive").run(list(IDS), models={"target": folder}, backend=backend, **asked)
        assert temperature or found.tokens == alone.tokens


def test_the_whole_matrix_is_not_copied(folder: Path, target: HFCausal, tmp_path: Path) -> None:
    """Neither where no map is written nor where the map is that of the whole vocabulary."""
    config, weights = with_rows(folder, V)
    maps = {"d2t": torch.zeros(V, dtype=torch.int64), "t2d": torch.ones(V, dtype=torch.bool)}
    for name, more in (("plain", {}), ("mapped", maps)):
        head: Any = hf.load_features(written(tmp_path / name, config, {**less(weights), **more}), target)
        matrices = [p for name, p in head.module.named_parameters() if "output" in name]
        assert all(p.data_ptr() == target.net.output.data_ptr() for p in matrices)
        norm, read = head.module.norm, head.module.read_out
        state = torch.ones(2, heads.WIDTH)
        torch.testing.assert_close(read(state), target.net.read(norm(state)))


def test_convert(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder without the matrix converts; a matrix that is the target's is left out if asked; another one is not."""
    config, weights = with_rows(folder, 24)
    own = written(tmp_path / "own", config, {k: t.bfloat16() if t.is_floating_point() else t for k, t in weights.items()})
    shared = written(tmp_path / "shared", config, less(weights))
    assert cli.main(["convert", str(own), "--target", str(folder), "--share-output", "--out", str(tmp_path / "a")]) == 0
    convert(shared, out=tmp_path / "b", target=folder)
    made = [load_file(tmp_path / name / "model.safetensors") for name in "ab"]
    assert made[0].keys() == made[1].keys() and not any("matrix" in name for name in made[0])
    assert json.loads((tmp_path / "a" / "config.json").read_text())["output"] is False
    base = hf.load_causal(folder)
    assert isinstance(base, HFCausal)
    (row,) = hf.load_features(tmp_path / "b", base).eval([IDS], base.memory(IDS[:-1]))
    (want,) = hf.load_features(shared, base).eval([IDS], base.memory(IDS[:-1]))
    np.testing.assert_allclose(row.logits, want.logits, atol=1e-4)
    other = written(tmp_path / "other", *heads.eagle3(reads=READS))
    with pytest.raises(DecError, match=r"lm_head\.weight is not the target's output matrix"):
        convert(other, target=folder, share_output=True)
    with pytest.raises(DecError, match="has no output matrix"):
        convert(shared, target=folder, share_output=True)
    with pytest.raises(DecError, match="seen on the target"):
        convert(other, share_output=True)


def test_refused(folder: Path, target: HFCausal, tmp_path: Path) -> None:
    config, weights = with_rows(folder, 24)
    neither = {k: t for k, t in less(weights).items() if k not in ("d2t", "t2d")}
    with pytest.raises(DecError, match=r"neither lm_head\.weight nor d2t, and its config\.json says 24"):
        load.read(written(tmp_path / "neither", config, neither))
    wide = dict(less(weights))
    wide["embed_tokens.weight"] = torch.ones(V + 8, heads.WIDTH)
    wide["d2t"] = wide["d2t"].clone()
    wide["d2t"][-1] = V + 7 - 23  # a token that the target has no row for
    del wide["t2d"]
    with pytest.raises(DecError, match=f"draft vocabulary has the token {V + 7}, and the target's output matrix has {V} rows"):
        hf.load_features(written(tmp_path / "wide", config, wide), target)
