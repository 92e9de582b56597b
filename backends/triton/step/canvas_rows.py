"""Rows of scores of a canvas call, for all sequences: views, greedy tokens and draws, computed for the rows that are read.

Computed in the type of the scores: float64 for table models, float32 for all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch import shaping
from decgraph.backends.triton.step.canvas_decide import decide
from decgraph.backends.triton.step.canvas_model import Scores
from decgraph.backends.triton.step.canvas_symbols import plain
from decgraph.backends.triton.step.canvas_values import CanvasDist, CanvasDraws, CanvasNoise, Live, Num, constant
from decgraph.backends.triton.step.evaluate import NotCapturable
from decgraph.backends.triton.step.keys import site_word, words_for
from decgraph.runtime.request import Request

Ids = np.ndarray
_LOW = 0xFFFFFFFF


class Shaper:
    """The shaping of the sequences' requests, the same for all of them; see `reason`. kernels: whether tokens and
    confidences come from a generated kernel."""

    def __init__(self, request: Request, size: int, device: torch.device, *, kernels: bool = False) -> None:
        self.request, self.greedy = replace(request, bias=(), bans=frozenset()), request.greedy
        self.temperature = float(request.temperature)
        cut = not self.greedy and (request.top_k, request.top_p, request.min_p) != (None, None, None)
        self.generated = kernels
        self.kernels = kernels and not cut  # one pass over the scores suffices where the distribution is not truncated
        banned = np.zeros(size, dtype=bool)
        banned[[t for t in request.bans if t < size]] = True
        self.banned = torch.from_numpy(banned).to(device) if banned.any() else None
        self.bans = None if self.banned is None else torch.where(self.banned, -torch.inf, 0.0)
        bias = np.zeros(size)
        for token, value in request.bias_pairs:
            if token < size:
                bias[token] = shaping.amount(value)
        self.bias = torch.from_numpy(bias).to(device) if bias.any() else None

    @staticmethod
    def key(request: Request) -> tuple[Any, ...]:
        """Requests with equal keys are shaped alike."""
        return (request.temperature, request.top_k, request.top_p, request.min_p, request.bias, request.bans)

    @staticmethod
    def reason(request: Request) -> str | None:
        """Why a request's shaping is not supported here, or None."""
        if request.allow is not None or request.processors:
            return "the request's automaton or processors run on the host"
        if request.eos and request.min_length > 0:
            return "a minimum length depends on each cell's path"
        if (
            request.repetition_penalty != 1
            or shaping.amount(request.presence_penalty)
            or shaping.amount(request.frequency_penalty)
        ):
            return "penalties depend on each cell's path"
        return None


class CanvasRows:
    """The rows of one call by the request's shaping. base: int64[B], the position of canvas cell 0. check: called with the
    largest scores [B, N] of rows that are read; one that is not finite is a fault (a row of -inf, or NaN)."""

    def __init__(self, scores: Scores, shaper: Shaper, base: Tensor, which: Ids, check: Callable[[Tensor], None]) -> None:
        self.scores, self.shaper, self.base, self.which, self.check = scores, shaper, base, which, check
        self.size = scores.size
        self._known: dict[tuple[str, bytes], Any] = {}
        self._sure: dict[bytes, tuple[Tensor, Tensor]] = {}

    def decided(self, ids: Ids, stream: Stream, words: Tensor | None) -> Tensor:
        """int64[B, N]: a token for each row, drawn with these key words or (None) the greedy one, by a kernel that
        stores its probability too."""
        scores = self.scores.logits(ids)
        batch, rows = int(scores.shape[0]), int(scores.shape[1])
        noise = None
        if words is not None:
            seeds = stream.seeds[:, None].expand(batch, rows, 2).reshape(-1, 2)
            noise = words.reshape(-1, 3), seeds
        kind = torch.float64 if scores.dtype == torch.float64 else torch.float32
        bans, bias = (None if v is None else v.to(kind) for v in (self.shaper.bans, self.shaper.bias))
        token, prob, most = decide(scores.reshape(batch * rows, -1), self.shaper.temperature, noise, bans, bias)
        self.check(most.view(batch, rows))
        tokens = token.view(batch, rows)
        self._sure[ids.tobytes()] = tokens, prob.view(batch, rows)
        return tokens

    def _once(self, name: str, ids: Ids, make: Callable[[], Any]) -> Any:
        key = (name, ids.tobytes())
        if key not in self._known:
            self._known[key] = make()
        return self._known[key]

    def logits(self, ids: Ids) -> Tensor:
        """[B, N, V] under the request's bans."""

        def make() -> Tensor:
            logits = shaping.working(self.scores.logits(ids))
            if self.shaper.banned is not None:
                logits = logits.masked_fill(self.shaper.banned, float("-inf"))
            return logits

        made: Tensor = self._once("logits", ids, make)
        return made

    def biased(self, ids: Ids) -> Tensor:
        """[B, N, V], the logits with the request's bias."""
        logits = self.logits(ids)
        return logits if self.shaper.bias is None else logits + self.shaper.bias.to(logits.dtype)

    def most(self, ids: Ids) -> Tensor:
        """[B, N]: the largest logit of each row."""

        def make() -> Tensor:
            most = self.logits(ids).amax(-1)
            self.check(most)
            return most

        made: Tensor = self._once("most", ids, make)
        return made

    def mass(self, ids: Ids) -> Tensor:
        """[B, N]: the sum of exp(logit - the largest)."""
        made: Tensor = self._once("mass", ids, lambda: torch.exp(self.logits(ids) - self.most(ids)[..., None]).sum(-1))
        return made

    def points(self, ids: Ids) -> Tensor:
        """int64[B, N]: the greedy token of each row."""

        def make() -> Tensor:
            self.most(ids)
            return self.biased(ids).argmax(-1)

        made: Tensor = self._once("points", ids, make)
        return made

    def face(self, name: str, ids: Ids) -> Tensor:
        """[B, N, V]: probabilities in a view ("logits": the scores)."""
        if name == "logits":
            return self.logits(ids)
        made: Tensor = self._once(name, ids, lambda: self._made(name, ids))
        return made

    def _made(self, name: str, ids: Ids) -> Tensor:
        if name == "raw":
            return torch.exp(self.logits(ids) - self.most(ids)[..., None]) / self.mass(ids)[..., None]
        if self.shaper.greedy:
            return onehot(self.points(ids), self.size, self.logits(ids).dtype)
        self.most(ids)
        return shaping.shaped(_Shaped(self.shaper.request, self.biased(ids)))

    def at(self, name: str, ids: Ids, tokens: Tensor) -> Tensor:
        """[B, N]: the probability of a token in each row."""
        known = self._sure.get(ids.tobytes())
        if name == "raw" and known is not None and known[0] is tokens:
            return known[1]
        if name == "raw":
            cached = self.logits(ids).gather(-1, tokens[..., None])[..., 0]
            return torch.exp(cached - self.most(ids)) / self.mass(ids)
        if name == "shaped" and self.shaper.greedy:
            return (self.points(ids) == tokens).double()
        return self.face(name, ids).gather(-1, tokens[..., None])[..., 0]


