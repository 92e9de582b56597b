"""Inputs and results of a verification on the device: tensors of static shapes with the sequence as first axis, never read
back.

    rule = compile.rule_of(op, function.body)     # op: a `tree.walk`; once per program
    given = Given(token=..., parent=..., p=..., ...)
    walked = rule.on_device(given, depth=D)       # launches kernels, does not synchronise; may be captured in a CUDA graph

The rule determines which fields of `Given` are needed:
    rule.sites      the names of the noise sites, in the order of the columns of `words`; "output" is the output stream
    rule.ints       the values captured from outside that are ints or bools (loop counters ...), columns of `counters`
    rule.reals      the values captured that are real numbers (epsilon ...), columns of `reals`
    rule.needs      a set of: "p" (probabilities over the vocabulary, or one-hot tokens), "laws" (law_row, q), "position",
                    "noise" (seeds, words), "prob", "race", "point" (columns by node of those names)
    rule.drawn      whether p_points may be the tokens drawn from the evidence, instead of p
`match` for one needs p, position and noise, and has sites ("output",).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from decgraph.runtime.noise import Key


@dataclass(frozen=True)
class Given:
    """The inputs of a verification, for B sequences. All tensors are on one device and contiguous.

    token: int64[B, N], the token of every node (the root's is read by tree rules only).
    parent: int64[B, N]; the root is node 0 (its parent is not read), a parent precedes its children, siblings are
        offered in the order of nodes. live: bool[B, N], which nodes exist (None: all); the root always does.
    p: float32 or float64 [B, R, V], the evidence: probabilities after shaping. For greedy requests p is None and
    p_points: int64[B, R] has the certain token of each row. row: int64[B, N], the row of each node; -1 where the evidence was
        not computed (verification ends there, nothing emitted). None: row n is node n's (R = N).
    q: float of p's type [B, M, V], draft distributions (conditional where drawn without replacement); q_points: int64[B, M]
        instead where they are one-hot. law_row: int32[B, N], the row of each node's law, or -1: one-hot at the node's token.
        All None where the rule reads no laws; law_row None means that every law is one-hot.
    position: int64[B], the index of the token that would be drawn at the root (= the number of committed tokens); or
        int64[B, N], of what would be drawn at each node.
    seeds: int64[B, 2], low and high word of the seed. words: int32[B, S], c0 of every site: `site_word`.
    counters: int32[B, prefix + C], the captured ints, after the counters of a sub-run's caller. reals: float64[B, L].
    columns: float64[B, N] by name, see `needs`. size: V, where neither p nor q says it.

    Trees of canvases: an edit is the number position * V + token. `token` has the edit that made each node, p_points the edit
    that the evidence of each row is, and nothing is emitted.
    """

    token: Tensor
    parent: Tensor
    live: Tensor | None = None
    p: Tensor | None = None
    p_points: Tensor | None = None
    row: Tensor | None = None
    q: Tensor | None = None
    q_points: Tensor | None = None
    law_row: Tensor | None = None
    position: Tensor | None = None
    seeds: Tensor | None = None
    words: Tensor | None = None
    counters: Tensor | None = None
    reals: Tensor | None = None
    columns: dict[str, Tensor] = field(default_factory=dict)
    size: int = 0
    prefix: int = 0


@dataclass(frozen=True)
class Walked:
    """The results of a verification, views of one int64 tensor [B, 7 + 3 D] called `packed`.

    node: int64[B], the accepted node: the new root. count: int64[B], its depth. emitted: int64[B], the token emitted, -1 for
    none. fault: int64[B], 0, or the number of the error that a driver would raise, and then nothing is emitted: 1 a coin of 0 /
    0, 2 a draw without mass, 3 the best of nothing, 4 a draw accepted that is no child, 5 evidence that was not computed, read
    by a tree rule. slot, mass: int64[B], float64[B], where the emitted token was drawn (with `scratch`, see walk.py). visited:
    int64[B], the nodes that the rule was applied at. nodes: int64[B, D], the accepted nodes from the first below the root on,
    -1 after them. tests: int64[B, D, 2], for every depth whether children were offered and whether one was accepted (0 or 1
    each).
    """

    packed: Tensor
    depth: int
    scratch: Tensor | None = None

    HEAD: ClassVar[int] = 7

    @property
    def node(self) -> Tensor:
        return self.packed[:, 0]

    @property
    def count(self) -> Tensor:
        return self.packed[:, 1]

    @property
    def emitted(self) -> Tensor:
        return self.packed[:, 2]

    @property
    def fault(self) -> Tensor:
        return self.packed[:, 3]

    @property
    def slot(self) -> Tensor:
        return self.packed[:, 4]

    @property
    def mass(self) -> Tensor:
        return self.packed[:, 5].view(torch.float64)

    @property
    def visited(self) -> Tensor:
        return self.packed[:, 6]

    @property
    def nodes(self) -> Tensor:
        return self.packed[:, self.HEAD : self.HEAD + self.depth]

    @property
    def tests(self) -> Tensor:
        return self.packed[:, self.HEAD + self.depth :].unflatten(1, (self.depth, 2))


def site_word(request: int, site: str) -> int:
    """c0 of a site for a request, its bits as int32: the first word of every key of the site."""
    word = Key(0, request, site).words()[0]
    return word - 2**32 if word >= 2**31 else word


def site_words(requests: Sequence[int], sites: Sequence[str], device: torch.device | str = "cpu") -> Tensor:
    """int32[B, S]: `Given.words` of requests, by their ids. Not part of a step: it copies from the host."""
    return torch.tensor([[site_word(r, s) for s in sites] for r in requests], dtype=torch.int32, device=device).reshape(
        len(requests), len(sites)
    )


def seed_words(seeds: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """int64[B, 2]: `Given.seeds`. Not part of a step."""
    return torch.tensor([[s % 2**32, s >> 32] for s in seeds], dtype=torch.int64, device=device).reshape(len(seeds), 2)
