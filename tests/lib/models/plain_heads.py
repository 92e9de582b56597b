"""The layers of drafting heads, and the chain of EAGLE's, written out: whole sequences in float64, by the tensors' names. No
code of decgraph's is shared, and no layer of transformers'."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

Weights = Mapping[str, Tensor]


def norm(w: Tensor, x: Tensor, eps: float = 1e-6) -> Tensor:
    """A root mean square norm."""
    return w * x / (x.square().mean(-1, keepdim=True) + eps).sqrt()


def turned(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Heads [H, n, D] at rotary positions."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None] / theta ** (torch.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


def layer(w: Weights, x: Tensor, positions: Tensor, added: Tensor, heads: int, *, theta: float = 10000.0) -> Tensor:
    """One layer on states [n, width], or on embeddings and features side by side [n, 2 width]: [n, width]. added: numbers
    [n, n] that are added to the scores."""
    w = {name: tensor.double() for name, tensor in w.items()}
    width, entering = w["self_attn.o_proj.weight"].shape[0], x
    if "hidden_norm.weight" in w:
        embedded, x = x[:, :width], x[:, width:]
        entering = torch.cat([norm(w["input_layernorm.weight"], embedded), norm(w["hidden_norm.weight"], x)], -1)
    elif "input_layernorm.weight" in w:
        entering = norm(w["input_layernorm.weight"], x)
    q, k, v = (
        (entering @ w[f"self_attn.{p}_proj.weight"].T + w.get(f"self_attn.{p}_proj.bias", torch.zeros(()))) for p in "qkv"
    )
    size = q.shape[1] // heads
    q, k, v = (t.view(len(x), -1, size).transpose(0, 1) for t in (q, k, v))
    if "self_attn.q_norm.weight" in w:
        q, k = norm(w["self_attn.q_norm.weight"], q), norm(w["self_attn.k_norm.weight"], k)
    q, k = turned(q, positions, theta), turned(k, positions, theta)
    k, v = (t.repeat_interleave(heads // len(t), 0) for t in (k, v))
    weights = (q @ k.transpose(1, 2) / size**0.5 + added).softmax(-1)
    x = x + (weights @ v).transpose(0, 1).flatten(1) @ w["self_attn.o_proj.weight"].T
    if "mlp.gate_proj.weight" not in w:
        return x
    h = norm(w["post_attention_layernorm.weight"], x)
    h = nn.functional.silu(h @ w["mlp.gate_proj.weight"].T) * (h @ w["mlp.up_proj.weight"].T)
    return x + h @ w["mlp.down_proj.weight"].T


def layers(w: Weights, x: Tensor, heads: int, *, positions: Tensor | None = None, added: Tensor | None = None) -> Tensor:
    """All layers `layers.N.*` of a head, each position seeing itself and those before it where nothing else is said."""
    count, x = len(x), x.double()
    if added is None:
        added = torch.zeros(count, count).masked_fill(torch.ones(count, count).triu(1) > 0, float("-inf"))
    at = torch.arange(count) if positions is None else positions
    for n in range(len({name.split(".")[1] for name in w if name.startswith("layers.")})):
        own = {name.removeprefix(f"layers.{n}."): t for name, t in w.items() if name.startswith(f"layers.{n}.")}
        x = layer(own, x, at, added, heads)
    return x


class Chain:
    """EAGLE-1/2, EAGLE-3 or P-EAGLE, of the tensors of a head's folder. embed, output: the target's, where it has none of its
    own. first: how the first layer's tensors begin."""

    def __init__(self, w: Weights, config: Mapping[str, Any], embed: Tensor, output: Tensor, first: str) -> None:
        self.w = {name.replace(first, "layers.0.", 1) if name.startswith(first) else name: t.double() for name, t in w.items()}
        self.config = config
        self.embed, self.output = (
            self.w.get(n, t.double()) for n, t in (("embed_tokens.weight", embed), ("lm_head.weight", output))
        )
        self.pairs = "layers.0.hidden_norm.weight" in self.w

    def joined(self, x: Tensor) -> Tensor:
        return x @ self.w["fc.weight"].T + self.w.get("fc.bias", torch.zeros(()))

    def own(self, states: Tensor, tokens: list[int], known: int) -> Tensor:
        """The output [width] at the end of a text, of which the target has the states [known, k width] of the first tokens."""
        features = [*(self.joined(states.double()) if self.pairs else states.double())]
        after, out = list(tokens[1 : known + 1]), torch.zeros(())
        for token in [*tokens[known + 1 :], None]:
            embedded, before = self.embed[after], torch.stack(features)
            both = torch.cat([embedded, before], -1)
            out = layers(self.w, both if self.pairs else self.joined(both), self.config["num_attention_heads"])[-1]
            masked = self.config.get("mask_token_id")
            features.append(out if masked is None else self.joined(self.w["mask_hidden"][0, 0]))
            after.append(masked if masked is not None else token)
        return out

    def logits(self, states: Tensor, tokens: list[int], known: int) -> tuple[Tensor, Tensor]:
        """The ids of its draft vocabulary, and their logits after a text."""
        out = self.own(states, tokens, known)
        out = norm(self.w["norm.weight"], out) if self.pairs else out
        ids = torch.arange(len(self.output)) + self.w.get("d2t", torch.zeros(len(self.output))).long()
        return ids, self.output @ out
