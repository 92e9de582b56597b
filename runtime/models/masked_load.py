"""Masked models from folders and from modules: their settings, and the best way in which each can run.

The best way is by layers (`HFMasked`: cached, batched, with a decoder). A module whose layers cannot be reached is called as it
is (`CalledMasked`), and says why if a program asks for its keys and values.

Published masked models run by their weights, in transformers' classes of the same computation: LLaDA is a Llama, Dream and
Fast-dLLM v2 are Qwen2, SDAR is Qwen3, its mixtures and LLaDA-MoE are Qwen3-MoE, and LLaDA 2 is GLM-4.5, each without the causal
mask. Their own classes are code in the model's folder, which is not run. Their weights, under transformers' names, are; so they
run with caches, batched and by the decoder, like any other model. What is not that computation (another norm, ALiBi, fused
projections of another order) is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.config import mapping, whole
from decgraph.runtime.models.decoder.compared import Different
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.folders import Folder, context_of, read
from decgraph.runtime.models.hf_masked import CalledMasked, HFMasked
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.models.masked_settings import OTHERWISE, MaskedSettings, ResolvedSettings, reading_of
from decgraph.runtime.placement import Placement
from decgraph.runtime.sources import home_of
from decgraph.runtime.text import tokenizer_of, vocabulary

if TYPE_CHECKING:
    from transformers import PreTrainedModel


Weights = Mapping[str, Tensor]

RESTORED = {
    "LLaDAModelLM": "Llama",
    "DreamModel": "Qwen2",
    "Fast_dLLM_QwenForCausalLM": "Qwen2",
    "SDARForCausalLM": "Qwen3",
    "SDARMoeForCausalLM": "Qwen3Moe",
    "LLaDAMoEModelLM": "Qwen3Moe",
    "LLaDA2MoeModelLM": "Glm4Moe",
}
"""By class, the architecture of transformers that it is."""

_LLADA_SAME = {
    "alibi": (False, None),
    "rope": (True, None),
    "layer_norm_type": ("rms",),
    "include_bias": (False, None),
    "input_emb_norm": (False, None),
    "scale_logits": (False, None),
    "attention_layer_norm": (False, None),
    "clip_qkv": (None,),
    "block_group_size": (1, None),
}
"""Settings of LLaDA's configuration, and the values under which it is a Llama."""
_SAME: dict[str, dict[str, tuple[object, ...]]] = {
    "LLaDAMoEModelLM": {
        "clip_qkv": (None,),
        "qk_layernorm": (True,),
        "shared_expert_intermediate_size": (None,),
        "moe_router_score_function": ("softmax", None),
        "moe_router_enable_expert_bias": (False, None),
        "routed_scaling_factor": (1, None),
        "partial_rotary_factor": (1, None),
    },
    "LLaDA2MoeModelLM": {
        "score_function": ("sigmoid", None),
        "use_qk_norm": (True, None),
        "use_bias": (False, None),
        "rotary_type": ("half", None),
        "use_linear_attention": (False, None),
    },
}
"""Settings of the mixtures' configurations, and the values under which they are the computation of transformers' class."""
_LLADA2_NAMES = {
    "word_embeddings": "embed_tokens",
    "attention.dense": "self_attn.o_proj",
    "attention.query_layernorm": "self_attn.q_norm",
    "attention.key_layernorm": "self_attn.k_norm",
    "gate.expert_bias": "gate.e_score_correction_bias",
}
_LLADA_NAMES = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}


