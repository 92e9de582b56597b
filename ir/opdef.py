"""What an op is: `@op("name")` turns a class of rules into an `OpDef` and registers it.

A missing rule, a missing docstring or a second definition fails at import, and says which op, which rule and which file.
Everything that is known of an op stands in its class, in ir/ops/<topic>.py:

- `type(types, attrs, regions)`: operand types to result types, or `OpError` with a hint. Dimensions carry their static
  bounds.
- `meaning(m, op, *operands)`: what the op computes, in NumPy, over the numbers of `m.num` (float64 or exact rationals);
  `m` is the machine (backends/reference), of which ops use numbers, noise, models and the request only.
- `label(checker, op)`: on which sampled draws its results depend (ir/label_rules.py has the usual rules).
- `batch`: how a batch of sequences runs it: "pointwise", "ragged", "scalar", "region", "host", "barrier".
- `samples`: `(text, expected)`: a line or a few of IR over the operands of tests/lib/ops/operands.py, and the first result of
  the last op as plain data, or `...` where tests/ir/test_ops.py shall only hold it against its type.
- `refusals`: `(operand types, word)`, or `(operand types, word, attributes)`: operands that its type rule refuses, and a word
  of the message or hint; `()` for an op that takes whatever it is given.

What may be left out:

- `attrs`: the names of its static attributes; those that may be left out end in `?`.
- `regions(types, attrs)`: the types of the arguments of each region, for ops that have regions.
- `capacity(sizes, op)`: upper bounds of its results (ir/sizes.py); else lengths are those of the operands.
- `fact(kernel, op)`: what follows of its results for every model, context and request (ir/facts.py); without, nothing.
- `surface`: how a program calls it: `"softmax(scores)"`, or `{"kl(p, q)": {"kind": "kl"}}`, signatures with the attributes that
  they stand for; a parameter that may be left out ends in `?`. Without, dsl/lower has a form of its own for it.
- `exact`: how the exact checker decides it: "same" (the meaning, over rationals), "choice" (splits on a draw), or
  "adversary" (either outcome must do).
- `effects`: "" for pure ops, else "commit", "state", "host", "return", "read".
- `unavailable`: why no backend runs it yet, a clause; its use is an error that names it.
- `looks`: "last" for an op that looks at all that stands along the last dimension of an operand, "all" for one that looks at
  all its elements: such an op tells a tree with more nodes from one with fewer; else "".
- `vocabulary`: True for an op that may read or make whole rows over the vocabulary.

How the torch backend computes an op stands in backends/torch/ops/<topic>.py, the file of the same name
(docs/decisions/0004): the table knows no torch.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from decgraph.ir.types import Dim, Type
from decgraph.ir.values import Constant, Region

BATCHES = ("pointwise", "ragged", "scalar", "region", "host", "barrier")
EXACTS = ("same", "choice", "adversary")
LOOKS = ("", "last", "all")
EFFECTS = ("", "read", "commit", "state", "host", "return")


class OpError(ValueError):
    """Operands that an op does not take; `hint` says what to try."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


Types = Sequence[Type]
Regions = Sequence[Region]
Names = tuple[str, ...]


Attribute = Constant | Type | Dim | Sequence["Attribute"] | Mapping[str, "Attribute"]
"""What an attribute of an op can be: plain data, which has a text (ir/printing.py)."""

_With = TypedDict("_With", {"with": Names})  # a name that the syntax of a class cannot have


class Attrs(_With):
    """The static attributes that ops have, each with its type. An op has those that its row of the table names (the verifier
    sees to it), so that its rules read them without a doubt."""

    args: Names
    axis: int
    bound: int | None
    by_race: bool
    callee: str
    canvas: str
    capacity: int | None
    chain: bool
    column: str
    columns: Names
    count: int | None
    descending: bool
    dim: str
    dims: tuple[Dim, ...]
    draft: str
    drafts: bool
    each: bool
    edge: str
    elem: str
    extern: str
    face: str
    field: str
    fills: str
    filtered: bool
    flatten: bool
    fn: str
    given: bool
    has_at: bool
    has_hi: bool
    has_lo: bool
    has_mask: bool
    has_tree: bool
    has_under: bool
    heads: int
    how: str
    kind: str
    lanes: bool
    limited: bool
    mode: str
    most: int
    name: str
    named: Names
    of: str
    open: bool
    order: str
    over: str
    params: Types
    parent: bool
    part: str
    parts: tuple[Names, ...]
    queries: bool
    ragged: bool
    replace: bool
    returns: Type
    scope: str
    shape: tuple[tuple[int, ...], ...]
    site: str
    state: str
    stops: bool
    tag: str
    text: str
    token: bool
    tree: str
    type: Type
    unread: bool
    until: Names
    value: Constant
    vocab: str
    what: str
    which: str
    whole: bool


