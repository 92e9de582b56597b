"""A request's settings as rows of device tensors, one for each lane, and the distributions that they make of scores.

The meaning is runtime/shaping.py's. Everything is tensor arithmetic over fixed buffers, so that one traced program serves lanes
with different settings. What the lanes of a program may use at all are its `features`: it computes those alone, and each has a
value for the lanes without it that changes nothing, not even in the last bit.

In float64 on a CPU the sums and exponentials are NumPy's, as the reference's are: distributions are equal bit for bit there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.torch import shaping as eager
from decgraph.backends.torch.shaping import working
from decgraph.backends.triton.kernels.truncate import truncate
from decgraph.backends.triton.noise import Keys
from decgraph.backends.triton.support import NotSteppable
from decgraph.runtime.request import Request
from decgraph.runtime.shaping import amount

M32 = 0xFFFFFFFF
DENSE = 64
"""Path tokens of a row up to which they are compared with each other; more are counted over the vocabulary."""


class RowPlace(NamedTuple):
    """Where the rows of a call stand.

    position: int64[B, R], the index in the text of the token that would be drawn. base: int64[B], how many committed tokens
    stand before all of them. path: int64[B or 1, R or 1, D], the tokens between those and a row, padded with -1.
    """

    position: Tensor
    base: Tensor
    path: Tensor | None = None


def need(request: Request) -> frozenset[str]:
    """The features that a request needs. Raises NotSteppable for what cannot be a row of a device's tensors."""
    if request.processors:
        raise NotSteppable("the request has processors, which are functions of the caller")
    if request.allow is not None:
        raise NotSteppable("the request has a grammar or another `allow`, which follows the text on the host")
    found = {
        "greedy" if request.temperature == 0 else "sampled",
        f"ends:{max(4, 1 << max(0, len(request.eos) - 1).bit_length())}",
    }
    if request.temperature != 0:
        found |= {name for name in ("top_k", "top_p", "min_p") if getattr(request, name) is not None}
    if request.repetition_penalty != 1:
        found.add("repetition")
    if amount(request.presence_penalty) or amount(request.frequency_penalty):
        found.add("counts")
    if request.bias_pairs:
        found.add("bias")
    if request.bans:
        found.add("bans")
    if request.min_length and request.eos:
        found.add("min_length")
    return frozenset(found)


def sizes_of(features: Iterable[str]) -> dict[str, int]:
    """Features with a number, the largest of each name; 1 for the others."""
    out: dict[str, int] = {}
    for feature in features:
        name, _, number = feature.partition(":")
        out[name] = max(out.get(name, 0), int(number or 1))
    return out


def covers(features: frozenset[str], wanted: frozenset[str]) -> bool:
    """Whether a program with these features serves requests that need others."""
    here = sizes_of(features)
    return all(here.get(name, 0) >= n for name, n in sizes_of(wanted).items())