class CanvasVectors:
    """Rows given by their probabilities [B, N, V], or by their certain tokens int64[B, N]: every view is the same."""

    def __init__(self, probs: Tensor | None, *, ones: Tensor | None = None, size: int = 0) -> None:
        self.probs, self.ones = probs, ones
        self.size = int(probs.shape[-1]) if probs is not None else size

    def face(self, name: str, ids: Ids) -> Tensor:
        """[B, N, V]: the probabilities."""
        if self.probs is None:
            assert self.ones is not None
            self.probs = onehot(self.ones, self.size, torch.float64)
        return self.probs if len(ids) == self.probs.shape[1] else self.probs.index_select(1, constant(ids, self.probs.device))

    def at(self, name: str, ids: Ids, tokens: Tensor) -> Tensor:
        """[B, N]: the probability of a token in each row."""
        return self.face(name, ids).gather(-1, tokens[..., None])[..., 0]


class _Shaped:
    """The interface that `shaping.shaped` reads, over rows that have constraints and bias already."""

    def __init__(self, request: Request, logits: Tensor) -> None:
        self.request, self._logits = request, logits

    def constrained(self) -> Tensor:
        return self._logits

    def adjusted(self) -> Tensor:
        """Requests with penalties or processors are not shaped here (`Shaper.reason`)."""
        return self._logits


