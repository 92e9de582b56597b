"""DFlash (z-lab): a block of masks behind the root is denoised at once, on keys and values made of the target's states.

The context's keys and values are projections of what a Linear makes of several of the target's states, the same for every
layer. The block attends to all of it and to itself in both directions; its slot j guesses the token j places after the root.
DFlash 2's layers have convolutions over the block. What corrects the scores of places is in corrections.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import cast

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import number, whole, wholes
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.layers import over, step_of_layers
from decgraph.runtime.models.heads import corrections
from decgraph.runtime.models.heads.base import DraftOutput
from decgraph.runtime.models.heads.corrections import parts_of
from decgraph.runtime.models.heads.eagle import draft_tokens
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead, count_of, layer_settings, renamed
from decgraph.runtime.models.heads.parts import HeadLayer, Norm, rotary_of
from decgraph.runtime.models.heads.rooted import Before, Rooted
from decgraph.runtime.native.products import NativeLinear


class DFlash(Rooted):
    """Options: `reads` (which of the target's states, as EAGLE-3's), `block` (the root and the masks), `anchor` (the root's
    slot guesses the token after it, and slot j the one after the j-th draft, as in DSpark), `mask_token_id`, `embedding` and
    `output` (of its own; otherwise the target's), `draft_vocab_size`, `mapped`, `windows` (of each layer, None: all positions;
    a place sees those at most so far away), `causal` (of each layer: a place sees none behind it), `embedding_scale`,
    `logit_scale` and `logit_cap` (of what it reads of the target's embeddings and makes with its matrix), and those of its
    layers."""

    stated = True

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        shape, options = self.shape, self.options
        width = int(shape.hidden_size)
        self.reads = wholes(options, "reads")
        self.mask, self.block = whole(options, "mask_token_id"), whole(options, "block")
        self.fc = NativeLinear(
            len(self.reads) * whole(options, "target_width", width), width, bias=bool(options.get("fc_bias"))
        )
        self.hidden_norm = Norm(width, shape.rms_norm_eps)
        self.layers = nn.ModuleList(HeadLayer(shape, options) for _ in range(shape.num_hidden_layers))
        self.logit_scale, self.logit_cap = 1.0, cast("float | None", None)
        windows = options.get("windows")
        self.windows: list[int | None] = list(windows) if isinstance(windows, list) else [None] * len(self.layers)
        causal = options.get("causal")
        self.causal: list[bool] = list(causal) if isinstance(causal, list) else [False] * len(self.layers)
        self.norm = Norm(width, shape.rms_norm_eps)
        self.rotary = rotary_of(shape)
        if options.get("embedding"):
            self.embed_tokens = nn.Embedding(self.vocab, width)
        if options.get("output"):
            rows = whole(options, "draft_vocab_size", self.vocab)
            self.output = DraftOutput(width, rows, self.vocab, mapped=bool(options.get("mapped")))

    @property
    def depth(self) -> int:  # type: ignore[override]  # it follows the block's size
        """How many tokens it drafts at most: a slot of the block each, but the root's where that guesses nothing (`anchor`)."""
        return self.block - (not self.options.get("anchor"))

    def attach(self, embedding: Tensor, output: Callable[[Tensor], Tensor], layers: int) -> None:
        super().attach(embedding, output, layers)
        shape = getattr(getattr(output, "__self__", None), "shape", None)  # a target whose logits are more than a product
        theirs = (getattr(shape, "logit_scale", 1.0), getattr(shape, "logit_cap", None))
        mine = (number(self.options, "logit_scale", 1.0), number(self.options, "logit_cap", 0.0) or None)
        if self.output is not None or theirs == (1.0, None):
            self.logit_scale, self.logit_cap = mine
        elif mine not in (theirs, (1.0, None)):
            raise DecError(f"the head's logits are scaled and capped by {mine}, and its target's by {theirs}")
        assert self.reads is not None
        if not all(0 <= n <= layers for n in self.reads):
            which = ", ".join(map(str, self.reads))
            raise DecError(f"the head reads the inputs of the target's layers {which}, and this target has {layers} layers")
        whole = len(self.reads) * embedding.shape[1]
        if self.fc.in_features != whole:
            raise DecError(
                f"the head's fc reads {self.fc.in_features} numbers, and {len(self.reads)} states of the target have {whole}: "
                "it belongs to another target"
            )

    def nothing(self) -> Before:
        return Before()

    def context(self, states: Tensor) -> Tensor:
        """What the keys and values of positions are made of [..., hidden], of the target's states [..., n width]."""
        made: Tensor = self.hidden_norm(self.fc(states))
        return made

    def prepare(self, states: Tensor, positions: Tensor, before: Before | None = None) -> Before:
        step = step_of_layers(self)
        assert isinstance(step, TransformerDecoder), "its layers are ours"
        kv = step.keys_and_values(self.context(states)[None], positions[None])
        if before is not None and before.kv:
            kv = [
                (torch.cat((k, keys), 2), torch.cat((v, values), 2))
                for (k, v), (keys, values) in zip(before.kv, kv, strict=True)
            ]
        return Before(kv=kv)

    def places(self, before: Before, roots: Tensor, position: int) -> Tensor:
        for root in set(roots.tolist()) - set(before.memo):
            before.memo[root] = self._block(before, root, position)
        return torch.stack([before.memo[root] for root in roots.tolist()])

    def states(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        return self.places(before, tokens[:, 0], position)[:, tokens.shape[1] - 1]

    def logits(self, states: Tensor) -> Tensor:
        made = super().logits(states)
        made = made if self.logit_scale == 1 else made * self.logit_scale
        return made if self.logit_cap is None else torch.tanh(made / self.logit_cap) * self.logit_cap

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        return self.logits(states)

    def blocks(self, roots: Tensor) -> Tensor:
        """What enters the first layer [m, block, hidden]: roots int64[m], and masks behind them."""
        tokens = torch.full((len(roots), self.block), self.mask, device=roots.device)
        tokens[:, 0] = roots
        return self.embed(tokens).to(self.fc.weight.dtype) * number(self.options, "embedding_scale", 1.0)

    def _block(self, before: Before, root: int, position: int) -> Tensor:
        """The states [depth, width] of the places after a root at `position`. Raises DecError where positions before the root
        were evicted and a window would have to be known."""
        if (length := before.kv[0][0].shape[2] if before.kv else 0) != position and any(self.windows):
            raise DecError("a DFlash head with a sliding window needs all positions before the root")
        at = torch.arange(self.block, device=self.fc.weight.device)
        seen = at.new_ones(self.block, length + self.block, dtype=torch.bool)  # in both directions
        entering = self.blocks(at.new_tensor([root]))[0]
        made, _ = over(self, entering, position + at, seen=seen, past=before.kv, windows=self.windows, causal=self.causal)
        out: Tensor = self.norm(made[self.block - int(self.depth) :])
        return out


def dflash_like(
    source: HeadFolder,
    of: Config,
    reads: object,
    mask: object,
    layout: str,
    *,
    anchor: bool = False,
    block: int | None = None,
    more: Config | None = None,
) -> ReadHead:
    """A DFlash head. of: the configuration of its layers; reads: the layers whose inputs it reads; mask: the token; anchor: see
    `DFlash`, where the configuration does not say it; block: its size, where that is not at the top; more: other options.
    Raises DecError for a configuration that says neither reads nor mask, or that the tensors contradict."""
    shape, options = layer_settings(source, "layers.0.", of)
    if not isinstance(reads, list) or not reads or not all(isinstance(n, int) and not isinstance(n, bool) for n in reads):
        raise DecError(
            f"{source.folder / 'config.json'} does not say which layers' states are read", hint="target_layer_ids: [...]"
        )
    if isinstance(mask, bool) or not isinstance(mask, int):
        raise DecError(f"{source.folder / 'config.json'} does not say which token is the mask", hint="mask_token_id: a number")
    kinds, layers = of.get("layer_types"), count_of(source.tensors, "layers.")
    kinds = kinds if isinstance(kinds, list) and kinds else ["full_attention"] * layers
    if len(kinds) != layers:
        raise DecError(f"{source.folder} has {layers} layers, and its config.json has {len(kinds)} layer_types")
    sliding, causal = [kind == "sliding_attention" for kind in kinds], source.config.get("is_causal")
    if (any(sliding) or causal) and not layout.startswith("DFlash"):
        raise DecError(
            f"{source.folder} has layers with a sliding window or causal ones, which are known of z-lab's DFlash alone"
        )
    has = lambda name: name in source.tensors
    vocab = source.shape("embed_tokens.weight")[0] if has("embed_tokens.weight") else source.number("vocab_size", of=of)
    rows = source.shape("lm_head.weight")[0] if has("lm_head.weight") else vocab
    parts = parts_of(source)
    maps = {"d2t", "t2d"} if has("lm_head.weight") else set[str]()
    found, stored = renamed(source, {"lm_head.": "output.matrix."}, drop=maps.union(*parts.values()))
    tokens = draft_tokens(source, rows, vocab) if has("lm_head.weight") else None
    if tokens is not None:
        found["output.tokens"] = tokens
    config: Config = {
        **shape,
        **options,
        "input_norm": True,
        "num_hidden_layers": layers,
        "vocab_size": vocab,
        "reads": reads,
        "target_width": source.shape("fc.weight")[1] // len(reads),
        "block": source.number("block_size") if block is None else block,
        "windows": [source.number("sliding_window", of=of) - 1 if windowed else None for windowed in sliding],
        "causal": sliding if causal is None else [bool(causal)] * layers,
        "anchor": bool(source.config.get("sample_from_anchor", anchor)),
        "mask_token_id": mask,
        "embedding": has("embed_tokens.weight"),
        "output": has("lm_head.weight"),
        "draft_vocab_size": rows,
        "mapped": tokens is not None,
        "fc_bias": has("fc.bias"),
        **(more or {}),
    }
    return ReadHead(layout, "features", "decgraph_dflash", config, found, stored, tuple(parts))


def _is_transformers(config: Config, names: Collection[str]) -> bool:
    return "encoder.fc.weight" in names and "encoder.output_norm_enc.weight" in names


def _transformers(source: HeadFolder) -> ReadHead:
    """The assistant models of transformers (`MuseGlimmerAssistantModel`): z-lab's layout under other names, perhaps with
    sliding windows."""
    of = source.config
    shape, options = layer_settings(source, "layers.0.", of)
    outputs, layers = of.get("target_layer_ids"), count_of(source.tensors, "layers.")
    if not isinstance(outputs, list) or not outputs or not all(isinstance(n, int) for n in outputs):
        raise DecError(
            f"{source.folder / 'config.json'} does not say which layers' states are read", hint="target_layer_ids: [...]"
        )
    kinds = of.get("layer_types")
    kinds = kinds if isinstance(kinds, list) and kinds else ["full_attention"] * layers
    if len(kinds) != layers:
        raise DecError(f"{source.folder} has {layers} layers, and its config.json has {len(kinds)} layer_types")
    found, stored = renamed(source, {"encoder.fc.": "fc.", "encoder.output_norm_enc.": "hidden_norm."})
    config: Config = {
        **shape,
        **options,
        "input_norm": True,
        "num_hidden_layers": layers,
        "reads": [n + 1 for n in outputs],
        "target_width": source.shape("encoder.fc.weight")[1] // len(outputs),
        "block": source.number("block_size"),
        "mask_token_id": source.number("mask_token_id"),
        "fc_bias": "encoder.fc.bias" in source.tensors,
        "windows": [source.number("sliding_window") if kind == "sliding_attention" else None for kind in kinds],
    }
    return ReadHead("DFlash of transformers", "features", "decgraph_dflash", config, found, stored)


def _is_dflash(config: Config, names: Collection[str]) -> bool:
    return "dflash_config" in config or ("fc.weight" in names and "hidden_norm.weight" in names)


def _dflash(source: HeadFolder) -> ReadHead:
    parts, outputs = parts_of(source), source.said("target_layer_ids")
    spark = corrections.MARKOV in parts or bool(source.said("markov_rank"))  # of DeepSpec and SpecForge
    # z-lab counts the layers whose outputs are read: the inputs of the next ones.
    reads = [n + 1 if isinstance(n, int) else n for n in outputs] if isinstance(outputs, list) else outputs
    scales = {
        "embedding_scale": "input_embedding_scale",
        "logit_scale": "output_multiplier",
        "logit_cap": "final_logit_softcapping",
    }
    more: Config = {ours: source.said(name) for ours, name in scales.items() if source.said(name) is not None}
    name = "DSpark" if spark else "Domino" if "prefix_gru" in parts else "DFlash"
    if "layers.0.attention_conv.base_kernel" in source.tensors:
        taps, width = source.shape("layers.0.attention_conv.base_kernel")[1:]
        groups = source.shape("layers.0.attention_conv.kernel_projection.weight")[0] // (2 * taps)
        name, more = "DFlash 2", {**more, "taps": taps, "groups": groups}
        if width % groups:
            raise DecError(f"{source.folder}: layers.0.attention_conv has {groups} groups for {width} numbers")
    anchor, block = (
        spark or bool(source.said("shift_label")),
        source.number("block_size", of={"block_size": source.said("block_size")}),
    )
    return dflash_like(source, source.config, reads, source.said("mask_token_id"), name, anchor=anchor, block=block, more=more)


LAYOUTS = (
    HeadLayout(
        "DFlash of transformers", "`encoder.fc.weight` with `encoder.output_norm_enc.weight`", _is_transformers, _transformers
    ),
    HeadLayout(
        "DFlash",
        "`fc.weight` with `hidden_norm.weight` and `dflash_config` in config.json",
        _is_dflash,
        _dflash,
        corrections.read,
    ),
)