TypeRule = Callable[[Types, dict[str, Any], Regions], Types]
RegionRule = Callable[[Types, dict[str, Any]], Sequence[Types]]
Sample = tuple[str, object]
Refusal = tuple[str, str] | tuple[str, str, dict[str, object]]


@dataclass(frozen=True)
class OpDef:
    """One row of the op table; the columns are those of this file's docstring."""

    name: str
    doc: str
    type: TypeRule
    meaning: Callable[..., Sequence[Any]]  # every op has operands of its own types
    label: Callable[..., Any]
    batch: str
    samples: tuple[Sample, ...]
    refusals: tuple[Refusal, ...]
    attrs: tuple[str, ...] = ()
    regions: RegionRule | None = None
    capacity: Callable[..., Any] | None = None
    fact: Callable[..., Any] | None = None
    surface: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    exact: str = "same"
    effects: str = ""
    unavailable: str = ""
    looks: str = ""
    vocabulary: bool = False

    @property
    def pure(self) -> bool:
        return self.effects == ""

    @property
    def required(self) -> tuple[str, ...]:
        """The attributes that must be given."""
        return tuple(a for a in self.attrs if not a.endswith("?"))

    @property
    def topic(self) -> str:
        """The name of the file of ir/ops, and of backends/torch/ops, that it stands in."""
        return self.type.__module__.rpartition(".")[2]


TABLE: dict[str, OpDef] = {}
_REQUIRED = ("type", "meaning", "label", "batch", "samples", "refusals")
_KNOWN = {*OpDef.__dataclass_fields__} - {"name", "doc"}
_SIGNATURE = re.compile(r"[a-z_]\w*\((\w+(, \w+)*(, \w+\?)*)?\)")
_ALLOWED = {"exact": EXACTS, "effects": EFFECTS, "batch": BATCHES, "looks": LOOKS}


def op(name: str) -> Callable[[type], OpDef]:
    """Register the class below as op `name`. Raises TypeError at import when a rule is missing or unknown."""

    def register(cls: type) -> OpDef:
        where = f"op {name} (ir/ops/{cls.__module__.rpartition('.')[2]}.py)"
        rules: dict[str, Any] = {k: getattr(cls, k) for k in vars(cls) if not k.startswith("_")}
        if missing := [k for k in _REQUIRED if k not in rules]:
            raise TypeError(f"{where} lacks: {', '.join(missing)}")
        if unknown := rules.keys() - _KNOWN:
            raise TypeError(f"{where} has {', '.join(sorted(unknown))}, which no op has; an op has {', '.join(sorted(_KNOWN))}")
        if not cls.__doc__ and sys.flags.optimize < 2:  # python -OO leaves docstrings out
            raise TypeError(f"{where} lacks a docstring")
        if not rules["samples"]:
            raise TypeError(f"{where} has no sample")
        if name in TABLE:
            raise TypeError(f"op {name} is defined twice: {TABLE[name].meaning.__module__} and {cls.__module__}")
        for key, legal in _ALLOWED.items():
            if key in rules and rules[key] not in legal:
                raise TypeError(f"{where}: {key} = {rules[key]!r}, expected one of {', '.join(map(repr, legal))}")
        if isinstance(rules.get("surface"), str):
            rules["surface"] = {rules["surface"]: {}}
        for signature in rules.get("surface", ()):
            if not _SIGNATURE.fullmatch(signature):
                raise TypeError(f"{where}: surface {signature!r}, expected a signature such as 'kl(p, q)'")
        TABLE[name] = OpDef(name=name, doc=(cls.__doc__ or "").strip(), **rules)
        return TABLE[name]

    return register
