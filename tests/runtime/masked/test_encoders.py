"""Encoders of transformers: BERT, RoBERTa and their like as masked models, against their own forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import transformers

import decgraph
from decgraph.runtime.models.engine.canvas_call import CanvasCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_masked import CalledMasked, HFMasked
from decgraph.runtime.models.interface import MASK, Visibility, sees

V, MASK_ID = 61, 4
SIZES = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "pad_token_id": 1,
    "mask_token_id": MASK_ID,
}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 2, "cls_token_id": 0, "sep_token_id": 2}
DISTIL = {"vocab_size": V, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64,
          "initializer_range": 0.3, "mask_token_id": MASK_ID}  # fmt: skip
BY_LAYERS: dict[str, dict[str, Any]] = {
    "Bert": SIZES,
    "Roberta": SIZES,
    "XLMRoberta": SIZES,
    "Camembert": SIZES,
    "RobertaPreLayerNorm": SIZES,
    "Electra": {**SIZES, "embedding_size": 16},
    "DistilBert": DISTIL,
    "Ernie": SIZES,
    "NomicBert": SIZES,
    "ModernBert": {**SIZES, **SPECIAL},
    "EuroBert": {**SIZES, **SPECIAL},
}
CALLED: dict[str, dict[str, Any]] = {
    "Albert": {**SIZES, "embedding_size": 16},  # one layer, run several times
    "DebertaV2": {**SIZES, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},  # attention with terms of its own
    "RemBert": SIZES,
    "MegatronBert": SIZES,
    "FNet": SIZES,  # no attention at all
}


def module(name: str) -> Any:
    torch.manual_seed(3)
    settings = {**BY_LAYERS, **CALLED}[name]
    return getattr(transformers, f"{name}ForMaskedLM")(getattr(transformers, f"{name}Config")(**settings)).eval()


def scored(model: Any, ids: list[int]) -> list[np.ndarray]:
    """The logits [length, V] as reference and engine compute them."""
    cells = tuple(MASK if i == MASK_ID else i for i in ids)
    (out,) = engine_of(model).compute([CanvasCall("s", torch.tensor(ids), rows=range(len(ids)))])
    return [np.stack([s.to_float().logits for s in model.eval_canvas(cells, range(len(ids)))]), out.logits.double().numpy()]


IDS = [9, 12, MASK_ID, 30, MASK_ID, 17, 55, MASK_ID]


@pytest.mark.parametrize("source", ["module", "folder"])
@pytest.mark.parametrize("name", [*BY_LAYERS, *CALLED])
def test_scores_are_the_module_s(name: str, source: str, tmp_path: Path) -> None:
    own = module(name)
    if source == "folder":
        own.save_pretrained(tmp_path / name)
    model = decgraph.masked(tmp_path / name if source == "folder" else own)
    assert isinstance(model, HFMasked if name in BY_LAYERS else CalledMasked), getattr(model, "why", "")
    with torch.no_grad():
        wanted = own(input_ids=torch.tensor([IDS])).logits[0].double().numpy()
    for found in scored(model, IDS):
        seen = np.isfinite(found)
        assert not seen[:, MASK_ID].any() and seen.sum() == len(IDS) * (V - 1)
        assert np.allclose(found[seen], wanted[seen], atol=1e-3, rtol=1e-4)


def doubled() -> Any:
    """A class whose scores are not those of its layers."""

    class DoubledForMaskedLM(transformers.EuroBertForMaskedLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            out = super().forward(*args, **kwargs)
            out.logits = 2 * out.logits
            return out

    return DoubledForMaskedLM


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_rounding_of_16_bits_is_no_other_computation(dtype: torch.dtype) -> None:
    """Deep encoders in 16 bits run by layers, with a cache; one that computes something else is called as it is."""
    config = transformers.EuroBertConfig(**{**SIZES, **SPECIAL, "num_hidden_layers": 12})
    for kind, by_layers in ((transformers.EuroBertForMaskedLM, True), (doubled(), False)):
        torch.manual_seed(3)
        model = decgraph.masked(kind(config).eval().to(dtype))
        assert isinstance(model, HFMasked) is by_layers, getattr(model, "why", "")


@pytest.mark.parametrize("name", ["Bert", "Roberta", "DistilBert"])
def test_a_cache_policy_runs_on_encoders(name: str) -> None:
    """Everything computed again, and the block alone on what was kept: on both backends the same."""
    own = module(name)
    params = {"length": 8, "block": 4, "tau": 0.3}
    for policy in ("dual", "prefix", "none"):
        algorithm = decgraph.load("fast_dllm").cached(policy)
        runs = [algorithm.run(IDS[:2], {"model": own}, params=params, backend=b) for b in ("torch", "reference")]
        assert runs[0].error is None and len(runs[0].tokens) == 8 and runs[0].tokens == runs[1].tokens


@pytest.mark.parametrize("visibility", ["causal", ("block", 3), ("window", 2)], ids=str)
def test_visibility_is_ours_by_layers(visibility: Visibility) -> None:
    """The module's own forward with a 4-D mask is the oracle."""
    own = module("Bert")
    seen = torch.tensor([[j in sees(visibility, i, len(IDS)) for j in range(len(IDS))] for i in range(len(IDS))])
    with torch.no_grad():
        mask = torch.zeros(1, 1, len(IDS), len(IDS)).masked_fill(~seen, torch.finfo(torch.float32).min)
        wanted = own(input_ids=torch.tensor([IDS]), attention_mask=mask).logits[0].double().numpy()
        full = own(input_ids=torch.tensor([IDS])).logits[0].double().numpy()
    assert not np.allclose(wanted, full, atol=1e-2)
    for found in scored(decgraph.masked(own, visibility=visibility), IDS):
        rows = np.isfinite(found)
        assert np.allclose(found[rows], wanted[rows], atol=1e-3)


def test_an_encoder_keeps_its_own_attention_and_positions() -> None:
    own = module("Roberta")
    with torch.no_grad():
        before = own(input_ids=torch.tensor([IDS])).logits
    model = decgraph.masked(own)
    assert model.context == 62  # two rows of the table belong to no position
    scored(model, IDS)
    with torch.no_grad():
        assert torch.equal(own(input_ids=torch.tensor([IDS])).logits, before)
    assert own.config.max_position_embeddings == 64 and own.config._attn_implementation != "decgraph_positions"
    assert all(p.requires_grad for p in own.parameters())


def test_layers_that_are_left_out_are_left_out_of_encoders() -> None:
    own = module("Bert")
    model = decgraph.masked(own)
    assert isinstance(model, HFMasked)
    short = model.net.using([0])
    assert (
        len(short.decoder.base.encoder.layer) == 1
        and len(model.net.decoder.base.encoder.layer) == 2
        and len(own.bert.encoder.layer) == 2
    )
    with pytest.raises(decgraph.DecError, match="no final norm"):
        model.net.normed(torch.zeros(1, 32))
