"""What a request produced."""

from __future__ import annotations

from dataclasses import dataclass, field

from decgraph.errors import DecError
from decgraph.runtime.logprobs import Logprobs
from decgraph.runtime.models.forwards import Forward
from decgraph.runtime.placement import EXACT, Placement
from decgraph.runtime.trace import Event, Stats


@dataclass
class Result:
    """What a request produced. `error` is set when it ended early; `tokens` is kept all the same. `logprobs`: where the request
    asked for them and ended without an error. `forwards`: which way each transformers model ran, by its parameter's name.
    `placement`: the device and the dtype of the first model's weights."""

    tokens: tuple[int, ...]
    text: str
    stats: Stats
    reason: str
    seconds: float
    events: list[Event] = field(default_factory=list)
    results: list[tuple[int, ...]] = field(default_factory=list)
    error: DecError | None = None
    logprobs: Logprobs | None = None
    forwards: dict[str, Forward] = field(default_factory=dict)
    placement: Placement = EXACT
    pieces: tuple[str, ...] = field(default=(), repr=False, compare=False)
    """What each token added to the text, where the session has a tokenizer: what colours a text by token."""

    @property
    def device(self) -> str:
        """Where it was computed: cpu, cuda:0."""
        return self.placement.device

    @property
    def dtype(self) -> str:
        """In which precision: float32, bfloat16; float64 for tables."""
        return self.placement.dtype

    def _repr_html_(self) -> str:
        from decgraph.html import fragment

        return fragment(self)
