"""The layouts of Hydra, Hydra++ (hydra_lm_head.pt) and ReDrafter."""

from __future__ import annotations

import re
from collections.abc import Collection

from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead

_PREFIX = "prefix_embeding_layer."  # so spelt upstream


def _is_hydra(config: Config, names: Collection[str]) -> bool:
    return any(n.startswith("hydra_mlp.") for n in names) and any(n.startswith("hydra_lm_head.") for n in names)


def _hydra(source: HeadFolder) -> ReadHead:
    arch = source.config.get("hydra_head_arch", "mlp")
    if arch not in ("mlp", "prefix-mlp"):
        raise DecError(f"{source.folder} holds Hydra heads of the architecture {arch!r}", hint="known are mlp and prefix-mlp")
    found: dict[str, Tensor] = {}
    stored: dict[str, str] = {}
    at: dict[int, list[int]] = {}
    for name in source.tensors:
        if match := re.fullmatch(r"hydra_mlp\.(\d+)\.(\d+)\..*", name):
            places = at.setdefault(int(match[1]), [])
            if int(match[2]) not in places:
                places.append(int(match[2]))
    for name in source.tensors:
        ours = _hydra_name(name, at)
        if ours == "":
            continue
        if ours is None:
            raise DecError(f"{source.folder} has a tensor {name}, which no part of a Hydra head is made of")
        found[ours], stored[ours] = source.tensors[name], name
    matrix = found.get("heads.0.output.weight")
    if matrix is None:
        raise DecError(f"{source.folder} has no output matrix hydra_lm_head.0.weight")
    vocab, width = matrix.shape
    first = found.get("heads.0.blocks.0.linear.weight")
    if first is None:
        raise DecError(f"{source.folder} has no tensor hydra_mlp.0.0.linear.weight")
    prefixed = any(name.startswith("prefix.") for name in found)
    if prefixed != (arch == "prefix-mlp"):
        raise DecError(f"{source.folder} has {'a' if prefixed else 'no'} prefix layer, and its config.json says "
                       f"hydra_head_arch {arch!r}")  # fmt: skip
    config: Config = {
        "vocab_size": vocab,
        "hidden_size": width,
        "heads": 1 + max(at),
        "blocks": max(len(places) for places in at.values()),
        "grounded": first.shape[1] != width,
        "prefix": prefixed,
        "embedding": "embed_tokens.weight" in found,
        "matrix_bias": any(name.endswith(".output.bias") for name in found),
    }
    stored |= {"prefix.": _PREFIX}
    for head, places in at.items():
        stored[f"heads.{head}.output."] = f"hydra_lm_head.{head}."
        for n, place in enumerate(sorted(places)):
            stored[f"heads.{head}.blocks.{n}.linear."] = f"hydra_mlp.{head}.{place}.linear."
            stored[f"heads.{head}.blocks.{n}.residual."] = f"hydra_mlp.{head}.{place}.res_connection."
    if not config["grounded"]:
        found.pop("embed_tokens.weight", None)
    if prefixed:  # its configuration is the target's, which is not in the folder
        inner = found.get("prefix.layers.0.mlp.gate_proj.weight")
        bias = "prefix.layers.0.self_attn.q_proj.bias" in found
        config |= {"intermediate_size": None if inner is None else inner.shape[0], "qkv_bias": bias, "of_target": True}
    return ReadHead("Hydra++" if prefixed else "Hydra", "features", "decgraph_hydra", config, found, stored)


def _hydra_name(name: str, at: dict[int, list[int]]) -> str | None:
    """Our name of a tensor; "" for one that no head reads, None for an unknown one. Dropout takes up numbers upstream."""
    if match := re.fullmatch(r"hydra_mlp\.(\d+)\.(\d+)\.(linear|res_connection)\.(weight|bias)", name):
        head, place = int(match[1]), sorted(at[int(match[1])]).index(int(match[2]))
        return f"heads.{head}.blocks.{place}.{'linear' if match[3] == 'linear' else 'residual'}.{match[4]}"
    if match := re.fullmatch(r"hydra_lm_head\.(\d+)\.(?:\d+\.)?(weight|bias)", name):
        return f"heads.{match[1]}.output.{match[2]}"
    if name == "input_embed_fn.weight":
        return "embed_tokens.weight"
    if name.startswith(_PREFIX):
        rest = name.removeprefix(_PREFIX)
        return "" if rest == "embed_tokens.weight" or rest.endswith("inv_freq") else f"prefix.{rest}"
    return None


def _is_redrafter(config: Config, names: Collection[str]) -> bool:
    named = all(n.split(".")[0] in ("lm_head", "rnn_u", "rnn_w", "input_proj") for n in names)
    return named and any(re.fullmatch(r"lm_head\.\d+\.weight", n) for n in names)


def _redrafter(source: HeadFolder) -> ReadHead:
    last = max(int(n.split(".")[1]) for n in source.tensors if re.fullmatch(r"lm_head\.\d+\.weight", n))
    vocab, inner = source.shape(f"lm_head.{last}.weight")
    rnn = "rnn_w.weight" in source.tensors or "rnn_u.weight" in source.tensors
    said = source.config.get("rnn")
    if isinstance(said, bool) and said != rnn:
        raise DecError(f"{source.folder} has {'an' if rnn else 'no'} RNN, and its config.json says rnn {str(said).lower()}")
    width = source.shape("rnn_w.weight")[0] if rnn and "rnn_w.weight" in source.tensors else source.number("hidden_size")
    project = "input_proj.weight" in source.tensors
    if not project and inner != 2 * width:
        raise DecError(f"{source.folder} has no tensor input_proj.weight, and its blocks have width {inner}, not 2 x {width}")
    config: Config = {
        "vocab_size": vocab,
        "hidden_size": width,
        "rnn": rnn,
        "blocks": last,
        "exit_width": inner,
        "project": project,
    }
    return ReadHead("ReDrafter", "features", "decgraph_redrafter", config, dict(source.tensors))


LAYOUTS = (
    HeadLayout("Hydra", "`hydra_mlp.*` and `hydra_lm_head.*` in hydra_lm_head.pt", _is_hydra, _hydra),
    HeadLayout(
        "ReDrafter", "`lm_head.0.linear.weight`, perhaps `rnn_w.weight` and `input_proj.weight`", _is_redrafter, _redrafter
    ),
)
