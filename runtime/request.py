"""A request: a prompt, a limit and sampling settings. Algorithms never see it; shaping and the stop machine do."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias, TypedDict

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.grammars import Grammar

Number = int | float | Fraction
LEAST, MOST = 1e-6, 1e30
"""The least temperature above 0 and repetition penalty, and the largest amount that is added to a logit: what lies beyond turns
scores of 32 bits into infinities, and a distribution into none."""


@dataclass(frozen=True)
class Factor:
    """A bias or penalty given as a factor on the weight, where a number is an amount added to the logit.

    `Factor(Fraction(2))` as a bias doubles a token's weight, as a penalty halves it. In exact
    arithmetic a factor stays rational, where an amount multiplies the weight by a power of e.
    """

    value: Fraction

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise DecError(f"a factor must be positive, not {self.value}")

    @property
    def log(self) -> float:
        return math.log(self.value)


Amount = Number | Factor
Allow: TypeAlias = Callable[[tuple[int, ...]], Collection[int]] | Automaton
Processor: TypeAlias = Callable[[tuple[int, ...], np.ndarray], np.ndarray]
Until: TypeAlias = Callable[[tuple[int, ...]], bool]


DEFAULT_TEMPERATURE = 0.0
"""The temperature of requests from prompts where neither the caller nor the model's generation settings say one
(runtime/defaults.py): a first try returns the same text every time, as `generate` of transformers does. A `Request` built
directly samples, at temperature 1."""


class RequestFields(TypedDict, total=False):
    """The fields of a `Request` but its prompt, in any form that it reads: the keyword arguments of `decgraph.run`."""

    max_tokens: int
    eos: int | Iterable[int]
    stop: str | Iterable[str]
    seed: int
    request_id: int
    temperature: Number
    top_k: int | None
    top_p: Number | None
    min_p: Number | None
    repetition_penalty: Number
    presence_penalty: Amount
    frequency_penalty: Amount
    bias: Mapping[int, Amount] | Iterable[tuple[int, Amount]]
    bans: int | Iterable[int]
    min_length: int
    allow: Allow | Grammar | None
    processors: Iterable[Processor]
    until: Iterable[Until]
    logprobs: int | None
    prompt_logprobs: int | None
    shaped: bool
    strict: bool
    limit: int


def renamed(fields: RequestFields) -> RequestFields:
    """The fields under their present names: `max_tokens` was once called `limit`, and scripts still use that.

    Raises DecError where both are given.
    """
    if "limit" not in fields:
        return fields
    if "max_tokens" in fields:
        raise DecError("a request has `max_tokens` and `limit`, which are one thing", hint="leave `limit` out")
    today: RequestFields = {**fields, "max_tokens": fields["limit"]}
    del today["limit"]
    return today


@dataclass(frozen=True)
class Request:
    """One request, a hashable value. Mappings and sets may be given in any form.

    prompt: token ids, not empty. max_tokens: most new tokens. eos: ids that end the text. stop: strings that end
    it. seed and request_id: the key of all noise. temperature 0 is greedy. top_k, top_p, min_p: None is off.
    repetition_penalty: 1 is off, counts prompt and generated tokens. presence_penalty, frequency_penalty: 0
    is off, count generated tokens. bias: token to amount. bans: tokens never chosen. min_length: new tokens
    before which eos is forbidden. allow: from the generated tokens to the tokens allowed next, or an
    automaton; it must be a pure function.

    processors: pure functions from (the whole path, logits float64[V]) to logits float64[V], applied in order after the
    constraints and before the penalties: shaping, which the raw view is without; exact rows refuse them. until: functions
    of the whole path, prompt included, evaluated after each generated token; the first that is true ends the run there
    (reason "until").

    logprobs: whether the result has log-probabilities of the committed tokens, by the main model's own distributions; None is
    off, 0 those of the tokens alone, n also the n likeliest tokens at each place. prompt_logprobs: the same for the tokens of
    the prompt after its first, which nothing comes before; the prompt is computed once more for them.

    shaped: `logprobs` are by the distribution that tokens are drawn from, after the constraints, the temperature and all other
    shaping, and not by the model's own: what the ratios of reinforcement learning need. At temperature 0 it is one token's.

    strict: an error in a draft ends the whole run; otherwise it ends only that draft.

    limit: the former name of max_tokens, accepted as an argument only.

    prompt_length: how many tokens of the prompt the caller gave; None means all of them. In a sub-run the others were
    generated by the run around it, whose constraints and penalties continue there.

    Raises DecError for an empty prompt and for every value of another type or outside its range.
    """

    prompt: tuple[int, ...]
    max_tokens: int = 64
    eos: frozenset[int] = frozenset()
    stop: tuple[str, ...] = ()
    seed: int = 0
    request_id: int = 0
    temperature: Number = 1
    top_k: int | None = None
    top_p: Number | None = None
    min_p: Number | None = None
    repetition_penalty: Number = 1
    presence_penalty: Amount = 0
    frequency_penalty: Amount = 0
    bias: Mapping[int, Amount] | tuple[tuple[int, Amount], ...] = ()
    bans: frozenset[int] = frozenset()
    min_length: int = 0
    allow: Allow | None = None
    processors: tuple[Processor, ...] = ()
    until: tuple[Until, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    shaped: bool = False
    prompt_length: int | None = None
    strict: bool = False
    limit: InitVar[int | None] = None

    def __post_init__(self, limit: int | None) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if limit is not None:
            if self.max_tokens not in (limit, Request.max_tokens):
                raise DecError("a request has `max_tokens` and `limit`, which are one thing", hint="leave `limit` out")
            put("max_tokens", limit)
        put("prompt", tuple(_token("prompt", t) for t in _several(self.prompt)))
        for name in _WHOLE:
            if (value := getattr(self, name)) is not None or name not in _OPTIONAL:
                put(name, _whole(name, value))
        for name in _REAL:
            if isinstance(value := getattr(self, name), np.number):
                put(name, value.item())
        put("eos", frozenset(_token("eos", t) for t in _several(self.eos)))
        put("bans", frozenset(_token("bans", t) for t in _several(self.bans)))
        put("stop", (self.stop,) if isinstance(self.stop, str) else _listed("stop", self.stop, "a text or a list of texts"))
        put("processors", _listed("processors", self.processors, "a list of functions"))
        put("until", _listed("until", self.until, "a list of functions"))
        pairs = _listed("bias", self.bias.items() if isinstance(self.bias, Mapping) else self.bias, "amounts by token id")
        try:
            bias = {_token("bias", t): v for t, v in pairs}
        except (TypeError, ValueError):
            raise _wrong("bias", self.bias, "amounts by token id") from None
        put("bias", tuple((t, bias[t]) for t in sorted(bias)))
        self._check()

    @property
    def elsewhere(self) -> Request:
        """The request for a model with another vocabulary, without the fields that name or count tokens."""
        kept = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        return Request(self.prompt, seed=self.seed, request_id=self.request_id, **kept)  # type: ignore[arg-type]

    def _check(self) -> None:
        if not self.prompt:
            raise DecError("the prompt is empty; a request needs at least one token to read")
        _need(
            _finite(self.temperature) and (self.temperature == 0 or self.temperature >= LEAST),
            "temperature",
            self.temperature,
            f"0 (greedy), or {LEAST:g} or more",
        )
        if self.top_p is not None:
            _need(_finite(self.top_p) and 0 < self.top_p <= 1, "top_p", self.top_p, "above 0 and at most 1")
        if self.min_p is not None:
            _need(_finite(self.min_p) and 0 <= self.min_p <= 1, "min_p", self.min_p, "between 0 and 1")
        _need(
            _finite(self.repetition_penalty) and LEAST <= self.repetition_penalty <= 1 / LEAST,
            "repetition_penalty",
            self.repetition_penalty,
            f"between {LEAST:g} and {1 / LEAST:g}",
        )
        for name in ("presence_penalty", "frequency_penalty"):
            value = getattr(self, name)
            _need(isinstance(value, Factor) or _moderate(value), name, value, f"within {MOST:g}, or a Factor")
        for token, value in self.bias_pairs:
            _need(isinstance(value, Factor) or _moderate(value), f"bias of token {token}", value, f"within {MOST:g}")
        if isinstance(self.allow, Grammar):
            raise DecError(
                "a request built by hand takes a grammar over tokens", hint="allow = grammar.over(tokenizer, eos, vocab.size)"
            )
        _need(self.allow is None or callable(self.allow), "allow", self.allow, "a function, an automaton or a grammar")
        for text in self.stop:
            _need(isinstance(text, str) and text != "", "stop", text, "a string that is not empty")

    @property
    def bias_pairs(self) -> tuple[tuple[int, Amount], ...]:
        """The bias as (token, amount) pairs in token order."""
        assert isinstance(self.bias, tuple)
        return self.bias

    @property
    def begins(self) -> int:
        """Where the generated text begins."""
        return len(self.prompt) if self.prompt_length is None else self.prompt_length

    @cached_property
    def greedy(self) -> bool:
        return self.temperature == 0

    @cached_property
    def penalised(self) -> bool:
        """Whether a penalty or a bias changes any logit."""
        return self.repetition_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0 or bool(self.bias)

    def check_vocab(self, size: int) -> None:
        """Raises DecError if a token of the request is outside a vocabulary of `size` tokens."""
        named = {
            "prompt": self.prompt,
            "eos": self.eos,
            "bans": self.bans,
            "bias": [t for t, _ in self.bias_pairs],
        }
        for name, tokens in named.items():
            for token in tokens:
                _need(token < size, name, token, f"a token id below the vocabulary's size, {size}")


_WHOLE: dict[str, tuple[int, int | None, str]] = {
    "max_tokens": (1, None, "at least 1"),
    "min_length": (0, None, "0 or more"),
    "seed": (0, 2**64, "between 0 and 2**64 - 1"),
    "request_id": (0, 2**64, "between 0 and 2**64 - 1"),
    "top_k": (1, None, "at least 1"),
    "logprobs": (0, None, "None, or 0 or more"),
    "prompt_logprobs": (0, None, "None, or 0 or more"),
}
"""The fields that are whole numbers: the least value, the bound above, and the range in words."""
_OPTIONAL = ("top_k", "logprobs", "prompt_logprobs")
_REAL = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


def _several(tokens: object) -> tuple[object, ...]:
    """The items of a collection, or a single item."""
    try:
        return tuple(tokens)  # type: ignore[arg-type]  # an array without axes has `__iter__` and refuses it
    except TypeError:
        return (tokens,)


def _listed(name: str, values: object, wanted: str) -> tuple[Any, ...]:
    try:
        return tuple(values)  # type: ignore[arg-type]
    except TypeError:
        raise _wrong(name, values, wanted) from None


def _whole(name: str, value: Any) -> int:
    """A whole number within the field's range, also from a float or an array's item. Raises DecError for others."""
    least, bound, wanted = _WHOLE[name]
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        raise _wrong(name, value, wanted) from None
    _need(number == value, name, value, f"a whole number, {wanted}")
    _need(least <= number and (bound is None or number < bound), name, value, wanted)
    return number


def _token(name: str, value: Any) -> int:
    try:
        token = int(value)
    except (TypeError, ValueError, OverflowError):
        hint = "decgraph.run, session.run and session.generate read texts" if isinstance(value, str) else ""
        raise DecError(f"{name} must hold token ids, not {value!r}", hint=hint) from None
    _need(token == value and token >= 0, name, value, "token ids, whole numbers from 0")
    return token


def _finite(value: object) -> bool:
    """Whether it is a number that a float holds."""
    try:
        return isinstance(value, int | float | Fraction) and math.isfinite(value)
    except OverflowError:
        return False


def _moderate(value: Number) -> bool:
    return _finite(value) and -MOST <= value <= MOST


def _wrong(name: str, value: object, wanted: str) -> DecError:
    shown, default = repr(value), getattr(Request, name, None)
    hint = f"{name}={default}" if isinstance(default, int) else "" if name == "prompt" else "leave it out"
    return DecError(f"{name} is {shown if len(shown) <= 40 else shown[:40] + '...'}; it must be {wanted}", hint=hint)


def _need(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise _wrong(name, value, wanted)