def restored(kind: str, config: Mapping[str, object], weights: Weights) -> PreTrainedModel:
    """A transformers model of a published class `kind` with these weights (shared) and its configuration. Raises DecError for
    weights and settings that are not that computation."""
    import transformers

    family = RESTORED[kind]
    named = {name: value for name, value in weights.items() if not name.endswith("rotary_emb.inv_freq")}
    settings = dict(config)
    if kind == "LLaDAModelLM":
        settings, named = _llada_settings(config), _llada_weights(config, named)
        family = "Qwen2" if config.get("include_qkv_bias") else "Llama"
    if kind in _SAME:
        _check_same(kind, config, _SAME[kind])
    if kind == "LLaDAMoEModelLM":
        settings = _llada_moe_settings(config)
    if kind == "LLaDA2MoeModelLM":
        settings, named = _llada2_settings(config), _llada2_weights(config, named)
    if family.endswith("Moe"):
        named = _joined_experts(named)
        settings |= dict.fromkeys(("num_local_experts", "n_routed_experts"), config["num_experts"])  # by either name
    own = getattr(transformers, f"{family}Config")
    known = own().to_dict().keys() - {"model_type", "architectures", "transformers_version", "dtype", "torch_dtype"}
    made = own(
        **{key: value for key, value in settings.items() if key in known or key in ("rope_theta", "rope_scaling", "head_dim")}
    )
    with torch.device("meta"):
        module = getattr(transformers, f"{family}ForCausalLM")(made)
    if made.tie_word_embeddings and (kind == "LLaDAModelLM" or "lm_head.weight" not in named):  # LLaDA's code reads no other
        named["lm_head.weight"] = named.get("model.embed_tokens.weight", torch.empty(0))
    _check_names(kind, named, module)
    module.load_state_dict(named, assign=True)
    rotary = module.model.rotary_emb  # its tables are computed, not loaded
    module.model.rotary_emb = type(rotary)(made).to(named["lm_head.weight"].device)
    return module.eval()


def _check_names(kind: str, named: Weights, module: nn.Module) -> None:
    wanted = {name: tuple(value.shape) for name, value in module.state_dict().items()}
    missing, extra = sorted(wanted.keys() - named.keys()), sorted(named.keys() - wanted.keys())
    wrong = sorted(name for name in wanted.keys() & named.keys() if wanted[name] != tuple(named[name].shape))
    for what, names in (("has no weights", missing), ("has other weights", extra), ("has weights of another shape", wrong)):
        if names:
            rest = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise DecError(f"this {kind} {what}: {names[0]}{rest}")


def _check_same(kind: str, config: Mapping[str, object], wanted: Mapping[str, tuple[object, ...]]) -> None:
    """Raises DecError for a setting with another value than those."""
    for name, same in wanted.items():
        if config.get(name, same[0]) not in same:
            raise DecError(f"this {kind} has {name} = {config[name]!r}, and is not a {_ARTICLED[RESTORED[kind]]}")


_ARTICLED = {"Llama": "Llama", "Qwen3Moe": "Qwen3-MoE", "Glm4Moe": "GLM-4.5"}


