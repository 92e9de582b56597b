"""The layers for multi-token prediction (MTP) in a checkpoint: a head of the target whose file they are in.

Such a layer joins the norms of an embedding and of the target's last state, runs one decoder layer of the target's own kind
(latent attention, experts, ...), and is read by the target's output matrix after a norm of its own. transformers leaves these
tensors out when it loads the target. For later depths the layer reads its own output, after that norm.

Gloeckle et al., multi-token prediction, 2024; DeepSeek-AI, DeepSeek-V3 Technical Report, 2024.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import mapping, whole
from decgraph.runtime.models.heads.chained import Chained
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead, layer_settings, some
from decgraph.runtime.models.quiet import quiet

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_DEEPSEEK = {"enorm.": "embedding_norm.", "hnorm.": "feature_norm.", "eh_proj.": "fc.", "shared_head.norm.": "norm."}
_QWEN = {"pre_fc_norm_embedding.": "embedding_norm.", "pre_fc_norm_hidden.": "feature_norm.", "fc.": "fc.", "norm.": "norm."}
_MIMO = {
    "token_layernorm.": "embedding_norm.",
    "hidden_layernorm.": "feature_norm.",
    "input_proj.": "fc.",
    "final_layernorm.": "norm.",
}
_SPECULATORS = dict(_MIMO)  # the names are MiMo's, and the layer is any target's
_COPIES = ("shared_head.head.weight", "embed_tokens.weight")  # of the target's matrices, which stand in the same file


class Mtp(Chained):
    """An MTP layer. Its decoder layer, its norms and its rotary positions are of the target's classes in transformers; `of` is
    their configuration, of one layer."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__({"vocab_size": config.get("vocab_size"), "hidden_size": config["hidden_size"]})
        import transformers  # its layers are the target's own, of any family

        base = transformers.AutoModel.from_config(
            _made(mapping(config, "of")), attn_implementation="eager", trust_remote_code=False
        )
        self.config, self.entering = base.config, whole(config, "hidden_size")
        self.layers, self.norm, self.rotary = base.layers, base.norm, base.rotary_emb
        self.embedding_norm, self.feature_norm = copy.deepcopy(base.norm), copy.deepcopy(base.norm)
        self.fc = nn.Linear(2 * self.entering, self.entering, bias=bool(config.get("fc_bias")))
        self.own_output = True

    def enter(self, tokens: Tensor, features: Tensor) -> Tensor:
        embedded = self.embedding_norm(self.embed(tokens).to(features.dtype))
        made: Tensor = self.fc(torch.cat((embedded, self.feature_norm(features)), dim=-1))
        return made

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        return self.logits(self.norm(states))

    def back(self, states: Tensor) -> Tensor:
        made: Tensor = self.norm(states)
        return made


def _made(of: Config) -> object:
    """A configuration of transformers from what `to_dict` gave."""
    import transformers

    return type(transformers.AutoConfig.for_model(str(of["model_type"]))).from_dict(of)


def _begin(config: Config, names: Collection[str]) -> tuple[str, str, dict[str, str]] | None:
    """The beginning of the MTP layer's tensors, that of its decoder layer's, and the names of its other parts."""
    count = config.get("num_hidden_layers")
    for begin in (f"model.layers.{count}.", f"layers.{count}."):
        if f"{begin}eh_proj.weight" in names:
            return begin, begin, _DEEPSEEK
    if {"mtp.fc.weight", "mtp.pre_fc_norm_hidden.weight"} <= set(names):
        return "mtp.", "mtp.layers.0.", _QWEN
    for begin in ("model.mtp_layers.0.", "mtp_layers.0."):
        if f"{begin}input_proj.weight" in names:
            return begin, begin, _MIMO
    return None


def _is_mtp(config: Config, names: Collection[str]) -> bool:
    return _begin(config, names) is not None


def _mtp(source: HeadFolder) -> ReadHead:
    """The MTP layer of a checkpoint, or its layers as the stages of one head (staged.py). Of a model of images and text it is
    the text model's."""
    if isinstance(source.config.get("text_config"), dict):
        source = replace(source, config=mapping(source.config, "text_config"))
    found = _begin(source.config, source.tensors)
    assert found is not None, "`looks` comes before `read`"
    begin, block, parts = found
    several = any(name.startswith(_following(block)) for name in source.tensors)
    if several and parts is _QWEN:
        raise DecError(f"{source.folder} has several decoder layers in one MTP module", hint="one that has one can be run")
    stages: list[ReadHead] = []
    own = [name for name in source.tensors if _beyond(name, begin)]
    while any(name.startswith(block) for name in source.tensors):
        stages.append(_stage(source, begin, block, parts))
        own = [name for name in own if not _read(name, begin, block, parts)]
        if parts is _QWEN:
            break
        begin, block = _following(begin), _following(block)
    _check_all(source, own)
    if len(stages) == 1:
        return stages[0]
    first = stages[0]
    return ReadHead(
        first.layout,
        "features",
        "decgraph_staged",
        {"of_kind": first.model_type, "stages": [stage.config for stage in stages]},
        {f"stages.{n}.{name}": tensor for n, stage in enumerate(stages) for name, tensor in stage.tensors.items()},
        {f"stages.{n}.{ours}": published for n, stage in enumerate(stages) for ours, published in stage.stored.items()},
    )


