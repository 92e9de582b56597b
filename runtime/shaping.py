"""From a model's scores to the distributions an algorithm sees: pure functions of (scores, path, request).

Two views of one row. `raw_probs` applies the constraints only: bans, the automaton, no end before the minimum
length. `shaped_probs` then applies, in this order: the request's processors, repetition penalty, presence and frequency
penalties, bias, temperature, top-k, top-p, min-p, each on the result of the one before. `adjusted` stops before the
temperature, and returns scores.

Both work in two domains, chosen by the row: float64 arrays, or tuples of exact numbers. Those are fractions where they
can be; a temperature, a penalty or a bias that leaves the rationals yields exact reals (runtime/reals). A processor is a
DecError there. The logit of an exact row is the logarithm of its weight.

Ties go to the lower token everywhere: the greedy token, the last place of top-k, the order in which top-p
adds up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from decgraph.errors import ConstraintError, DecError
from decgraph.runtime.faults import noted_outside
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.request import Amount, Factor, Request

if TYPE_CHECKING:
    from decgraph.runtime.reals.real import Number

Probs: TypeAlias = "np.ndarray | Weights"


def raw_probs(scores: Scores, path: Sequence[int], request: Request, allow: Collection[int] | None = None) -> Probs:
    """The distribution after `path` under the constraints alone: float64[V] or V exact numbers, summing to one.

    `path` is the whole context, prompt included. `allow`, if given, is the set of tokens that the algorithm allows here; it
    narrows the request's own. Raises DecError if no token with mass is left.
    """
    path = tuple(path)
    kept = _allowed(scores.size, path, request, allow)
    if scores.weights is not None:
        return _constrained(scores.weights, kept)
    return _softmax(_logits(scores, kept))


def shaped_probs(scores: Scores, path: Sequence[int], request: Request, allow: Collection[int] | None = None) -> Probs:
    """The distribution that `~` and `verify` use: after the constraints and the request's shaping. Otherwise as `raw_probs`."""
    path = tuple(path)
    kept = _allowed(scores.size, path, request, allow)
    if scores.weights is not None:
        return _shape_exact(_constrained(scores.weights, kept), path, request)
    return _shape_float(_logits(scores, kept), path, request)


def adjusted(scores: Scores, path: Sequence[int], request: Request) -> Probs:
    """Scores after the constraints, the processors, the penalties and the bias: float64[V], or V exact weights, of which the
    scores are the logarithms. They are not normalised, and may all lack mass where a text cannot continue."""
    path = tuple(path)
    kept = _allowed(scores.size, path, request, None)
    if scores.weights is not None:
        return _penalised_exact(masked(scores.weights, kept), path, request)
    assert scores.logits is not None
    logits = scores.logits if kept is None else np.where(kept, scores.logits, -np.inf)
    return _penalised(processed(logits, path, request), path, request)


def forbidden(size: int, path: Sequence[int], request: Request) -> frozenset[int]:
    """The tokens that the request's constraints forbid after `path`."""
    kept = _allowed(size, tuple(path), request, None)
    return frozenset() if kept is None else frozenset(v for v in range(size) if not kept[v])


def _allowed(size: int, path: tuple[int, ...], request: Request, allow: Collection[int] | None) -> np.ndarray | None:
    """bool[V], the tokens that the constraints allow; None where there is no constraint."""
    generated = path[request.begins :]
    ends = request.eos if len(generated) < request.min_length else frozenset()
    if not (request.bans or ends or request.allow is not None or allow is not None):
        return None
    kept = np.ones(size, bool)
    for tokens in (request.allow(generated) if request.allow is not None else None, allow):
        if tokens is not None:
            here = np.zeros(size, bool)
            here[_ids(tokens, size)] = True
            kept &= here
    kept[_ids(request.bans, size)] = False
    kept[_ids(ends, size)] = False
    return kept


def _ids(tokens: Collection[int], size: int) -> np.ndarray:
    """The token ids below `size` among `tokens`, which may also be a boolean mask over the vocabulary."""
    if isinstance(tokens, np.ndarray) and tokens.dtype == bool:
        return np.flatnonzero(tokens[:size])
    ids = np.array(sorted(tokens), np.int64)
    return ids[(ids >= 0) & (ids < size)]


