"""The engine of a model in another model's vocabulary: calls of the model's own engine on the text of every path."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import torch

from decgraph.errors import DecError
from decgraph.runtime.models.engine.forward_call import Counted, Engine, ForwardCall, Output
from decgraph.runtime.models.engine.of import causal_engine_of
from decgraph.runtime.models.engine.plain import PlainEngine
from decgraph.runtime.models.speaking import Speaking


def build_engine(model: Speaking) -> Engine:
    """The engine of a model that speaks, around its own; without one each of its calls computes whole paths."""
    own = causal_engine_of(model.base)
    return PlainEngine(model) if isinstance(own, PlainEngine) else SpeakingEngine(model, own)


class SpeakingEngine:
    """Every sequence is one of the model's own engine. The common prefix of a call's paths is its context there, and is cached
    as far as it equals the last call's; the rest of each path is a chain of drafts without a uid, and is not cached."""

    def __init__(self, model: Speaking, engine: Engine) -> None:
        self.model, self.engine = model, engine
        self.own, self.other = (torch.tensor(column) for column in zip(*model.shared, strict=True))
        self.opened: dict[Hashable, int] = {}  # how many sequences of the model's own engine stand for one

    @property
    def counted(self) -> Counted:
        """The counters of the model's own engine."""
        return self.engine.counted

    def compute(self, calls: list[ForwardCall]) -> list[Output]:
        """Rows [rows, V] over the other vocabulary; in its place the DecError of a call that fails."""
        asks: list[ForwardCall] = []
        of: list[tuple[int, list[int]]] = []  # of every ask: the call, and which of its rows
        for n, call in enumerate(calls):
            for ask, rows in self._translated(call):
                asks.append(ask)
                of.append((n, rows))
                self.engine.rewind(ask.sequence, ask.context)
        found: list[dict[int, torch.Tensor]] = [{} for _ in calls]
        errors: dict[int, DecError] = {}
        for (n, rows), made in zip(of, self.engine.compute(asks) if asks else [], strict=True):
            if isinstance(made, DecError):
                errors[n] = made
            else:
                found[n].update(zip(rows, self._over(made), strict=True))
        why = f"{self.model.name!r} has no heads and reads no memory: these are of other tokens"
        return [
            errors.get(n) or (torch.stack([found[n][i] for i in range(len(call.rows))]) if found[n] else DecError(why))
            for n, call in enumerate(calls)
        ]

    def _translated(self, call: ForwardCall) -> list[tuple[ForwardCall, list[int]]]:
        """A call in the model's own tokens, and its rows: one for all paths that begin with the same token."""
        if call.part != "logits" or call.memory is not None:
            return []
        groups: dict[int, list[int]] = {}
        paths = [self.model.translated(path) for path in call.paths()]
        for row, path in enumerate(paths):
            groups.setdefault(path[0], []).append(row)
        self.opened[call.sequence] = max(len(groups), self.opened.get(call.sequence, 0))
        return [
            (self._below(self._key(call.sequence, n), [paths[row] for row in rows], call.request), rows)
            for n, rows in enumerate(groups.values())
        ]

    def _key(self, sequence: Hashable, n: int) -> Hashable:
        return ("speaking", self.model.vocab, sequence, n)

    def _below(self, key: Hashable, paths: Sequence[tuple[int, ...]], name: str) -> ForwardCall:
        """The call for the rows after paths: their common prefix is the context, the rest of each a chain of drafts."""
        least = min(map(len, paths))
        same = next((i for i in range(least) if len({path[i] for path in paths}) > 1), least)
        tokens: list[int] = []
        parents: list[int] = []
        rows: list[int] = []
        for path in paths:
            at = -1
            for token in path[same:]:
                tokens.append(token)
                parents.append(at)
                at = len(tokens) - 1
            rows.append(at)
        return ForwardCall(key, paths[0][:same], (), tokens, parents, [-1] * len(tokens), rows, name=name)

    def _over(self, rows: torch.Tensor) -> torch.Tensor:
        out = rows.new_full((len(rows), self.model.vocab.size), float("-inf"))
        out[:, self.other.to(rows.device)] = rows[:, self.own.to(rows.device)]
        none = ~torch.isfinite(out).any(-1)
        if bool(none.any()):
            out[none.nonzero()[:, :1], self.other.to(rows.device)] = 0.0
        return out

    def limit(self, budget: int) -> None:
        """Bound what is kept between calls, in bytes."""
        self.engine.limit(budget)

    def compile(self, notice: Callable[[str], None]) -> bool:
        """Whether the model's own engine compiles its forward."""
        return bool(self.engine.compile(notice))

    def close(self, sequence: Hashable) -> None:
        """Free the KV cache of a sequence."""
        for n in range(self.opened.pop(sequence, 0)):
            self.engine.close(self._key(sequence, n))

    def rewind(self, sequence: Hashable, context: Sequence[int]) -> None:
        """Nothing: every call goes back to what its text has in common with the last one's."""
