"""The interface of models: a model is a pure function of (memory, cells).

A causal model scores the token after a path; a masked model scores every position of a canvas. Both are pure:
the same arguments yield the same rows, and a row never depends on the other rows of the call. Earlier results
(keys and values by layer and position, hidden states) are a `Memory`, an immutable value that
can be cut, joined and passed as `memory`. Left out, the memory is the exact one.

Two numeric domains share these types. A row of a float model is float64 logits; a row of an exact model
(table and free models, `Model.exact`) is a tuple of fractions that sums to one.

How `memory` is read, for every model here:

- A memory covers positions `0 .. length-1` and caches some of them, per layer. A covered position that is not
  cached was evicted: no position attends to it.
- A causal call computes the path's positions from `memory.length` on (always at least the last), which attend to
  each other and to `memory`. A masked call computes the positions `at`, which attend to each other and to `memory`.
- A fresh position overrides a cached one. Cached rows are used as they are: stale rows stay stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from operator import index
from pathlib import Path as FolderPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

import numpy as np

from decgraph.errors import ContextFullError, DecError
from decgraph.runtime.models.rounding import Bits, bits_of, rounded

if TYPE_CHECKING:
    from decgraph.runtime.models.spelling import Spelling

Kind = Literal["causal", "masked", "features", "heads", "layers", "head"]
Visibility = Literal["causal", "full"] | tuple[Literal["block", "prompt+block", "window"], int]
Number = Fraction | float
Value = Number | bool  # of a head that gives no distribution (reading.py)
Row = Any  # a model's row per layer and position: a hash, an array or a tensor, opaque to others


@dataclass(frozen=True)
class Vocab:
    """A vocabulary: token ids `0 .. size-1` under a name. Models work together only if theirs are equal."""

    name: str
    size: int


class _Mask:
    """The type of `MASK`."""

    _only: _Mask | None = None

    def __new__(cls) -> _Mask:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "MASK"

    def __reduce__(self) -> str:  # pickling and copying return the same object
        return "MASK"


MASK: Final = _Mask()


@dataclass(frozen=True, repr=False)
class SoftCell:
    """A cell that is a mixture of embeddings: `weights[v]` of token v's, `mask` of the mask's (LRD)."""

    weights: tuple[Number, ...]
    mask: Number = 0

    def __repr__(self) -> str:
        """Rounded: what table and free models answer to a mixture hangs on it, and backends add in different orders."""
        return f"Soft({', '.join(f'{float(w) + 0.0:.6f}' for w in (*self.weights, self.mask))})"


Cell = int | _Mask | SoftCell
Path = tuple[int | SoftCell, ...]


def mixture(coordinates: Sequence[Number]) -> Cell:
    """The cell that holds an embedding: weights of the tokens', and last the mask's. All of one token's, or of the mask's, is
    that token, or the mask."""
    *weights, mask = coordinates
    used = [v for v, w in enumerate(weights) if w != 0]
    if not used and mask == 1:
        return MASK
    if len(used) == 1 and weights[used[0]] == 1 and mask == 0:
        return used[0]
    return SoftCell(tuple(weights), mask)


@dataclass(frozen=True, eq=False)
class Scores:
    """One row of a model's output: float64 logits [V], or exact non-negative weights [V] that sum to one.

    Exactly one of the two is set. `-inf` is a legal logit (no mass); NaN and `+inf` are not (`check_scores`).
    """

    logits: np.ndarray | None = None
    weights: tuple[Fraction, ...] | None = None

    def __post_init__(self) -> None:
        if (self.logits is None) == (self.weights is None):
            raise ValueError("a row of scores has logits or weights, not both and not neither")

    @property
    def exact(self) -> bool:
        return self.weights is not None

    @property
    def size(self) -> int:
        """The number of tokens V."""
        return len(self.weights) if self.weights is not None else len(self.logits)  # type: ignore[arg-type]

    def to_float(self) -> Scores:
        """The same row in the float domain; the logits of an exact row are the logarithms of its weights."""
        if self.weights is None:
            return self
        with np.errstate(divide="ignore"):
            return Scores(logits=np.log(np.array([float(w) for w in self.weights])))

    def _key(self) -> tuple[object, ...]:
        return ("exact", self.weights) if self.logits is None else ("float", self.logits.tobytes())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scores) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _frozen(rows: Mapping[int, Row]) -> Mapping[int, Row]:
    return rows if isinstance(rows, MappingProxyType) else MappingProxyType(dict(rows))


def fingerprint(row: Row) -> object:
    """A hashable value that is equal exactly when the rows are bit for bit equal."""
    if isinstance(row, tuple):
        return tuple(fingerprint(part) for part in row)
    if hasattr(row, "detach"):  # a torch tensor, without importing torch
        row = row.detach().cpu().numpy()
    if isinstance(row, np.ndarray):
        return (row.dtype.str, row.shape, row.tobytes())
    return row


def rounded_row(row: Row, bits: Bits) -> Row:
    """Keys and values rounded to 2**bits levels, head by head (the last dimension); of rows that are no numbers another row,
    which names the bits."""
    if isinstance(row, tuple) and row and not isinstance(row[0], str):
        each = bits if isinstance(bits, tuple) else (bits,) * len(row)
        return tuple(rounded_row(part, n) for part, n in zip(row, each, strict=True))
    if isinstance(row, tuple) or not hasattr(row, "dtype"):
        return ("rounded", bits, row)
    assert isinstance(bits, int), "keys and values that are no pair have bits in common"
    return rounded(row, bits)


def mean(rows: Sequence[Row]) -> Row:
    """The mean of keys or values; of rows that are no numbers another row, which names them all."""
    if len(rows) == 1:
        return rows[0]
    if isinstance(rows[0], tuple) and rows[0] and not isinstance(rows[0][0], str):
        return tuple(mean(parts) for parts in zip(*rows, strict=True))
    if isinstance(rows[0], tuple) or not hasattr(rows[0], "dtype"):
        return ("mean", *rows)
    return sum(rows[1:], rows[0]) / len(rows)


@dataclass(frozen=True, eq=False)
class LayerMemory:
    """One layer of a memory: `kv[i]` is position i's key and value row, `states[i]` the state entering."""

    kv: Mapping[int, Row]
    states: Mapping[int, Row]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv", _frozen(self.kv))
        object.__setattr__(self, "states", _frozen(self.states))

    @property
    def positions(self) -> frozenset[int]:
        """The positions whose keys and values are cached."""
        return frozenset(self.kv)

    def only(self, ps: Iterable[int]) -> LayerMemory:
        """The layer restricted to positions `ps`."""
        keep = frozenset(ps)
        return LayerMemory(
            {i: r for i, r in self.kv.items() if i in keep},
            {i: r for i, r in self.states.items() if i in keep},
        )

    def without(self, ps: Iterable[int]) -> LayerMemory:
        """The layer without positions `ps`."""
        return self.only(self.positions.union(self.states) - frozenset(ps))

    def quantized(self, bits: Bits) -> LayerMemory:
        """The layer with its keys and values rounded to so many bits, or each to its own number."""
        return LayerMemory({i: rounded_row(r, bits) for i, r in self.kv.items()}, self.states)

    def merged(self, groups: Iterable[Sequence[int]]) -> LayerMemory:
        """The layer with one row for the positions of a group, in the place of its last: the mean of their keys and values."""
        kv = dict(self.kv)
        for group in groups:
            rows = [kv.pop(i) for i in group if i in kv]
            if rows:
                kv[group[-1]] = mean(rows)
        return LayerMemory(kv, self.states)

    def join(self, other: LayerMemory) -> LayerMemory:
        """Both; where both have a position, `other`'s row."""
        return LayerMemory({**self.kv, **other.kv}, {**self.states, **other.states})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LayerMemory) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return tuple(tuple((i, fingerprint(rows[i])) for i in sorted(rows)) for rows in (self.kv, self.states))


