"""Computations of a step on distributions over the vocabulary: shaping, draws, the best tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from decgraph.backends.torch.shaping import amount
from decgraph.backends.triton.rows import functions
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.runtime.request import Request


@dataclass(frozen=True)
class Shape:
    """The part of a request that shapes distributions, the same for every row: a captured program is specialised for it.

    bias: (token, amount) pairs; bans: tokens. Both act on the logits before all else.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    bias: tuple[tuple[int, float], ...] = ()
    bans: tuple[int, ...] = ()

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @staticmethod
    def of(request: Request) -> Shape:
        """The shaping of a request. Raises NotCapturable for shaping that depends on rows' paths, or calls Python."""
        why = {
            "penalties": request.repetition_penalty != 1
            or bool(amount(request.presence_penalty))
            or bool(amount(request.frequency_penalty)),
            "an automaton or allowed tokens": request.allow is not None,
            "processors": bool(request.processors),
            "stop strings": bool(request.stop),
            "`until` functions": bool(request.until),
            "a least length": request.min_length > 0 and bool(request.eos),
        }
        for what, there in why.items():
            if there:
                raise NotCapturable(f"the request has {what}")
        return Shape(
            float(request.temperature),
            request.top_k,
            None if request.top_p is None else float(request.top_p),
            None if request.min_p is None else float(request.min_p),
            tuple((t, amount(v)) for t, v in request.bias_pairs),
            tuple(sorted(request.bans)),
        )


class DistributionKernels:
    """The generated kernels of backends/triton/rows. Rows are logits [N, V], or probabilities where `given`; words int32[N, 3]
    are key words and seeds int64[N, 2] the seed's uint32 words, by row. Nothing is read back; the token of a row without mass
    is -1."""

    def __init__(self, shape: Shape, size: int, device: torch.device, *, wide: bool) -> None:
        self.shape = shape
        kind = torch.float64 if wide else torch.float32
        self.bans = vector(dict.fromkeys(shape.bans, -math.inf), size, kind, device)
        bias = dict(shape.bias) | dict.fromkeys(shape.bans, -math.inf)
        self.bias = vector(bias, size, kind, device)
        self.truncates = shape.top_k is not None or shape.top_p is not None or shape.min_p is not None

    def probs(self, scores: Tensor, face: str) -> Tensor:
        """Probabilities [N, V] in a view ("raw" or "shaped"), float64 for float64 logits, else float32."""
        if face == "raw":
            return functions.shaped(scores, temperature=1.0, bias=self.bans)
        s = self.shape
        return functions.shaped(scores, temperature=s.temperature, top_k=s.top_k, top_p=s.top_p, min_p=s.min_p, bias=self.bias)

    def best(self, scores: Tensor) -> Tensor:
        """int64[N]: the greedy token."""
        return functions.argmax(scores, self.bias)

    def draw(self, scores: Tensor, given: bool, words: Tensor, seeds: Tensor) -> Tensor:
        """int64[N]: one draw of each row's shaped distribution."""
        if given or self.truncates:
            return functions.draw(scores if given else self.probs(scores, "shaped"), words, seeds)
        return functions.draw_logits(scores, words, seeds, temperature=self.shape.temperature, bias=self.bias)

    def distinct(self, scores: Tensor, given: bool, words: Tensor, seeds: Tensor, k: int) -> Tensor:
        """int64[N, k]: draws without replacement in order; -1 where the support is smaller."""
        return functions.draw_many(scores if given else self.probs(scores, "shaped"), words, seeds, k)

    def races(self, scores: Tensor, given: bool, words: Tensor, seeds: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """int64[N, k] and [N, k]: the k tokens of the highest race keys, log q - log E, and these keys, highest first."""
        probs = scores if given else self.probs(scores, "shaped")
        return functions.draw_race(probs, words, seeds, k)

    def top(self, scores: Tensor, k: int, *, banned: bool) -> Tensor:
        """int64[N, k]: the k largest entries of each row, largest first, ties to the lowest. banned: bans are applied first."""
        if banned and self.bans is not None:
            scores = scores + self.bans.to(scores.dtype)
        return functions.topk(scores, k)[0]

    def without(self, probs: Tensor, members: Tensor, count: Tensor) -> Tensor:
        """[N, V]: each row of probabilities without its first count[n] members (int64[N, k]), renormalised."""
        return functions.without(probs, members, count)


def vector(amounts: dict[int, float], size: int, kind: torch.dtype, device: torch.device) -> Tensor | None:
    """[V]: an amount for each token, 0 for most; None where there are none."""
    if not amounts:
        return None
    out = torch.zeros(size, dtype=kind)
    for token, value in amounts.items():
        if token < size:
            out[token] = value
    return out.to(device)
