"""Facts: what a program's text shows of its values, for every vocabulary, model, context, request and carried state.

A fact is data. The rule that gives one stands with its op (`fact`, ir/ops/<topic>.py); check/proof/kernel.py walks a function
with them. Each corresponds to a predicate of the theorems in proof/ (docs/proof.md has the table):

- what is committed is a `Token` or a `Path`: the target's own draws (`own`), or draws of its distribution (`drawn`), or tokens
  that it gives mass to (`inside`);
- what may be tested by a rule is a `Tree` of `Drafts`: draws whose stated distributions are true given all that was read before
  them;
- the evidence of a rule is `Rows`: the request's distribution of a model at the nodes of one tree.

The committed context changes as tokens are committed, so contexts are numbered: a commit begins a new *version*, and a fact
about an earlier one says nothing of what may be committed now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, Protocol

from decgraph.ir.labels import Labels
from decgraph.ir.values import Function, Op, Value

Certainty = Literal["own", "drawn", "inside"]
RANK: dict[Certainty, int] = {"inside": 0, "drawn": 1, "own": 2}
NONE: Labels = frozenset()


@dataclass(frozen=True)
class Fact:
    """What is known of one value."""

    def moved(self, old: int, new: int) -> Fact | None:
        """A fact about the context `old`, where that is the context `new` too; None where it is about another one."""
        version = getattr(self, "version", None)
        if version is None or old == new:
            return self
        return replace(self, version=new) if version == old else None  # type: ignore[call-arg]


@dataclass(frozen=True)
class ModelIs(Fact):
    """The model parameter itself: no derived one, and under no cache policy."""

    name: str


@dataclass(frozen=True)
class Context(Fact):
    """The committed context, or with `parent` the context without its last token."""

    version: int
    parent: bool = False


@dataclass(frozen=True)
class Memory(Fact):
    """What the model computed for the text of the context's parent, untouched."""

    model: str
    version: int


@dataclass(frozen=True)
class Row(Fact):
    """A vector over the vocabulary, from the distribution of a model after the context.

    `shaped`: the request's distribution; `raw`: before the request shapes it; `logits`: its logarithm; `mass`: 0 wherever the
    distribution is; `scores`: -inf wherever the distribution is 0.
    """

    model: str
    version: int
    face: Literal["shaped", "raw", "logits", "mass", "scores"] = "shaped"


@dataclass(frozen=True)
class Rows(Fact):
    """The request's distribution of a model after the nodes of a tree: all of them, or some with the root among them."""

    model: str
    tree: Value
    all: bool = True


@dataclass(frozen=True)
class Nodes(Fact):
    """Nodes of a tree: all, its root, or some with the root among them. Nodes are numbers, the root is 0 in every tree: nodes
    of one tree may be looked up in another, which has a root as well."""

    tree: Value
    version: int
    which: Literal["all", "root", "some"]


@dataclass(frozen=True)
class Column(Fact):
    """A column of a tree: its nodes' depths, or a condition that is true at the root."""

    tree: Value
    holds: Literal["depth", "at root"]


@dataclass(frozen=True)
class Token(Fact):
    """One token: the model's own draw after the context, a draw of its distribution that nothing has read (`noises`), or one
    that it gives mass to."""

    model: str
    version: int
    how: Certainty
    noises: Labels = NONE


@dataclass(frozen=True)
class Drafts(Fact):
    """Draws whose stated distributions are true given all that was read before them; point masses have no noises.

    `race`: draws in the order of a race, of which only the first ones may be taken; `one`: a single one taken of several.
    `after`: a model that gives mass to each of them, after the context of a version.
    """

    noises: Labels
    race: bool = False
    one: bool = False
    after: tuple[str, int] | None = None


@dataclass(frozen=True)
class Tree(Fact):
    """A tree whose root is the context: the noises of its draws, and why what they state may not be true ("": it is).

    `stem`: the tree whose nodes have the same numbers in this one. `inside`: the model that gives mass to every edge after the
    texts above it ("": there are no edges; None: there is no such model).
    """

    version: int
    tree: Value
    noises: Labels = NONE
    fault: str = ""
    stem: Value | None = None
    inside: str | None = None


@dataclass(frozen=True)
class Path(Fact):
    """What a verification accepted, with the token that it emitted."""

    model: str
    version: int
    how: Certainty
    noises: Labels = NONE


@dataclass(frozen=True)
class Canvas(Fact):
    """A canvas of which every decided cell got a token that the model gave mass to there and then ("": no cell is decided)."""

    model: str


@dataclass(frozen=True)
class CellRows(Fact):
    """The model's distributions at cells of a canvas, as the request shapes them or before: at positions, or at all (None).
    Likewise at nodes `at` of the trees with one `stem`, which stands for the canvas."""

    model: str
    canvas: Value
    at: Value | None


@dataclass(frozen=True)
class CellTokens(Fact):
    """Tokens that the model gives mass to at cells of a canvas: one for each of the positions `at`, or for all (None); or at
    nodes, as for `CellRows`. As drafts of a tree they are `drafts`."""

    model: str
    canvas: Value
    at: Value | None
    drafts: Drafts | None = None


