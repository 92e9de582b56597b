"""Automata over tokens: tables that are constants of a program, states that are numbers; -1 is behind a token that has no
step."""

from __future__ import annotations

import numpy as np
import torch

from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.state import Step, Table
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Operand
from decgraph.backends.triton.vectors import live_of, made
from decgraph.ir.values import Op
from decgraph.runtime.automaton import Automaton


def table_of(s: Step, g: Automaton) -> Table:
    """The table of an automaton, made once."""
    made = next((table for table in s.readers if table.g is g), None)
    if made is None:
        made = Table(s, g)
        s.readers.append(made)
    return made


@step("automaton")
def ask(s: Step, op: Op, g: Automaton, *args: Operand) -> Operand:
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
def relax(s: Step, op: Op, g: Automaton, w: Operand, scores: Operand) -> Operand:
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
