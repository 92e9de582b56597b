"""Models that share another's weights: `target.exit(l)`, `target.skip(set)`, `target.quantized(bits)`, and
Kangaroo's `target.head(adapter(target.upto(l)))`. They are tried when a session is made: before the first run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import SupportsInt, TypeVar

from decgraph.errors import DecError
from decgraph.ir.values import Function, Op, Region, Value
from decgraph.runtime.models.interface import (
    Memory,
    Model,
    OfTarget,
    Path,
    Row,
    Scores,
    check_family,
    check_path,
    check_vocab,
    first_computed,
    unreached,
)
from decgraph.runtime.models.speaking import Speaking


def derive(model: Model, how: str, *args: object) -> Model:
    """A model that shares `model`'s weights, and its family where it reads its memory.

    derive(target, "exit", l)        causal: the first l layers and the head
    derive(target, "skip", layers)   causal: all layers but those
    derive(target, "skip", a, m)     causal: without the attention of the layers `a` and the MLPs of the layers `m`
    derive(target, "parallel", n)    causal: in groups of n layers, whose attentions all read the state that enters the group
    derive(target, "quantized", b)   causal: weights rounded to b bits
    derive(target, "expert", r)      causal: every mixture of experts is the expert of rank r alone, for each token
    derive(target, "upto", l)        layers: the states after the first l layers
    derive(target, "normed", l)      layers: those states after the model's last norm, which are only read
    derive(adapter, "on", inner)     layers: the adapter over those states
    derive(target, "head", inner)    causal: the target's head over those states
    derive(target, "since", l, inner) causal: the target's layers from l on, and its head, over those states or over the
                                     states that a head on its features predicts
    derive(drafter, "speaking", m)   causal: the drafter on the text of m's tokens, over the tokens that both have
    derive(target, "bare", inner)    causal: the target's head without its norm

    `exit`, `skip`, `parallel`, `quantized` and `since` read `memory`, the target's memory, as their own. Raises DecError for
    what the model cannot do and for a layer it does not have.
    """
    match how, args:
        case "upto", (int(layer),):
            return Upto(_with(model, "hidden", how), layer)
        case "normed", (int(layer),):
            return Upto(_with(_with(model, "hidden", how), "normed", how), layer, after_norm=True)
        case "on", (Model() as inner,):
            return Applied(_with(model, "apply", how), _entered(_with(inner, "states", how)))
        case "head", (Model() as inner,):
            return Headed(_with(model, "read_out", how), _entered(_with(inner, "states", how)))
        case "bare", (Model() as inner,):
            return Headed(_with(model, "read_bare", how), _entered(_with(inner, "states", how)), bare=True)
        case "since", (int(layer), Model() as inner):
            return Since(_with(model, "forward_from", how), layer, _with(inner, "states", how))
        case "speaking", (Model() as other,):
            return Speaking(model, other)
        case "skip", (Iterable() as layers,):
            return model.derive(how, _layers(layers), _layers(layers))
        case "skip", (Iterable() as attention, Iterable() as mlp):
            return model.derive(how, _layers(attention), _layers(mlp))
    return model.derive(how, *args)


A = TypeVar("A")


def halves(args: Sequence[A], named: Sequence[str]) -> tuple[A | frozenset[int], ...]:
    """The arguments of `skip`: the layers, or those whose attention and those whose MLP is skipped."""
    if not named:
        return tuple(args)
    given = dict(zip(named, args, strict=True))
    attention, mlp = given.get("attention", ()), given.get("mlp", ())
    assert isinstance(attention, Iterable) and isinstance(mlp, Iterable), "both are sets of layers"
    return _layers(attention), _layers(mlp)


def _layers(numbers: Iterable[SupportsInt]) -> frozenset[int]:
    return frozenset(int(n) for n in numbers)


def _with(model: Model, method: str, how: str) -> Model:
    own = getattr(type(model), method, None)
    if own is None or own is getattr(Model, method, None):  # the interface's own only says that there is none
        raise DecError(f"{model.kind} model {model.name!r} cannot be used in {how}(...)")
    return model


def _entered(inner: Model) -> Model:
    """A layers model whose states enter a layer, as an adapter or a head reads them. Raises DecError for the last states."""
    if isinstance(inner, Upto):
        if inner.after_norm:
            raise DecError(f"no model reads the states of {inner.name}: they have been through the last norm", hint="upto(l)")
        inner.target.check_entered(inner.layer)
    return inner


class _Partial(Model):
    """The common part of the layers models here: their attributes are the target's."""

    def __init__(self, base: Model, name: str) -> None:
        self.kind = "layers"
        self.name, self.vocab, self.context = name, base.vocab, base.context
        self.layers, self.exact, self.family = base.layers, base.exact, base.family

    def hidden_states(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Row]:
        """The state at the end of each path."""
        return [self.states(path, memory)[len(path) - 1] for path in paths]


class Upto(_Partial, OfTarget[Model]):
    """`target.upto(l)`: the states entering layer l; after_norm: those after the last norm, `target.upto(l, norm = yes)`."""

    def __init__(self, target: Model, layer: int, *, after_norm: bool = False) -> None:
        super().__init__(target, f"{target.name}.upto({layer}{', norm = yes' if after_norm else ''})")
        self.target, self.layer, self.after_norm = target, layer, after_norm
        if layer != target.layers:  # the last states are read, but no layer's
            target.check_entered(layer)

    def hidden_states(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Row]:
        """The state at the end of each path after the first `layer` layers, those that the model runs."""
        rows = self.target.hidden_at_ends(paths, self.layer, memory)
        return [self.target.normed(row) for row in rows] if self.after_norm else rows

    def states(self, path: Path, memory: Memory | None = None) -> dict[int, Row]:
        """The state at every position of a path that is computed or in `memory`."""
        return self.target.hidden(path, self.layer, memory)


