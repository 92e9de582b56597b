"""What a sweep of a lossy causal program is: its knob, the values, and the shape that its paper leads one to expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lab import tradeoffs_causal_standins as standins
from lab.tradeoffs_causal_measures import Ids, Ran

Way = Literal["rises", "falls", "stays", "exceeds"]
Shape = tuple[str, Way, float]
"""A measure, what it does from the first value of the knob to the last, and by how much at least (`stays`: at most;
`exceeds`: it is above the amount at every value)."""


@dataclass(frozen=True)
class Setting:
    """What a program is handed at one value of its knob."""

    params: Mapping[str, Any] = field(default_factory=dict)
    heads: standins.Heads = field(default_factory=dict)
    externs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """A sweep. prompts: a set of tradeoffs_causal.PROMPTS. answers: functions handed over, given the answer of the prompt's
    task. at: what the program is handed at a value, where that is not the parameter `knob`. beside: a program that is compared
    at the same values. why: why the shape is not shown."""

    program: str
    family: str
    knob: str
    values: tuple[Any, ...]
    expected: str
    shape: tuple[Shape, ...]
    prompts: str = "code"
    limit: int = 32
    temperature: float = 0
    seeds: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    heads: standins.Heads = field(default_factory=dict)
    externs: Mapping[str, Any] = field(default_factory=dict)
    answers: Callable[[str], Mapping[str, Any]] | None = None
    at: Callable[[Any], Setting] | None = None
    eos: bool = False
    model: str = "target"
    also: tuple[str, ...] = ()
    score: Callable[[Ran], float] | None = None
    views: Callable[[Ran, Callable[[str], Ids]], tuple[Ids, Ids]] | None = None
    stored: Callable[[Mapping[str, Any], int, int], float] | None = None
    green: Callable[[Any], Callable[[Ids, Ids], tuple[int, int]]] | None = None
    beside: str = ""
    why: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        return self.program if self.model == "target" else f"{self.program} ({self.model})"

    def setting(self, value: Any) -> Setting:
        given = self.at(value) if self.at else Setting({self.knob: value})
        return Setting({**self.params, **given.params}, {**self.heads, **given.heads}, {**self.externs, **given.externs})