@dataclass(frozen=True)
class Picked(Fact):
    """One of the values of a vector, by the best of its keys, largest or smallest; `tokens`: what is known of the vector."""

    of: Value
    keys: tuple[Value | str, ...]
    tokens: CellTokens | None = None


@dataclass(frozen=True)
class CellEdit(Fact):
    """The edit that decides a cell of a canvas with a token that the model gives mass to there."""

    model: str
    canvas: Value
    edit: Value


@dataclass(frozen=True)
class Unfit(Fact):
    """Nothing is known of it, and why: what a person should be told where it is committed."""

    why: str


class Known(Protocol):
    """What the rule of an op may ask: the facts of its operands, and where it stands."""

    function: Function
    version: int
    greedy: bool
    made: dict[Value, Op]

    def of(self, v: Value) -> Fact | None:
        """What is known of a value."""
        ...

    def fresh(self, op: Op, noise: Value) -> bool:
        """Whether nothing but `op` reads a noise."""
        ...

    def is_output(self, v: Value) -> bool:
        """Whether a noise is the `output` stream at the row's own position."""
        ...

    def reads_noise(self, op: Op, noise: Value) -> None:
        """Note that the results of a draw depend on its noise."""
        ...

    def sums_to_one(self, v: Value) -> bool:
        """Whether a value is distributions by what made it: `x ~ q * 0.5` draws from q, and states q / 2."""
        ...

    def low(self, v: Value) -> int | float | Fraction:
        """A number that the value is not below."""
        ...

    def const(self, v: Value) -> object:
        """The value, where it is known; else None."""
        ...

    def tells(self, noises: Labels, *values: Value) -> bool:
        """Whether any of the values depends on one of these draws."""
        ...

    def grows(self, op: Op, drafts: Drafts) -> str:
        """Why sampled draws may not be grown here, or ""."""
        ...

    def walk(self, op: Op) -> Fact:
        """What a verification accepts, by the judgment on its rule."""
        ...


def one_model(a: str | None, b: str | None) -> str | None:
    """The model that is said of two things, where "" is true of any model and None of none."""
    return None if a is None or b is None or a and b and a != b else a or b


def _either(a: Certainty, b: Certainty) -> Certainty:
    """What is certain of a draw that is one of two: own draws and others side by side are only inside the support."""
    return a if a == b else "inside"


def joined(a: Fact | None, b: Fact | None, value: Value, decided_by: Labels) -> Fact | None:
    """What is known of a value that is either `a` or `b`; which of them depends on the draws `decided_by`."""
    if a != b:
        a, b = (x.drafts if isinstance(x, CellTokens) else x for x in (a, b))
    if a is None or b is None:
        return a if isinstance(a, Unfit) else b if isinstance(b, Unfit) else None
    match a, b:
        case _ if a == b:
            out: Fact = a
        case Tree(), Tree() if a.version == b.version:
            stem = a.stem if a.stem is b.stem else value
            out = Tree(a.version, value, a.noises | b.noises, a.fault or b.fault, stem, one_model(a.inside, b.inside))
        case Drafts(), Drafts() if not (a.race or b.race):
            out = Drafts(a.noises | b.noises, one=a.one or b.one, after=a.after if a.after == b.after else None)
        case Token(), Token() if (a.model, a.version) == (b.model, b.version):
            out = Token(a.model, a.version, _either(a.how, b.how), a.noises | b.noises)
        case Path(), Path() if (a.model, a.version) == (b.model, b.version):
            out = Path(a.model, a.version, _either(a.how, b.how), a.noises | b.noises)
        case Canvas(), Canvas() if "" in (a.model, b.model):
            return Canvas(a.model or b.model)
        case Row(), Row() if (a.model, a.version) == (b.model, b.version) and not {a.face, b.face} & {"logits", "scores"}:
            return Row(a.model, a.version, "mass")
        case _:
            return None
    match out:
        case Token(how="drawn") if out.noises & decided_by:
            return Token(out.model, out.version, "inside")
        case Path(how="drawn") if out.noises & decided_by:
            return Unfit("which of two paths is committed depends on what was drawn")
        case Drafts() if out.noises & decided_by:
            return None
    return out


def arms(a: Fact | None, b: Fact | None) -> Fact | None:
    """What is known of a row each entry of which comes from one of two."""
    if not (isinstance(a, Row) and isinstance(b, Row)) or (a.model, a.version) != (b.model, b.version):
        return None
    kinds = [x.face in ("logits", "scores") for x in (a, b)]
    return None if kinds[0] != kinds[1] else Row(a.model, a.version, "scores" if kinds[0] else "mass")


def points_stay(k: Known, op: Op) -> Fact | None:
    """Point masses are certain, whatever chose them; sampled draws that are chosen among are not draws of what they state."""
    drafts = k.of(op.operands[0]) if op.operands else None
    return drafts if isinstance(drafts, Drafts) and not drafts.noises else None
