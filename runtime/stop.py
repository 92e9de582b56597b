"""The stop machine: a deterministic automaton over committed tokens.

A run ends at the first token after which an end-of-text id was committed, a stop string is complete in the
generated text (special tokens are read as they are spelled, though none is shown), one of the request's `until`
functions is true, or the limit is reached. The machine is fed one token at a time, whatever the algorithm commits
at once, so a run is cut at exactly the token where it fires.
States are immutable and hashable: a tree can hold one per node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.text import Detokenizer, Pending


@dataclass(frozen=True)
class StopState:
    """A state of the machine. `count` tokens were fed. `tail` is the end of their text, as long as a stop string may need, and
    `hidden` says which of its characters spell special tokens. `matched` is the stop string that ended the run, and `over` the
    number of shown characters from its beginning on, which are not part of the answer."""

    request: Request = field(repr=False)
    detokenizer: Detokenizer | None = field(default=None, repr=False)
    count: int = 0
    done: bool = False
    reason: str = ""
    matched: str = ""
    over: int = 0
    tail: str = ""
    hidden: tuple[bool, ...] = ()
    pending: Pending = b""
    path: tuple[int, ...] = ()  # the whole path, for a request with `until`


class StopMachine:
    """The automaton's three functions; all of it is in the state."""

    @staticmethod
    def start(request: Request, detokenizer: Detokenizer | None = None) -> StopState:
        """The state before any generated token. Raises DecError for stop strings without a detokenizer."""
        if request.stop and detokenizer is None:
            raise DecError("stop strings need a tokenizer to see text; this run has none", hint="use eos ids")
        watch = detokenizer if request.stop else None
        path = request.prompt if request.until else ()
        return StopState(request, watch, pending=watch.start() if watch else b"", path=path)

    @staticmethod
    def feed(state: StopState, token: int) -> StopState:
        """The state after one more committed token. Raises ValueError on a state that is done.

        An end-of-text id wins over a stop string that the same token completes, that over `until`, and all over the limit.
        """
        if state.done:
            raise ValueError(f"the run ended by {state.reason!r}; nothing can be committed after it")
        request, count = state.request, state.count + 1
        if token in request.eos:
            return replace(state, count=count, path=_longer(state, token), done=True, reason="eos")
        if state.detokenizer is None and not request.until:  # the usual case, kept quick
            over = count >= request.max_tokens
            return StopState(request, None, count, over, "limit" if over else "")
        state = replace(state, count=count, path=_longer(state, token))
        if state.detokenizer is not None:
            state = _read(state, token)
        if not state.done and any(ends(state.path) for ends in request.until):
            return replace(state, done=True, reason="until")
        if not state.done and count >= request.max_tokens:
            return replace(state, done=True, reason="limit")
        return state

    @staticmethod
    def cut(state: StopState, tokens: Iterable[int]) -> tuple[tuple[int, ...], StopState]:
        """Feeds tokens until the machine fires. Returns the tokens that are committed, none if done, and the state after."""
        kept: list[int] = []
        for token in tokens:
            if state.done:
                break
            state = StopMachine.feed(state, token)
            kept.append(token)
        return tuple(kept), state


def _longer(state: StopState, token: int) -> tuple[int, ...]:
    """The path with one more token; () for a request without `until`."""
    return (*state.path, int(token)) if state.request.until else ()


def _read(state: StopState, token: int) -> StopState:
    """The state after the text of `token`."""
    assert state.detokenizer is not None
    detokenizer = state.detokenizer
    pending, new = detokenizer.feed(state.pending, token)
    spelled = detokenizer.special.get(token, "")
    text, hidden = state.tail + spelled + new, (*state.hidden, *[True] * len(spelled), *[False] * len(new))
    cut = max(0, len(text) - max(len(s) for s in state.request.stop) + 1)
    state = replace(state, pending=pending, tail=text[cut:], hidden=hidden[cut:])
    # What is complete in the old tail has fired before, so the string that ends first is the one.
    found = [(at + len(s), at, s) for s in state.request.stop if (at := text.find(s)) >= 0]
    if not found:
        return state
    _, at, matched = min(found)
    left = detokenizer.finish(pending)  # a character that is cut in the middle is none of the answer either
    return replace(state, done=True, reason="stop", matched=matched, over=hidden[at:].count(False) + len(left))
