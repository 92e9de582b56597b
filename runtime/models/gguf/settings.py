"""The settings of a GGUF file as a config of transformers, from which an entry of the decoder makes a shape.

An architecture that is not here: `ARCHITECTURES` gets a line that says which model type it is and in what it differs, and
tests/runtime/gguf compares it with what transformers or llama.cpp makes of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import log

from decgraph.errors import DecError
from decgraph.runtime.models.config import whole
from decgraph.runtime.models.gguf.file import GgufFile, Value
from decgraph.runtime.models.gguf.tokens import bounds

NAMES = {
    "embed": "token_embd.weight", "positions": "position_embd.weight", "norm": "output_norm", "out": "output",
    "attn_in": "attn_norm", "attn_out": "post_attention_norm", "qkv": "attn_qkv", "wq": "attn_q", "wk": "attn_k",
    "wv": "attn_v", "o": "attn_output", "q": "attn_q_norm", "k": "attn_k_norm", "mlp_in": "ffn_norm",
    "mlp_out": "post_ffw_norm",
    "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
"""The decoder's names of tensors as a GGUF has them, those of layers after "blk.{i}."."""
_KEYS = {
    "context_length": "max_position_embeddings", "embedding_length": "hidden_size", "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim", "rope.freq_base": "rope_theta",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
}  # fmt: skip
"""Settings of all architectures, after the architecture's name, and a config's name of each."""
INSTEAD = "the folder that the file was made from is read by transformers too"
_SILENT = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout")
"""Settings that say nothing that the tensors or the others do not."""
_CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
_WINDOW = {"attention.sliding_window": "sliding_window"}
_LAYER = {"attention.layer_norm_epsilon": "layer_norm_eps"}


@dataclass(frozen=True)
class Architecture:
    """model_type: transformers'. keys: further settings, as `_KEYS` has them. more: what else the config has, from what is
    known of it. neighbours: rotated numbers of a head stand side by side (llama.cpp's "norm" positions), which reorders the
    rows of queries and keys."""

    model_type: str
    keys: Mapping[str, str] = field(default_factory=dict)
    more: Callable[[dict[str, object]], Mapping[str, object]] = lambda config: {}
    neighbours: bool = False


def _gemma(large: int) -> Callable[[dict[str, object]], Mapping[str, object]]:
    """Gemma's scale of scores: its models of 27B, known by their layers, have one of the width."""

    def scale(c: dict[str, object]) -> dict[str, object]:
        size = whole(c, "hidden_size") // whole(c, "num_attention_heads")
        return {"query_pre_attn_scalar": size if c["num_hidden_layers"] == large else c["head_dim"]}

    return scale


ARCHITECTURES = {
    "llama": Architecture("llama", neighbours=True),
    "qwen2": Architecture("qwen2"),
    "qwen3": Architecture("qwen3"),
    "gemma": Architecture("gemma"),
    "gemma2": Architecture("gemma2", {**_CAPS, **_WINDOW}, _gemma(46)),
    "gemma3": Architecture("gemma3_text", {**_CAPS, **_WINDOW}, _gemma(62)),
    "phi3": Architecture("phi3", _WINDOW),
    "smollm3": Architecture("smollm3", neighbours=True),
    "granite": Architecture(
        "granite",
        {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
         "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"},
        neighbours=True,
    ),
    "olmo2": Architecture("olmo2"),
    "starcoder2": Architecture("starcoder2", {"attention.layer_norm_epsilon": "norm_epsilon"}),
    "stablelm": Architecture("stablelm", {**_LAYER, "use_parallel_residual": "use_parallel_residual"}),
    "nemotron": Architecture("nemotron", {"attention.layer_norm_epsilon": "norm_eps"}),
}  # fmt: skip


