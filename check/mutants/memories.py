"""Bugs of reuse: the target reads positions as they were computed for another path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile
from decgraph.ir.data.dist import Dist
from decgraph.ir.data.tree import Tree


class Slots(ExactMachine):
    """The target's keys and values stand in slots by position; `fill` says what a verification leaves in them."""

    def start_run(self) -> None:
        super().start_run()
        self.slots: dict[int, Any] = {}
        self.filling: dict[int, Any] = {}

    def fill(self, t: Tree) -> dict[int, Any]:
        return {}

    def keep(self, before: int) -> None:
        """After a commit: what stays in the slots. `before`: tokens of the context before it."""

    def evaluate(self, op: Any, model: Any, place: Any, extra: dict[str, Any]) -> Dist:
        if model is self.main and isinstance(place, Tree) and isinstance(place.base, tuple) and len(place) > 1:
            self.filling = self.fill(place)
        return super().evaluate(op, model, place, extra)

    def commit(self, op: Any, x: Any, tree: Any) -> None:
        before = len(self.tokens)
        super().commit(op, x, tree)
        self.slots = {**self.slots, **self.filling}
        self.filling = {}
        self.keep(before)

    def score_paths(self, model: Any, states: Sequence[tuple[Any, ...]], given: Any) -> list[Callable[[], Any]]:
        if model is self.main and self.slots:
            committed = len(self.tokens)
            states = [tuple(self.slots.get(i, x) if i < committed else x for i, x in enumerate(s)) for s in states]
        return super().score_paths(model, states, given)


class Stale(Slots):
    """Keys and values of a rejected draft are read as those of the token that replaced it."""

    def fill(self, t: Tree) -> dict[int, Any]:
        node, out = 0, {}
        while t.children(node):
            node = t.children(node)[0]
            out[len(t.base) + t.nodes[node].depth - 1] = t.nodes[node].edge
        return out


class Scattered(Slots):
    """The accepted path's keys and values are taken from the first slots of the tree."""

    def fill(self, t: Tree) -> dict[int, Any]:
        return {len(t.base) + i - 1: t.nodes[i].edge for i in range(1, len(t))}

    def keep(self, before: int) -> None:
        self.slots = {i: x for i, x in self.slots.items() if i < len(self.tokens) - 1}


class Leaking(ExactMachine):
    """The verification's mask lets a node see its siblings."""

    leaks = False

    def evaluate(self, op: Any, model: Any, place: Any, extra: dict[str, Any]) -> Dist:
        self.leaks = model is self.main and isinstance(place, Tree)
        try:
            return super().evaluate(op, model, place, extra)
        finally:
            self.leaks = False

    def place_states(self, place: Any, extra: dict[str, Any]) -> tuple[list[Any], tuple[int, ...], Any]:
        states, shape, ids = super().place_states(place, extra)
        if self.leaks and isinstance(place.base, tuple):
            states = [place.base + tuple(n.edge for n in place.nodes[1 : i + 1]) for i in range(len(place))]
        return states, shape, ids


def verified(f: Profile) -> bool:
    """Whether a program verifies every draft by a causal model and claims the tokens or the distribution of another."""
    return f.walks and f.causal and not f.unwalked and bool({"distribution", "tokens", "greedy"} & f.modes)


MUTANTS = (
    Mutant.of(
        Stale,
        "rollback-forgotten",
        lambda f: verified(f) and f.rejected,
        "V = 2, one draft, two steps",
        "M22, M23, M33",
        steps=2,
    ),
    # In a chain growth order is the path's order.
    Mutant.of(
        Scattered,
        "path-not-gathered",
        lambda f: verified(f) and f.width >= 2 and f.depth >= 1,
        "V = 2, two siblings, two steps",
        "M28, M36",
        steps=2,
    ),
    Mutant.of(
        Leaking, "siblings-seen", lambda f: verified(f) and f.spread and f.depth >= 1, "V = 2, two siblings", "M37; ar.md L2"
    ),
)
