"""Heads that read the target's states up to one position, and the tokens after it: Hydra, Hydra++ and ReDrafter.

Unlike EAGLE's they feed nothing back into the states: a distribution is a function of what the target computed before the root
and of the tokens from the root on.

Ankner et al., Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding, 2024. Zhang et al., Recurrent Drafter, 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from decgraph.runtime.models.config import whole
from decgraph.runtime.models.decoder.layers import Rows, over
from decgraph.runtime.models.heads.base import DraftHead, Head, LayerConfig, outside
from decgraph.runtime.models.heads.medusa import ResidualBlock
from decgraph.runtime.models.heads.parts import HeadLayer, Norm, rotary_of
from decgraph.runtime.native.products import NativeLinear

if TYPE_CHECKING:
    from transformers import PretrainedConfig


@dataclass
class Before:
    """What a head keeps of the positions before a root: the state [hidden] that it reads, keys and values of those that attend
    to them, and what was computed of it."""

    state: Tensor | None = None
    kv: Rows | None = None
    memo: dict[int, Tensor] = field(default_factory=dict)


class Rooted(DraftHead, Head):
    """What these heads share. width: the numbers of a token's row, what is kept of a token and of those before it from the root
    on (of heads that have rows)."""

    own_output = True
    stated = False
    width = 0

    def prepare(self, states: Tensor, positions: Tensor, before: Before | None = None) -> Before:
        """The target's states [n, width] at positions int64[n], n > 0, after what was before them."""
        return Before(state=states[-1])

    def nothing(self) -> Before:
        """What there is before the root of a prompt of one token."""
        weight = next(self.parameters())
        return Before(state=torch.zeros(int(self.config.hidden_size), dtype=weight.dtype, device=weight.device))

    def row(self, tokens: Tensor, above: Tensor, depth: Tensor) -> Tensor:
        """Rows [..., width] of tokens int64[...] so far below the root (int64[...]), from the rows of the tokens before them; a
        root's is made of zeros."""
        raise NotImplementedError

    def states(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        """The states [m, n] of which `read_out` makes the logits of the token after `tokens` int64[m, d], the root and the
        tokens drafted below it; the root is at `position`."""
        assert before.state is not None
        row = before.state.new_zeros(len(tokens), self.width)
        for depth, column in enumerate(tokens.T):
            row = self.row(column, row, torch.full_like(column, depth))
        return torch.cat((before.state.expand(len(tokens), -1), row), dim=-1)

    def places(self, before: Before, roots: Tensor, position: int) -> Tensor:
        """The states [m, places, width] of the places after roots int64[m] at `position`, of a head that computes them all at
        once, whatever stands in them."""
        raise NotImplementedError

    def read(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        """Logits [m, V] of the token after `tokens` int64[m, d], see `states`."""
        return self.read_out(self.states(before, tokens, position), tokens.shape[1] - 1)

    def drafted(self, states: Tensor, at: Tensor, tokens: Tensor, known: int) -> list[Tensor]:
        before = self.prepare(states, at) if len(at) else self.nothing()
        return [self.states(before, tokens[None, known:end], known)[0] for end in range(known + 1, len(tokens) + 1)]


class Conditioned(nn.Module):
    """Hydra's first block: R x + silu(A x), from several states side by side to one."""

    def __init__(self, entering: int, width: int) -> None:
        super().__init__()
        self.linear = NativeLinear(entering, width)
        self.residual = NativeLinear(entering, width)

    def forward(self, states: Tensor) -> Tensor:
        """[..., entering] -> [..., width]."""
        made: Tensor = self.residual(states) + nn.functional.silu(self.linear(states))
        return made


class HydraHead(nn.Module):
    """One of Hydra's heads: blocks, then an output matrix."""

    def __init__(self, states: int, width: int, vocab: int, blocks: int, *, bias: bool) -> None:
        super().__init__()
        first = Conditioned(states * width, width) if states > 1 else ResidualBlock(width)
        self.blocks = nn.Sequential(first, *(ResidualBlock(width) for _ in range(blocks - 1)))
        self.output = NativeLinear(width, vocab, bias=bias)

    def forward(self, states: Tensor) -> Tensor:
        """[m, states * width] -> logits [m, V]."""
        made: Tensor = self.output(self.blocks(states))
        return made


class Hydra(Rooted):
    """Head i reads the target's last state before the root, the root's embedding and those of the i tokens below it. Hydra++
    puts a decoder layer of its own over the target's states (`prefix`).

    Options: `heads`, `blocks`, `grounded` (false: heads read the state alone, as Medusa's do), `prefix`, `embedding`,
    `matrix_bias` (of the output matrices), and those of the prefix layer.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        width, options = whole(config, "hidden_size"), self.options
        self.depth = whole(options, "heads")
        self.grounded = bool(options.get("grounded", True))
        self.width = self.depth * width
        if self.grounded and options.get("embedding", True):
            self.embed_tokens = nn.Embedding(self.vocab, width)
        self.heads = nn.ModuleList(
            HydraHead(n + 2 if self.grounded else 1, width, self.vocab, whole(options, "blocks"),
                      bias=bool(options.get("matrix_bias")))
            for n in range(self.depth)
        )  # fmt: skip
        self.prefix = _Prefix(self.shape, options) if options.get("prefix") else None

    def prepare(self, states: Tensor, positions: Tensor, before: Before | None = None) -> Before:
        if self.prefix is None:
            return Before(state=states[-1])
        made, kv = over(self.prefix, states, positions, past=None if before is None else before.kv)
        return Before(state=self.prefix.norm(made[-1]), kv=kv)

    def row(self, tokens: Tensor, above: Tensor, depth: Tensor) -> Tensor:
        if not self.grounded:
            return above
        here = torch.arange(self.depth or 0, device=tokens.device) == depth[..., None]
        embedded = self.embed(tokens).to(above.dtype)[..., None, :]
        return torch.where(here[..., None], embedded, above.view(*here.shape, -1)).flatten(-2)

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        width = int(self.config.hidden_size)
        made: Tensor = self.heads[drafted](states[..., : (drafted + 2 if self.grounded else 1) * width])
        return made


class _Prefix(nn.Module):
    """Hydra++'s layer over the target's last states, with a norm."""

    def __init__(self, config: LayerConfig, options: Mapping[str, object]) -> None:
        super().__init__()
        self.config: LayerConfig | PretrainedConfig = config
        self.layers = nn.ModuleList([HeadLayer(config, options)])
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.rotary = rotary_of(config)


class Recurrent(Rooted):
    """ReDrafter: the tokens from the root on are summed up by an RNN whose state, beside the target's last state before the
    root, goes through residual blocks and an output matrix. Its scores are those of its 50 likeliest tokens.

    Options: `rnn` (false: the sum of embeddings), `blocks`, `exit_width`, `project` (a Linear before the blocks), `kept`.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        width, options = whole(config, "hidden_size"), self.options
        inner = whole(options, "exit_width")
        self.input_proj = NativeLinear(2 * width, inner) if options.get("project") else None
        blocks = (ResidualBlock(inner) for _ in range(whole(options, "blocks")))
        self.lm_head = nn.Sequential(*blocks, NativeLinear(inner, self.vocab, bias=False))
        self.rnn_u = NativeLinear(width, width) if options.get("rnn") else None
        self.rnn_w = NativeLinear(width, width, bias=False) if options.get("rnn") else None
        self.width = width

    def row(self, tokens: Tensor, above: Tensor, depth: Tensor) -> Tensor:
        embedded = self.embed(tokens).to(above.dtype)
        if self.rnn_u is None or self.rnn_w is None:
            return embedded + above
        return nn.functional.silu(self.rnn_w(embedded) + self.rnn_u(above))

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        logits: Tensor = self.lm_head(states if self.input_proj is None else self.input_proj(states))
        kept = whole(self.options, "kept", 50)
        if kept < logits.shape[-1]:
            least = logits.topk(kept, dim=-1).values[..., -1:]
            logits = torch.where(logits < least, outside(logits.dtype), logits)
        return logits
