"""DFlash (z-lab): a block of masks behind the root is denoised at once, on keys and values made of the target's states.

The context's keys and values are projections of what a Linear makes of several of the target's states, the same for every
layer. The block attends to all of it and to itself in both directions; its slot j guesses the token j places after the root.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import whole, wholes
from decgraph.runtime.models.heads.base import DraftOutput, added_to_scores
from decgraph.runtime.models.heads.eagle import draft_tokens
from decgraph.runtime.models.heads.layout import Config, HeadFolder, HeadLayout, ReadHead, count_of, layer_settings, renamed
from decgraph.runtime.models.heads.parts import HeadLayer, Norm, rotary_of, rotated
from decgraph.runtime.models.heads.rooted import Before, Grown, Rooted
from decgraph.runtime.native.products import NativeLinear


class DFlash(Rooted):
    """Options: `reads` (which of the target's states, as EAGLE-3's), `block` (the root and the masks), `anchor` (the root's
    slot guesses the token after it, and slot j the one after the j-th draft, as in DSpark), `mask_token_id`, `embedding` and
    `output` (of its own; otherwise the target's), `draft_vocab_size`, `mapped`, `windows` (of each layer, None: all positions;
    a place sees those at most so far away), and those of its layers."""

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
        self.layers = nn.ModuleList(HeadLayer(shape, n, options) for n in range(shape.num_hidden_layers))
        windows = options.get("windows")
        self.windows: list[int | None] = list(windows) if isinstance(windows, list) else [None] * len(self.layers)
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

    def prepare(self, states: Tensor, positions: Tensor, before: Before | None = None) -> Before:
        context = self.hidden_norm(self.fc(states))[None]
        rotary = self.rotary(context, position_ids=positions[None])
        kv: list[tuple[Tensor, Tensor]] = []
        for n, layer in enumerate(self.layers):
            assert isinstance(layer, HeadLayer)
            _, keys, values = layer.self_attn.project(context)
            keys = rotated(keys, *rotary)
            if before is not None and before.kv:
                keys, values = (torch.cat(pair, dim=2) for pair in zip(before.kv[n], (keys, values), strict=True))
            kv.append((keys, values))
        return Before(kv=kv)

    def read(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        drafted = tokens.shape[1] - 1
        rows = []
        for root in tokens[:, 0].tolist():
            if root not in before.memo:
                before.memo[root] = self.logits(self._block(before, root, position))
            rows.append(before.memo[root][drafted])
        return torch.stack(rows)

    def states(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        drafted = tokens.shape[1] - 1
        return torch.stack([self._block(before, root, position)[drafted] for root in tokens[:, 0].tolist()])

    def _block(self, before: Before, root: int, position: int) -> Tensor:
        """The states [depth, width] of the places after a root at `position`."""
        at = next(self.parameters()).device
        tokens = torch.full((1, self.block), self.mask, device=at)
        tokens[0, 0] = root
        states = self.embed(tokens).to(self.fc.weight.dtype)
        rotary = self.rotary(states, position_ids=position + torch.arange(self.block, device=at)[None])
        cache = Grown(list(before.kv) if before.kv else [None] * len(self.layers))
        length = before.kv[0][0].shape[2] if before.kv else 0
        for layer, window in zip(self.layers, self.windows, strict=True):  # without a mask: in both directions
            mask = None if window is None else self._near(position, length, window)
            states = layer(states, position_embeddings=rotary, attention_mask=mask, past_key_values=cache)
        made: Tensor = self.norm(states[0, self.block - self.depth :])
        return made

    def _near(self, position: int, length: int, window: int) -> Tensor:
        """An additive mask [1, 1, block, length + block] of what is within a window. Raises DecError where positions before the
        root were evicted: what is near is then not known."""
        if length != position:
            raise DecError("a DFlash head with a sliding window needs all positions before the root")
        like = self.fc.weight
        steps = torch.arange(position + self.block, device=like.device)
        near = (steps[position:, None] - steps[None]).abs() <= window
        return added_to_scores(near, like.dtype)


OTHERS = ("markov_head.", "confidence_head.")
"""Tensors of DSpark's other parts: a causal model (runtime/models/markov.py), and what says how sure a draft is."""