def config_of(file: GgufFile) -> dict[str, object]:
    """The config of a file. Raises DecError for an architecture or a setting that is not known."""
    name = file.architecture
    known = ARCHITECTURES.get(name)
    if known is None:
        instead = f"known are {', '.join(ARCHITECTURES)}; of others the folder that the file was made from is read"
        raise DecError(f"{file.path} has the architecture {name or 'of no name'}, which is not read from GGUF", hint=instead)
    given = {key.removeprefix(name + "."): value for key, value in file.settings.items() if key.startswith(name + ".")}
    keys = {**_KEYS, **known.keys}
    config: dict[str, object] = {"model_type": known.model_type, "architectures": ["ForCausalLM"]}
    for key, to in keys.items():
        if key in given:
            config[to] = _number(file, f"{name}.{key}", given.pop(key))
    for key in ("max_position_embeddings", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
        config.setdefault(key, 0)
    config.setdefault("head_dim", whole(config, "hidden_size") // max(1, whole(config, "num_attention_heads")))
    config.setdefault("num_key_value_heads", config["num_attention_heads"])
    for key, most in _most(file).items():
        value = config[key]
        if type(value) is not int or not 0 < value <= most:
            raise DecError(f"{file.path} has {value!r} for {key}, which its tensors cannot have", hint=INSTEAD)
    if whole(config, "num_attention_heads") % whole(config, "num_key_value_heads"):
        raise DecError(f"{file.path} has a number of heads that those of keys do not divide", hint=INSTEAD)
    _rotary(file, config, given)
    config |= known.more(config)
    if given.pop("attention.value_length", config["head_dim"]) != config["head_dim"]:
        raise DecError(f"{file.path} has values of another size than keys, which is not read from GGUF")
    if given.pop("attention.causal", True) is not True:
        raise DecError(f"{file.path} is of a model that is not causal ({name}.attention.causal)", hint=INSTEAD)
    for key in set(given) - set(_SILENT):
        if given[key]:
            raise DecError(f"{file.path} has the setting {name}.{key}, which is not known here", hint=INSTEAD)
    table = file.tensors.get(NAMES["embed"])
    config["vocab_size"] = table.shape[0] if table is not None else 0
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    begin, config["eos_token_id"] = bounds(file)
    return config | {"bos_token_id": begin}


def _most(file: GgufFile) -> dict[str, int]:
    """How great sizes can be in a file: what is made of them is bounded by what it holds."""
    longest = max((max(entry.shape) for entry in file.tensors.values()), default=0)
    sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
    return {**dict.fromkeys(sizes, longest), "num_hidden_layers": len(file.tensors), "max_position_embeddings": 1 << 31}


def _number(file: GgufFile, key: str, value: Value) -> int | float:
    if isinstance(value, bool | int | float):
        return value
    raise DecError(f"{file.path} has {key} by layer or in words, which is not read from GGUF", hint=INSTEAD)


def _rotary(file: GgufFile, config: dict[str, object], settings: dict[str, Value]) -> None:
    """Rotary settings in the config's words."""
    head = whole(config, "head_dim")
    count = settings.pop("rope.dimension_count", head)
    if type(count) is not int or not 0 < count <= head or count % 2:
        raise DecError(f"{file.path} has {count!r} for rope.dimension_count, of heads of {head}", hint=INSTEAD)
    if count != head:
        config["partial_rotary_factor"] = count / head
    factor = settings.pop("rope.scaling.factor", None)
    kind = settings.pop("rope.scaling.type", "linear" if factor else "none")  # as llama.cpp has it
    original = settings.pop("rope.scaling.original_context_length", None)
    if settings.get("rope.scaling.attn_factor") == 1.0:
        del settings["rope.scaling.attn_factor"]
    scaling: dict[str, object] = {}
    if kind == "yarn" and "rope.scaling.attn_factor" in settings:  # of another kind it is refused, as what is not known
        scale = _number(file, "rope.scaling.attn_factor", settings.pop("rope.scaling.attn_factor"))
        scaling["attention_factor"] = scale * (0.1 * log(max(1.0, _number(file, "rope.scaling.factor", factor or 1.0))) + 1.0)
    if kind != "none":
        config["rope_scaling"] = {"rope_type": kind, "factor": factor, "original_max_position_embeddings": original} | scaling
