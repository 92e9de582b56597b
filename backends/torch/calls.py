"""Model calls of the torch machine: what a place asks of an engine, and the rows that come back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.rows import Dist, Rows
from decgraph.backends.torch.trees import Context, Path, Tree
from decgraph.errors import DecError
from decgraph.runtime import trace
from decgraph.runtime.models.derive import derive, halves
from decgraph.runtime.models.engine.ask import Ask, Remembered
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import Model


@dataclass
class Call:
    """One waiting model call: the engine, its ask, and what to do with the answer. `alone`: not to be batched."""

    machine: Any
    engine: Any
    ask: Any
    finish: Callable[[Any], Any]
    alone: bool = False

    kind = "ask"

    @property
    def asks(self) -> list[Any]:
        """What the engine is asked."""
        return [self.ask]

    @staticmethod
    def answer_all(calls: Sequence[Any]) -> list[Any]:
        """The engine's answers to each of several calls."""
        return answers_of(calls)

    def answer_alone(self) -> Any:
        """Asked of the engine by itself."""
        return self.take(self.engine.answer([self.ask]))

    def again(self) -> None:
        """To be asked once more: nothing of it was used."""

    def take(self, answers: Any) -> Any:
        """The value of the call from the engine's answers; raises what the engine answered with instead."""
        if isinstance(answers[0], BaseException):
            raise answers[0]
        return self.finish(answers[0])


@dataclass
class Together:
    """Several calls of one model that wait as one: one ask for all of them where they could be merged."""

    machine: Any
    engine: Any
    asks: list[Any]
    calls: list[Any]
    alone: bool = False
    kind = "ask"

    @staticmethod
    def answer_all(calls: Sequence[Any]) -> list[Any]:
        """The engine's answers to each of several calls."""
        return answers_of(calls)

    def answer_alone(self) -> Any:
        return self.take(self.engine.answer(self.asks))

    def again(self) -> None:
        """To be asked once more: nothing of it was used."""

    def take(self, answers: Any) -> Any:
        """The values of all parts, in order."""
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        if len(self.asks) < sum(isinstance(c, Call) for c in self.calls):
            rows, answers, first = answers[0], [], 0
            for c in self.calls:
                if isinstance(c, Call):
                    answers.append(rows[first : first + len(c.ask.rows)])
                    first += len(c.ask.rows)
        left = iter(answers)
        return tuple(c.finish(next(left)) if isinstance(c, Call) else c.value for c in self.calls)


_ROOT = np.zeros(1, dtype=np.int64)
_FIRST = np.zeros((), dtype=np.int64)


