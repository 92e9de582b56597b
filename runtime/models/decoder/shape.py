"""What the decoder knows of a model: sizes, kinds of layers, and switches. An entry of `families.py` makes it of a config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

FULL, SLIDING = "full_attention", "sliding_attention"


class UnknownToDecoder(Exception):
    """A family, a setting or a tensor that the decoder has no entry for: transformers' own module runs instead."""


@contextmanager
def reading_settings() -> Iterator[None]:
    """Turns the error of a setting whose value is of the wrong kind into UnknownToDecoder: JSON may have anything anywhere.
    transformers, which reads the model instead, names the setting."""
    try:
        yield
    except (TypeError, ValueError, LookupError, ArithmeticError, RuntimeError) as error:  # torch's are RuntimeErrors
        raise UnknownToDecoder(f"a setting of another kind than its family's ({error})") from error


@dataclass(frozen=True)
class Experts:
    """A mixture of `count` experts of which `top` read a token.

    route: "softmax_topk" (probabilities, then the `top` greatest), "topk_softmax" (the `top` greatest scores, then
    probabilities among them), "sigmoid" (DeepSeek-V3: sigmoids, chosen with a bias added, from the `top_groups` best of
    `groups`), or "sparse_mixer" (Phi's: one after the other, each with its probability among those that are about as good, to
    within `jitter`). renormalised: the weights of the chosen ones sum to one. scale: a factor of the weights. clamp: slope and
    limit of GPT-OSS's gate. scores: how a group is scored, by the sum of its two greatest or by its greatest. columns: the
    file's matrices are [in, out]; interleaved: gate and up are its columns in turn."""

    count: int
    top: int
    route: Literal["softmax_topk", "topk_softmax", "sigmoid", "sparse_mixer"] = "softmax_topk"
    renormalised: bool = True
    groups: int = 1
    top_groups: int = 1
    scale: float = 1.0
    clamp: tuple[float, float] | None = None
    epsilon: float = 0.0
    scores: Literal["two", "one"] = "two"
    columns: bool = False
    interleaved: bool = False
    rank: int = 0
    jitter: float = 0.0


@dataclass(frozen=True)
class Layer:
    """window: how many positions a token attends to, its own included; None: all. rope: the name of the table of frequencies by
    which queries and keys are rotated; None: they are not. experts: None for a plain MLP. scale: of scores, where it is not the
    model's. difference: what the factor of the second attention begins at, where the first of two attentions has it taken
    away."""

    window: int | None = None
    rope: str | None = FULL
    experts: Experts | None = None
    scale: float | None = None
    difference: float | None = None

    @cached_property
    def kind(self) -> str:
        """Which mask the layer takes."""
        return FULL if self.window is None else SLIDING


Rope: TypeAlias = dict[str, Any]
"""Rotary settings, as new configs of transformers have them."""


@dataclass(frozen=True)
class Shape:
    """A decoder's sizes and switches.

    heads, kv_heads: of queries, of keys and values. head, value: the sizes of a head's keys and values. norm: "rms" or "layer".
    unit_norms: norms without weights. offset: is added to norm weights. joined_norms: queries' and keys' norms are over all
    heads at once. late_norms: these norms come after the rotation. parallel: attention and MLP read the same state. scale, cap:
    of scores. embed_scale: of embeddings, rounded to the weights' dtype where `embed_rounded`; residual: of what a branch adds.
    rotary: how many numbers of a head are rotated, from `rotary_at` on. pairs: what is rotated are pairs (2i, 2i + 1) and not
    (i, i + half), which stay where they are or are sorted into halves. qkv: how queries, keys and values lie in a joined
    matrix: one after the other, head by head, by groups of queries that share keys, or in four quarters (queries, values,
    keys). stretch: queries grow with their positions p, by 1 + stretch[0] log(1 + p // stretch[1]). backward: heads are rotated
    the other way. gate: what becomes of the gate of an attention's outputs. latent: DeepSeek's attention, (rank of keys and
    values, sizes of a head's part that is not rotated, of the rotated one, and of values). tied: the output matrix is the
    embedding. biased: the products that have a bias, and "norms" where they do; None: those for which there is one."""

    width: int
    heads: int
    kv_heads: int
    head: int
    layers: tuple[Layer, ...]
    vocabulary: int
    value: int = 0
    norm: Literal["rms", "layer"] = "rms"
    eps: float = 1e-6
    unit_norms: bool = False
    offset: float = 0.0
    joined_norms: bool = False
    late_norms: bool = False
    activation: str = "silu"
    gated: bool = True
    parallel: bool = False
    scale: float = 0.0
    cap: float | None = None
    logit_cap: float | None = None
    logit_scale: float = 1.0
    embed_scale: float = 1.0
    embed_rounded: bool = False
    residual: float = 1.0
    clip: float | None = None
    rope: dict[str, Rope] = field(default_factory=dict)
    rotary: int = 0
    rotary_at: int = 0
    pairs: Literal["", "kept", "sorted"] = ""
    qkv: Literal["", "heads", "groups", "quarters"] = ""
    stretch: tuple[float, int] | None = None
    backward: bool = False
    gate: Literal["sigmoid", "softplus"] = "sigmoid"
    latent: tuple[int, int, int, int] | None = None
    position_offset: int = 0
    tied: bool = False
    paired: Literal["", "plain", "normed"] = ""
    bare: bool = False
    biased: frozenset[str] | None = None