def onehot(tokens: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """[B, N, V]: one-hot rows of tokens int64[B, N]."""
    out = torch.zeros(*tokens.shape, size, dtype=dtype, device=tokens.device)
    return out.scatter_(-1, tokens.clamp_min(0)[..., None], 1.0)


def vector(d: CanvasDist) -> Tensor:
    """[B, N, V]: the probabilities of distributions."""
    made: Tensor = d.rows.face(d.face, np.atleast_1d(d.ids))
    return made


# -- noise


class Stream:
    """The keyed noise of B sequences. request: int32[B, 2] and seeds: int64[B, 2], low and high words; base: int64[B]."""

    def __init__(self, batch: int, device: torch.device) -> None:
        self.batch, self.device = batch, device
        self.request = torch.zeros(batch, 2, dtype=torch.int32, device=device)
        self.seeds = torch.zeros(batch, 2, dtype=torch.int64, device=device)
        self.none = torch.zeros(batch, dtype=torch.int32, device=device)
        self.nothing = torch.zeros(1, 1, 0, dtype=torch.int64, device=device)

    def words(self, key: CanvasNoise, lane: Any, which: Ids | None = None, base: Tensor | None = None) -> Tensor:
        """int32[B, N, 3]: the key words of N draws. lane: int64[N] or a tensor [B, N], the number of each draw at its site. For
        the stream `output`: which, int64[N], the canvas cells that they are at, after `base`, int64[B]."""
        lanes = plain(lane) if isinstance(lane, Tensor) else constant(lane, self.device)[None]
        rows = int(lanes.shape[1])
        if key.kind != "output":
            return self._made(key.site, self._stacked(key.counters), lanes[..., None], rows)
        if which is None or base is None:
            raise NotCapturable("`as output` needs a distribution with a place")
        cells = constant(which, self.device)[None]
        if key.index is None:
            return self._made("output", (base[:, None] + cells)[..., None], self.nothing, rows)
        return self._made("output", self._stacked((key.index,)), cells[..., None], rows)

    def _stacked(self, counters: Sequence[Any]) -> Tensor:
        """int64[B, 1, n]"""
        columns = [
            plain(c.data).long() if isinstance(c, Num) else constant(int(c), self.device).expand(self.batch) for c in counters
        ]
        if not columns:
            return torch.zeros(self.batch, 1, 0, dtype=torch.int64, device=self.device)
        return torch.stack(columns, -1)[:, None]

    def _made(self, site: str, counters: Tensor, lanes: Tensor, rows: int) -> Tensor:
        word = constant(site_word(site), self.device)[None]
        if self.device.type == "cuda":
            out = torch.empty(self.batch, rows, 3, dtype=torch.int32, device=self.device)
            return words_for(out, self.request, word, self.none, counters, lanes)
        request = torch.cat((self.request.long(), word.expand(self.batch, 1)), 1)[:, None]  # one launch is milliseconds here
        parts = [hashed(x).expand(self.batch, rows) for x in (request, counters, lanes)]
        return torch.stack(parts, -1).int()

    def uniforms(self, words: Tensor, size: int) -> Tensor:
        """float64[B, N, size], in (0, 1): runtime/noise.py's, bit for bit."""
        c0, c1, c2 = (words[..., i, None].long() & _LOW for i in range(3))
        c3 = constant(np.arange(-(-size // 4)), self.device)
        k0, k1 = self.seeds[:, 0, None, None], self.seeds[:, 1, None, None]
        for _ in range(10):  # products wrap mod 2**64, and both 32-bit words of them are right
            p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
            c0, c1, c2, c3 = ((p1 >> 32) & _LOW) ^ c1 ^ k0, p1 & _LOW, ((p0 >> 32) & _LOW) ^ c3 ^ k1, p0 & _LOW
            k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
        word = torch.stack(torch.broadcast_tensors(c0, c1, c2, c3), -1).flatten(-2)[..., :size]
        return (word.double() + 0.5) * 2.0**-32

    def exponentials(self, words: Tensor, size: int) -> Tensor:
        """float64[B, N, size]: arrival times of unit exponentials."""
        return -torch.log(self.uniforms(words, size))

    def race(self, probs: Tensor, words: Tensor) -> Tensor:
        """int64[B, N]: the winners of races over probabilities [B, N, V]."""
        runs = probs > 0
        times = self.exponentials(words, int(probs.shape[-1])) / probs
        times = torch.where(runs, times, torch.inf)
        first = times.argmin(-1, keepdim=True)
        slow = times.gather(-1, first) == torch.inf  # the arrival times of all tokens with mass overflow
        return torch.where(slow, runs.long().argmax(-1, keepdim=True), first)[..., 0]


def hashed(words: Tensor) -> Tensor:
    """int64[...]: hash32 of runtime/noise.py over the last axis of int64[..., n], in the range of int32."""
    n, h = int(words.shape[-1]), torch.zeros(words.shape[:-1], dtype=torch.int64, device=words.device)

    def turned(x: Tensor, bits: int) -> Tensor:
        return ((x << bits) | (x >> (32 - bits))) & _LOW

    for i in range(n):
        k = turned(((words[..., i] & _LOW) * 0xCC9E2D51) & _LOW, 15) * 0x1B873593 & _LOW
        h = (turned(h ^ k, 13) * 5 + 0xE6546B64) & _LOW
    h = h ^ (4 * n)
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & _LOW
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & _LOW
    h = h ^ (h >> 16)
    return torch.where(h < 2**31, h, h - 2**32)


def tokens_of(x: Any, stream: Stream) -> Tensor:
    """int64[B, N]: the tokens of draws or of a vector of tokens; absent ones are arbitrary."""
    if isinstance(x, Live):
        return plain(x.data) if isinstance(x.data, Tensor) else constant(x.data, stream.device)[None].expand(stream.batch, -1)
    assert isinstance(x, CanvasDraws)
    if x.tokens is None:
        assert x.dist is not None and x.key is not None
        x.tokens = drawn(x.dist, x.key, x.lane, stream)
    return x.tokens


def drawn(d: CanvasDist, key: CanvasNoise, lane: Any, stream: Stream) -> Tensor:
    """int64[B, N]: one draw of each distribution."""
    rows, ids = d.rows, d.ids
    if isinstance(rows, CanvasVectors):
        if rows.ones is not None:
            return rows.ones
        return stream.race(rows.face(d.face, ids), stream.words(key, lane))
    greedy = d.face == "shaped" and rows.shaper.greedy
    words = None if greedy else stream.words(key, lane, rows.which[ids], rows.base)
    if d.face == "shaped" and rows.shaper.kernels:
        decided: Tensor = rows.decided(ids, stream, words)
        return decided
    if words is None:
        points: Tensor = rows.points(ids)
        return points
    return stream.race(rows.face(d.face, ids), words)
