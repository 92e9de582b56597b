"""Bugs of ends: what is committed past the token at which a text ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile
from decgraph.check.walks import Walker
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.values import Op
from decgraph.runtime.stop import StopMachine


class OncePerStep(ExactMachine):
    """An end of text inside an accepted path is not seen: stops are tested once a step."""

    def sees(self, state: Any, token: int) -> Any:
        return replace(state, count=state.count + 1)

    def commit(self, op: Op, x: Any, tree: Any) -> None:
        tokens = [edge_token(t) for t in self.commit_tokens(x, tree)]
        if self.parent is not None or len(tokens) < 2 or self.done():
            super().commit(op, x, tree)
            return
        for t in tokens[:-1]:
            self.tokens.append(t)
            self.stop_state = self.sees(self.stop_state, t)
        fed = list(tokens[:-1])
        if not self.stop_state.done:
            self.tokens.append(tokens[-1])
            self.stop_state = StopMachine.feed(self.stop_state, tokens[-1])
            fed.append(tokens[-1])
        self.learn_committed(fed)


class Overshoot(OncePerStep):
    """An accepted path is committed whole though the limit is reached inside it."""

    def sees(self, state: Any, token: int) -> Any:
        if state.done:
            return state
        ends = token in state.request.eos
        return replace(state, count=state.count + 1, done=ends, reason="eos" if ends else "")

    def commit(self, op: Op, x: Any, tree: Any) -> None:
        tokens = [edge_token(t) for t in self.commit_tokens(x, tree)]
        for i, t in enumerate(tokens):
            if t in self.request.eos:
                tokens = tokens[: i + 1]
                break
        super().commit(op, [int(t) for t in tokens] if self.parent is None else x, tree if self.parent is not None else None)

    def commit_tokens(self, x: Any, tree: Any) -> list[Any]:
        return list(x) if isinstance(x, list) and all(isinstance(t, int) for t in x) else super().commit_tokens(x, tree)


class EndedByDraft(Walker):
    """A drafted end of text ends the text although the target rejects it."""

    def taken(self, t: Tree, node: int, children: list[int], child: int | None) -> int | None:
        for c in children:
            if child is None and edge_token(t.nodes[c].edge) in self.request.eos:
                return c
        return child


def several(f: Profile) -> bool:
    """Whether a program verifies drafts and commits several tokens at a time, and claims something of whole texts: which tokens
    have support says nothing of where a text ends."""
    return f.many and f.walks and bool({"distribution", "tokens", "greedy"} & f.modes)


MUTANTS = (
    Mutant.of(OncePerStep, "end-inside-a-path", several, "V = 2, one draft, eos", "M46, M47", worlds=(1, 17)),
    Mutant.of(Overshoot, "limit-overshoot", several, "V = 2, one draft, limit 1 or 2", "M49; ar.md L10", worlds=(15, 7)),
    Mutant.of(EndedByDraft, "ended-by-a-draft", lambda f: f.walks and f.ends, "V = 2, one draft, eos", "M48", worlds=(1, 17)),
)