def speculators_mtp(source: HeadFolder, of: Config) -> ReadHead:
    """vLLM's own folder of one MTP layer. of: the target's family and its sizes, without those that are defaults. Raises
    DecError for an output in two levels."""
    import transformers

    if source.config.get("num_centroids") is not None:
        raise DecError(f"{source.folder} has an output matrix in groups (num_centroids)", hint="one whole matrix can be run")
    try:
        whole = type(transformers.AutoConfig.for_model(str(of.get("model_type")))).from_dict(dict(of)).to_dict()
    except Exception as error:  # an unknown family, or values that its class does not take
        raise DecError(f"{source.folder / 'config.json'} has no target that transformers knows: {error}") from error
    own = [name for name in source.tensors if name not in ("embed_tokens.weight", "lm_head.weight")]  # the target's
    _check_all(source, [name for name in own if not _read(name, "mtp_layers.0.", "mtp_layers.0.", _SPECULATORS)])
    read = _stage(replace(source, config=whole), "mtp_layers.0.", "mtp_layers.0.", _SPECULATORS)
    return replace(read, layout="speculators MTP")


def _stage(source: HeadFolder, begin: str, block: str, parts: dict[str, str]) -> ReadHead:
    """One MTP layer, whose tensors begin so and whose decoder layer's so."""
    rules = {begin + name: ours for name, ours in parts.items()}
    tensors: dict[str, Tensor] = {}
    inner: dict[str, Tensor] = {}
    for name in source.tensors:
        rule = next((r for r in rules if name.startswith(r)), None)
        if rule is not None:
            tensors[rules[rule] + name.removeprefix(rule)] = source.tensors[name]
        elif name.startswith(block) and not name.endswith("rotary_emb.inv_freq") and name.removeprefix(begin) not in _COPIES:
            inner[name.removeprefix(block)] = source.tensors[name]
    stored = {ours: published for published, ours in rules.items()} | {"layers.0.": block}
    if parts is _MIMO:
        return _mimo(source, block, tensors, inner, stored)
    of = _one_layer(source, inner)
    fitted = _fitted(source, of, block, inner, tensors.get("fc.weight"))
    config = {
        "vocab_size": source.number("vocab_size"),
        "hidden_size": source.number("hidden_size"),
        "fc_bias": "fc.bias" in tensors,
        "of": of.to_dict(),
    }
    return ReadHead("MTP", "features", "decgraph_mtp", config, {**tensors, **fitted}, stored)


def _beyond(name: str, begin: str) -> bool:
    """Whether a tensor is one of MTP layers, of whose first the names begin so: all others are the target's."""
    stem, _, number = begin[:-1].rpartition(".")
    if not number.isdecimal():
        return name.startswith(begin)
    rest = name.removeprefix(stem + ".").partition(".")[0]
    return name.startswith(stem + ".") and (not rest.isdecimal() or int(rest) >= int(number))


def _read(name: str, begin: str, block: str, parts: dict[str, str]) -> bool:
    """Whether a tensor is one of this layer's parts, or a copy of one of the target's, or useless."""
    return name.startswith((block, *(begin + part for part in parts))) or name.removeprefix(begin) in _COPIES


def _check_all(source: HeadFolder, left: list[str]) -> None:
    if left:
        raise DecError(f"{source.folder} has tensors that no part of its MTP layers is made of: {some(left)}")


def _following(block: str) -> str:
    """The beginning of the names of the layer after this one."""
    stem, number = block[:-1].rsplit(".", 1)
    return f"{stem}.{int(number) + 1}."


