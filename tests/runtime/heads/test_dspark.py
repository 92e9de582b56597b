"""DSpark in vLLM's folders: a head whose root's slot guesses too, and a Markov head beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import transformers
from lib.models import published_heads as heads
from lib.models.published_heads import LLAMA, V, written

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.heads.base import OUTSIDE
from decgraph.runtime.models.interface import SoftCell
from decgraph.runtime.models.markov import load_markov

TEXT, RANK = (1, 5, 9, 11, 20), 6


def of_specforge(at: Path) -> Path:
    """DeepSpec's and SpecForge's folder: DFlash's, with a Markov head."""
    config, weights = heads.dflash()
    shapes = {"markov_head.markov_w1.weight": (V, RANK), "markov_head.markov_w2.weight": (V, RANK)}
    return written(at, {**config, "markov_rank": RANK}, weights | heads.drawn(shapes, 11, 1.0))


def folder(at: Path, *, draft: int = V, kind: str = "dspark", **more: Any) -> Path:
    """A folder of speculators with the layers of `published_heads.dflash`."""
    old, weights = heads.dflash()
    shapes = {"markov_head.markov_w1.weight": (V, RANK), "markov_head.markov_w2.weight": (draft, RANK),
              "confidence_head.proj.weight": (1, LLAMA["hidden_size"] + RANK)}  # fmt: skip
    if kind == "dspark":
        weights |= heads.drawn(shapes, 11, 1.0)
        more = {"markov_rank": RANK, "markov_head_type": "vanilla", **more}
    if draft < V:
        weights["lm_head.weight"] = heads.drawn({"x": (draft, LLAMA["hidden_size"])}, 12)["x"]
        weights["d2t"] = torch.arange(draft)  # row n is token 2 n
    config = {"speculators_model_type": kind, "draft_vocab_size": draft, "block_size": 4, "mask_token_id": 3,
              "aux_hidden_state_layer_ids": [1, 3], "transformer_layer_config": old, **more}  # fmt: skip
    return written(at, config, weights)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**{**LLAMA, "num_hidden_layers": 4})
    transformers.LlamaForCausalLM(config).eval().save_pretrained(tmp_path / "target")
    return tmp_path / "target"


def test_the_slot_of_the_root_guesses_too(target: Path, tmp_path: Path) -> None:
    """Slot for slot it is a DFlash head, whose root's slot guesses nothing."""
    model: Any = hf.load_causal(target)
    spark, flash = (hf.load_features(folder(tmp_path / kind, kind=kind), model) for kind in ("dspark", "dflash"))
    given = model.memory(TEXT[:-1])
    forged = hf.load_features(of_specforge(tmp_path / "forged"), model)
    np.testing.assert_array_equal(forged.eval([TEXT], given)[0].logits, spark.eval([TEXT], given)[0].logits)
    for drafted in range(3):
        path = (*TEXT, *[3] * drafted)
        (row,), (other,) = spark.eval([(*path, 3)], given), flash.eval([path], given)
        np.testing.assert_allclose(row.logits, other.logits, atol=1e-4)
    assert not np.allclose(spark.eval([TEXT], given)[0].logits, flash.eval([TEXT], given)[0].logits)
    with pytest.raises(DecError, match="drafts at most 4 tokens"):
        spark.eval([(*TEXT, 3, 3, 3, 3)], given)


@pytest.mark.parametrize("draft", [V, 24])
def test_the_markov_head_reads_the_last_token(draft: int, tmp_path: Path) -> None:
    at = folder(tmp_path / "head", draft=draft)
    model = load_markov(at, None, "cpu")
    weights = heads.drawn({"markov_head.markov_w1.weight": (V, RANK), "markov_head.markov_w2.weight": (draft, RANK)}, 11, 1.0)
    first, second = weights.values()
    for path in ((7,), (1, 2, 9)):
        found = model.eval([path])[0].logits
        ids = range(0, 2 * draft, 2) if draft < V else range(V)
        np.testing.assert_allclose(found[list(ids)], second @ first[path[-1]], rtol=1e-5)
        assert (np.delete(found, list(ids)) <= OUTSIDE).all()
    assert model.eval([]) == []
    with pytest.raises(DecError, match="cannot read mixtures of embeddings"):
        model.eval([(1, SoftCell((0.5,) * V))])


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("draft", [V, 24])
def test_dspark_commits_what_the_target_does(draft: int, backend: str, target: Path, tmp_path: Path) -> None:
    at = folder(tmp_path / "head", draft=draft)
    models = {"target": target, "head": at, "markov": at}
    settings: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "backend": backend, "eos": frozenset()}
    plain = decgraph.load("autoregressive").run(list(TEXT), {"target": target}, **settings)
    found = decgraph.load("dspark").run(list(TEXT), models, params={"block": 4}, **settings)
    assert found.error is None and found.tokens == plain.tokens and found.stats.drafted > 0


def test_a_gated_markov_head_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DecError, match="of the type gated, which reads hidden states"):
        load_markov(folder(tmp_path / "head", markov_head_type="gated"), None, "cpu")