def _counts(path: tuple[int, ...], request: Request) -> tuple[Counter[int], Counter[int]]:
    """How often each token occurs in the whole path, and in the generated part."""
    return Counter(path), Counter(path[request.begins :])


def nothing_left() -> DecError:
    """The error of reading a row that the constraints leave without a token."""
    return ConstraintError(
        "the request's constraints leave no token that the model gives any probability",
        hint="loosen bans, min_length or the automaton",
    )


def no_numbers() -> DecError:
    """The error of reading a row with a score that is NaN or infinite."""
    return noted_outside(
        DecError("the scores of a row hold a NaN or an infinity", hint="log of 0 is -inf, and inf - inf is no number")
    )


# --- float64
# ---------------------------------------------------------------------------------------------------


def _logits(scores: Scores, allowed: np.ndarray | None) -> np.ndarray:
    assert scores.logits is not None
    logits = scores.logits.astype(np.float64)
    if allowed is not None:
        logits = np.where(allowed, logits, -np.inf)
    if np.isnan(logits).any() or np.isposinf(logits).any():
        raise no_numbers()
    if not (logits > -np.inf).any():
        raise nothing_left()
    return logits


def _softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def processed(logits: np.ndarray, path: tuple[int, ...], request: Request) -> np.ndarray:
    """The logits float64[V] after the request's processors, as every backend must compute them.

    Raises DecError for a processor that returns another shape, a NaN or +inf.
    """
    shape = logits.shape
    for processor in request.processors:
        logits = np.asarray(processor(path, logits), np.float64)
        if logits.shape != shape or np.isnan(logits).any() or np.isposinf(logits).any():
            raise DecError(f"a processor must return finite scores or -inf, one for each token: {processor!r} does not")
    return logits


def _shape_float(logits: np.ndarray, path: tuple[int, ...], request: Request) -> np.ndarray:
    logits = processed(logits, path, request)
    if request.processors and not (logits > -np.inf).any():
        raise nothing_left()
    if request.penalised:
        logits = _penalised(logits, path, request)
    if request.temperature == 0:
        point = np.zeros(len(logits))
        point[int(np.argmax(logits))] = 1.0
        return point
    # The maximum is subtracted first, since the quotient by a tiny temperature would overflow.
    probs = _softmax((logits - logits.max()) / float(request.temperature))
    if request.top_k is None and request.top_p is None and request.min_p is None:
        return probs
    order = np.argsort(-probs, kind="stable")
    if request.top_k is not None and request.top_k < len(probs):
        probs = _keep(probs, order[: request.top_k])
    if request.top_p is not None and request.top_p < 1:
        enough = np.cumsum(probs[order]) >= float(request.top_p)
        # By rounding the whole sum may stay below p: then every token is needed.
        last = int(np.argmax(enough)) if enough.any() else len(order) - 1
        probs = _keep(probs, order[: last + 1])
    if request.min_p is not None:
        probs = _keep(probs, np.flatnonzero(probs >= float(request.min_p) * probs.max()))
    return probs


