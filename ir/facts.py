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

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, Protocol, TypeGuard

from decgraph.ir.labels import Labels
from decgraph.ir.linear import Condition, Linear
from decgraph.ir.values import Function, Op, Value

Certainty = Literal["own", "drawn", "inside"]
RANK: dict[Certainty, int] = {"inside": 0, "drawn": 1, "own": 2}
NONE: Labels = frozenset()
Face = Literal["shaped", "raw", "logits", "logs", "mass", "scores"]
MASS: tuple[Face, ...] = ("shaped", "raw", "mass")
SCORES: tuple[Face, ...] = ("logits", "logs", "scores")
NOTHING = Linear()


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
    """What the model itself computed for a beginning of the context, and nothing else: all such texts begin later ones, so it
    holds in later versions too.

    `short`: by how many tokens that beginning is shorter than the context (None: not known); `first`: it has the rows of all
    positions from there on; `empty`: it has none."""

    model: str
    version: int
    short: Linear | None = None
    first: Linear = NOTHING
    empty: bool = False

    @property
    def whole(self) -> bool:
        """Whether no row is missing, so that a call on it computes what a call without it does."""
        return not self.empty and self.first == NOTHING


@dataclass(frozen=True)
class Piece(Fact):
    """Tokens of the committed text, from a position up to another one."""

    start: Linear
    end: Linear


@dataclass(frozen=True)
class Size(Fact):
    """A whole number, or the length of a vector: always the same (`fixed`), by so much more than the context's length
    (`beyond`), and no less than a number (`low`); None where that is not known."""

    version: int
    fixed: Linear | None
    beyond: Linear | None
    low: Fraction | None = None

    def of(self, context: Linear) -> Linear | None:
        """The number, where the context has a length."""
        return self.fixed if self.fixed is not None or self.beyond is None else self.beyond + context


@dataclass(frozen=True)
class Row(Fact):
    """A vector over the vocabulary, from the distribution of a model after the context.

    `shaped`: the request's distribution; `raw`: before the request shapes it; `logits`: the model's scores; `logs`: the
    logarithms of `raw`, which are these scores but for one number; `mass`: 0 wherever the distribution is; `scores`: -inf
    wherever the distribution is 0.
    """

    model: str
    version: int
    face: Face = "shaped"


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
    """A column of a tree: its nodes' depths, or a condition that is true at the root, or everywhere."""

    tree: Value
    holds: Literal["depth", "at root", "everywhere"]


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

    `grown`: the trees that this one was grown from, whose nodes have the same numbers in it, and it itself. `inside`: the model
    that gives mass to every edge after the text above it ("": there are no edges; None: there is no such model).
    """

    version: int
    tree: Value
    noises: Labels = NONE
    fault: str = ""
    grown: frozenset[Value] = frozenset()
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
    """A canvas of which every decided cell got a token that the model gave mass to there and then ("": no cell is decided).
    `begun`: the version of the context that its cells come after (-1: another one)."""

    model: str
    begun: int = -1

    def moved(self, old: int, new: int) -> Fact:
        return replace(self, begun=new if self.begun == old else -1)


@dataclass(frozen=True)
class CellRows(Fact):
    """The model's distributions at cells of a canvas, as the request shapes them or before: at positions, or at all (None).
    A pair stands for the positions of which a condition holds. Likewise at nodes `at` of a tree, as the canvas."""

    model: str
    canvas: Value
    at: Value | tuple[Value, Value] | None
    face: Face = "shaped"


@dataclass(frozen=True)
class CellTokens(Fact):
    """Tokens that the model gives mass to at cells of a canvas: one for each of the positions `at`, or for all (None); or at
    nodes, as for `CellRows`. As drafts of a tree they are `drafts`."""

    model: str
    canvas: Value
    at: Value | tuple[Value, Value] | None
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
class Tokens(Fact):
    """The model's own draws after the nodes of a tree, in their order: the root's is the first."""

    model: str
    tree: Value


@dataclass(frozen=True)
class Alone(Fact):
    """A list or vector of one element, of which something is known."""

    of: Fact

    def moved(self, old: int, new: int) -> Fact | None:
        return None


@dataclass(frozen=True)
class Unfit(Fact):
    """Nothing is known of it, and why: what a person should be told where it is committed."""

    why: str


class Numbers(Protocol):
    """What is known of whole numbers and of lengths (check/proof/sizes.py)."""

    context: dict[int, Linear]

    def sum(self, v: Value) -> Linear | None:
        """A number as a sum; of a vector its generic element."""
        ...

    def covers(self, v: Value, n: Linear) -> bool:
        """Whether a vector of whole numbers has 0, ..., n - 1 among its elements."""
        ...

    def below(self, v: Value) -> Linear | None:
        """A number n such that a vector has the elements 0, ..., n - 1."""
        ...

    def empty(self, v: Value) -> bool:
        """Whether a vector has no elements."""
        ...

    def length(self, v: Value) -> Linear:
        """How many elements a vector has."""
        ...

    def proves(self, condition: Condition) -> bool:
        """Whether a condition on numbers follows from what is known here."""
        ...

    def equal(self, a: Linear, b: Linear) -> bool:
        """Whether two numbers are the same."""
        ...

    def is_context(self, start: Linear, end: Linear, version: int) -> bool:
        """Whether a piece of the committed text is all of it."""
        ...


class Known(Protocol):
    """What the rule of an op may ask: the facts of its operands, and where it stands."""

    function: Function
    version: int
    greedy: bool
    producers: dict[Value, Op]

    @property
    def sizes(self) -> Numbers:
        """What is known of whole numbers and of lengths."""
        ...

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

    def normalised(self) -> bool:
        """Whether it may be assumed that a model's scores are the logarithms of its probabilities."""
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

    def run_of(self, op: Op) -> Fact | None:
        """What another algorithm commits that is run, by the judgment on it."""
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
            grown = a.grown & b.grown | {value}
            out = Tree(a.version, value, a.noises | b.noises, a.fault or b.fault, grown, one_model(a.inside, b.inside))
        case Drafts(), Drafts() if not (a.race or b.race):
            out = Drafts(a.noises | b.noises, one=a.one or b.one, after=a.after if a.after == b.after else None)
        case Token(), Token() if (a.model, a.version) == (b.model, b.version):
            out = Token(a.model, a.version, _either(a.how, b.how), a.noises | b.noises)
        case Path(), Path() if (a.model, a.version) == (b.model, b.version):
            out = Path(a.model, a.version, _either(a.how, b.how), a.noises | b.noises)
        case Canvas(), Canvas() if (model := one_model(a.model, b.model)) is not None:
            return Canvas(model, a.begun if a.begun == b.begun else -1)
        case ((Row() | CellRows()), (Row() | CellRows())):
            return one_of(a, b) or arms((a, b), (None, None))
        case Size(), Size() if a.version == b.version:
            fixed = a.fixed if a.fixed == b.fixed else None
            beyond = a.beyond if a.beyond == b.beyond else None
            low = a.low if a.low == b.low else None
            return None if fixed is None and beyond is None and low is None else Size(a.version, fixed, beyond, low)
        case Memory(), Memory() if a.model == b.model and a.version == b.version and a.whole and b.whole:
            return Memory(a.model, a.version)
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