@dataclass(frozen=True, eq=False)
class Memory:
    """A model's cached results: K/V by layer and position, features, and the cells they came from.

    `length` is the number of positions covered; `only` and `without` evict rows and do not change it.
    `features[i]` is the last layer's state at position i (what EAGLE and Medusa heads read). `cells[i]` is
    the cell at i when it was computed. Two memories are equal when every row of theirs is bit for bit equal.
    """

    family: str
    length: int
    layers: tuple[LayerMemory, ...]
    features: Mapping[int, Row] = field(default_factory=dict)
    cells: Mapping[int, Cell] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", _frozen(self.features))
        object.__setattr__(self, "cells", _frozen(self.cells))

    @property
    def positions(self) -> frozenset[int]:
        """The positions cached in any layer."""
        return frozenset(self.cells).union(self.features, *(layer.kv for layer in self.layers))

    def __getitem__(self, layer: int) -> LayerMemory:
        return self.layers[layer]

    def only(self, ps: Iterable[int]) -> Memory:
        """The memory restricted to positions `ps`, in every layer."""
        keep = frozenset(ps)
        return replace(
            self,
            layers=tuple(layer.only(keep) for layer in self.layers),
            features={i: r for i, r in self.features.items() if i in keep},
            cells={i: c for i, c in self.cells.items() if i in keep},
        )

    def without(self, ps: Iterable[int]) -> Memory:
        """The memory without positions `ps`, in every layer."""
        return self.only(self.positions - frozenset(ps))

    def quantized(self, bits: Bits) -> Memory:
        """The memory with its keys and values rounded to so many bits, or each to its own number, in every layer. Raises
        DecError for a number of bits that is none."""
        found = bits_of(bits)
        return replace(self, layers=tuple(layer.quantized(found) for layer in self.layers))

    def merged(self, groups: Iterable[Sequence[int]]) -> Memory:
        """The memory with one row of keys and values for the positions of a group, in every layer."""
        groups = [tuple(group) for group in groups]
        gone = {i for group in groups for i in group[:-1]}
        made = replace(self, layers=tuple(layer.merged(groups) for layer in self.layers))
        return made.only(made.positions - gone)

    def join(self, other: Memory) -> Memory:
        """Both; where both have a position, `other`'s rows. Raises DecError for memories of different
        families."""
        if self.family != other.family or len(self.layers) != len(other.layers):
            raise DecError(f"cannot join memories of {self.family!r} and {other.family!r}: different models made them")
        return Memory(
            self.family,
            max(self.length, other.length),
            tuple(a.join(b) for a, b in zip(self.layers, other.layers, strict=True)),
            {**self.features, **other.features},
            {**self.cells, **other.cells},
        )

    def with_layer(self, index: int, layer: LayerMemory) -> Memory:
        """The same memory with one layer replaced (eviction per layer: `m[l] = m[l].only(ps)`)."""
        layers = list(self.layers)
        layers[index] = layer
        return replace(self, layers=tuple(layers))

    @cached_property
    def _key(self) -> tuple[object, ...]:
        features = tuple((i, fingerprint(self.features[i])) for i in sorted(self.features))
        cells = tuple((i, self.cells[i]) for i in sorted(self.cells))
        return (self.family, self.length, tuple(layer._key() for layer in self.layers), features, cells)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Memory) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class Model:
    """A model. Subclasses set the attributes and implement the calls that their kind has.

    name: for messages. kind: what it can be called as. vocab: its vocabulary. context: the most
    positions it reads, or None. visibility: which positions a position attends to. layers: how many layers of keys
    and values. exact: rows carry fractions. family: models of one family may read each other's memory. mask:
    the mask's token id, if it has one. eos: the tokens that end its texts (None: those in its folder's files). generation:
    its generation settings (None: likewise). shift: whether
    the scores of a position are read from the output one position before it (Dream), see `HFMasked`. home: the folder that it
    was loaded from, or None. unreached: why decgraph cannot read or leave out single layers of it, or None. bounded: why its
    context ends before transformers' does, or "".
    renew: of a model made of a caller's module, gives the model of that module as it is now: itself where nothing has changed.
    engine_module: the file of runtime/models/engine whose `made(model)` gives its engine; "": each call computes whole paths.
    own_norm: of an adapter, whether its states have been through a norm of its own.
    heads_count: of a table model, or of one that is computed position by position, how many heads of its own it has.
    """

    name: str
    kind: Kind
    vocab: Vocab
    context: int | None = None
    visibility: Visibility = "causal"
    layers: int = 1
    exact: bool = False
    family: str
    mask: int | None = None
    eos: frozenset[int] | None = None
    generation: Mapping[str, object] | None = None
    shift: bool = False
    home: FolderPath | None = None
    unreached: DecError | None = None
    bounded: str = ""
    spelling: Spelling | None = None
    renew: Callable[[], Model] | None = None
    own_norm: bool = False
    heads_count: int = 0
    engine_module: str = ""

    def holder(self) -> object:
        """The object that it shares its engine and caches by with other models; by default itself (see sharing.py)."""
        return self

    def target_or_self(self) -> Model:
        """The model that it reads or is derived from; by default itself."""
        return self

    def check_entered(self, layer: int) -> None:
        """Raises DecError for a layer whose entering states the model does not have (`upto`)."""

    def after(self, prompt: int) -> Model:
        """The same model for canvases that begin at position `prompt`; only ("prompt+block", n) models depend on it."""
        return self

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """The scores of the token after each path; a path is the whole context from position 0, never
        empty."""
        raise self._cannot("score the token after a path")

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], memory: Memory | None = None) -> list[Scores]:
        """The scores at the absolute positions `at` of a canvas (prefix tokens included in `cells`).

        With `memory`, only `at` is computed, and attends to itself and to `memory`. Without, everything is
        computed and the rows `at` are returned.
        """
        raise self._cannot("score the positions of a canvas")

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, memory: Memory | None = None) -> Memory:
        """The memory after the call: `memory`, overwritten at the fresh positions (default: all that the call
        computes)."""
        raise self._cannot("give its memory")

    def attention(self, path: Path, memory: Memory | None = None, last: int = 1) -> Sequence[Number]:
        """How much attention each position of a path gets from the last `last` positions that the call computes: the mean of
        the weights over these, the layers and their heads."""
        raise self._cannot("say what it attends to")

    def attention_logits(self, cells: Sequence[Cell], queries: Sequence[int]) -> Sequence[Sequence[Number]]:
        """By layer, for every position of a canvas: the mean over the positions `queries` and the heads of q . k, which
        attention puts through its softmax (`attention_logits.py`)."""
        raise self._cannot("show the queries of its attention")

    def heads(self, path: Path) -> list[Scores]:
        """The scores of the 2nd, 3rd, ... token after `path`, one row per head (Medusa)."""
        raise self._cannot("answer with heads")

    def states(self, path: Path, memory: Row) -> dict[int, Row]:
        """Of a layers model the state at every position of a path that is computed or in `memory`. Of a head on features the
        states that it predicts, at the positions that the target's memory does not cover."""
        raise self._cannot("give hidden states")

    def hidden_states(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Row]:
        """Of a layers model the state at the end of each path."""
        raise self._cannot("give hidden states")

    def hidden(self, path: Path, layer: int, memory: Memory | None = None) -> dict[int, Row]:
        """The state entering a layer at every position of a path that is computed or in `memory`."""
        raise self._cannot("give hidden states")

    def hidden_at_ends(self, paths: Sequence[Path], layer: int, memory: Memory | None = None) -> list[Row]:
        """The state entering a layer at the end of each path."""
        raise self._cannot("give hidden states")

    def normed(self, state: Row) -> Row:
        """A state after the last norm."""
        raise self._cannot("give states after its last norm")

    def read_out(self, state: Row) -> Scores:
        """The scores of a last state."""
        raise self._cannot("read out a hidden state")

    def read_bare(self, state: Row) -> Scores:
        """The scores of a state without the last norm."""
        raise self._cannot("be read without its last norm")

    def read_feature(self, feature: Row) -> Scores:
        """The scores of a state that has been through the last norm."""
        raise self._cannot("read out a hidden state")

    def forward_from(self, layer: int, states: Mapping[int, Row], memory: Memory | None) -> Scores:
        """The scores after the last position of states that enter a layer."""
        raise self._cannot("go on from a layer")

    def apply(self, states: Mapping[int, Row]) -> dict[int, Row]:
        """Of an adapter the state at every position, from the states of the positions up to it."""
        raise self._cannot("adapt hidden states")

    def canvas_states(self, cells: tuple[Cell, ...], at: Sequence[int]) -> list[Row]:
        """The states of which a masked model makes its scores at positions of a canvas, of a call that computes all of it."""
        raise self._cannot("give the states of a canvas")

    def read_state(self, state: np.ndarray) -> Scores:
        """The scores that the model's head reads off a hidden state (hidden.py): float64[width], or one object."""
        raise self._cannot("read out a hidden state")

    def read(self, paths: Sequence[Path]) -> list[Value]:
        """The value after each path, of a head whose output is no distribution (reading.py)."""
        raise self._cannot("be read for a value")

    def derive(self, how: str, *args: object) -> Model:
        """A model that shares this one's weights; see `runtime.models.derive.derive`."""
        raise self._cannot(f"be derived by {how!r}")

    def describe(self) -> str:
        """One or more lines for a counterexample: this model's rows in its calls so far."""
        return f"{self.kind} model {self.name}"

    def _cannot(self, what: str) -> DecError:
        return DecError(f"{self.kind} model {self.name!r} cannot {what}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.kind} V={self.vocab.size}>"


Target = TypeVar("Target", bound=Model)


class OfTarget(Model, Generic[Target]):
    """A model that reads what another one, its target, computes, and whose users share the target's engine and caches."""

    target: Target

    def holder(self) -> object:
        return self.target.holder()

    def target_or_self(self) -> Model:
        return self.target


def sees(visibility: Visibility, position: int, length: int, prompt: int = 0) -> range:
    """The positions among `length` that a position attends to.

    causal: all up to itself. full: all. ("block", n): all up to its block's end, with blocks of n from position 0 (SDAR,
    Fast-dLLM v2). ("prompt+block", n): the `prompt` is one block, and blocks of n begin behind it (D2F). ("window", n): the
    last n positions attend to all, those before are causal (SDLM).
    """
    if visibility == "causal":
        return range(position + 1)
    if visibility == "full":
        return range(length)
    kind, n = visibility
    if kind == "window":
        return range(length if position >= length - n else position + 1)
    first = prompt if kind == "prompt+block" else 0
    return range(min(length, first if position < first else first + ((position - first) // n + 1) * n))


def first_computed(path: Sequence[Cell], memory: Memory | None) -> int:
    """The first position that a causal call computes: the first that its memory does not cover, at the latest the last."""
    return 0 if memory is None else min(memory.length, len(path) - 1)


def check_vocab(a: Model, b: Model) -> None:
    """Raises DecError unless the two models have the same vocabulary."""
    if a.vocab != b.vocab:
        raise DecError(
            f"{a.name!r} and {b.name!r} speak different vocabularies: "
            f"{a.vocab.name} with {a.vocab.size} tokens, {b.vocab.name} with {b.vocab.size}"
        )


def folder_of(model: Model) -> FolderPath | None:
    """The folder or file that a model was loaded from, by its family; None for a model of another origin."""
    at = FolderPath(model.family)
    return at if at.is_absolute() else None  # another family's name may be that of a folder that is there


def shortest_context(models: Mapping[str, Model]) -> str:
    """What the shortest context length of a program's models is called in messages: "the context length of `drafter`" where it
    is another model's than the first one's."""
    lengths = {name: model.context for name, model in models.items() if model.context is not None}
    name = min(lengths, key=lambda one: lengths[one], default="")  # of equals the first
    return "the context length" + (f" of `{name}`" if name and name != next(iter(models)) else "")


def bounded_by(models: Iterable[Model]) -> str:
    """Why the context of models, the shortest one of theirs, ends before transformers' does, or ""."""
    windows = [model for model in models if model.context is not None]
    return min(windows, key=lambda model: model.context or 0).bounded if windows else ""


def check_family(model: Model, memory: Memory | None) -> None:
    """Raises DecError unless `model` may read `memory`."""
    if memory is not None and (memory.family != model.family or len(memory.layers) != model.layers):
        raise DecError(f"{model.name!r} cannot read the memory of {memory.family!r}: they do not share keys and values")


def check_cells(model: Model, cells: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells as a tuple in which every token is an `int`, whatever kind of whole number it came as.

    Raises DecError for an empty or over-long context, or for a token outside the vocabulary.
    """
    if not cells:
        raise DecError(f"{model.name!r} needs at least one token of context")
    if model.context is not None and len(cells) > model.context:
        raise ContextFullError(f"{len(cells)} positions are past the context length of {model.name!r} ({model.context})")
    size, same = model.vocab.size, isinstance(cells, tuple)
    for i, cell in enumerate(cells):
        if isinstance(cell, (_Mask, SoftCell)):  # several times faster than a union type here
            if model.kind != "masked" and not (model.kind == "causal" and isinstance(cell, SoftCell)):
                raise DecError(f"{model.name!r} is causal: position {i} must hold a token, not {cell!r}")
        elif not 0 <= cell < size:
            raise DecError(f"token {cell} at position {i} is not in the vocabulary of {model.name!r}, which has {size} tokens")
        elif type(cell) is not int:
            same = False  # a NumPy integer: equal to an int, but written and hashed into free models otherwise
    if same:
        return cells  # type: ignore[return-value]  # it is a tuple, see above
    return tuple(c if isinstance(c, (_Mask, SoftCell)) else index(c) for c in cells)


def check_path(model: Model, path: Sequence[Cell]) -> Path:
    """`check_cells` of a model that reads tokens only."""
    return check_cells(model, path)  # type: ignore[return-value]  # such a model's cells are all tokens


def check_size(name: str, size: int, wanted: int) -> None:
    """Raises DecError unless a row of scores has one for every token of the vocabulary."""
    if size != wanted:
        raise DecError(f"{name!r} gave rows of {size} scores for a vocabulary of {wanted} tokens")


def check_scores(model: Model, position: int | None, logits: np.ndarray) -> None:
    """Raises DecError naming the model and the position if logits hold NaN or +inf, or nothing but -inf."""
    if np.isnan(logits).any() or np.isposinf(logits).any() or not np.isfinite(logits).any():
        where = "" if position is None else f" at position {position}"
        raise DecError(f"{model.name!r} gave logits that are not numbers{where}")


def unreached(name: str, what: str, reason: DecError) -> DecError:
    """The error for something (`what`) that needs the layers of a model which decgraph runs as a whole."""
    why = str(reason.diagnostics[0]).removeprefix("error: ")
    return DecError(
        f"{what} needs the layers of {name!r}, which decgraph runs as a whole: {why}",
        hint="an algorithm that calls the whole model (prompt_lookup), or one with a drafter of its own (speculative)",
    )
