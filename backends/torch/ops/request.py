"""Lowerings of ir/ops/request.py: the committed context, commits, states."""

from __future__ import annotations

from typing import Any

import numpy as np

from decgraph.backends.torch.lowering import lowering, on_host
from decgraph.backends.torch.stores import ids_of
from decgraph.backends.torch.trees import Context, TorchPath, TorchTree, path_of
from decgraph.runtime.models.spelling import retokenized, spelling_of


@lowering("context")
def context(m: Any, *, parent: bool = False) -> Context:
    """The committed context, or that without its last token."""
    out: Context = m.context(parent)
    return out


@lowering("ctx.get")
def ctx_get(m: Any, ctx: Context, *n: Any, field: str) -> Any:
    """A field of a context."""
    if field == "length":
        return ctx.length
    if field == "token":
        return ctx.tokens[ctx.length - 1]
    first = max(0, ctx.length - max(0, int(n[0]))) if n else 0
    return np.array(ctx.tokens[first : ctx.length], dtype=np.int64)


@lowering("request")
def request(m: Any, *, field: str) -> Any:
    """A field of the request."""
    return m.request_field(field)


@lowering("done")
def done(m: Any) -> bool:
    """Whether the stop machine has fired."""
    return bool(m.done())


@lowering("commit")
def commit(m: Any, x: Any, tree: TorchTree | None = None) -> None:
    """Feed tokens to the stop machine."""
    m.commit(x, tree)


@lowering("ended")
def ended(m: Any, x: Any, tree: TorchTree | None = None) -> Any:
    """Whether the stop machine fires along a path."""
    return m.ended(x, tree)


@lowering("state.read")
def read_state(m: Any, *, state: str) -> Any:
    """The value of a state."""
    return m.read_state(state)


@lowering("state.write")
def write_state(m: Any, value: Any, *, state: str) -> None:
    """Set a state."""
    m.write_state(state, value)


@lowering("return")
def returned(m: Any, *values: Any, has_tree: bool = False) -> None:
    """n-best results."""
    m.returned(values, has_tree)


@lowering("completes")
def completes(m: Any, path: TorchPath, s: str) -> bool:
    """Whether the text of a path holds a string."""
    return s in text_of(m, path)


@lowering("text_of")
def text_of(m: Any, x: Any, tree: TorchTree | None = None) -> Any:
    """The text of tokens, or of nodes' paths. Raises DecError without a tokenizer."""
    from decgraph.errors import DecError

    if m.detokenizer is None:
        raise DecError("this program reads text, and no tokenizer was given")
    if tree is not None:
        ids = np.asarray(x)
        texts = [m.detokenizer.text(path_of(tree, int(i)).tokens) for i in ids.ravel()]
        return texts if ids.ndim else texts[0]
    return m.detokenizer.text(ids_of(x))


@lowering("retokenize")
def retokenize(m: Any, tokens: Any, source: Any, to: Any, *, whole: bool = False) -> np.ndarray:
    """The tokens of one model that have the text of another's: int64[n]."""
    return np.array(retokenized(ids_of(tokens), spelling_of(source), spelling_of(to), whole=whole), dtype=np.int64)


on_host("vocab_size", why="it is a number on the host")
