"""The part of the language that the oracle can judge, as plain dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# ---- expressions


@dataclass(frozen=True)
class Num:
    """A number, a word with a value, or a text, as it is written."""

    text: str


@dataclass(frozen=True)
class Name:
    id: str


@dataclass(frozen=True)
class Attr:
    value: Any
    name: str


@dataclass(frozen=True)
class Slice:
    low: Any
    high: Any


@dataclass(frozen=True)
class Index:
    value: Any
    subs: tuple[Any, ...]


@dataclass(frozen=True)
class Call:
    func: Any
    args: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Bin:
    op: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Un:
    op: str
    value: Any


@dataclass(frozen=True)
class Cond:
    test: Any
    then: Any
    other: Any


@dataclass(frozen=True)
class Where:
    value: Any
    mask: Any


@dataclass(frozen=True)
class Listed:
    items: tuple[Any, ...]


@dataclass(frozen=True)
class Comprehension:
    value: Any
    name: str
    over: Any
    test: Any = None


# ---- statements


@dataclass(frozen=True)
class Draw:
    name: str
    value: Any
    output: Any = None  # None: noise of its own; True: `as output`; an expression: `as output(expression)`
    using: str = ""


@dataclass(frozen=True)
class Assign:
    target: Any
    op: str
    value: Any


@dataclass(frozen=True)
class Grow:
    value: Any
    at: Any = None


@dataclass(frozen=True)
class Draft:
    name: str
    of: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Repeat:
    count: Any
    cond: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class For:
    name: str
    over: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class While:
    test: Any
    body: tuple[Any, ...]


@dataclass(frozen=True)
class If:
    test: Any
    body: tuple[Any, ...]
    other: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Break:
    test: Any = None


@dataclass(frozen=True)
class Verify:
    tree: Any
    rule: Any
    against: Any


@dataclass(frozen=True)
class Commit:
    value: Any


@dataclass(frozen=True)
class Accept:
    value: Any


@dataclass(frozen=True)
class Emit:
    value: Any


@dataclass(frozen=True)
class Canvas:
    name: str
    size: Any


@dataclass(frozen=True)
class Unmask:
    target: Any
    where: Any
    value: Any


@dataclass(frozen=True)
class Noise:
    name: str
    dims: tuple[Any, ...]
    kind: str = "race"


# ---- definitions


@dataclass(frozen=True)
class Param:
    name: str
    type: str
    low: str = ""
    high: str = ""
    default: str = ""

    @property
    def model(self) -> bool:
        return self.type.split(" ")[0] in ("causal", "masked")


@dataclass(frozen=True)
class State:
    name: str
    type: str
    scope: str
    init: Any


@dataclass(frozen=True)
class Refines:
    spec: Any
    mode: str = "distribution"
    greedy: bool = False


@dataclass(frozen=True)
class Keeps:
    models: str


@dataclass(frozen=True)
class Ensures:
    condition: Any


@dataclass(frozen=True)
class Rule:
    name: str
    params: tuple[Param, ...]
    body: tuple[Any, ...]


@dataclass(frozen=True)
class Program:
    """An algorithm with the rules of its file."""

    name: str
    params: tuple[Param, ...]
    claims: tuple[Any, ...]
    states: tuple[State, ...]
    body: tuple[Any, ...]
    rules: tuple[Rule, ...] = field(default=())
