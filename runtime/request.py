"""A request: a prompt, a limit and sampling settings. Algorithms never see it; shaping and the stop machine do."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass
from fractions import Fraction
from functools import cached_property
from typing import SupportsInt, TypeAlias, TypedDict

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
    """The fields of a request by the names that they have today: `max_tokens` was `limit` once, and scripts say so.

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

    strict: an error in a draft ends the run, where it would only end that draft.

    limit: what max_tokens was called once. It is read, and nothing holds it.

    given: how many tokens of the prompt were given, all where nothing is said. In a sub-run the others were generated by the
    run around it: constraints and penalties go on, they do not begin anew.

    Raises DecError for an empty prompt and for every value outside its range.
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
    given: int | None = None
    strict: bool = False
    limit: InitVar[int | None] = None

    def __post_init__(self, limit: int | None) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if limit is not None:
            if self.max_tokens not in (limit, Request.max_tokens):
                raise DecError("a request has `max_tokens` and `limit`, which are one thing", hint="leave `limit` out")
            put("max_tokens", limit)
        put("prompt", tuple(_token("prompt", t) for t in self.prompt))
        put("eos", frozenset(_token("eos", t) for t in _several(self.eos)))
        put("stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        put("bans", frozenset(_token("bans", t) for t in _several(self.bans)))
        put("processors", tuple(self.processors))
        put("until", tuple(self.until))
        pairs = self.bias.items() if isinstance(self.bias, Mapping) else self.bias
        bias = {_token("bias", t): v for t, v in pairs}
        put("bias", tuple((t, bias[t]) for t in sorted(bias)))
        self._check()

    @property
    def elsewhere(self) -> Request:
        """The request for tokens of another vocabulary: what names or counts tokens is left out."""
        kept = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p, "min_p": self.min_p}
        return Request(self.prompt, seed=self.seed, request_id=self.request_id, **kept)  # type: ignore[arg-type]

    def _check(self) -> None:
        if not self.prompt:
            raise DecError("the prompt is empty; a request needs at least one token to read")
        _need(self.max_tokens >= 1, "max_tokens", self.max_tokens, "at least 1")
        _need(self.min_length >= 0, "min_length", self.min_length, "0 or more")
        _need(0 <= self.seed < 2**64, "seed", self.seed, "between 0 and 2**64 - 1")
        _need(0 <= self.request_id < 2**64, "request_id", self.request_id, "between 0 and 2**64 - 1")
        sharp = self.temperature == 0 or self.temperature >= LEAST
        _need(_finite(self.temperature) and sharp, "temperature", self.temperature, f"0 (greedy), or {LEAST:g} or more")
        if self.top_k is not None:
            _need(self.top_k >= 1, "top_k", self.top_k, "at least 1")
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
        for name in ("logprobs", "prompt_logprobs"):
            _need((count := getattr(self, name)) is None or count >= 0, name, count, "None, or 0 or more")
        for token, value in self.bias_pairs:
            _need(isinstance(value, Factor) or _moderate(value), f"bias of token {token}", value, f"within {MOST:g}")
        if isinstance(self.allow, Grammar):
            raise DecError(
                "a request built by hand takes a grammar over tokens", hint="allow = grammar.over(tokenizer, eos, vocab.size)"
            )
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
        return len(self.prompt) if self.given is None else self.given

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


def _several(tokens: Iterable[int] | int) -> Iterable[int]:
    return (tokens,) if isinstance(tokens, int) else tokens


def _token(name: str, value: SupportsInt) -> int:
    try:
        token = int(value)
    except (TypeError, ValueError):
        raise DecError(f"{name} must hold token ids, not {value!r}") from None
    _need(token == value and token >= 0, name, value, "token ids, whole numbers from 0")
    return token


def _finite(value: Number) -> bool:
    """Whether it is a number that a float holds."""
    try:
        return isinstance(value, int | float | Fraction) and math.isfinite(value)
    except OverflowError:
        return False


def _moderate(value: Number) -> bool:
    return _finite(value) and -MOST <= value <= MOST


def _need(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        said = repr(value)
        raise DecError(f"{name} is {said if len(said) <= 40 else said[:40] + '...'}; it must be {wanted}")