def _llada_moe_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Qwen3-MoE's settings of LLaDA-MoE's."""
    given = config.get("moe_layer_freq")
    frequency = given if isinstance(given, list) else [1] * whole(config, "num_hidden_layers")
    return {
        **config,
        "head_dim": config.get("head_dim") or whole(config, "hidden_size") // whole(config, "num_attention_heads"),
        "intermediate_size": config.get("dense_intermediate_size") or config["expert_intermediate_size"],
        "moe_intermediate_size": config["expert_intermediate_size"],
        "norm_topk_prob": bool(config.get("norm_topk_prob")),
        "mlp_only_layers": [n for n, sparse in enumerate(frequency) if not sparse],
        "decoder_sparse_step": 1,
    }


def _llada2_settings(config: Mapping[str, object]) -> dict[str, object]:
    """GLM-4.5's settings of LLaDA 2's."""
    rotary = {"rope_type": "default", **mapping(config, "rope_scaling"), "rope_theta": config.get("rope_theta", 10000.0)}
    return {
        **{name: value for name, value in config.items() if name not in ("rope_theta", "rope_scaling")},
        "rope_parameters": {**rotary, "partial_rotary_factor": config.get("partial_rotary_factor", 1.0)},
        "attention_bias": bool(config.get("use_qkv_bias")),
        "use_qk_norm": True,
        "norm_topk_prob": whole(config, "num_experts_per_tok") > 1,
        "n_shared_experts": config.get("num_shared_experts") or 0,
        "n_group": config.get("n_group") or 1,
        "topk_group": config.get("topk_group") or 1,
        "routed_scaling_factor": config.get("routed_scaling_factor") or 1.0,
    }


def _llada2_weights(config: Mapping[str, object], weights: Weights) -> dict[str, Tensor]:
    """LLaDA 2's weights under GLM-4.5's names: one matrix for queries, keys and values is split."""
    heads, kv, size = (whole(config, name) for name in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    made: dict[str, Tensor] = {}
    for name, value in weights.items():
        begin, middle, sort = name.rpartition("attention.query_key_value.")
        if middle:
            pieces = value.split((heads * size, kv * size, kv * size))
            made |= {f"{begin}self_attn.{part}_proj.{sort}": piece for part, piece in zip("qkv", pieces, strict=True)}
            continue
        for theirs, ours in _LLADA2_NAMES.items():
            name = name.replace(theirs, ours)
        made[name] = value
    for name in [name for name in made if name.endswith("mlp.gate.weight")]:  # a router without a bias has none
        made.setdefault(name.replace("weight", "e_score_correction_bias"), torch.zeros(len(made[name])))
    return made


def _joined_experts(weights: Weights) -> dict[str, Tensor]:
    """The matrices of a mixture's experts in one tensor each, [experts, out, in], as transformers has them."""
    made: dict[str, Tensor] = {}
    experts: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name, value in weights.items():
        begin, middle, rest = name.partition(".experts.")
        number, _, part = rest.partition(".")
        if middle and number.isdigit() and part in ("gate_proj.weight", "up_proj.weight", "down_proj.weight"):
            experts.setdefault(begin, {}).setdefault(int(number), {})[part.partition("_")[0]] = value
        else:
            made[name] = value
    for begin, parts in experts.items():
        if sorted(parts) != list(range(len(parts))) or any(len(part) != 3 for part in parts.values()):
            raise DecError(f"{begin} lacks some of the matrices of its experts")
        each = [parts[n] for n in range(len(parts))]
        made[f"{begin}.experts.gate_up_proj"] = torch.stack([torch.cat([one["gate"], one["up"]]) for one in each])
        made[f"{begin}.experts.down_proj"] = torch.stack([one["down"] for one in each])
    return made


def _llada_settings(config: Mapping[str, object]) -> dict[str, object]:
    """Llama's settings of LLaDA's."""
    _check_same("LLaDAModelLM", config, _LLADA_SAME)
    kind, width = config.get("block_type", "llama"), whole(config, "d_model")
    inner = whole(config, "mlp_hidden_size", 0) or whole(config, "mlp_ratio") * width
    act = config.get("activation_type", "silu")
    if (kind, act) not in (("llama", "silu"), ("sequential", "swiglu")):
        raise DecError(f"this LLaDAModelLM has blocks {kind!r} with {act!r}, and is not a Llama")
    kv = config.get("n_kv_heads") or (1 if config.get("multi_query_attention") else config["n_heads"])
    return {
        "vocab_size": config.get("embedding_size") or config["vocab_size"],
        "hidden_size": width,
        "intermediate_size": inner if kind == "llama" else inner // 2,
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "num_key_value_heads": kv,
        "max_position_embeddings": config["max_sequence_length"],
        "rms_norm_eps": config.get("rms_norm_eps", 1e-5),
        "rope_theta": config.get("rope_theta", 10000.0),
        "tie_word_embeddings": bool(config.get("weight_tying")),
        "eos_token_id": config.get("eos_token_id"),
        "pad_token_id": config.get("pad_token_id"),
    }


def _llada_weights(config: Mapping[str, object], weights: Weights) -> dict[str, Tensor]:
    """LLaDA's weights under Llama's names: one matrix for queries, keys and values, or for both halves of the MLP, is split."""
    made: dict[str, Tensor] = {}
    whole = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}
    for name, value in weights.items():
        path = name.removeprefix("model.").removeprefix("transformer.").split(".")
        if path[0] in whole:
            made[f"{whole[path[0]]}.{path[-1]}"] = value
            continue
        if path[0] != "blocks" or len(path) != 4:
            made[name] = value  # refused by name later
            continue
        _, layer, part, sort = path
        for inner, piece in _pieces(config, part, value).items():
            made[f"model.layers.{layer}.{_LLADA_NAMES.get(inner, inner)}.{sort}"] = piece
    return made