def is_row(x: Fact | None, *faces: Face) -> TypeGuard[Row | CellRows]:
    """Whether a fact is of distributions with one of these faces."""
    return isinstance(x, Row | CellRows) and x.face in faces


def one_of(a: Fact | None, b: Fact | None) -> Fact | None:
    """What is known of a row that is one of two as a whole: scores or their logarithms, which differ by one number. Entry by
    entry this number would tell which is which."""
    if isinstance(a, Row) and is_row(b, "logits", "logs") and a.face in ("logits", "logs") and a != b:
        return replace(a, face="logs") if replace(a, face="logs") == replace(b, face="logs") else None
    return a if isinstance(a, Row) and a == b else None


def arms(xs: Sequence[Fact | None], values: Sequence[object]) -> Fact | None:
    """What is known of a row each entry of which comes from one of two, of which one may be 0, or -inf, throughout."""
    kinds: tuple[tuple[tuple[Face, ...], object, Face], ...] = ((MASS, 0, "mass"), (SCORES, "-inf", "scores"))
    for faces, nothing, face in kinds:
        rows = [replace(x, face=face) for x in xs if is_row(x, *faces)]
        if rows and all(is_row(x, *faces) or value is not None and value == nothing for x, value in zip(xs, values)):
            return rows[0] if rows[0] == rows[-1] else None
    return None


def remembers(k: Known, model: ModelIs, given: Value | None, version: int) -> bool:
    """Whether a call on a memory, on the context or behind it, computes what it would compute without one."""
    memory = k.of(given) if given is not None else None
    same = isinstance(memory, Memory) and memory.model == model.name and memory.version <= version
    return given is None or same and isinstance(memory, Memory) and memory.whole


def points_stay(k: Known, op: Op) -> Fact | None:
    """Point masses are certain, whatever chose them; sampled draws that are chosen among are not draws of what they state."""
    drafts = k.of(op.operands[0]) if op.operands else None
    return drafts if isinstance(drafts, Drafts) and not drafts.noises else None