class LaneSettings:
    """The settings of B lanes as device tensors, axis 0 the lane; `admit` writes a lane. features: those that any lane may use.
    text: the lanes' tokens int64[B, S], a buffer that lasts, which penalties read."""

    def __init__(
        self, features: Iterable[str], batch: int, vocab: int, device: torch.device, text: Tensor | None = None
    ) -> None:
        sizes = sizes_of(features)
        self.features, self.batch, self.vocab, self.text = frozenset(sizes), batch, vocab, text

        def rows(value: float, *more: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.full((batch, *more), value, dtype=dtype, device=device)

        self.begins, self.limit, self.min_length, self.top_k = rows(0), rows(0), rows(0), rows(0)
        self.ends = rows(-2, sizes.get("ends", 4))  # equal to no token, not even to -1
        self.request, self.noise_id, self.seed = rows(0, 2), rows(0, 2), rows(0, 2)
        self.temperature, self.repetition, self.top_p = (rows(1, dtype=torch.float64) for _ in range(3))
        self.min_p = rows(-1, dtype=torch.float64)
        self.presence, self.frequency = (rows(0, dtype=torch.float64) for _ in range(2))
        self.bias = rows(0, vocab, dtype=torch.float64) if "bias" in sizes else None
        self.bans = rows(0, vocab, dtype=torch.bool) if "bans" in sizes else None
        if {"repetition", "counts"} & self.features:
            assert text is not None, "penalties read the text"

    @property
    def rng(self) -> Keys:
        """The requests' part of noise keys."""
        return Keys(*((a[:, 0], a[:, 1]) for a in (self.request, self.noise_id, self.seed)))

    def admit(self, lane: int, request: Request, noise_id: int | None = None) -> None:
        """Write one lane, outside a step. noise_id: `Run.noise_id`, by default the request's id. Raises NotSteppable for a
        request that needs other features."""
        if not covers(frozenset({*self.features, f"ends:{self.ends.shape[1]}"}), need(request)):
            raise NotSteppable("the request has settings that this program was not made for")
        values = {
            "begins": request.begins,
            "limit": min(request.max_tokens, 2**31 - 1),
            "min_length": request.min_length,
            "top_k": request.top_k or 0,
            "temperature": float(request.temperature),
            "repetition": float(request.repetition_penalty),
            "top_p": 1.0 if request.top_p is None else float(request.top_p),
            "min_p": -1.0 if request.min_p is None else float(request.min_p),
            "presence": amount(request.presence_penalty),
            "frequency": amount(request.frequency_penalty),
        }
        for name, value in values.items():
            getattr(self, name)[lane] = value
        ends = sorted(token for token in request.eos if token >= 0)
        self._put(self.ends[lane], [*ends, *[-2] * (self.ends.shape[1] - len(ends))])
        own = request.request_id
        keys = own, own if noise_id is None else noise_id, request.seed
        for words, key in zip((self.request, self.noise_id, self.seed), keys, strict=True):
            self._put(words[lane], [key & M32, key >> 32])
        if self.bias is not None:
            row = np.zeros(self.vocab)
            for token, added in request.bias_pairs:
                if token < self.vocab:
                    row[token] = amount(added)
            self._put(self.bias[lane], row)
        if self.bans is not None:
            self._put(self.bans[lane], np.isin(np.arange(self.vocab), list(request.bans)))

    def _put(self, row: Tensor, values: object) -> None:
        row.copy_(torch.as_tensor(np.asarray(values), dtype=row.dtype))


def shape(settings: LaneSettings, logits: Tensor, where: RowPlace, face: str = "shaped", allow: Tensor | None = None) -> Tensor:
    """Rows of logits [B, R, V] in a view: probabilities ("shaped", "raw"), or scores after the constraints ("logits") or after
    penalties and bias too ("adjusted"). float64 for float64 logits, else float32. allow: bool[B or 1, R or 1, V], what the
    program itself allows. A row that is left without a token is 0 throughout."""
    scores = constrained(settings, logits, where, allow)
    if face == "logits":
        return scores
    if face == "raw":
        return softmax(scores)
    scores = adjusted(settings, scores, where)
    if face == "adjusted":
        return scores
    if "sampled" not in settings.features:
        return _best(scores)
    t = settings.temperature[:, None, None].to(scores.dtype)
    top = scores.amax(-1, keepdim=True)
    top = torch.where(top == -torch.inf, 0.0, top)
    # The shift by the maximum comes first: with a tiny temperature a quotient would overflow otherwise.
    probs = truncated(settings, softmax((scores - top) / torch.where(t == 0, 1.0, t)))
    return torch.where(t == 0, _best(scores), probs) if "greedy" in settings.features else probs


def _best(scores: Tensor) -> Tensor:
    """One-hot rows of the likeliest tokens, the lowest of several."""
    best = scores.argmax(-1, keepdim=True)
    return torch.zeros_like(scores).scatter(-1, best, 1.0) * (scores.gather(-1, best) > -torch.inf)


def constrained(settings: LaneSettings, logits: Tensor, where: RowPlace, allow: Tensor | None = None) -> Tensor:
    """The logits [B, R, V] where bans, least length and program allow the token, -inf elsewhere."""
    scores = working(logits)
    forbidden = []
    if "bans" in settings.features:
        forbidden.append(settings.bans[:, None])  # type: ignore[index]
    if allow is not None:
        forbidden.append(~allow)
    if "min_length" in settings.features:
        ends = torch.zeros(settings.batch, settings.vocab + 1, dtype=torch.bool, device=scores.device)
        ends = ends.scatter(1, torch.where(settings.ends < 0, settings.vocab, settings.ends), True)[:, None, : settings.vocab]
        short = (where.position - settings.begins[:, None]).clamp(min=0) < settings.min_length[:, None]
        forbidden.append(ends & short[..., None])
    for mask in forbidden:
        scores = scores.masked_fill(mask, -torch.inf)
    return scores


def adjusted(settings: LaneSettings, scores: Tensor, where: RowPlace) -> Tensor:
    """Constrained scores [B, R, V] after penalties and bias."""
    if {"repetition", "counts"} & settings.features:
        scores = _penalised_by_texts(settings, scores, where)
    if settings.bias is not None and "bias" in settings.features:
        scores = scores + settings.bias[:, None].to(scores.dtype)
    return scores


def _penalised_by_texts(settings: LaneSettings, scores: Tensor, where: RowPlace) -> Tensor:
    """Scores [B, R, V] after penalties for the tokens of the committed texts and of the rows' paths."""
    assert settings.text is not None
    text, path, base, begins = settings.text, where.path, where.base[:, None], settings.begins[:, None]
    at = torch.arange(int(text.shape[1]), device=text.device)
    inside = (at < base) & _known(settings, text)
    seen, made = (_often(settings, text, there)[:, None] for there in (inside, inside & (at >= begins)))
    if path is None:
        return _penalised(settings, scores, seen, made)
    path = path.expand(settings.batch, -1, -1)
    there = _known(settings, path)
    new = there & (base + torch.arange(int(path.shape[2]), device=path.device) >= begins)[:, None]
    if path.shape[1] == 1 or path.shape[2] > DENSE:
        return _penalised(settings, scores, seen + _often(settings, path, there), made + _often(settings, path, new))
    tokens = path.clamp(0, settings.vocab - 1)
    same = tokens[..., :, None] == tokens[..., None, :]
    shown = (same & there[..., None, :]).sum(-1) + seen.expand(-1, tokens.shape[1], -1).gather(2, tokens)
    often = (same & new[..., None, :]).sum(-1) + made.expand(-1, tokens.shape[1], -1).gather(2, tokens)
    # Entries of the padding are those of token 0, computed as for a path with it: equal tokens get equal values.
    changed = _penalised(settings, scores.gather(2, tokens), shown, often)
    return _penalised(settings, scores, seen, made).scatter(2, tokens, changed)


def _known(settings: LaneSettings, tokens: Tensor) -> Tensor:
    """bool[...]: which numbers are tokens of the vocabulary."""
    return (tokens >= 0) & (tokens < settings.vocab)


def _often(settings: LaneSettings, tokens: Tensor, there: Tensor) -> Tensor:
    """int64[..., V]: how often every token stands in tokens int64[..., n], where they are there (bool[..., n])."""
    zero = torch.zeros(*tokens.shape[:-1], settings.vocab, dtype=torch.int64, device=tokens.device)
    return zero.scatter_add(-1, tokens.clamp(0, settings.vocab - 1), there.long())


def _penalised(settings: LaneSettings, scores: Tensor, seen: Tensor, generated: Tensor) -> Tensor:
    """Scores [B, R, n] of tokens that stand int64[B, R, n] times in the text, of which `generated` were generated."""
    if "repetition" in settings.features:
        r = settings.repetition[:, None, None].to(scores.dtype)
        scores = torch.where(seen > 0, torch.where(scores < 0, scores * r, scores / r), scores)
    if "counts" in settings.features:
        less = settings.presence[:, None, None] + settings.frequency[:, None, None] * generated
        scores = scores - torch.where(generated > 0, less, 0.0).to(scores.dtype)
    return scores


def truncated(settings: LaneSettings, probs: Tensor) -> Tensor:
    """Probabilities [B, R, V] after top-k, top-p and min-p."""
    if not settings.features & {"top_k", "top_p", "min_p"}:
        return probs
    numbers = (settings.top_k, settings.top_p, settings.min_p)
    made: Tensor = truncate(probs, *(n[:, None].expand(probs.shape[:-1]) for n in numbers))
    return made


def softmax(scores: Tensor) -> Tensor:
    """Probabilities [..., V]; 0 throughout a row that is -inf throughout."""
    probs = torch.ops.decgraph.softmax_as_numpy(scores) if _exact(scores) else torch.softmax(scores, -1)
    return torch.where(scores.amax(-1, keepdim=True) == -torch.inf, 0.0, probs)


def total_of(probs: Tensor) -> Tensor:
    """Sums [..., 1] over the vocabulary."""
    total: Tensor = torch.ops.decgraph.total_as_numpy(probs) if _exact(probs) else probs.sum(-1, keepdim=True)
    return total


def _exact(a: Tensor) -> bool:
    """Whether NumPy's sums are taken, by operations that a graph does not look into."""
    return a.dtype == torch.float64 and a.device.type == "cpu"


@torch.library.custom_op("decgraph::softmax_as_numpy", mutates_args=(), device_types="cpu")
def _softmax_as_numpy(scores: Tensor) -> Tensor:
    return eager.softmax(scores)


@torch.library.custom_op("decgraph::total_as_numpy", mutates_args=(), device_types="cpu")
def _total_as_numpy(probs: Tensor) -> Tensor:
    return eager.total(probs)


@_softmax_as_numpy.register_fake
def _(scores: Tensor) -> Tensor:
    return torch.empty_like(scores, memory_format=torch.contiguous_format)


@_total_as_numpy.register_fake
def _(probs: Tensor) -> Tensor:
    return probs.new_empty(*probs.shape[:-1], 1)