def _mimo(
    source: HeadFolder, block: str, tensors: dict[str, Tensor], inner: dict[str, Tensor], stored: dict[str, str]
) -> ReadHead:
    """MiMo's: a layer of Qwen 2, and the state before the embedding where they are joined."""
    shape, options = layer_settings(source, block)
    config = {
        **shape,
        **options,
        "input_norm": True,
        "mlp": True,
        "num_hidden_layers": 1,
        "vocab_size": source.number("vocab_size"),
        "embedding": False,
        "output": False,
        "fc_bias": "fc.bias" in tensors,
        "joined_norms": True,
        "feature_first": True,
        "final_norm": True,
        "norm_output": True,
    }
    found = {**tensors, **{f"layers.0.{name}": tensor for name, tensor in inner.items()}}
    return ReadHead("MTP (MiMo)", "features", "decgraph_eagle2", config, found, stored)


def _one_layer(source: HeadFolder, inner: Collection[str]) -> PretrainedConfig:
    """The target's configuration with the MTP layer as its only layer. Raises DecError for a target that transformers does not
    know, and for a layer that attends to a window only."""
    import transformers

    kind = source.config.get("model_type")
    try:
        whole = type(transformers.AutoConfig.for_model(str(kind))).from_dict(dict(source.config))
    except Exception as error:  # an unknown kind, or values that its class does not take
        raise DecError(f"{source.folder / 'config.json'} does not describe a model that transformers knows: {error}") from error
    count, made = source.number("num_hidden_layers"), copy.deepcopy(whole)
    sparse = any(name.startswith("mlp.experts.") for name in inner)
    attends = (getattr(whole, "mtp_layer_types", None) or ["full_attention"])[0]
    if attends != "full_attention":
        raise DecError(f"{source.folder} has an MTP layer of the type {attends}", hint="one of full attention can be run")
    for key, value in whole.to_dict().items():
        if isinstance(value, list) and len(value) == count:
            setattr(made, key, value[-1:])
    # These say by a layer's number whether it has experts.
    numbered = {
        "layer_types": ["full_attention"],
        "mlp_layer_types": ["sparse" if sparse else "dense"],
        "first_k_dense_replace": 0 if sparse else 1,
        "mlp_only_layers": [] if sparse else [0],
        "decoder_sparse_step": 1,
        "moe_layer_start_index": 0 if sparse else 1,
    }
    for key, value in numbered.items():
        if getattr(whole, key, None) is not None:
            setattr(made, key, value)
    made.num_hidden_layers = 1
    return made


def _fitted(
    source: HeadFolder, of: PretrainedConfig, block: str, inner: dict[str, Tensor], like: Tensor | None
) -> dict[str, Tensor]:
    """The decoder layer's tensors by the names of transformers' class, which joins those of experts; `like` has their dtype.
    Raises DecError, by their published names, for those that are missing or too many."""
    import transformers

    small = copy.deepcopy(of)
    small.vocab_size, small.pad_token_id, small.tie_word_embeddings = 4, None, False  # no embedding is read here
    kind = type(small)
    classes: Any = transformers.AutoModelForCausalLM._model_mapping  # whose values are typed by a variable that nothing binds
    if kind not in classes:
        raise DecError(f"{source.folder} has an MTP layer of {kind.__name__}, which is no causal model of transformers")
    dtype = torch.float32 if like is None else like.dtype
    try:
        with quiet(errors_only=True):
            model, loading = classes[kind].from_pretrained(
                None,
                config=small,
                state_dict={f"model.layers.0.{name}": tensor for name, tensor in inner.items()},
                output_loading_info=True,
                dtype=dtype,
                trust_remote_code=False,
            )
    except Exception as error:  # tensors that do not fit into the class raise what its loader raises
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DecError(f"{source.folder}: the MTP layer {block}* does not fit {kind.__name__}: {said}") from error
    windows = [getattr(part, "sliding_window", None) for part in model.base_model.layers[0].modules()]
    if any(window is not None for window in windows):
        raise DecError(f"{source.folder} has an MTP layer that attends to a window", hint="one of full attention can be run")
    named = lambda keys: [block + k.removeprefix("model.layers.0.") for k in keys if k.startswith("model.layers.0.")]
    missing, extra = named(loading["missing_keys"]), named(loading["unexpected_keys"])
    if missing:
        raise DecError(f"{source.folder} has no tensor {some(missing)}", hint="without them weights would be random")
    if extra:
        raise DecError(f"{source.folder} has tensors that no part of its MTP layer is made of: {some(extra)}")
    return {f"layers.0.{name}": tensor for name, tensor in model.base_model.layers[0].state_dict().items()}


LAYOUTS = (
    HeadLayout(
        "MTP",
        "a checkpoint with `model.layers.N.eh_proj` (N: the number of layers), `mtp.fc` or `model.mtp_layers.0.input_proj`",
        _is_mtp,
        _mtp,
    ),
)
