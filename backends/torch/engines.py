"""The engines of a run's models, which compute its calls and keep its KV cache."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from decgraph.backends.torch.pending import AnyEngine
from decgraph.runtime.models.engine.causal import CausalEngine
from decgraph.runtime.models.engine.forward_call import Engine
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import Model

if TYPE_CHECKING:
    from decgraph.runtime.models.engine.canvas_call import MaskedEngine


class Engines(dict[Model, AnyEngine]):
    """The engines that a run has used, by model; `engines[model]` finds the engine of any.

    sequence: the key of the run's KV cache in them. cache_key: the key under which that cache stays after the run; None: it
    is freed.
    """

    cache_key: tuple[str, Hashable] | None = None

    def __init__(self, sequence: Hashable) -> None:
        super().__init__()
        self.sequence = sequence

    def __missing__(self, model: Model) -> AnyEngine:
        return self.setdefault(model, engine_of(model))

    def masked(self, model: Model) -> MaskedEngine:
        """The engine of a masked model."""
        return cast("MaskedEngine", self[model])

    def causal(self, model: Model) -> Engine:
        """The engine of a model that reads texts."""
        return cast(Engine, self[model])

    def for_loops(self, model: Model) -> CausalEngine | None:
        """The engine of a model, if it can compute an autoregressive draft loop."""
        engine = self[model]
        return engine if isinstance(engine, CausalEngine) else None

    def reuse(self, key: Hashable, models: Mapping[str, Model], prompt: Sequence[int]) -> None:
        """Go on with the KV cache that an earlier run left under a key, as far as its tokens begin like the prompt."""
        self.sequence = self.cache_key = ("kept", key)
        for model in _cached(models):
            self[model].rewind(self.sequence, prompt)

    def release(self, models: Iterable[Model]) -> None:
        """Free the run's KV cache. Where it is to stay, only that of models which the program derives, and not the run's
        `models`: the next run has derived models of its own."""
        stays = [] if self.cache_key is None else list(models)
        for model, engine in self.items():
            if not any(model is m for m in stays):
                engine.close(self.sequence)
        self.clear()


def forget(models: Mapping[str, Model], key: Hashable) -> None:
    """Free the KV cache that a run left under a key."""
    for model in _cached(models):
        engine_of(model).close(("kept", key))


def _cached(models: Mapping[str, Model]) -> list[Model]:
    """The models that have an engine; an adapter is a layer of another model's, and a head reads one's states."""
    return [model for model in models.values() if model.kind not in ("layers", "head")]


MOST = 8
"""How many second contexts of one model stay cached for a run."""


@dataclass
class Kept:
    """The second contexts of one model that are cached: their keys in the engine, and the tokens, the latest one last."""

    texts: dict[Hashable, tuple[int, ...]] = field(default_factory=dict)
    opened: int = 0

    def key(self, run: Hashable, text: tuple[int, ...]) -> Hashable:
        """The sequence with which a text goes on: the one that has most of it, where that is at least half of what is cached
        there; else a new one, or, where there are MOST, the one that was not read for longest."""
        shared = {key: common(kept, text) for key, kept in self.texts.items()}
        best = max(shared, key=lambda key: shared[key], default=None)
        if best is None or 2 * shared[best] < len(self.texts[best]) or not shared[best]:
            if len(self.texts) < MOST:
                best = (run, "second context", self.opened)
                self.opened += 1
            else:
                best = next(iter(self.texts))
        self.texts.pop(best, None)
        self.texts[best] = text
        return best


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the longest common beginning."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class SecondContexts(dict[Model, Kept]):
    """The second contexts of a run, by model: the texts of its calls on other tokens than the request's. Each is a sequence of
    its own in the engine's KV cache. A text that begins as one that was read before goes on with its keys and values; what is
    not common is computed again."""

    def __missing__(self, model: Model) -> Kept:
        return self.setdefault(model, Kept())

    def release(self, engines: Engines) -> None:
        """Free their KV cache."""
        for model, kept in self.items():
            for key in kept.texts:
                engines[model].close(key)
        self.clear()