def _keep(probs: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    kept = np.zeros_like(probs)
    kept[tokens] = probs[tokens]
    return kept / kept.sum()


def _penalised(logits: np.ndarray, path: tuple[int, ...], request: Request) -> np.ndarray:
    seen, generated = _counts(path, request)
    logits = logits.copy()
    if request.repetition_penalty != 1:
        ids = _ids(seen, len(logits))
        r = float(request.repetition_penalty)
        logits[ids] = np.where(logits[ids] < 0, logits[ids] * r, logits[ids] / r)
    presence, frequency = amount(request.presence_penalty), amount(request.frequency_penalty)
    if presence or frequency:
        for token, count in generated.items():
            if 0 <= token < len(logits):  # a masked position of a model without a mask token is -1
                logits[token] -= presence + frequency * count
    for token, value in request.bias_pairs:
        if token < len(logits):
            logits[token] += amount(value)
    return logits


def amount(value: Amount) -> float:
    """A bias or penalty in logits: of an exact factor its logarithm."""
    return value.log if isinstance(value, Factor) else float(value)


# --- fractions
# -------------------------------------------------------------------------------------------------


def _constrained(weights: Weights, allowed: np.ndarray | None) -> Weights:
    """The weights of the allowed tokens, normalised; without constraints a row sums to one already."""
    left = masked(weights, allowed)
    if any(isinstance(w, float) for w in left):
        raise no_numbers()
    if allowed is None and all(isinstance(w, int | Fraction) and w == 0 for w in left):
        raise nothing_left()
    return weights if allowed is None else _normal(left)


def _normal(weights: Weights) -> Weights:
    if all(isinstance(w, Fraction) for w in weights):
        total = sum(weights)
        if total == 0:
            raise nothing_left()
        return weights if total == 1 else tuple(w / total for w in weights)
    if not any(w > 0 for w in weights):
        raise nothing_left()
    return shares_of(weights)


def _shape_exact(weights: Weights, path: tuple[int, ...], request: Request) -> Weights:
    """Shaped weights. Every step but top-p depends on ratios alone, so one normalisation at the end is enough."""
    weights = _penalised_exact(weights, path, request)
    if request.temperature == 0:
        best = max(range(len(weights)), key=lambda v: (weights[v], -v))
        return tuple(Fraction(v == best) for v in range(len(weights)))
    if request.temperature != 1:
        exponent = 1 / rational(request.temperature)
        weights = tuple(power(w, exponent) for w in weights)
    if request.top_k is None and request.top_p is None and request.min_p is None:
        return _normal(weights)
    order = sorted(range(len(weights)), key=lambda v: (-weights[v], v))
    if request.top_k is not None:
        weights = only(weights, order[: request.top_k])
    if request.top_p is not None:
        wanted, n = rational(request.top_p) * sum(weights), 0
        mass: Number = Fraction(0)
        while mass < wanted:
            mass += weights[order[n]]
            n += 1
        weights = only(weights, order[:n])
    if request.min_p is not None:
        floor = rational(request.min_p) * max(weights)
        weights = tuple(w if w >= floor else Fraction(0) for w in weights)
    return _normal(weights)


def _penalised_exact(probs: Weights, path: tuple[int, ...], request: Request) -> Weights:
    if request.processors:
        raise DecError("processors work on logits, which exact arithmetic lacks", hint="leave them out of exact checks")
    if not request.penalised:
        return probs
    seen, generated = _counts(path, request)
    weights = list(probs)
    if request.repetition_penalty != 1:
        # A logarithm of a probability is never positive, so the penalty always multiplies: w becomes w ** r.
        r = rational(request.repetition_penalty)
        for token in seen:
            if 0 <= token < len(weights):
                weights[token] = power(weights[token], r)
    presence, frequency = _factor(request.presence_penalty), _factor(request.frequency_penalty)
    for token, count in generated.items():
        if 0 <= token < len(weights):
            weights[token] /= presence * frequency**count
    for token, value in request.bias_pairs:
        if token < len(weights):
            weights[token] *= _factor(value)
    return tuple(weights)


def _factor(value: Amount) -> Number:
    return Fraction(value.value) if isinstance(value, Factor) else factor(rational(value))


Weights: TypeAlias = "tuple[Number, ...]"


def masked(weights: Weights, allowed: np.ndarray | None) -> Weights:
    """The weights where `allowed` (bool[V], None for everywhere), zero elsewhere; not normalised."""
    if allowed is None:
        return weights
    return tuple(w if keep else Fraction(0) for w, keep in zip(weights, allowed.tolist(), strict=True))


def only(weights: Weights, tokens: Collection[int]) -> Weights:
    """The weights of `tokens`, zero elsewhere; not normalised."""
    chosen = set(tokens)
    return tuple(w if v in chosen else Fraction(0) for v, w in enumerate(weights))


def rational(value: int | float | Fraction) -> Fraction:
    """The fraction meant by a number: 0.9 is 9/10."""
    return Fraction(str(value)) if isinstance(value, float) else Fraction(value)


def power(base: Number, exponent: Fraction) -> Number:
    """base ** exponent, for a base >= 0 and an exponent > 0: a fraction where it is one, else a real."""
    from decgraph.runtime.reals import functions

    return base if base in (0, 1) else functions.power(base, exponent)


def factor(amount: Fraction) -> Number:
    """What a weight is multiplied by where `amount` is added to its logit."""
    from decgraph.runtime.reals import functions

    return functions.exp(amount)


def shares_of(weights: Weights) -> Weights:
    """The weights divided by their sum, which is not 0."""
    from decgraph.runtime.reals import functions

    return tuple(functions.shares(weights))
