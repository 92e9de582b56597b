"""The engines of a run's models, which compute its calls and keep its KV cache, and the count of the calls."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Literal

import numpy as np

from decgraph.backends.torch.effects import Effects
from decgraph.backends.torch.pending import AnyEngine
from decgraph.backends.torch.transfer import fetched
from decgraph.ir.drafting import drafting
from decgraph.runtime import trace
from decgraph.runtime.logprobs import ROWS
from decgraph.runtime.models.engine.forward_call import ForwardCall, RollEngine
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import Model


def _cached(models: Mapping[str, Model]) -> list[Model]:
    """The models that have an engine; an adapter is a layer of another model's, and a head reads one's states."""
    return [model for model in models.values() if model.kind not in ("layers", "head")]


class Engines(Effects):
    """The engines of a run's models, and statistics of its calls."""

    uncounted = False
    """Whether calls are counted by their caller, as the parts of one."""

    def start_run(self) -> None:
        super().start_run()
        self.engines: dict[Model, AnyEngine] = {}
        self.loop_engines: dict[Model, RollEngine | None] = {}

    cache_key: Hashable = None
    """The key under which the KV cache stays after the run; None: the cache is freed."""

    def reuse(self, key: Hashable) -> None:
        self.cache_key = ("kept", key)
        for model in _cached(self.models):
            self.engine(model).rewind(self.cache_key, self.request.prompt)

    @classmethod
    def forget(cls, models: Mapping[str, Model], key: Hashable) -> None:
        for model in _cached(models):
            engine_of(model).close(("kept", key))

    def sequence(self) -> Hashable:
        """The key of this run's KV cache in its engines."""
        if self.cache_key is not None:
            return self.cache_key
        return id(self) if self.parent is None else (self.parent.sequence(), id(self))

    def release(self) -> None:
        """Free this run's KV cache in the engines. Where it is to stay, that of models which the program derives is freed all
        the same: the next run has derived models of its own."""
        stays = [] if self.cache_key is None else list(self.models.values())
        for model, engine in self.engines.items():
            if not any(model is m for m in stays):
                engine.close(self.sequence())
        self.engines.clear()
        self.loop_engines.clear()

    def own_logits(self, begin: int, end: int) -> Iterator[np.ndarray]:
        """The main model's own logits float32 [n, V] before each of the tokens from `begin` to `end`. These are called as a
        chain of drafts below the tokens before them, whose keys and values are still in the cache."""
        assert self.main is not None
        tokens, uids = self.tokens, range(1 << 40, (1 << 40) + end - begin)  # no draft of the run has these
        for first in range(begin, end, ROWS):
            count = min(ROWS, end - first)
            engine: Any = self.engine(self.main)  # of a causal model: session.py refuses others
            (made,) = engine.compute(
                [
                    ForwardCall(
                        self.sequence(),
                        tokens[:first],
                        [-1] * begin + list(uids[: first - begin]),
                        tokens[first : first + count - 1],
                        range(-1, count - 2),
                        uids[first - begin : first - begin + count - 1],
                        range(-1, count - 1),
                        name=self.title,
                    )
                ]
            )
            if isinstance(made, Exception):
                raise made
            yield fetched(made)

    def engine(self, model: Model) -> AnyEngine:
        """The engine of a model."""
        found = self.engines.get(model)
        if found is None:
            found = self.engines[model] = engine_of(model)
        return found

    def draft_loop_engine(self, model: Model) -> RollEngine | None:
        """The engine of a model, if it can compute an autoregressive draft loop."""
        if model not in self.loop_engines:
            engine = self.engine(model)
            self.loop_engines[model] = engine if isinstance(engine, RollEngine) else None
        return self.loop_engines[model]

    def count_call(
        self, model: Model, rows: int, cells: int, computed: int | None = None, *, heads: bool = False, drafts: bool = False
    ) -> None:
        """Count a call: `rows` distributions from `cells` tokens, of which `computed` went through the model (None: all).
        heads: of the model's Medusa heads, which draft. drafts: the model drafts for itself."""
        if self.uncounted:
            return
        target = model is self.whole.main and not heads and not drafts  # the first model of a sub-run may be the run's drafter
        name = model.name + ".heads" if heads else drafting(model.name) if drafts else model.name
        self.tally.call(name, target)
        if target:
            self.whole.note_call(answered=model.kind == "masked")
        if self.listener is None:
            return
        role: Literal["target", "draft"] = "target" if target else "draft"
        self.emit_event(trace.ModelCall(name, rows, cells, role, computed))