def _pieces(config: Mapping[str, object], part: str, value: Tensor) -> dict[str, Tensor]:
    if part == "att_proj":
        heads, width = whole(config, "n_heads"), whole(config, "d_model")
        kv = whole(config, "n_kv_heads", 1 if config.get("multi_query_attention") else heads)
        each = width // heads * kv
        return dict(zip(("q_proj", "k_proj", "v_proj"), value.split((width, each, each)), strict=True))
    if part == "ff_proj" and config.get("block_type") == "sequential":  # SwiGLU: the second half goes through the activation
        up, gate = value.chunk(2)
        return {"up_proj": up, "ff_proj": gate}
    return {part: value}


_DECODERS = ("ForCausalLM", "LMHeadModel")
_SAMPLE = 7  # positions of the forward by which a restored model is compared
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-8}  # of the logits, root mean squares
_HALF = 0.1  # rounding of 16 bits adds up over layers; another computation is off by about 1

AnyMasked = HFMasked | CalledMasked


def load_masked(path: str | Path, asked: MaskedSettings | None = None, placed: Placement | None = None) -> AnyMasked:
    """The masked model in a folder: a `ForMaskedLM`, a decoder trained to fill masks (`ForCausalLM`), or a
    published class of which transformers has no code (`RESTORED`). asked: settings before the folder's own.
    placed: the device and the dtype; None: `auto` for both.

    Raises DecError for a folder without such a model, for settings that nobody says, and for a device that is not there.
    """
    placed = (placed or Placement()).resolved()
    folder = read(path, "masked", _check_masked)
    config, kind = dict(folder.config), folder.named
    vocab, home = vocabulary(folder.path, folder.size), folder.path
    reading = _reading(folder.name, kind, config, asked or MaskedSettings(), home)
    known = _MaskedSource(reading, folder.name, vocab, str(home), home)
    if kind in RESTORED:
        from decgraph.runtime.models.decoder.make import net_of_module

        net = net_of_module(restored(kind, config, _weights(folder, placed)), folder.name)
        return known.by_layers(hf.placed_net(net, home, placed), _context(net))
    made = hf.decoder_net(folder, placed)
    if isinstance(made, Net):
        return known.by_layers(made, context_of(config))
    loader = "AutoModelForMaskedLM" if kind.endswith("ForMaskedLM") else "AutoModelForCausalLM"
    import transformers

    from decgraph.runtime.models.decoder.make import net_of_module

    try:
        module = hf.pretrained(getattr(transformers, loader), folder, None, placed)
        net = net_of_module(module, folder.name, entry=not isinstance(made, Different))
    except Exception as refused:  # layers that cannot be reached, or called so: another's code raises what it likes
        module = hf.pretrained(getattr(transformers, loader), folder, None, placed)
        return known.called(module, context_of(config), refused)
    return known.by_layers(net, context_of(module.config.to_dict()))


class _MaskedSource(NamedTuple):
    """A masked model's settings, before it is known how the model can run. home: the folder of its files, or None."""

    reading: ResolvedSettings
    name: str
    vocab: Vocab
    family: str
    home: Path | None

    def by_layers(self, net: Net, context: int | None) -> HFMasked:
        mask, shift, seen = self.reading.mask, self.reading.shift, self.reading.visibility
        made = HFMasked(net, name=self.name, vocab=self.vocab, context=context, family=self.family,
                        mask=mask, visibility=seen, shift=shift)  # fmt: skip
        made.home = self.home
        return made

    def called(self, module: nn.Module, context: int | None, refused: Exception) -> CalledMasked:
        """The module called as it is, since its layers were refused for a reason."""
        why = str(refused.diagnostics[0]) if isinstance(refused, DecError) else f"{type(refused).__name__}: {refused}"
        made = CalledMasked(
            module, self.reading, name=self.name, vocab=self.vocab, context=context, family=self.family, why=why
        )
        made.home = self.home
        return made


