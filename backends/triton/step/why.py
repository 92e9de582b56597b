"""Whether a program can run in graph mode, and the sizes that its steps need: found by running iterations on shapes alone.

Torch's meta device computes shapes and nothing else, so an iteration of the real evaluator over it takes milliseconds, whatever
the models are. It raises the reason (`NotCapturable`), or finds each model's tail slots in a step and its most uncached tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from decgraph.backends.triton.rules.device import Given, Walked
from decgraph.backends.triton.step.distributions import DistributionKernels, Shape
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.machine import DeviceStep, Frame
from decgraph.errors import DecError
from decgraph.ir.opdef import OpError
from decgraph.ir.values import Module
from decgraph.runtime.request import Request

META = torch.device("meta")
ITERATIONS = 6
"""Iterations until the number of uncached tokens has to be the same before and after one."""


@dataclass(frozen=True)
class Needs:
    """The sizes that a program's steps need. tails: the most tail slots of a step, by model; uncached: the most committed
    tokens that are not cached when an iteration begins, by model; ahead: the most tokens past the committed ones in a step."""

    tails: dict[str, int]
    uncached: dict[str, int]
    ahead: int


class Shapes:
    """A model that computes only shapes."""

    def __init__(self, model: Any) -> None:
        self.name, self.vocab_size, self.exact = model.name, model.vocab.size, bool(model.exact)
        self.layers = model.layers
        self.keeps_paths = model.kind != "features"
        self.model = model

    def forward(
        self,
        tokens: Tensor,
        positions: Tensor,
        first: int,
        cached: Tensor,
        bits: Tensor,
        rows: Tensor,
        given: Tensor | None = None,
    ) -> Tensor:
        """See `DeviceModel`: [B, R, V]."""
        return torch.empty((*rows.shape, self.vocab_size), dtype=torch.float64 if self.exact else torch.float32, device=META)

    def heads(self, slots: Tensor) -> Tensor:
        """Scores [B, heads, V] of the model's own heads."""
        n = heads_of(self.model)
        return torch.empty((len(slots), n, self.vocab_size), dtype=torch.float64 if self.exact else torch.float32, device=META)

    def move(self, cached: Tensor, source: Tensor, count: Tensor) -> None:
        """Nothing: shapes [B, K] do not change."""


def heads_of(model: Any) -> int:
    """How many Medusa heads a model has. Raises NotCapturable for a model without."""
    attached = getattr(model, "attached", None)
    if attached is not None:
        weight = next(attached.module.parameters())
        with torch.no_grad():
            return len(list(attached.module(weight.new_zeros(1, 1, int(weight.shape[-1])))))
    n = int(getattr(model, "heads_count", 0))
    if not n:
        raise NotCapturable(f"`{model.name}` has no heads of its own")
    return n


class DistributionShapes(DistributionKernels):
    """The shapes of the results of `DistributionKernels`."""

    def probs(self, scores: Tensor, face: str) -> Tensor:
        return torch.empty(scores.shape, dtype=torch.promote_types(scores.dtype, torch.float32), device=META)

    def best(self, scores: Tensor) -> Tensor:
        return _tokens(scores)

    def draw(self, scores: Tensor, given: bool, words: Tensor, seeds: Tensor) -> Tensor:
        return _tokens(scores)

    def distinct(self, scores: Tensor, given: bool, words: Tensor, seeds: Tensor, k: int) -> Tensor:
        return _tokens(scores, k)

    def races(self, scores: Tensor, given: bool, words: Tensor, seeds: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return _tokens(scores, k), torch.empty((len(scores), k), dtype=torch.float64, device=META)

    def top(self, scores: Tensor, k: int, *, banned: bool) -> Tensor:
        return _tokens(scores, k)

    def without(self, probs: Tensor, members: Tensor, count: Tensor) -> Tensor:
        return torch.empty_like(probs)


def _tokens(scores: Tensor, *more: int) -> Tensor:
    return torch.empty((len(scores), *more), dtype=torch.int64, device=META)


class Probe(DeviceStep):
    """A step that computes only shapes."""

    meta = True

    def make_kernels(self, model: Any) -> DistributionKernels:
        return DistributionShapes(Shape(), model.vocab_size, META, wide=model.exact)

    def walked(self, rule: Any, given: Given, depth: int) -> Walked:
        self.deepest = max(getattr(self, "deepest", 0), depth)
        return Walked(torch.empty((self.frame.batch, Walked.HEAD + 3 * depth), dtype=torch.int64, device=META), depth)

    def site_words(self, sites: tuple[str, ...]) -> Tensor:
        return torch.empty((self.frame.batch, len(sites)), dtype=torch.int32, device=META)


def needs_of(module: Module, function: str, models: Mapping[str, Any], params: Mapping[str, Any], shape: Shape) -> Needs:
    """The sizes that the steps of a program need, with these models (runtime models by parameter name) and for requests of this
    shaping. Raises NotCapturable where it cannot run in graph mode."""
    for name, model in models.items():
        if model.kind == "masked":
            raise NotCapturable(f"`{name}` fills canvases")
        if not hasattr(model, "vocab"):
            raise NotCapturable(f"`{name}` has no vocabulary")
    probe = Probe(module, function, {n: Shapes(m) for n, m in models.items()}, params, Frame(1, 64, shape, META))
    try:
        probe.start_states()
        probe.prologue()
        uncached = probe.uncached()
        for _ in range(ITERATIONS):
            probe.most_uncached = uncached
            probe.body()
            after = probe.uncached()
            if all(after[name] <= n for name, n in uncached.items()):
                break
            uncached = {name: max(n, after[name]) for name, n in uncached.items()}
        else:
            raise NotCapturable("a model's uncached tokens grow without bound")
    except (OpError, DecError) as error:  # the program's own mistakes, which the driver of the torch backend reports
        raise NotCapturable(str(error)) from error
    tails = {name: cache.most for name, cache in probe.caches.items()}
    return Needs(tails, uncached, 1 + getattr(probe, "deepest", 1))


def static_reason(
    module: Module, function: str, request: Request | None, models: Mapping[str, Any], params: Mapping[str, Any]
) -> str | None:
    """Why a program cannot run in graph mode; None if it can.

    request: the request (None: one without shaping). models: runtime models by parameter name; `causal.device_model` determines
    which are supported. params: all parameters' values.
    """
    try:
        needs_of(module, function, models, params, Shape() if request is None else Shape.of(request))
    except NotCapturable as error:
        return str(error)
    return None


__all__ = ["Needs", "needs_of", "static_reason"]