def dflash_like(
    source: HeadFolder,
    of: Config,
    reads: object,
    mask: object,
    layout: str,
    *,
    anchor: bool = False,
    drop: Collection[str] = (),
) -> ReadHead:
    """A DFlash head. of: the configuration of its layers; reads: the layers whose inputs it reads; mask: the token; anchor: see
    `DFlash`, where the configuration does not say it; drop: tensors of other parts. Raises DecError for a configuration that
    says neither reads nor mask, or that the tensors contradict."""
    shape, options = layer_settings(source, "layers.0.", of)
    if not isinstance(reads, list) or not reads or not all(isinstance(n, int) and not isinstance(n, bool) for n in reads):
        raise DecError(
            f"{source.folder / 'config.json'} does not say which layers' states are read", hint="target_layer_ids: [...]"
        )
    if isinstance(mask, bool) or not isinstance(mask, int):
        raise DecError(f"{source.folder / 'config.json'} does not say which token is the mask", hint="mask_token_id: a number")
    kinds = of.get("layer_types")
    if isinstance(kinds, list) and "sliding_attention" in kinds:
        raise DecError(f"{source.folder} has layers with a sliding window, which decgraph's DFlash has not")
    has = lambda name: name in source.tensors
    vocab = source.shape("embed_tokens.weight")[0] if has("embed_tokens.weight") else source.number("vocab_size", of=of)
    rows = source.shape("lm_head.weight")[0] if has("lm_head.weight") else vocab
    found, stored = renamed(source, {"lm_head.": "output.matrix."}, drop=("d2t", "t2d", *drop))
    tokens = draft_tokens(source, rows, vocab) if has("lm_head.weight") else None
    if tokens is not None:
        found["output.tokens"] = tokens
    config: Config = {
        **shape,
        **options,
        "input_norm": True,
        "num_hidden_layers": count_of(source.tensors, "layers."),
        "vocab_size": vocab,
        "reads": reads,
        "target_width": source.shape("fc.weight")[1] // len(reads),
        "block": source.number("block_size"),
        "anchor": bool(source.config.get("sample_from_anchor", anchor)),
        "mask_token_id": mask,
        "embedding": has("embed_tokens.weight"),
        "output": has("lm_head.weight"),
        "draft_vocab_size": rows,
        "mapped": tokens is not None,
        "fc_bias": has("fc.bias"),
    }
    return ReadHead(layout, "features", "decgraph_dflash", config, found, stored)


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
    spark = bool(source.config.get("markov_rank"))  # DSpark's, of DeepSpec and SpecForge
    said = source.config.get("dflash_config") or source.config.get("dspark_config") or {}
    said = said if isinstance(said, dict) else {}
    outputs = said.get("target_layer_ids", source.config.get("target_layer_ids"))
    # z-lab counts the layers whose outputs are read: the inputs of the next ones.
    reads = [n + 1 if isinstance(n, int) else n for n in outputs] if isinstance(outputs, list) else outputs
    mask = said.get("mask_token_id", source.config.get("mask_token_id"))
    others = [name for name in source.tensors if spark and name.startswith(OTHERS)]
    return dflash_like(source, source.config, reads, mask, "DSpark" if spark else "DFlash", anchor=spark, drop=others)


LAYOUTS = (
    HeadLayout(
        "DFlash of transformers", "`encoder.fc.weight` with `encoder.output_norm_enc.weight`", _is_transformers, _transformers
    ),
    HeadLayout("DFlash", "`fc.weight` with `hidden_norm.weight` and `dflash_config` in config.json", _is_dflash, _dflash),
)