def _check_masked(at: Path, kind: str) -> None:
    """Raises DecError for a folder of a class that is no masked model's."""
    if kind not in (*RESTORED, *OTHERWISE) and not kind.endswith(("ForMaskedLM", *_DECODERS)):
        raise DecError(
            f"{at} is not a masked model but a {kind}",
            hint=f"a masked model is a ...ForMaskedLM, a ...ForCausalLM that fills masks, or a {', '.join(RESTORED)}",
        )


def masked_of(
    module: nn.Module, name: str, vocab: Vocab, asked: MaskedSettings, copied: Callable[[nn.Module], nn.Module]
) -> AnyMasked:
    """The masked model of a live module, whose weights it shares. copied: a copy of the module around the same weights. Raises
    DecError as `load_masked` does."""
    config, kind = _config(module), type(module).__name__
    reading = _reading(name, kind, {"vocab_size": vocab.size, **config}, asked, home_of(module))
    known = _MaskedSource(reading, name, vocab, f"{name}#{id(module)}", home_of(module))
    context = context_of(config) or whole(config, "max_sequence_length", 0) or None
    from decgraph.runtime.models.decoder.make import net_of_module  # with transformers, as the module is

    try:
        if kind in RESTORED:
            kept = module.state_dict()  # with the biases of routers, which are buffers
            net = net_of_module(restored(kind, config, kept | dict(module.named_parameters())), name)
            _check_equal(module, net, kind)
        else:
            net = net_of_module(copied(module), name)
            context = _context(net)
    except Exception as refused:  # a class of unknown make, which is called instead: its code raises what it likes
        return known.called(module, context, refused)
    return known.by_layers(net, context)


def _config(module: nn.Module) -> dict[str, object]:
    config = getattr(module, "config", None)
    written = getattr(config, "to_dict", None)
    found = written() if written is not None else vars(config) if hasattr(config, "__dict__") else {}
    return {key: value for key, value in found.items() if not key.startswith("_")}


def _context(net: Net) -> int | None:
    """The most positions of the module that a net is made of."""
    assert net.base is not None, "it is made of a module"
    return context_of(_config(net.base))


def _reading(name: str, kind: str, config: dict[str, object], asked: MaskedSettings, home: Path | None) -> ResolvedSettings:
    """The settings of a model, with the mask that its folder's tokenizer names where its configuration names none."""
    if config.get("mask_token_id") is None:
        config = {**config, "mask_token_id": _mask_text(home)}
    return reading_of(name, kind, config, asked, _token(home))


def _token(folder: Path | None) -> Callable[[str], int | None]:
    """The id of a special token's text, by a folder's tokenizer."""
    return lambda text: None if (tokenizer := tokenizer_of(folder)) is None else tokenizer.token(text)


def _mask_text(folder: Path | None) -> str | None:
    """The text of the mask token that a folder's tokenizer names."""
    if folder is None or not (folder / "tokenizer.json").is_file():
        return None
    try:
        found = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("mask_token")
    except (OSError, ValueError):
        return None
    text = found.get("content") if isinstance(found, dict) else found
    return text if isinstance(text, str) else None


def _weights(folder: Folder, placed: Placement) -> dict[str, Tensor]:
    """The weights of a folder's safetensors files, in their dtype and on their device."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    dtype, found = placed.precision(folder.dtype), dict[str, Tensor]()
    for path in sorted(folder.path.glob("*.safetensors")):
        try:
            found |= {name: value.to(placed.device, dtype) for name, value in load_file(path).items()}
        except SafetensorError as error:
            raise DecError(f"{path} cannot be read: {error}") from None
    return found


@torch.no_grad()
def _check_equal(module: nn.Module, net: Net, kind: str) -> None:
    """Raises DecError unless a restored model gives the module's own scores."""
    ids = torch.arange(_SAMPLE, device=net.decoder.device) * 5 % len(net.decoder.embedding)
    training = module.training
    expected = module.eval()(input_ids=ids[None]).logits[0].double()
    module.train(training)
    ours = net.scores(ids, causal=False)
    limit = _TOLERANCE.get(net.decoder.embedding.dtype, _HALF) * float(expected.square().mean().sqrt())
    if expected.shape != ours.shape or not float((ours - expected).square().mean().sqrt()) <= limit:
        raise DecError(f"this {kind} computes something else than its published class")
