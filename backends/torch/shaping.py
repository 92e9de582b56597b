"""Shaping of rows of logits by a request, for all rows of a call at once. The meaning is runtime/shaping.py's.

Computed in float64 for models with float64 scores (table models, so that they can be compared with the reference bit for
bit), in float32 for all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch.prefixes import Prefixes
from decgraph.backends.torch.transfer import fetched
from decgraph.errors import DecError
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.request import Allow, Request
from decgraph.runtime.shaping import amount


class ScoredRows(Protocol):
    """Rows of scores [R, V], as their shaping sees them (rows.py says what each of these is)."""

    request: Request
    allow: np.ndarray | Tensor | None
    path: Callable[[int], Sequence[int]] | None
    stated: bool
    dead: np.ndarray | None
    banned: np.ndarray | None
    undefined: np.ndarray | None

    def adjusted(self) -> Tensor: ...

    def path_of(self, i: int) -> tuple[int, ...]: ...

    def text_of(self, i: int) -> tuple[Prefixes, int]: ...


def working(t: Tensor) -> Tensor:
    """The scores [..., V] in the dtype in which probabilities are computed."""
    return t if t.dtype in (torch.float32, torch.float64) else t.float()


def onehot(tokens: np.ndarray, size: int, like: Tensor) -> Tensor:
    """One-hot rows [R, size] of `tokens` int64[R]; zeros for what is no token, such as a cell that is masked (-1)."""
    out = torch.zeros(len(tokens), size, dtype=like.dtype, device=like.device)
    if len(tokens):
        at = torch.from_numpy(np.ascontiguousarray(tokens)).to(like.device)[:, None]
        out.scatter_(1, at.clamp(min=0), (at >= 0).to(like.dtype))
    return out


def softmax(logits: Tensor) -> Tensor:
    """Probabilities over the last axis; float64 in NumPy, whose sums are the reference's, bit for bit."""
    if logits.dtype != torch.float64 or logits.device.type != "cpu":
        return torch.softmax(logits, -1)
    a = logits.numpy()
    with np.errstate(all="ignore"):
        e = np.exp(a - a.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    return torch.from_numpy(e)


def total(a: Tensor) -> Tensor:
    """Sums over the last axis, kept as an axis of one; in float64 the reference's, bit for bit."""
    if a.dtype != torch.float64 or a.device.type != "cpu":
        return a.sum(-1, keepdim=True)
    return torch.from_numpy(np.ascontiguousarray(a.numpy()).sum(-1, keepdims=True))


def constrained(scores: Tensor, rows: ScoredRows) -> Tensor:
    """The logits [R, V] under bans, minimum length, the automaton and the author's `allow`. Rows that are left
    without a token are marked in `rows.dead`: reading one is an error."""
    request, n, size = rows.request, int(scores.shape[0]), int(scores.shape[1])
    logits = scores if scores.dtype in (torch.float32, torch.float64) else scores.float()
    allow = request.allow
    short = bool(request.eos) and request.min_length > 0
    if not (request.bans or allow is not None or short or rows.allow is not None):
        return usable(logits, rows) if rows.stated else logits
    kept = np.ones((n, size), bool)
    if request.bans:
        kept[:, _ids(request.bans, size)] = False
    if rows.allow is not None:
        a = np.asarray(rows.allow, dtype=bool)
        kept &= a[..., :size] if a.ndim == 1 else a.reshape(n, -1)[:, :size]
    for i in range(n if allow is not None or short else 0):
        texts, row = rows.text_of(i)
        if allow is not None and row not in texts.soft:
            kept[i] &= _allowed(allow, texts, row, size)
        if short and row not in texts.soft and texts.count(row) < request.min_length:
            kept[i, _ids(request.eos, size)] = False
    logits = logits.masked_fill(~torch.from_numpy(kept).to(logits.device), float("-inf"))
    return usable(logits, rows)


def usable(logits: Tensor, rows: ScoredRows) -> Tensor:
    """The same logits [R, V]. Rows without a token are marked in `rows.dead`, stated rows with a NaN or an infinity
    in `rows.undefined`."""
    alive = fetched((logits > float("-inf")).any(-1))
    if not alive.all():
        rows.dead = ~alive
    if rows.stated and (undefined := fetched((logits.isnan() | logits.isposinf()).any(-1))).any():
        rows.undefined = undefined
    return logits


def _allowed(allow: Allow, texts: Prefixes, row: int, size: int) -> np.ndarray:
    """bool[size]: the tokens that a request allows after the text before a row."""
    if not isinstance(allow, Automaton):
        out = np.zeros(size, bool)
        out[_ids(allow(texts(row)[texts.text.base :]), size)] = True
        return out
    return allow.mask(texts.state(allow, row), size)


def adjusted(logits: Tensor, rows: ScoredRows) -> Tensor:
    """Constrained logits [R, V] after the request's processors, penalties and bias, each row by its own path. Rows that the
    processors leave without a token are marked in `rows.banned`.

    Raises DecError for a processor that returns another shape, a NaN or +inf.
    """
    processors = rows.request.processors
    if processors:
        out = fetched(logits).copy()
        for i in np.flatnonzero((out > -np.inf).any(-1)).tolist():
            path = rows.path_of(i)
            for processor in processors:
                made = np.asarray(processor(path, out[i]), out.dtype)
                if made.shape != out[i].shape or np.isnan(made).any() or np.isposinf(made).any():
                    raise DecError(f"a processor must give finite scores or -inf, one for each token: {processor!r} does not")
                out[i] = made
        alive = (out > -np.inf).any(-1)
        if not alive.all():
            rows.banned = np.logical_not(alive)
        logits = torch.from_numpy(out).to(logits.device)
    return penalised(logits, rows) if rows.request.penalised else logits


def first_argmax(values: Tensor) -> np.ndarray:
    """argmax over the last axis, ties to the first: int64[...] on the host. NumPy's takes a tenth of torch's time there."""
    if values.device.type != "cpu":
        return fetched(values.argmax(-1))
    found: np.ndarray = fetched(values).argmax(-1)
    return found


def shaped(rows: ScoredRows) -> Tensor:
    """Probabilities [R, V] after processors, penalties, bias, temperature, top-k, top-p and min-p."""
    request, logits = rows.request, rows.adjusted()
    if float(request.temperature) == 1.0:
        probs = softmax(logits)
    else:
        # The shift by the maximum comes first: with a tiny temperature a quotient would overflow otherwise.
        probs = softmax((logits - logits.max(-1, keepdim=True).values) / float(request.temperature))
    if request.top_k is None and request.top_p is None and request.min_p is None:
        return probs
    size = int(probs.shape[-1])
    top_p = request.top_p if request.top_p is not None and request.top_p < 1 else None
    if request.top_k is not None and request.top_k < size or top_p is not None:
        order = torch.sort(probs, dim=-1, descending=True, stable=True).indices
        if request.top_k is not None and request.top_k < size:
            probs = _keep(probs, order[..., : request.top_k])
        if top_p is not None:
            inside = torch.cumsum(probs.gather(-1, order), -1)  # term after term, as NumPy's
            # kept up to the first place that reaches p, and everything where rounding never reaches it
            keep = torch.cat([torch.ones_like(inside[..., :1], dtype=torch.bool), inside[..., :-1] < float(top_p)], -1)
            mask = torch.zeros_like(probs, dtype=torch.bool).scatter_(-1, order, keep)
            probs = _renormalised(probs, mask)
    if request.min_p is not None:
        probs = _renormalised(probs, probs >= float(request.min_p) * probs.max(-1, keepdim=True).values)
    return probs


def _keep(probs: Tensor, tokens: Tensor) -> Tensor:
    return _renormalised(probs, torch.zeros_like(probs, dtype=torch.bool).scatter_(-1, tokens, True))


def _renormalised(probs: Tensor, mask: Tensor) -> Tensor:
    kept = torch.where(mask, probs, 0.0)
    return kept / total(kept)


def penalised(logits: Tensor, rows: ScoredRows) -> Tensor:
    """Logits [R, V] after repetition, presence and frequency penalties and bias, each row by its own path."""
    request = rows.request
    n, size = logits.shape
    logits = logits.clone()
    penalties = Penalties(
        float(request.repetition_penalty), amount(request.presence_penalty), amount(request.frequency_penalty)
    )
    if any(penalties.of_counts) or penalties.repetition != 1:
        if isinstance(rows.path, Prefixes):
            penalties.apply(logits, rows.path)
        else:
            for i in range(n):
                penalties.apply(logits[i : i + 1], rows.text_of(i)[0])
    pairs = [(t, amount(v)) for t, v in request.bias_pairs if t < size]
    if pairs:
        logits[:, _tensor(np.array([t for t, _ in pairs]), logits)] += torch.tensor([v for _, v in pairs]).to(logits)
    return logits


class Penalties(NamedTuple):
    """The penalties of a request, in logits but for the first, which is a factor."""

    repetition: float
    presence: float
    frequency: float

    @property
    def of_counts(self) -> tuple[float, float]:
        """Those that depend on how often a token was generated."""
        return self.presence, self.frequency

    def apply(self, logits: Tensor, texts: Prefixes) -> None:
        """Changes logits [R, V] in place, each row by the text before it: those of the committed text's tokens in all rows at
        once, and those of draft tokens one by one."""
        size = int(logits.shape[-1])
        ids, counts = texts.text.distinct(texts.length)
        rows, tokens, drafted_counts = self.drafted(texts, int(logits.shape[0]), size, counts)
        inside = (ids >= 0) & (ids < size)
        if not inside.all():
            ids, counts = ids[inside], counts[inside]
        at, drafted = _tensor(ids, logits), (_tensor(rows, logits), _tensor(tokens, logits))
        before = logits[drafted]
        if len(ids):
            logits[:, at] = self.changed(logits[:, at], counts)
        if len(rows):
            logits[drafted] = self.changed(before, drafted_counts)

    def drafted(
        self, texts: Prefixes, count: int, size: int, committed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For each draft token before a row, once: the row, the token, and how often it was generated; int64[n] each."""
        rows: list[int] = []
        tokens: list[int] = []
        counts: list[int] = []
        for row in range(count):
            below = texts.drafted(row)
            if not len(below):
                continue
            made = Counter(texts.generated(row))
            for token in dict.fromkeys(map(int, below)):
                if 0 <= token < size:
                    place = texts.text.place(token, texts.length)
                    rows.append(row)
                    tokens.append(token)
                    counts.append(made[token] + (int(committed[place]) if place >= 0 else 0))
        return np.array(rows, dtype=np.int64), np.array(tokens, dtype=np.int64), np.array(counts, dtype=np.int64)

    def changed(self, logits: Tensor, counts: np.ndarray) -> Tensor:
        """The logits [..., n] of tokens that are in the text, of which `counts` int64[n] were generated."""
        if self.repetition != 1:
            logits = torch.where(logits < 0, logits * self.repetition, logits / self.repetition)
        if any(self.of_counts):
            amounts = np.where(counts > 0, self.presence + self.frequency * counts, 0.0)
            logits = logits - torch.from_numpy(amounts).to(logits)
        return logits


def _tensor(ids: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(ids).to(like.device)


def _ids(tokens: Collection[int] | Sequence[int], size: int) -> np.ndarray:
    if isinstance(tokens, np.ndarray) and tokens.dtype == bool:
        return np.flatnonzero(tokens[:size])
    ids = np.fromiter(tokens, np.int64, len(tokens))
    return ids[(ids >= 0) & (ids < size)]
