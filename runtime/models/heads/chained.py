"""Heads that feed their own output back as the next feature: EAGLE-1, EAGLE-2, EAGLE-3, P-EAGLE, and MTP layers.

A slot pairs the feature of a position with the token after it; a decoder layer over the slots gives the feature of the next
position. While drafting, the feature is the head's own output of the slot before. EAGLE-1 and EAGLE-2 share one layout (EAGLE-2
is another tree over the same head).

Li, Wei, Zhang and Zhang, EAGLE, 2024; EAGLE-2, 2024; EAGLE-3, 2025. Gloeckle et al., multi-token prediction, 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import whole, wholes
from decgraph.runtime.models.heads.base import DraftOutput, Head, causal_mask
from decgraph.runtime.models.heads.parts import HeadLayer, Norm, PairLayer, rotary_of
from decgraph.runtime.native.products import NativeLinear


class Chained(Head):
    """What these heads share.

    reads: which of the target's states a feature is made of: the layers whose inputs are read, in order (the number of
    layers: its last states after the final norm). None: the last states alone, as they are. entering: the width of what
    enters the first layer. mask: the token that stands for an unknown one in heads that draft in parallel, or None.
    own_output: logits come from `read_out`; otherwise the target's output matrix reads own outputs as they are.
    """

    reads: tuple[int, ...] | None = None
    mask: int | None = None
    entering: int
    layers: nn.ModuleList
    rotary: nn.Module

    def project(self, states: Tensor) -> Tensor:
        """Features [..., hidden] of the target's states [..., n width], side by side in the order of `reads`."""
        return states

    def enter(self, tokens: Tensor, features: Tensor) -> Tensor:
        """What enters the first layer [..., entering], of token ids int64[...] and features [..., hidden]."""
        raise NotImplementedError

    def unknown(self) -> Tensor:
        """What stands for an unknown feature [1, 1, hidden], of a head with a `mask`."""
        raise NotImplementedError

    def back(self, states: Tensor) -> Tensor:
        """The features [..., hidden] that the next slots read, of own outputs."""
        return states

    def run(self, states: Tensor, position_ids: Tensor | None = None, attention_mask: Tensor | None = None) -> Tensor:
        """The layers over whole sequences [B, T, entering]: [B, T, hidden]. attention_mask: 4-D and additive."""
        if position_ids is None:
            position_ids = torch.arange(states.shape[1], device=states.device)[None]
        mask = causal_mask(states.shape[1], states) if attention_mask is None else attention_mask
        rotary = self.rotary(states, position_ids=position_ids)
        for layer in self.layers:
            states = layer(states, position_embeddings=rotary, attention_mask=mask.to(states.dtype))
        return states

    def forward(
        self,
        tokens: Tensor,
        features: Tensor,
        position_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """(int64[B, T], [B, T, hidden]) -> own outputs [B, T, hidden]."""
        return self.run(self.enter(tokens, features), position_ids, attention_mask)


class Eagle(Chained):
    """EAGLE-1 and EAGLE-2: a Linear joins embedding and feature. Options: `fc_bias`, `embedding`, `input_norm`, `mlp`,
    `joined_norms` (MTP: a norm each before joining), `feature_first` (MTP: in which order they are joined), `final_norm` (a
    norm before the output matrix), `norm_output` (the next slot reads the output after that norm), `output` (a matrix of its
    own)."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        shape, options = self.shape, self.options
        width = self.entering = int(shape.hidden_size)
        self.embed_tokens = nn.Embedding(self.vocab, width) if options.get("embedding", True) else None
        self.fc = NativeLinear(2 * width, width, bias=bool(options.get("fc_bias")))
        normed = bool(options.get("joined_norms"))
        self.embedding_norm = Norm(width, shape.rms_norm_eps) if normed else None
        self.feature_norm = Norm(width, shape.rms_norm_eps) if normed else None
        first = {**options, "input_norm": bool(options.get("input_norm"))}
        self.layers = nn.ModuleList(
            HeadLayer(shape, n, first if n == 0 else {**options, "input_norm": True}) for n in range(shape.num_hidden_layers)
        )
        self.norm = Norm(width, shape.rms_norm_eps) if options.get("final_norm") else None
        self.rotary = rotary_of(shape)
        self.output = DraftOutput(width, self.vocab, self.vocab, mapped=False) if options.get("output") else None
        self.own_output = self.output is not None or self.norm is not None

    def enter(self, tokens: Tensor, features: Tensor) -> Tensor:
        embedded = self.embed(tokens).to(features.dtype)
        if self.embedding_norm is not None and self.feature_norm is not None:
            embedded, features = self.embedding_norm(embedded), self.feature_norm(features)
        both = (features, embedded) if self.options.get("feature_first") else (embedded, features)
        made: Tensor = self.fc(torch.cat(both, dim=-1))
        return made

    def read_out(self, states: Tensor) -> Tensor:
        return self.logits(states if self.norm is None else self.norm(states))

    def back(self, states: Tensor) -> Tensor:
        return self.norm(states) if self.norm is not None and self.options.get("norm_output") else states


def usual(layers: int) -> tuple[int, ...]:
    """The layers whose inputs EAGLE-3's authors read of a target of so many layers."""
    return 2, layers // 2, layers - 3


class Eagle3(Chained):
    """EAGLE-3: a feature is a Linear of several of the target's states, attention reads embedding and feature side by side, and
    the output matrix covers a part of the vocabulary. With `mask_token_id` it is P-EAGLE, which drafts in parallel: a slot
    without a known token reads the mask token and a learned state in the feature's place.

    Options: `reads` (left out: those of `usual`), `target_width`, `draft_vocab_size`, `mapped` (whether the output's rows have
    other ids than their numbers), `embedding`, `norm_before_fc`, `fc_norm` (a norm over all states before the Linear, or one
    for each), `fc_bias`, `norm_before_residual`, `norm_output` (the next slot reads the output after the norm), `output`
    (false: the target's matrix, or its rows at the ids of a draft vocabulary that is `mapped`), `mask_token_id`, and those of
    its layers.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        shape, options = self.shape, self.options
        width, eps = int(shape.hidden_size), shape.rms_norm_eps
        self.reads = wholes(options, "reads") if options.get("reads") else None
        count = len(self.reads or usual(8))
        self.entering = 2 * width
        each = whole(options, "target_width", width)
        total = each * count
        self.embed_tokens = nn.Embedding(self.vocab, width) if options.get("embedding") else None
        self.input_norm = Norm(total, eps) if options.get("norm_before_fc") else None
        self.fc_norm = nn.ModuleList(Norm(each, eps) for _ in range(count)) if options.get("fc_norm") else None
        self.fc = NativeLinear(total, width, bias=bool(options.get("fc_bias")))
        first = PairLayer(shape, 0, options)
        self.layers = nn.ModuleList([first, *(HeadLayer(shape, n, options) for n in range(1, shape.num_hidden_layers))])
        self.norm = Norm(width, eps)
        self.rotary = rotary_of(shape)
        self.own_output = True
        rows = whole(options, "draft_vocab_size", self.vocab)
        own, mapped = bool(options.get("output", True)), bool(options.get("mapped"))
        if own or mapped:
            self.output = DraftOutput(width, rows, self.vocab, mapped=mapped, shared=not own)
        if options.get("mask_token_id") is not None:
            self.mask = whole(options, "mask_token_id")
            self.mask_hidden = nn.Parameter(torch.zeros(1, 1, total))

    def attach(self, embedding: Tensor, output: Callable[[Tensor], Tensor], layers: int) -> None:
        super().attach(embedding, output, layers)
        self.reads = usual(layers) if self.reads is None else self.reads
        if len(set(self.reads)) < len(self.reads) or not all(0 <= n <= layers for n in self.reads):
            raise DecError(
                f"the head's features are made of the inputs of the target's layers {', '.join(map(str, self.reads))}, and "
                f"this target has {layers} layers",
                hint='"eagle_aux_hidden_state_layer_ids": [...] in the head\'s config.json says which layers it reads',
            )
        if not self.options.get("output", True) and embedding.shape[1] != self.config.hidden_size:
            raise DecError(
                f"the head has no output matrix of its own, and the target's reads states of width {embedding.shape[1]} where "
                f"the head's have {self.config.hidden_size}"
            )
        if isinstance(self.output, DraftOutput) and not self.options.get("output", True):
            self.output.share(output)
        whole = len(self.reads) * embedding.shape[1]
        if self.fc.in_features != whole:
            raise DecError(
                f"the head's fc reads {self.fc.in_features} numbers, and {len(self.reads)} states of the target have {whole}: "
                "it belongs to another target"
            )

    def project(self, states: Tensor) -> Tensor:
        if self.input_norm is not None:
            states = self.input_norm(states)
        if self.fc_norm is not None:
            parts = states.chunk(len(self.fc_norm), dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        made: Tensor = self.fc(states)
        return made

    def enter(self, tokens: Tensor, features: Tensor) -> Tensor:
        return torch.cat((self.embed(tokens).to(features.dtype), features), dim=-1)

    def read_out(self, states: Tensor) -> Tensor:
        return self.logits(self.norm(states))

    def back(self, states: Tensor) -> Tensor:
        made: Tensor = self.norm(states) if self.options.get("norm_output") else states
        return made

    def unknown(self) -> Tensor:
        """The feature [hidden] of a slot whose token is not known (P-EAGLE)."""
        return self.project(self.mask_hidden)[0, 0]
