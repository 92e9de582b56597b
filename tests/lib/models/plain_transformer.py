"""A transformer of the Llama family in NumPy, written from its description: no cache, one position after the other, float64.

It is the truth for what decgraph says of memories: a call computes some positions, and every layer's keys and values at the
others are those that a memory holds, whoever computed them. It shares no code with decgraph's models or engines, and its whole
forward is compared with transformers' own (tests/runtime/plain/test_plain_transformer.py).

Rows are dictionaries by layer and position, so that "a memory without position 3 in layer 1" is one with a key less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Vector = Any  # float64[n]
Sees = Callable[[int, int], bool]


@dataclass
class Rows:
    """What a call leaves. length: how many positions it covers. kv: (key, value), each [heads, size], by layer and position;
    states: what enters a layer; last: the final states, after the norm."""

    length: int = 0
    kv: dict[tuple[int, int], tuple[Vector, Vector]] = field(default_factory=dict)
    states: dict[tuple[int, int], Vector] = field(default_factory=dict)
    last: dict[int, Vector] = field(default_factory=dict)

    def only(self, keep: Iterable[int]) -> Rows:
        """The same without all other positions."""
        kept = set(keep)
        return Rows(
            self.length,
            {k: v for k, v in self.kv.items() if k[1] in kept},
            {k: v for k, v in self.states.items() if k[1] in kept},
            {k: v for k, v in self.last.items() if k in kept},
        )

    def over(self, other: Rows) -> Rows:
        """This one's rows, and the other's where this one has none."""
        return Rows(max(self.length, other.length), {**other.kv, **self.kv}, {**other.states, **self.states},
                    {**other.last, **self.last})  # fmt: skip


@dataclass
class Half:
    """Which halves of a layer run."""

    attention: bool = True
    mlp: bool = True


class Plain:
    """Weights by their published names, and the sizes in the configuration. bits: layers' matrices rounded to so many bits."""

    def __init__(self, weights: Mapping[str, Any], config: Mapping[str, Any], bits: int | None = None) -> None:
        self.w = {name.removeprefix("model."): np.asarray(w, dtype=np.float64) for name, w in weights.items()}
        self.heads = int(config["num_attention_heads"])
        self.groups = self.heads // int(config.get("num_key_value_heads") or self.heads)
        self.size = int(config.get("head_dim") or config["hidden_size"] // self.heads)
        self.layers = int(config["num_hidden_layers"])
        self.eps = float(config["rms_norm_eps"])
        rope = config.get("rope_parameters") or {}
        self.base = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
        self.window = config.get("sliding_window")
        if bits is not None:
            for name, w in self.w.items():
                if name.startswith("layers.") and w.ndim == 2:
                    least, greatest = w.min(axis=1, keepdims=True), w.max(axis=1, keepdims=True)
                    scale = np.maximum(greatest - least, 1e-12) / (2**bits - 1)
                    self.w[name] = np.round((w - least) / scale) * scale + least

    # The parts of a layer, at one position.

    def norm(self, x: Vector, name: str) -> Vector:
        return x / np.sqrt(np.mean(x * x) + self.eps) * self.w[f"{name}.weight"]

    def linear(self, x: Vector, name: str) -> Vector:
        y = self.w[f"{name}.weight"] @ x
        return y + self.w[f"{name}.bias"] if f"{name}.bias" in self.w else y

    def rotate(self, x: Vector, position: int) -> Vector:
        """Rotary embedding of [heads, size]: pairs (i, i + size / 2) turn by position / base ** (2 i / size)."""
        half = self.size // 2
        angle = position / self.base ** (2 * np.arange(half) / self.size)
        a, b = x[:, :half], x[:, half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], axis=1)

    def key_value(self, layer: int, position: int, x: Vector) -> tuple[Vector, Vector]:
        name = f"layers.{layer}"
        x = self.norm(x, f"{name}.input_layernorm")
        key = self.linear(x, f"{name}.self_attn.k_proj").reshape(-1, self.size)
        if f"{name}.self_attn.k_norm.weight" in self.w:
            key = np.stack([self.norm(k, f"{name}.self_attn.k_norm") for k in key])
        value = self.linear(x, f"{name}.self_attn.v_proj").reshape(-1, self.size)
        return self.rotate(key, position), value

    def attention(self, layer: int, position: int, x: Vector, seen: Sequence[tuple[Vector, Vector]]) -> Vector:
        name = f"layers.{layer}"
        query = self.linear(self.norm(x, f"{name}.input_layernorm"), f"{name}.self_attn.q_proj").reshape(self.heads, self.size)
        if f"{name}.self_attn.q_norm.weight" in self.w:
            query = np.stack([self.norm(q, f"{name}.self_attn.q_norm") for q in query])
        query = self.rotate(query, position)
        out = []
        for head in range(self.heads):
            scores = np.array([query[head] @ key[head // self.groups] for key, _ in seen]) / np.sqrt(self.size)
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            out.append(sum(w * value[head // self.groups] for w, (_, value) in zip(weights, seen, strict=True)))
        return x + self.linear(np.concatenate(out), f"{name}.self_attn.o_proj")

    def mlp(self, layer: int, x: Vector) -> Vector:
        name = f"layers.{layer}"
        y = self.norm(x, f"{name}.post_attention_layernorm")
        gate = self.linear(y, f"{name}.mlp.gate_proj")
        return x + self.linear(gate / (1 + np.exp(-gate)) * self.linear(y, f"{name}.mlp.up_proj"), f"{name}.mlp.down_proj")

    def read(self, last: Vector) -> Vector:
        """Logits of a final state."""
        return self.w.get("lm_head.weight", self.w["embed_tokens.weight"]) @ last

    # Calls.

    def run(
        self,
        cells: Sequence[Any],
        fresh: Iterable[int],
        given: Rows | None = None,
        *,
        sees: Sees | None = None,
        halves: Mapping[int, Half] | None = None,
    ) -> Rows:
        """Computes the positions `fresh` of `cells` (tokens, or embeddings), which see each other and what `given` holds.

        sees(i, j): whether i sees j, default j <= i. halves: which layers run and which halves of them, default all of all.
        """
        at = sorted(set(fresh))
        sees = sees or (lambda i, j: j <= i)
        halves = halves if halves is not None else {layer: Half() for layer in range(self.layers)}
        rows = Rows(len(cells))
        held = given.kv if given is not None else {}
        x = {i: self.w["embed_tokens.weight"][cells[i]] if np.ndim(cells[i]) == 0 else cells[i] for i in at}
        for layer, half in sorted(halves.items()):
            for i in at:
                rows.states[layer, i] = x[i]
                if half.attention:
                    rows.kv[layer, i] = self.key_value(layer, i, x[i])
            known = {i: kv for (of, i), kv in {**held, **rows.kv}.items() if of == layer}
            for i in at:
                if half.attention:
                    near = [j for j in sorted(known) if sees(i, j) and (self.window is None or abs(i - j) < self.window)]
                    x[i] = self.attention(layer, i, x[i], [known[j] for j in near])
                if half.mlp:
                    x[i] = self.mlp(layer, x[i])
        rows.last = {i: self.norm(x[i], "norm") for i in at}
        return rows

    def memory(self, path: Sequence[int], memory: Rows | None = None, **how: Any) -> Rows:
        """What a causal call of the path leaves, on top of a memory."""
        made = self.run(path, fresh_of(path, memory), memory, **how)
        return made if memory is None else made.over(memory)

    def logits(self, path: Sequence[int], memory: Rows | None = None, **how: Any) -> Vector:
        """After a path: its positions are computed from where the memory ends on, the last one always."""
        return self.read(self.run(path, fresh_of(path, memory), memory, **how).last[len(path) - 1])


def fresh_of(path: Sequence[int], memory: Rows | None) -> range:
    """The positions of a path that a causal call computes."""
    return range(0 if memory is None else min(memory.length, len(path) - 1), len(path))


def skipping(layers: int, attention: Iterable[int] = (), mlp: Iterable[int] = ()) -> dict[int, Half]:
    """All halves but those."""
    a, m = set(attention), set(mlp)
    return {k: Half(k not in a, k not in m) for k in range(layers) if k not in a or k not in m}


def of_module(module: Any, bits: int | None = None) -> Plain:
    """A plain copy of a transformers module."""
    weights = {name: w.detach().double().numpy() for name, w in module.state_dict().items() if "rotary" not in name}
    return Plain(weights, module.config.to_dict(), bits)
