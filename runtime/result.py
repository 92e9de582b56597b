"""What a request produced, and the log-probabilities that it asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.models.forwards import ForwardChoice
from decgraph.runtime.placement import EXACT, Placement
from decgraph.runtime.trace import Event, Stats

ROWS = 64
"""The most rows of logits in memory at a time: 64 rows of 150,000 tokens take 38 MB in float32."""


@dataclass(frozen=True)
class Logprobs:
    """The log-probabilities that `Request.logprobs` requests. tokens: the natural logarithm of each committed token's
    probability. top: for each committed token the likeliest tokens at its place, the likeliest first. ranks: for each one, one
    more than the number of likelier tokens. `Request.prompt_logprobs` has the same for the prompt's tokens after the first."""

    tokens: tuple[float, ...]
    top: tuple[dict[int, float], ...]
    ranks: tuple[int, ...] = ()


def logprobs_of(parts: Iterable[np.ndarray], tokens: Sequence[int], top: int) -> Logprobs:
    """The log-probabilities of tokens, given logits [n, V] in parts, a row before each token (-inf where a token has no mass).

    Of equally likely tokens the lower comes first, as in shaping.
    """
    chosen: list[float] = []
    best: list[dict[int, float]] = []
    ranks: list[int] = []
    for logits in parts:
        rows = logits.astype(np.float64)
        peaks = rows.max(axis=-1, keepdims=True)
        rows -= peaks + np.log(np.exp(rows - peaks).sum(axis=-1, keepdims=True))
        for row in rows:
            chosen.append(float(row[tokens[len(chosen)]]))
            ranks.append(1 + int((row > chosen[-1]).sum()))
            best.append({int(t): float(row[t]) for t in _likeliest(row, top)} if top else {})
    return Logprobs(tuple(chosen), tuple(best), tuple(ranks))


def _likeliest(row: np.ndarray, count: int) -> np.ndarray:
    """The `count` likeliest tokens int64[count] of a row, in order."""
    count = min(count, len(row))
    least = np.partition(row, len(row) - count)[len(row) - count]
    near = np.flatnonzero(row >= least)
    return near[np.argsort(-row[near], kind="stable")][:count]


@dataclass
class Result:
    """What a request produced. `error` is set when it ended early; `tokens` is kept all the same. `logprobs`: where the
    request asked for them and ended without an error; `prompt_logprobs`: of the prompt's tokens after the first. `forwards`:
    which way each transformers model ran, by its parameter's name. `placement`: the device and the dtype of the first model's
    weights. `seconds`: the whole run. `load_seconds`: what making the session took. `first_call_seconds`: of the run, until
    the target was called again: models get their decoders in it; None where a device calls them by itself. `decoding_tokens`:
    committed after that."""

    tokens: tuple[int, ...]
    text: str
    stats: Stats
    reason: str
    seconds: float
    events: list[Event] = field(default_factory=list)
    results: list[tuple[int, ...]] = field(default_factory=list)
    error: DecError | None = None
    logprobs: Logprobs | None = None
    forwards: dict[str, ForwardChoice] = field(default_factory=dict)
    placement: Placement = EXACT
    load_seconds: float = 0.0
    first_call_seconds: float | None = None
    decoding_tokens: int = 0
    prompt_logprobs: Logprobs | None = None
    pieces: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """What each token added to the text, where the session has a tokenizer: what colours a text by token."""
    mode: str = field(default="", compare=False)
    """How backend triton decoded: "graph mode", or "eager mode" and the reason, and in between whether its
    forwards were CUDA graphs."""

    @property
    def device(self) -> str:
        """Where it was computed: cpu, cuda:0."""
        return self.placement.device

    @property
    def dtype(self) -> str:
        """In which precision: float32, bfloat16; float64 for tables."""
        return self.placement.dtype

    @property
    def decoding_seconds(self) -> float:
        """The seconds after the first call."""
        return self.seconds - (self.first_call_seconds or 0.0)

    @property
    def tokens_per_second(self) -> float | None:
        """The speed of decoding, load and first call left out; None where nothing was decoded after them."""
        return self.decoding_tokens / self.decoding_seconds if self.decoding_tokens and self.decoding_seconds > 0 else None

    def __repr__(self) -> str:
        shown = self.text if len(self.text) <= 60 else self.text[:57] + "..."
        calls = f", {self.stats.target_calls} target calls" if self.stats.target_calls else ""
        return f"<result: {len(self.tokens)} tokens{calls}, ended by {self.reason}: {shown!r}>"

    def _repr_html_(self) -> str:
        from decgraph.html import fragment

        return fragment(self)


def first_call(together: Sequence[Result]) -> tuple[float | None, int]:
    """Of runs that began together: the seconds until all had had their first call, and the tokens committed by it; None where a
    device calls models by itself."""
    known = [result.first_call_seconds for result in together if result.first_call_seconds is not None]
    if not known:
        return None, 0
    return max(known), sum(len(result.tokens) - result.decoding_tokens for result in together)
