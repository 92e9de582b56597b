"""Automata over tokens. They hold no distribution, so all backends share this implementation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from decgraph.errors import DecError
from decgraph.ir.data.dist import Path, resolve_path, tokens_of
from decgraph.runtime.automaton import Automaton


def ids_of(x: Any) -> tuple[int, ...]:
    """Token ids of a vector, a path or a context."""
    if isinstance(x, tuple):
        return resolve_path(x)
    if isinstance(x, Path):
        return resolve_path(x.tokens)
    if isinstance(x, list):
        return tuple(int(tokens_of(i)) for i in x)
    return tuple(int(t) for t in np.ravel(np.asarray(tokens_of(x))))


def ask(what: str, g: Automaton, args: Sequence[Any], *, base: int, vocab_size: int) -> Any:
    """The meaning of the op `automaton`: the start state, the state after tokens, or the tokens allowed in a state (bool[V]).

    base: how many tokens of a context are the prompt, which an automaton does not read. Raises DecError for any other `what`.
    """
    if what == "start":
        return g.start
    if what == "step":
        state, token = args
        if np.ndim(state):
            toks = np.ravel(np.asarray(tokens_of(token)))
            out = np.empty(len(state), dtype=object)
            out[:] = [g.step(s, int(t)) for s, t in zip(state, toks)]
            return out
        return g.step(state, int(np.ravel(np.asarray(tokens_of(token)))[0]))
    if what == "state":
        s = g.start
        for t in resolve_path(args[0])[base:]:
            s = g.step(s, t)
        return s
    if what == "run":
        s = args[0]
        for t in ids_of(args[1]):
            s = g.step(s, t)
        return s
    if what == "allowed":

        def mask(s: Any) -> np.ndarray:
            out = np.zeros(vocab_size, dtype=bool)
            out[[int(t) for t in g.allowed(s)]] = True
            return out

        if isinstance(args[0], np.ndarray) and args[0].ndim:
            return np.stack([mask(s) for s in args[0]])
        return mask(args[0])
    raise DecError(f"an automaton has no `{what}`")
