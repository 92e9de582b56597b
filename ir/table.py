"""The op table: every op once, with all its rules side by side.

`@op("name")` turns a class into an `OpDef` and registers it; a missing rule, a missing docstring or a second definition
fails at import. The columns:

- `type(types, attrs, regions)`: operand types to result types, or `OpError` with a hint. Dimensions carry their static
  bounds, so this is the capacity rule too.
- `meaning(m, op, *operands)`: what the op computes, in NumPy, over the numbers of `m.num` (float64 or exact rationals);
  `m` is the machine (backends/reference), of which ops use numbers, noise, models and the request only.
- `attrs`: the names of its static attributes; those that may be left out end in `?`.
- `regions(types, attrs)`: the types of the arguments of each region, for ops that have regions.
- `exact`: how the exact checker decides it: "same" (the meaning, over rationals), "choice" (splits on a draw), or
  "adversary" (either outcome must do).
- `label`: what the label check does with it (ir/labels.py): "join", "own", "all", "point", "draw", "law", "none", ...
- `batch`: how a batch of sequences runs it: "pointwise", "ragged", "scalar", "region", "host", "barrier".
- `effects`: "" for pure ops, else "commit", "state", "host", "return", "read".

How the torch backend computes an op stands under the op's name in backends/torch/ops/, a file for each file of ir/ops
(docs/decisions/0004): the table knows no torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from decgraph.ir.types import Type
from decgraph.ir.values import Region

LABELS = ("join", "own", "all", "point", "draw", "law", "none", "select", "grow", "keep", "walk", "region", "axiom")
BATCHES = ("pointwise", "ragged", "scalar", "region", "host", "barrier")
EXACTS = ("same", "choice", "adversary")
EFFECTS = ("", "read", "commit", "state", "host", "return")


class OpError(ValueError):
    """Operands that an op does not take; `hint` says what to try."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


TypeRule = Callable[[tuple[Type, ...], dict[str, Any], tuple[Region, ...]], tuple[Type, ...]]

RegionRule = Callable[[tuple[Type, ...], dict[str, Any]], tuple[tuple[Type, ...], ...]]


@dataclass(frozen=True)
class OpDef:
    """One row of the op table."""

    name: str
    doc: str
    type: TypeRule
    meaning: Callable[..., Any]
    label: str
    batch: str
    attrs: tuple[str, ...] = ()
    regions: RegionRule | None = None
    exact: str = "same"
    effects: str = ""
    samples: tuple[Any, ...] = ()

    @property
    def pure(self) -> bool:
        return self.effects == ""

    @property
    def required(self) -> tuple[str, ...]:
        """The attributes that must be given."""
        return tuple(a for a in self.attrs if not a.endswith("?"))


TABLE: dict[str, OpDef] = {}
_REQUIRED = ("type", "meaning", "label", "batch")
_ALLOWED = {"exact": EXACTS, "effects": EFFECTS, "label": LABELS, "batch": BATCHES}


def op(name: str) -> Callable[[type], OpDef]:
    """Register the class below as op `name`. Raises TypeError at import when a rule is missing or unknown."""

    def register(cls: type) -> OpDef:
        rules: dict[str, Any] = {
            k: v.__func__ if isinstance(v, staticmethod) else v for k, v in vars(cls).items() if not k.startswith("_")
        }
        missing = [k for k in _REQUIRED if k not in rules]
        if missing:
            raise TypeError(f"op {name} ({cls.__module__}) lacks: {', '.join(missing)}")
        if not cls.__doc__:
            raise TypeError(f"op {name} ({cls.__module__}) lacks a docstring")
        if name in TABLE:
            raise TypeError(f"op {name} is defined twice: {TABLE[name].meaning.__module__} and {cls.__module__}")
        for key, legal in _ALLOWED.items():
            if key in rules and rules[key] not in legal:
                raise TypeError(f"op {name}: {key} = {rules[key]!r}, expected one of {', '.join(map(repr, legal))}")
        TABLE[name] = OpDef(name=name, doc=cls.__doc__.strip(), **rules)
        return TABLE[name]

    return register


def lookup(name: str) -> OpDef:
    """The row of `name`; OpError with the nearest names otherwise."""
    load()
    if name not in TABLE:
        import difflib

        near = difflib.get_close_matches(name, TABLE, 3)
        raise OpError(f"no op named {name}", f"did you mean {', '.join(near)}?" if near else "")
    return TABLE[name]


def load() -> dict[str, OpDef]:
    """The whole table (imports ir.ops once)."""
    import decgraph.ir.ops  # noqa: F401  (registers)

    return TABLE