class Applied(_Partial):
    """`adapter(inner)`: an adapter over the states of another layers model."""

    def __init__(self, adapter: Model, inner: Model) -> None:
        super().__init__(inner, f"{adapter.name}({inner.name})")
        check_vocab(adapter, inner)
        meant, got = getattr(adapter, "exit_layer", None), getattr(inner, "layer", None)
        if meant is not None and meant != got:
            raise DecError(f"{adapter.name!r} was trained on the states after {meant} layers, not after {got}")
        self.adapter, self.inner = adapter, inner

    def states(self, path: Path, memory: Memory | None = None) -> dict[int, Row]:
        """The adapter's state at every position for which `inner` returns one."""
        return self.adapter.apply(self.inner.states(path, memory))


class Headed(OfTarget[Model]):
    """`target.head(inner)`: a causal model that reads the states of a layers model with the target's head. bare: without the
    norm before it."""

    def __init__(self, target: Model, inner: Model, *, bare: bool = False) -> None:
        check_vocab(target, inner)
        self.kind, self.bare = "causal", bare
        self.name, self.vocab, self.context = (
            f"{target.name}.head({inner.name}{', norm = no' if bare else ''})",
            target.vocab,
            target.context,
        )
        self.layers, self.exact, self.family = inner.layers, target.exact, inner.family
        self.target, self.inner, self.engine_module = target, inner, target.engine_module and "exits"

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        # An adapter with a final norm of its own hands on states that have been through it.
        normed = isinstance(self.inner, Applied) and self.inner.adapter.own_norm
        read = self.target.read_bare if self.bare else self.target.read_feature if normed else self.target.read_out
        return [read(self.inner.states(path, memory)[len(path) - 1]) for path in paths]


class Since(OfTarget[Model]):
    """`target.since(l, inner)`: the target's layers from l on, and its head, over the states of a layers model or of a head on
    its features. Positions that `memory` covers keep its keys and values; the states after it are `inner`'s."""

    def __init__(self, target: Model, layer: int, inner: Model) -> None:
        check_vocab(target, inner)
        if layer != target.layers:  # from there on there is the head alone
            target.check_entered(layer)
        self.kind = "causal"
        self.name = f"{target.name}.since({layer}, {inner.name})"
        self.vocab, self.context, self.exact = target.vocab, target.context, target.exact
        self.layers, self.family = target.layers, target.family
        self.target, self.layer, self.inner = target, layer, inner
        self.engine_module = target.engine_module and "exits"

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        return [self._one(path, memory) for path in paths]

    def _one(self, path: Path, memory: Memory | None) -> Scores:
        path = check_path(self, path)
        check_family(self.target, memory)
        if memory is None and self.inner.kind == "features":  # what it is called on where nothing is said
            memory = self.target.memory(path[:-1])
        states = self.inner.states(path, memory)
        fresh = {i: states[i] for i in range(first_computed(path, memory), len(path))}
        return self.target.forward_from(self.layer, fresh, memory)


TRIED = {how: how for how in ("exit", "parallel", "upto", "normed", "head", "bare", "since", "speaking")} | {"adapter": "on"}
"""The derivations that cost nothing to make, by the name that the IR has for them; `quantized` copies the weights."""
LAYERS = ("exit", "skip", "quantized", "upto", "normed", "head", "bare", "parallel", "expert", "since")
"""The derivations that need the layers of a model."""


def check_derivations(function: Function, models: Mapping[str, Model], params: Mapping[str, object]) -> None:
    """Make every derived model of a function whose arguments are known before it runs: parameters and constants.

    Raises DecError for a layer that a model does not have, for layers of a model whose layers decgraph does not reach, and for
    an adapter of other layers. What stands under an `if` may never be made and is left to the run.
    """
    known: dict[Value, object] = {p.value: {**params, **models}.get(p.name) for p in function.params}
    for op in _always(function.body):
        if op.opcode == "const":
            known[op.result] = op.attrs["value"]
        if op.opcode != "model.derive":
            continue
        base, *args = (known.get(value) for value in op.operands)
        how = str(op.attrs["how"])
        try:
            if isinstance(base, Model) and base.unreached is not None and how in LAYERS:
                raise unreached(base.name, f"`{_written(op)}`", base.unreached)
            if how in TRIED and isinstance(base, Model) and all(arg is not None for arg in args):
                known[op.result] = derive(base, TRIED[how], *args)
        except DecError as error:
            text = str(error.diagnostics[0]).removeprefix("error: ")
            raise DecError(f"{function.name}, {op.loc.line}:{op.loc.column}: {text}", hint=error.hint) from error


def _written(op: Op) -> str:
    """A derivation as a program writes it, its arguments left out."""
    how = {"bare": "head", "normed": "upto"}.get(str(op.attrs["how"]), op.attrs["how"])
    return f"{op.operands[0].name}.{how}(...)"


def _always(region: Region) -> Iterator[Op]:
    """The ops of a region and of the loops in it, without those under an `if`."""
    for op in region.ops:
        yield op
        if op.opcode != "if":
            for inner in op.regions:
                yield from _always(inner)
