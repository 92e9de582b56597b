"""Rows: the distributions that a program sees, of a model's scores or of its own, as the request shapes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from decgraph.backends.reference.places import is_soft, read_path, tokens_of
from decgraph.backends.reference.protocols import Context, Machine, RowSource
from decgraph.ir.data.dist import Row, Symbol
from decgraph.ir.machine import Vector
from decgraph.runtime.models.interface import Memory, Model, Scores, check_size
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import adjusted, raw_probs, shaped_probs


def model_row(m: Machine, source: RowSource) -> Row:
    """A row whose faces are computed from its source and the request."""
    model, path, allow = source.model, source.path, source.allow
    label = "warp" if model is None else model.name
    own = model is None or m.main is None or model.vocab == m.main.vocab
    of_this = m.request if own else m.request.elsewhere
    allowed = None if allow is None else [int(i) for i in np.flatnonzero(allow)]

    def face(name: str) -> np.ndarray:
        s = source.scores()
        if model is not None:
            check_size(model.name, s.size, model.vocab.size)
        tokens = tokens_of(path)
        request = without_texts(of_this) if is_soft(path) else of_this
        if name == "raw":
            return m.vector(raw_probs(s, tokens, request, allow=allowed))
        if name == "logits":
            return logits(m, s, raw_probs(s, tokens, request, allow=allowed))
        return m.vector(shaped_probs(s, tokens, request, allow=allowed))

    position = len(path) if source.position is None else source.position
    return Row(face, position=position, node=source.node, path=path, label=label)


def logits(m: Machine, scores: Scores, raw: Vector) -> np.ndarray:
    """The logits [vocab] of a row, -inf where the constraints leave nothing."""
    with np.errstate(divide="ignore"):
        if scores.logits is not None:
            return np.where(np.asarray(raw, dtype=np.float64) > 0, scores.logits, -np.inf)
        return m.num.fn("log")(m.vector(raw))


def score_paths(m: Machine, model: Model, states: Sequence[Context], memory: Memory | None) -> list[Callable[[], Scores]]:
    """The scores after each path; together, since a real model batches them."""
    paths = [read_path(s) for s in states]
    distinct = list(dict.fromkeys(paths))
    got = dict(zip(distinct, [s.to_float() for s in model.eval(distinct, memory)], strict=True))
    return [partial(got.__getitem__, p) for p in paths]


def row_of_scores(scores: Scores) -> Callable[[], Scores]:
    """Scores that are computed already, as a row takes them."""
    return lambda: scores


def allowed_at(allow: object, i: int) -> np.ndarray | None:
    """The tokens that a call allows at its place number i: bool[V]."""
    if allow is None:
        return None
    a = np.asarray(allow, dtype=bool)
    return a if a.ndim == 1 else a[i]


def warp_row(m: Machine, values: np.ndarray, path: Sequence[Symbol] | None, is_probs: bool, old: Row | None) -> Row:
    """A row that the request shapes: scores or probabilities of the token after `path`."""
    scores = m.scores_of_values(values, is_probs)
    before = m.context() if path is None else tuple(path)
    return m.model_row(RowSource(None, row_of_scores(scores), before, old.node if old is not None else None))


def scores_of_values(m: Machine, values: np.ndarray, is_probs: bool) -> Scores:
    """A program's own scores or probabilities [vocab] of one row as a model's."""
    with np.errstate(divide="ignore"):
        return Scores(logits=np.log(values) if is_probs else np.asarray(values, dtype=np.float64))


def adjusted_row(m: Machine, values: np.ndarray, path: Sequence[Symbol]) -> np.ndarray:
    """Scores [vocab] of the token after `path` with what the request asks of them before temperature and truncation."""
    tokens, request = tokens_of(tuple(path)), without_texts(m.request) if is_soft(path) else m.request
    if not m.num.exact:
        return np.asarray(adjusted(Scores(logits=np.asarray(values, dtype=np.float64)), tokens, request))
    weights = m.vector([m.num.scalars["exp"](x) for x in values])
    return m.num.fn("log")(m.vector(adjusted(Scores(weights=tuple(weights)), tokens, request)))


def without_texts(request: Request) -> Request:
    """The request at a soft node, where no text stands that a grammar or a minimum length could read."""
    return replace(request, allow=None, min_length=0) if request.allow is not None or request.min_length else request