class Calls:
    """The part of the machine that asks models."""

    def main_model(self: Any) -> Any:
        """The model that claims are about: the first one that the function takes."""
        for p in self.function.params:
            if p.value.type.elem == "model" and p.name in self.models:
                return self.models[p.name]
        return None

    @property
    def whole(self: Any) -> Any:
        """The machine of the whole run, of which this may be a sub-run."""
        return self if self.parent is None else self.parent.whole

    def sequence(self: Any) -> Any:
        """What engines keep this run's cells under."""
        return id(self) if self.parent is None else (self.parent.sequence(), id(self))

    def release(self: Any) -> None:
        """Give the engines' room back."""
        for engine in self.engines.values():
            engine.close(self.sequence())
        self.engines.clear()

    def engine(self: Any, model: Any) -> Any:
        found = self.engines.get(model)
        if found is None:
            found = self.engines[model] = engine_of(model)
        return found

    def count_call(self: Any, model: Any, rows: int, cells: int, computed: int | None = None) -> None:
        if self.uncounted:
            return
        target = model is self.whole.main  # what a sub-run calls its first model may be the run's drafter
        self.tally.call(model.name, target)
        if self.listener is None:
            return
        role: Literal["target", "draft"] = "target" if target else "draft"
        self.emit_event(trace.ModelCall(model.name, rows, cells, role, computed))

    def evaluate_together(self: Any, model: Any, parts: tuple[tuple[Any, dict[str, Any]], ...], *, alone: bool = False) -> Any:
        """The meaning of `model.evals`: parts under one context are one ask over one tree, whose draws stay apart."""
        self.uncounted = True
        try:
            calls = [self.evaluate(model, place, extra) for place, extra in parts]
        finally:
            self.uncounted = False
        asked = [c for c in calls if isinstance(c, Call)]
        self.count_call(model, sum(len(c.ask.rows) for c in asked), sum(_cells(c.ask) for c in asked))
        if not asked:
            return Answered(self, tuple(c.value for c in calls))
        asks = [c.ask for c in asked]
        merged = _merged(asks) if all(isinstance(a, Ask) for a in asks) else None
        return Together(self, asked[0].engine, asks if merged is None else [merged], calls, alone)

    def place(self: Any, place: Any, tree: Any) -> tuple[Any, Any, Any, list[int], tuple[int, ...], Any]:
        """(context length, tree or None, tail node ids, wanted rows, shape, node ids) of a place."""
        if isinstance(place, Tree):
            n = len(place)
            return place.base.length, place, range(1, n), list(range(-1, n - 1)), (n,), None
        if isinstance(place, Context):
            return place.length, None, (), [-1], (), None
        ids = np.asarray(place, dtype=np.int64)
        flat = ids.ravel().tolist()
        parent, needed = tree.parent, {0}
        for node in flat:  # the nodes asked about and their ancestors
            while node not in needed:
                needed.add(node)
                node = int(parent[node])
        needed.discard(0)
        tail = sorted(needed)
        where = {node: i for i, node in enumerate(tail)}
        where[0] = -1
        return tree.base.length, tree, tail, [where[n] for n in flat], ids.shape, (ids if ids.ndim == 1 else None)

    def evaluate(
        self: Any, model: Any, place: Any, extra: dict[str, Any], *, part: Literal["heads"] | None = None, alone: bool = False
    ) -> Any:
        """The meaning of `model.eval`: a Call, whose value is the Dist."""
        if isinstance(place, Path):
            raise DecError("a model is asked at a context, at nodes of a tree or on a canvas, not at a path")
        if isinstance(place, Canvas) or (isinstance(place, Tree) and isinstance(place.base, Canvas)):
            from decgraph.backends.torch.canvas_calls import evaluate_canvas

            call = evaluate_canvas(self, model, place, extra)
            call.alone = alone
            return call
        length, tree, tail, wanted, shape, at = self.place(place, extra.get("tree"))
        if not wanted:
            none = np.zeros(shape if part is None else (*shape, 0), dtype=np.int64)
            return Answered(self, Dist(Rows(_no_rows(self.vocab_size), self.request), none, "shaped", at))
        tokens: list[int] = []
        parents: list[int] = []
        uids: list[int] = []
        if tree is not None and len(tail):
            if len(tail) == len(tree) - 1:
                tokens, uids, parents = tree.token[1:].tolist(), tree.uid[1:].tolist(), (tree.parent[1:] - 1).tolist()
            else:
                ids = np.asarray(tail, dtype=np.int64)
                tokens, uids = tree.token[ids].tolist(), tree.uid[ids].tolist()
                index = {int(n): i for i, n in enumerate(tail)}
                index[0] = -1
                parents = [index[p] for p in tree.parent[ids].tolist()]
        context = self.tokens if length == len(self.tokens) else self.tokens[:length]
        ask = Ask(
            self.sequence(),
            context,
            self.marks,
            tokens,
            parents,
            uids,
            wanted,
            part or "logits",
            given=extra.get("given"),
            name=self.title,
        )
        self.count_call(model if part is None else _Named(model.name + ".heads", model), len(wanted), len(tail))
        if tree is None:
            nodes = _ROOT
        elif isinstance(place, Tree):
            nodes = np.arange(len(tree))
        else:
            nodes = np.ravel(np.asarray(place, dtype=np.int64))

        def finish(scores: Any) -> Dist:
            if part == "heads":
                n = int(scores.shape[0]) // len(wanted)  # a row for each head, node by node
                deep = np.zeros(1, dtype=np.int64) if tree is None else tree.depth[nodes]
                positions = (length + 1 + deep[:, None] + np.arange(n)).reshape(-1)
                rows = Rows(
                    scores,
                    self.request,
                    positions=positions,
                    path=lambda i: self.path_to(length, tree, int(nodes[i // n])),
                    allow=_for_heads(extra.get("allow"), n),
                    label=model.name,
                )
                return Dist(rows, np.arange(len(wanted) * n).reshape(*shape, n), "shaped", at)
            rows = Rows(
                scores,
                self.request,
                positions=np.full(len(wanted), length),
                nodes=nodes,
                tree=tree,
                allow=extra.get("allow"),
                label=model.name,
                path=lambda i: self.path_to(length, tree, int(nodes[i])),
            )
            return Dist(rows, np.arange(len(wanted)).reshape(shape) if shape else _FIRST, "shaped", at)

        return Call(self, self.engine(model), ask, finish, alone)

    def path_to(self: Any, length: int, tree: Any, node: int) -> tuple[int, ...]:
        """The tokens of the state at a node."""
        if tree is None or node == 0:
            return tuple(self.tokens[:length])
        return (*self.tokens[:length], *(int(tree.token[n]) for n in tree.path_nodes(node)[1:]))

    def memory(self: Any, model: Any, place: Any, extra: dict[str, Any], *, alone: bool = False) -> Any:
        """The meaning of `model.memory`: of a context or node what was asked for, to be made when it is read (engines keep it
        anyway); of a canvas a Call."""
        if isinstance(place, Canvas):
            from decgraph.backends.torch.canvas_calls import memory_of_canvas

            call = memory_of_canvas(self, model, place, extra)
            if isinstance(call, Call):
                call.alone = alone
            return call
        if type(model).memory is Model.memory:
            return model.memory(())  # says that it has none to give
        tree: Any = extra.get("tree")
        if isinstance(place, Context):
            length, tokens = place.length, self.tokens
        else:
            tokens = self.path_to(tree.base.length, tree, int(np.ravel(np.asarray(place))[0]))
            length = len(tokens)
        if not length:
            raise DecError("there is no memory of an empty context", hint="ctx.parent exists for prompts of two tokens or more")
        return Answered(self, Remembered(model, tokens, length, extra.get("given")))

    def paths(self: Any, at: tuple[Any, ...], n: int) -> list[tuple[int, ...]]:
        """The paths of a place that `warp` names."""
        if isinstance(at[0], Context):
            return [at[0].ids()] * n
        if isinstance(at[0], Tree):
            return [self.path_to(at[0].base.length, at[0], i) for i in range(len(at[0]))]
        return [self.path_to(at[1].base.length, at[1], int(i)) for i in np.ravel(np.asarray(at[0]))]

    def derived(self: Any, how: str, base: Any, args: tuple[Any, ...], named: tuple[str, ...] = ()) -> Any:
        """The meaning of `model.derive`, one object for each way of deriving from one model."""
        how = {"adapter": "on"}.get(how, how)
        args = halves(args, named)
        kept = base.__dict__.setdefault("_derived", {})
        key = (how, tuple(id(a) if hasattr(a, "vocab") else str(a) for a in args))
        if key not in kept:
            made = derive(
                base, how, *[a if hasattr(a, "vocab") else (int(a) if isinstance(a, int | np.integer) else a) for a in args]
            )
            kept[key] = (made, args)
        return kept[key][0]


class Answered:
    """A call that needs no model."""

    engine = None

    def __init__(self, machine: Any, value: Any) -> None:
        self.machine, self.value = machine, value

    def answer_alone(self) -> Any:
        return self.value

    def take(self, answer: Any) -> Any:
        return self.value


def answers_of(calls: Sequence[Any]) -> list[Any]:
    """One answer of one engine to all asks of several calls, taken apart again."""
    asks = [call.asks for call in calls]
    got = iter(calls[0].engine.answer([ask for part in asks for ask in part]))
    return [[next(got) for _ in part] for part in asks]


def _cells(ask: Any) -> int:
    return len(ask.tokens) if isinstance(ask, Ask) else int(ask.cells.numel())


def _merged(asks: list[Ask]) -> Ask | None:
    """One ask for several under the same context, their trees side by side; None where the contexts differ."""
    first = asks[0]
    if any(len(a.context) != len(first.context) or a.part != "logits" or a.given is not None for a in asks):
        return None
    tokens: list[int] = []
    parents: list[int] = []
    uids: list[int] = []
    rows: list[int] = []
    for a in asks:
        n = len(tokens)
        tokens += a.cells()
        parents += [p if p < 0 else p + n for p in a.parents]
        uids += a.uids
        rows += [r if r < 0 else r + n for r in a.rows]
    return Ask(first.sequence, first.context, first.marks, tokens, parents, uids, rows, name=first.name)


@dataclass(frozen=True)
class _Named:
    name: str
    model: Any


def _for_heads(allow: Any, heads: int) -> Any:
    """What is allowed at nodes, for every head of each; what is allowed everywhere stays."""
    return allow if np.ndim(allow) < 2 else np.repeat(np.reshape(allow, (-1, np.shape(allow)[-1])), heads, axis=0)


def _no_rows(size: int) -> Any:
    import torch

    return torch.empty(0, size)
