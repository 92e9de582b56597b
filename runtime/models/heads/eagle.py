"""The layouts of EAGLE-1, EAGLE-2 and EAGLE-3 (SafeAILab): `fc.*` with `layers.0.*`, or with `midlayer.*` and `d2t`."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.config import mapping, whole
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead, count_of, layer_settings, renamed


def _is_eagle(config: Config, names: Collection[str]) -> bool:
    return "fc.weight" in names and "layers.0.self_attn.q_proj.weight" in names and "hidden_norm.weight" not in names


def _eagle(source: HeadFolder) -> ReadHead:
    shape, options = layer_settings(source, "layers.0.")
    rows, width = source.shape("fc.weight"), whole(shape, "hidden_size")
    if rows != (width, 2 * width):
        raise DecError(f"{source.folder}: fc.weight has the shape {rows[0]}x{rows[1]}, and an EAGLE head of width "
                       f"{width} has {width}x{2 * width}")  # fmt: skip
    bias = source.config.get("bias")
    embeds = "embed_tokens.weight" in source.tensors
    config = {
        **shape,
        **options,
        "num_hidden_layers": count_of(source.tensors, "layers."),
        "vocab_size": source.shape("embed_tokens.weight")[0] if embeds else source.number("vocab_size"),
        "embedding": embeds,
        "fc_bias": bias if isinstance(bias, bool) else "fc.bias" in source.tensors,
        "final_norm": "norm.weight" in source.tensors,
        "output": "lm_head.weight" in source.tensors,
    }
    found, stored = renamed(source, {"lm_head.": "output.matrix."})
    return ReadHead("EAGLE-1/2", "features", "decgraph_eagle2", config, found, stored)


def _is_trained(config: Config, names: Collection[str]) -> bool:
    return config.get("model_type") == "decgraph_eagle"


def _trained(source: HeadFolder) -> ReadHead:
    shape, options = layer_settings(source, "layer.")
    config = {**shape, **options, "num_hidden_layers": 1, "vocab_size": source.shape("embed_tokens.weight")[0]}
    found, stored = renamed(source, {"layer.": "layers.0."})
    return ReadHead("decgraph", "features", "decgraph_eagle2", config, found, stored)


def _is_eagle3(config: Config, names: Collection[str]) -> bool:
    return "fc.weight" in names and any(name.startswith("midlayer.") for name in names)


def _eagle3(source: HeadFolder) -> ReadHead:
    return eagle3_like(source, "midlayer.", source.config, "EAGLE-3")


def eagle3_like(source: HeadFolder, first: str, of: Config, layout: str) -> ReadHead:
    """An EAGLE-3 head. first: the beginning of the names of its first layer's tensors; of: the configuration of its layers.
    Raises DecError for one that the tensors contradict."""
    shape, options = layer_settings(source, first, of, entering=2)
    said = {**mapping(source.config, "eagle_config"), **source.config}
    reads = said.get("eagle_aux_hidden_state_layer_ids") or said.get("target_layer_ids")
    if reads is not None and (not isinstance(reads, list) or not all(isinstance(n, int) and n >= 0 for n in reads)):
        raise DecError(f"{source.folder / 'config.json'} has {reads!r} for eagle_aux_hidden_state_layer_ids",
                       hint="a list of layers' numbers")  # fmt: skip
    hidden, whole = source.shape("fc.weight")
    count = len(reads) if reads else 3
    if whole % count:
        raise DecError(
            f"{source.folder}: fc.weight has the shape {hidden}x{whole}, which {count} states side by side do not have"
        )
    has = lambda name: name in source.tensors
    rules = {first: "layers.0.", "lm_head.": "output.matrix."}
    found, stored = renamed(source, rules, drop=("d2t", "t2d"))
    vocab = source.shape("embed_tokens.weight")[0] if has("embed_tokens.weight") else source.number("vocab_size", of=of)
    rows = _rows(source, said, vocab)
    tokens = draft_tokens(source, rows, vocab)
    if tokens is not None:
        found["output.tokens"] = tokens
    config = {
        **shape,
        **options,
        "input_norm": True,
        "mlp": True,
        "num_hidden_layers": 1 + count_of([n for n in found if not n.startswith("layers.0.")], "layers."),
        "vocab_size": vocab,
        "reads": reads,
        "target_width": whole // count,
        "draft_vocab_size": rows,
        "mapped": tokens is not None,
        "embedding": has("embed_tokens.weight"),
        "output": has("lm_head.weight"),
        "fc_bias": has("fc.bias"),
        "fc_norm": has("fc_norm.0.weight") or bool(said.get("fc_norm")),
        "norm_before_fc": has("input_norm.weight") or bool(said.get("norm_before_fc")),
        "norm_before_residual": bool(said.get("norm_before_residual")),
        "norm_output": bool(said.get("norm_output")),
    }
    return ReadHead(layout, "features", "decgraph_eagle3", config, found, stored)


def _rows(source: HeadFolder, said: Config, vocab: int) -> int:
    """How many tokens the head can draft. Raises DecError where config.json says a part of the vocabulary and no tensor says
    which."""
    for name in ("lm_head.weight", "d2t"):
        if name in source.tensors:
            return source.shape(name)[0]
    drafts = said.get("draft_vocab_size")
    if drafts is not None and drafts != vocab:
        raise DecError(
            f"{source.folder} has neither lm_head.weight nor d2t, and its config.json says {drafts!r} of {vocab} tokens",
            hint="without lm_head.weight the target's rows at the tokens of d2t are read",
        )
    return vocab


def draft_tokens(source: HeadFolder, rows: int, vocab: int) -> Tensor | None:
    """The ids int64[rows] of the output matrix's rows; None where its rows are the vocabulary in its order. Raises DecError for
    maps that are missing, contradict each other or lead out of the vocabulary."""
    if "d2t" not in source.tensors:
        if rows != vocab:
            raise DecError(f"{source.folder} has no tensor d2t, and its lm_head has {rows} rows for {vocab} tokens")
        return None
    steps = source.tensors["d2t"]
    if steps.shape != (rows,) or steps.is_floating_point():
        raise DecError(f"{source.folder}: d2t must be {rows} whole numbers, one for each row of lm_head")
    tokens = torch.arange(rows) + steps.long()
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocab or len(tokens.unique()) < rows:
        raise DecError(f"{source.folder}: d2t (a token less the row's number) leads out of the vocabulary of {vocab} tokens, "
                       "or to one token twice")  # fmt: skip
    kept = source.tensors.get("t2d")
    if kept is not None and kept.shape == (vocab,) and set(kept.nonzero().flatten().tolist()) != set(tokens.tolist()):
        raise DecError(f"{source.folder}: t2d and d2t name different tokens")
    return None if rows == vocab and not steps.any() else tokens


LAYOUTS = (
    HeadLayout("a head trained by decgraph", "`fc.*` and `layer.*`, and the model_type decgraph_eagle", _is_trained, _trained),
    HeadLayout("EAGLE-1/2", "`fc.weight` with `layers.0.*`, in pytorch_model.bin or model.safetensors", _is_eagle, _eagle),
    HeadLayout("EAGLE-3", "`fc.weight` with `midlayer.*`, perhaps `d2t` and `t2d`", _is_eagle3, _eagle3),
)
