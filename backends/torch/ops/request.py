"""Lowerings of ir/ops/request.py: the committed context, commits, states."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from decgraph.backends.run import Stop, no_token
from decgraph.backends.torch.canvases import Canvas
from decgraph.backends.torch.data import host, ids_of
from decgraph.backends.torch.draws import Mixed, TorchDraws
from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.prefixes import Context
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.trees import TorchPath, TorchTree, path_of
from decgraph.errors import DecError
from decgraph.ir.ops.common import plain
from decgraph.ir.ops.draws import must_be_tokens
from decgraph.runtime import trace
from decgraph.runtime.models.interface import Model
from decgraph.runtime.stop import StopMachine
from decgraph.runtime.text import Detokenizer


@lowering("context")
def context(m: Machine, *, parent: bool = False) -> Context:
    """The committed context, or that without its last token."""
    return Context(m.tokens, len(m.tokens) - parent)


@lowering("ctx.get")
def ctx_get(m: Machine, ctx: Context, *n: int, field: str) -> object:
    """A field of a context."""
    if field == "length":
        return ctx.length
    if field == "token":
        if not ctx.length:  # the run's tokens are those behind it, too
            raise IndexError("tuple index out of range")
        return ctx.tokens[ctx.length - 1]
    first = max(0, ctx.length - max(0, int(n[0]))) if n else 0
    return np.array(ctx.tokens[first : ctx.length], dtype=np.int64)


@lowering("request")
def request(m: Machine, *, field: str) -> object:
    """A field of the request."""
    return m.request_field(field)


@lowering("done")
def done(m: Machine) -> bool:
    """Whether the stop machine has fired."""
    return m.done()


@lowering("commit")
def commit(m: Machine, x: object, tree: TorchTree | None = None, *, numbers: bool = False) -> None:
    """Feed tokens to the stop machine; cut exactly where it fires."""
    fed: list[int] = []
    tokens, marks = commit_tokens(m, x, tree)
    if numbers:
        must_be_tokens(tokens, m.vocab_size)
    for token, mark in zip(tokens, marks):
        if m.done():
            break
        m.feed(token)
        m.marks.append(mark)
        fed.append(token)
        if m.until is not None and m.until(m):
            break
    cut = len(tokens) - len(fed)
    m.tally.commit(len(fed), cut > 0)
    if m.learning:
        m.learn_committed(fed)
    if (fed or cut) and m.listener is not None:
        m.emit_event(trace.Committed(tuple(fed), cut))
    if m.until is not None and m.until(m):
        raise Stop


def commit_tokens(m: Machine, x: object, tree: TorchTree | None) -> tuple[Sequence[int], Sequence[int]]:
    """What a commit commits: tokens, and the tree node each came from (-1: none). Raises DecError for a whole tree."""
    if isinstance(x, TorchPath):
        return x.tokens, x.uids or (-1,) * len(x.tokens)
    if isinstance(x, TorchTree):
        raise DecError("commit takes a node or an accepted path, not a whole tree", hint="commit t.accepted")
    if isinstance(x, Canvas):
        tokens: Sequence[int] = x.decided_prefix()[max(0, len(m.tokens) - x.base.length) :]
    elif isinstance(x, Context):
        tokens = x.ids()[len(m.tokens) :]
    elif tree is not None:
        path = path_of(tree, int(np.ravel(np.asarray(x))[0]))
        return path.tokens, path.uids
    elif isinstance(x, list):
        parts = [commit_tokens(m, part, None) for part in x]
        return [t for p in parts for t in p[0]], [u for p in parts for u in p[1]]
    else:
        tokens = ids_of(x)
        if isinstance(x, TorchDraws | Mixed) and min(tokens, default=0) < 0:
            raise no_token()
    return tokens, (-1,) * len(tokens)


@lowering("ended")
def ended(m: Machine, x: object, tree: TorchTree | None = None) -> object:
    """The stop machine along a path from the committed context."""

    def fires(tokens: Sequence[int]) -> bool:
        state = m.stop_state
        for t in tokens:
            if state.done:
                return True
            state = StopMachine.feed(state, int(t))
        return bool(state.done) or (m.window is not None and len(m.tokens) + len(tokens) > m.window)

    if isinstance(x, TorchPath):
        return fires(x.tokens)
    if isinstance(x, Context):
        return fires(x.ids()[len(m.tokens) :])
    if tree is not None:
        ids = np.asarray(x)
        if ids.ndim == 0:
            return fires(path_of(tree, int(ids)).tokens)
        return np.array([fires(path_of(tree, int(i)).tokens) for i in ids], dtype=bool)
    return fires(commit_tokens(m, x, None)[0])


@lowering("state.read")
def read_state(m: Machine, *, state: str) -> object:
    """The value of a state."""
    return m.read_state(state)


@lowering("state.write")
def write_state(m: Machine, value: object, *, state: str) -> None:
    """Set a state."""
    m.write_state(state, value)


@lowering("return")
def returned(m: Machine, *operands: object, has_tree: bool = False) -> None:
    """n-best results: paths of tokens."""
    values = list(operands)
    tree = values.pop() if has_tree else None
    assert isinstance(tree, TorchTree | None)
    for v in values:
        if tree is not None and not isinstance(v, TorchPath | list):
            m.results += [path_of(tree, int(n)).tokens for n in np.ravel(np.asarray(v))]
        elif isinstance(v, list):
            m.results += [tuple(commit_tokens(m, p, None)[0]) for p in v]
        else:
            m.results.append(tuple(commit_tokens(m, v, None)[0]))


@lowering("note")
def note(m: Machine, x: object, *, name: str, token: bool = False) -> None:
    """Tell a figure of the program."""
    m.note(name, ids_of(x)[0] if token else plain(host(x)), token=token)


@lowering("token")
def token(m: Machine, *, text: str) -> int:
    """The token that has a text."""
    return m.token_of(text)


@lowering("completes")
def completes(m: Machine, path: TorchPath, s: str) -> bool:
    """Whether the text of a path holds a string."""
    return s in _detokenizer(m).text(path.tokens)


@lowering("text_of")
def text_of(m: Machine, x: object, tree: TorchTree | None = None) -> str | list[str]:
    """The text of tokens, or of nodes' paths. Raises DecError without a tokenizer."""
    detokenizer = _detokenizer(m)
    if tree is not None:
        ids = np.asarray(x)
        texts = [detokenizer.text(path_of(tree, int(i)).tokens) for i in ids.ravel()]
        return texts if ids.ndim else texts[0]
    return detokenizer.text(ids_of(x))


def _detokenizer(m: Machine) -> Detokenizer:
    if m.detokenizer is None:
        raise DecError("this program reads text, and no tokenizer was given")
    return m.detokenizer


@lowering("retokenize")
def retokenize(m: Machine, tokens: object, source: Model, to: Model, *, whole: bool = False) -> np.ndarray:
    """The tokens of one model that have the text of another's: int64[n]."""
    from decgraph.runtime.models.speaking import spelling_of
    from decgraph.runtime.models.spelling import retokenized

    return np.array(retokenized(ids_of(tokens), spelling_of(source), spelling_of(to), whole=whole), dtype=np.int64)


on_host("vocab_size", why="it is a number on the host")
