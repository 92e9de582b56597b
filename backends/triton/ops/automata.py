"""Automata over tokens: tables that are constants of a program, states that are numbers; -1 is behind a token that has no
step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context
from decgraph.backends.triton.vectors import live_of, made
from decgraph.runtime.grammars import Parsed

MOST = 2**27
"""Bytes of an automaton's table; a larger one stays with the driver."""


class Table:
    """next: int64[states + 1, V], the states after; row 0 is that of the state -1. allowed: bool[states + 1, V]. at: int64[B],
    the state after the tokens that a lane has committed."""

    def __init__(self, s: Any, g: Any) -> None:
        size = int(s.vocab_size)
        if isinstance(g, Parsed) or 9 * (g.states + 1) * size > MOST:
            raise NotSteppable("an automaton that is no table, or a large one", s.place)
        rows = np.full((g.states + 1, size), -1, dtype=np.int64)
        given = np.array(g.next, dtype=np.int64)[:, :size]
        rows[1:, : given.shape[1]] = given
        self.g, self.next = g, s.constant(rows)
        self.allowed = s.constant(np.isin(rows, list(g.live)) & (rows >= 0))
        self.at = s.buffer((s.frame.batch,), torch.int64)
        self.at.fill_(g.start)

    def after(self, state: Tensor, token: Tensor) -> Tensor:
        """The states after tokens, all int64[B or 1, ...]."""
        known = (token >= 0) & (token < self.next.shape[1])
        return torch.where(known, self.next[state + 1, token.clamp(0, self.next.shape[1] - 1)], -1)

    def read(self, tokens: Tensor, count: Tensor) -> None:
        """The first count int64[B] of tokens int64[B, N] are committed."""
        for n in range(int(tokens.shape[1])):
            self.at.copy_(torch.where(count > n, self.after(self.at, tokens[:, n]), self.at))


def table_of(s: Any, g: Any) -> Table:
    """The table of an automaton, made once."""
    if ("automaton", id(g)) not in s.made:
        s.made["automaton", id(g)] = Table(s, g)
        s.readers.append(s.made["automaton", id(g)])
    out: Table = s.made["automaton", id(g)]
    return out


@step("automaton")
def ask(s: Any, op: Any, g: Any, *args: Any) -> Any:
    """A state, or what a state allows."""
    what, table = op.attrs["what"], table_of(s, g)
    if what in ("start", "states"):
        return g.start if what == "start" else g.states
    if what == "live":
        return np.isin(np.arange(g.states), list(g.live))
    if what == "state":
        if not isinstance(args[0], Context) or args[0].parent:
            raise NotSteppable("an automaton's state after something else than the context", op)
        return table.at.clone()
    state, live = s.tensor(args[0]), live_of(args[0])
    if what == "weights":
        return torch.where(s.steps(g.states) == state[:, None], 0.0, -torch.inf).double()
    if what == "allowed":
        return made(table.allowed[state + 1], live)
    xs = s.packed(s.tokens_of(args[1]))
    tokens, there = s.tensor(xs).long(), live_of(xs)
    if what == "step":
        tokens = tokens.reshape(len(tokens), *state.shape[1:]) if state.ndim != tokens.ndim else tokens
        return made(table.after(state, tokens), there if live is None else live)
    for n in range(int(tokens.shape[1])):
        new = table.after(state, tokens[:, n])
        state = new if there is None else torch.where(there[:, n], new, state)
    return state


@step("relax")
def relax(s: Any, op: Any, g: Any, w: Any, scores: Any) -> Any:
    """One step of the best path through an automaton: of equals the first state's first token."""
    table = table_of(s, g)
    n, size = g.states, int(table.next.shape[1])
    after = table.next[1:].flatten()
    values = (s.lanes(w).double()[:, :, None] + s.lanes(scores).double()[:, None, :]).flatten(1)
    to = torch.where(after < 0, n, after).expand(len(values), -1)
    values = torch.where(to < n, values, -torch.inf)
    best = values.new_full((len(values), n + 1), -torch.inf).scatter_reduce(1, to, values, "amax")
    first = torch.where((values == best.gather(1, to)) & (values > -torch.inf), s.steps(n * size), n * size)
    at = to.new_full((len(to), n + 1), n * size).scatter_reduce(1, to, first, "amin")[:, :n]
    at = torch.where(at < n * size, at, 0)
    return best[:, :n], at // size, at % size
