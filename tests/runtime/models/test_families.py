"""Entries: what they make of configs, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lib.models.architecture_table import ROWS, T
from lib.models.family_configs import CONFIGS

from decgraph.runtime.models.decoder.families import FAMILIES, WITHOUT, shape_of
from decgraph.runtime.models.decoder.shape import Shape, UnknownToDecoder

SIZES = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"}


def made(kind: str, config: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(kind, **config)


def shape(config: dict[str, Any]) -> Shape | str:
    """A config's shape, or that there is none."""
    try:
        return shape_of(config)[0]
    except UnknownToDecoder:
        return "unknown"


def test_every_row_has_an_entry_or_a_reason() -> None:
    assert {row.kind for row in ROWS.values() if row.kind not in FAMILIES} == set(WITHOUT)
    encoders = {"eurobert", "modernbert"}  # tests/runtime/engine/test_masked.py
    assert set(FAMILIES) - encoders == {kind for kind, _ in CONFIGS.values()}
    assert len(FAMILIES) >= 60


@pytest.mark.parametrize("name", CONFIGS)
def test_a_saved_config_is_the_live_one(name: str, tmp_path: Path) -> None:
    """A config.json holds what differs from the defaults of transformers' classes, in part."""
    live = made(*CONFIGS[name])
    live.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert shape_of(saved) == shape_of(live.to_dict())


@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_config_leaves_out_is_as_in_transformers(name: str) -> None:
    kind, config = CONFIGS[name]
    for left in ("", *(key for key in config if key not in SIZES)):
        rest = {key: value for key, value in config.items() if key != left}
        try:
            live = made(kind, rest).to_dict()
        except (ValueError, TypeError, KeyError, AttributeError, ZeroDivisionError):  # transformers' class does not take it
            continue
        except Exception as error:
            if "Validation" not in type(error).__name__:
                raise
            continue
        assert shape({"model_type": kind, **rest}) in (shape(live), "unknown"), left
        if not left:
            assert shape({"model_type": kind, **rest}) == shape(live) != "unknown"


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("llama", "attention_gate", True),
        ("llama", "attn_logit_softcapping", 50.0),
        ("llama", "sliding_window", 8),
        ("llama", "quantization_config", {"quant_method": "gptq"}),
        ("llama", "auto_map", {"AutoModelForCausalLM": "modeling.Model"}),
        ("gemma3_text", "use_bidirectional_attention", True),
        ("laguna", "moe_router_logit_softcapping", 3.0),
        ("laguna", "moe_apply_router_weight_on_input", True),
        ("opt", "do_layer_norm_before", False),
        ("olmo2", "sliding_window", 8),
        ("mistral", "layer_types", ["full_attention"] * 3),
        ("gpt2", "add_cross_attention", True),
    ],
)
def test_a_setting_that_no_entry_reads_is_refused(kind: str, key: str, value: Any) -> None:
    config = made(kind, ROWS[kind].config).to_dict()
    shape_of(config)
    with pytest.raises(UnknownToDecoder, match=f"setting {key} = " if key != "do_layer_norm_before" else "norms"):
        shape_of({**config, key: value})
    if key != "do_layer_norm_before":  # a switch that is off says nothing
        assert shape_of({**config, key: None}) == shape_of(config)


@pytest.mark.parametrize(
    ("kind", "changed", "word"),
    [
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}}, "dynamic"),
        ("phi3", {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}}, "longrope"),
        ("qwen3", {"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "linear_attention"),
        ("deepseek_v2", {"topk_method": "noaux_tc"}, "noaux_tc"),
        ("qwen3_moe", {"num_experts": 8}, "several numbers of experts|several values"),
        ("hunyuan_v1_moe", {"moe_topk": [1, 2, 2]}, "several numbers"),
        ("laguna", {"num_attention_heads_per_layer": [4, 2, 4]}, "several numbers of heads"),
        ("granite_swa", {"layer_rope_theta": [1e4, 5e3, 1e4]}, "several rotary"),
        ("cohere2_moe", {"num_shared_experts": 1}, "averaged"),
        ("falcon", {"alibi": True}, "ALiBi"),
        ("gptj", {"rotary_dim": None}, "rotary"),
    ],
)
def test_what_an_entry_does_not_do_is_refused_by_name(kind: str, changed: dict[str, Any], word: str) -> None:
    with pytest.raises(UnknownToDecoder, match=word):
        shape_of({**made(kind, ROWS[kind].config).to_dict(), **changed})


@pytest.mark.parametrize(
    ("kind", "published", "changed"),
    [
        (
            "llama",
            {"is_llama_config": True, "rope_interleaved": False, "transformers.js_config": {"dtype": "q4"}},
            {"rope_interleaved": True},
        ),
        ("gpt2", {"n_ctx": 128, "task_specific_params": {"text-generation": {"max_length": 50}}}, {"alibi": True}),
        ("gptj", {"rotary": True, "tokenizer_class": "GPT2Tokenizer"}, {"rotary": False}),
        ("starcoder2", {"mlp_type": "default", "norm_type": "layer_norm"}, {"norm_type": "rms_norm"}),
        ("deepseek_v3", {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "ep_size": 1}, {"scoring_func": "softmax"}),
        ("deepseek_v2", {"scoring_func": "softmax", "aux_loss_alpha": 0.001}, {"scoring_func": "sigmoid"}),
        ("gemma2", {"cache_implementation": "hybrid", "hidden_act": "gelu"}, {"use_bidirectional_attention": True}),
    ],
)
def test_what_published_configs_have_besides(kind: str, published: dict[str, Any], changed: dict[str, Any]) -> None:
    """Settings of files on the hub that transformers' classes do not know; with other values they are refused."""
    config = made(kind, ROWS[kind].config).to_dict()
    assert shape_of({**config, **published}) == shape_of(config)
    with pytest.raises(UnknownToDecoder, match="setting"):
        shape_of({**config, **published, **changed})


def test_a_family_without_an_entry_says_why() -> None:
    with pytest.raises(UnknownToDecoder, match="ALiBi"):
        shape_of({"model_type": "bloom"})
    with pytest.raises(UnknownToDecoder, match="setting is_causal = False"):
        shape_of({**made("llama", T).to_dict(), "is_causal": False})
    with pytest.raises(UnknownToDecoder, match="no entry for t5"):
        shape_of({"model_type": "t5"})


def test_a_size_that_is_missing_is_named() -> None:
    with pytest.raises(UnknownToDecoder, match="hidden_size"):
        shape_of({"model_type": "llama", **{key: value for key, value in T.items() if key != "hidden_size"}})
