"""Heads that read the target's states up to one position, and the tokens after it: Hydra, Hydra++ and ReDrafter.

Unlike EAGLE's they feed nothing back into the states: a distribution is a function of what the target computed before the root
and of the tokens from the root on.

Ankner et al., Hydra: Sequentially-Dependent Draft Heads for Medusa Decoding, 2024. Zhang et al., Recurrent Drafter, 2024.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import whole
from decgraph.runtime.models.heads.base import Head, LayerConfig, added_to_scores, outside
from decgraph.runtime.models.heads.medusa import ResidualBlock
from decgraph.runtime.models.heads.parts import HeadLayer, Norm, rotary_of
from decgraph.runtime.native.products import NativeLinear


@dataclass
class Before:
    """What a head keeps of the positions before a root: the state [hidden] that it reads, keys and values [1, H, n, D] by layer
    of those that attend to them, how many positions there were, and what was computed of it."""

    state: Tensor | None = None
    kv: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    memo: dict[int, Tensor] = field(default_factory=dict)


class Rooted(Head):
    """What these heads share. reads: see `Chained`. depth: how many tokens after the root they draft at most, None: any."""

    own_output = True
    reads: tuple[int, ...] | None = None
    depth: int | None = None

    def prepare(self, states: Tensor, positions: Tensor, before: Before | None = None) -> Before:
        """The target's states [n, width] at positions int64[n], n > 0, after what was before them."""
        return Before(state=states[-1])

    def nothing(self) -> Before:
        """What there is before the root of a prompt of one token."""
        weight = next(self.parameters())
        return Before(state=torch.zeros(int(self.config.hidden_size), dtype=weight.dtype, device=weight.device))

    def read(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        """Logits [m, V] of the token after `tokens` int64[m, d], the root and the tokens drafted below it; the root is at
        `position`."""
        raise NotImplementedError

    def states(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        """The states [m, width] of which `logits` makes what `read` gives. Raises DecError for a head without such states."""
        raise DecError(
            f"a {type(self).__name__} head makes its scores of no state that it could give", hint="EAGLE's and DFlash's"
        )

    def check_depth(self, drafted: int, name: str) -> None:
        """Raises DecError for more drafted tokens than it has heads or places for."""
        if self.depth is not None and drafted >= self.depth:
            raise DecError(f"{name!r} drafts at most {self.depth} tokens", hint="a smaller tree, or fewer tokens a step")


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
        past = before.kv[0] if before is not None and before.kv else None
        state, kv = self.prefix(states, positions, past)
        return Before(state=state, kv=[kv])

    def read(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        assert before.state is not None
        count, drafted = len(tokens), tokens.shape[1] - 1
        states = before.state.expand(count, -1)
        if self.grounded:
            states = torch.cat((states, self.embed(tokens).to(states.dtype).flatten(1)), dim=-1)
        made: Tensor = self.heads[drafted](states)
        return made


class _Prefix(nn.Module):
    """Hydra++'s layer over the target's last states, with keys and values that it hands on."""

    def __init__(self, config: LayerConfig, options: Mapping[str, object]) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList([HeadLayer(config, 0, dict(options))])
        self.norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.rotary = rotary_of(config)

    def forward(
        self, states: Tensor, positions: Tensor, past: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The last of new states [n, width] after the layer, and all keys and values."""
        cache = Grown([past])
        length = 0 if past is None else past[0].shape[2]
        count = len(states)
        steps = torch.arange(length + count, device=states.device)
        mask = added_to_scores(steps <= length + torch.arange(count, device=states.device)[:, None], states.dtype)
        rotary = self.rotary(states[None], position_ids=positions[None])
        made = self.layers[0](states[None], position_embeddings=rotary, attention_mask=mask, past_key_values=cache)
        last: Tensor = self.norm(made[0, -1])
        return last, cache.kv[0]


class Grown:
    """A cache that appends: keys and values [1, H, n, D] by layer."""

    def __init__(self, past: list[tuple[Tensor, Tensor] | None]) -> None:
        self.past, self.kv = past, [(torch.empty(0), torch.empty(0))] * len(past)

    def update(self, keys: Tensor, values: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """All keys and values [1, H, n, D] of a layer, the new ones last."""
        old = self.past[layer]
        if old is not None:
            keys, values = torch.cat((old[0], keys), dim=2), torch.cat((old[1], values), dim=2)
        self.kv[layer] = keys, values
        return keys, values


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

    def read(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        assert before.state is not None
        context = before.state.expand(len(tokens), -1)
        state = torch.zeros_like(context)
        for column in tokens.T:
            embedded = self.embed(column).to(context.dtype)
            if self.rnn_u is not None and self.rnn_w is not None:
                state = nn.functional.silu(self.rnn_w(embedded) + self.rnn_u(state))
            else:
                state = embedded + state
        both = torch.cat((context, state), dim=-1)
        logits: Tensor = self.lm_head(both if self.input_proj is None else self.input_proj(both))
        kept = whole(self.options, "kept", 50)
        if kept < logits.shape[-1]:
            least = logits.topk(kept, dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < least, outside(logits.dtype))
        return logits
