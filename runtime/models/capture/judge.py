"""Judges a captured forward: is it as near to float64 of its module as the module itself is?

Equality up to a fixed tolerance judges wrongly: trained layers amplify rounding by orders of magnitude that differ from
model to model, and a fault can be smaller than that. So every layer is judged alone, from the states that the module
itself had before it, with keys and values that the module itself wrote; the reference is the same layer's code in float64
(widened.py). An error is the largest over tokens of |x - exact| / |exact|, vectors of one token; the captured layer's may
be `FACTOR` times the module's own plus `FLOOR` units in the last place, for its result and for its new keys and values.
Beside the size of an error its direction counts: rounding has none, while a forgotten scale or epsilon stretches all
vectors alike, which shows in the mean over tokens far below the rounding of 16 bits.

Layers are judged in float64 as far as `BUDGET` parameters go: the first, the last and some between. The others' results
are compared with the module's own, and only where they differ by more than twice an error of those is float64 asked too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, shape_of
from decgraph.runtime.models.capture.record import Recording, Sample, attending, attention_of, running
from decgraph.runtime.models.capture.step import CapturedForward, Part, rows_of
from decgraph.runtime.models.capture.widened import Widened

FACTOR = 3.0
# Units in the last place by which an error, and a mean error along the result, may exceed the above: in 32 and 64 bits, and
# in 16, where a module's own roundings are few. Norms and rotations are spelt another way than the module's.
_FLOOR, _COARSE = (8.0, 2.0), (0.5, 0.15)
BUDGET = 16_000_000  # parameters of the layers that are judged in float64; the first and last are in any case


@dataclass(frozen=True)
class Run:
    """One run of the module: a sample before and after it, and what was recorded."""

    before: Sample
    after: Sample
    recording: Recording


@dataclass
class Exact:
    """What a module computes in float64 for a sample, each layer from the module's own states: the states that enter the
    first layer, those that leave each layer that was judged, its caches, and the last states."""

    entering: Tensor | None = None
    leaving: dict[int, Tensor] = field(default_factory=dict)
    keys: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    last: Tensor | None = None

    def add(self, other: Exact) -> None:
        """More layers."""
        self.leaving.update(other.leaving)
        self.keys.update(other.keys)
        self.values.update(other.values)


class Judge:
    """The float64 reference of some runs of a module, computed once, and the verdicts about captured graphs of it."""

    def __init__(self, base: Any, layers: Sequence[nn.Module], runs: Sequence[Run]) -> None:
        self.base, self.layers, self.runs = base, layers, list(runs)
        self.exact = [_exactly(base, layers, run, _chosen(layers)) for run in runs]

    def fault(self, program: CapturedGraph) -> str | None:
        """What is wrong with a captured graph's results, in words; None if nothing is."""
        return next((fault for run, exact in zip(self.runs, self.exact) for fault in self._faults(program, run, exact)), None)

    def _faults(self, program: CapturedGraph, run: Run, exact: Exact) -> Iterator[str]:
        with torch.inference_mode():
            mine, sample, last = _layerwise(program, run)
        theirs, own = run.recording.states, _Own()
        if exact.entering is not None:
            yield from own.judge("the states", mine[0], theirs[0], exact.entering, "that enter layer 0")
        for i in sorted(range(len(self.layers)), key=lambda i: i not in exact.leaving):
            new = [
                ("the keys", _new(sample.keys[i], sample), _new(run.after.keys[i], sample)),
                ("the values", _new(sample.values[i], sample), _new(run.after.values[i], sample)),
                ("the states", mine[i + 1], theirs[i + 1]),
            ]
            if i not in exact.leaving and any(own.far(what, ours, their) for what, ours, their in new):
                exact.add(_exactly(self.base, self.layers, run, frozenset({i})))
            if i in exact.leaving:
                true = _new(exact.keys[i], sample), _new(exact.values[i], sample), exact.leaving[i]
                for (what, ours, their), wide in zip(new, true, strict=True):
                    yield from own.judge(what, ours, their, wide, f"{'that leave' if what == 'the states' else 'of'} layer {i}")
            for written, before in ((sample.keys[i], run.before.keys[i]), (sample.values[i], run.before.values[i])):
                if not torch.equal(_old(written, sample), _old(before, sample)):
                    yield f"rows of layer {i}'s caches that are not new are written to"
        assert exact.last is not None
        yield from own.judge("the states", last, run.recording.outputs, exact.last, "after the final norm")


class _Own:
    """The module's own errors so far, by what they are errors of."""

    def __init__(self) -> None:
        self.errors: dict[str, float] = {}

    def judge(self, what: str, mine: Tensor, their: Tensor, exact: Tensor, place: str) -> Iterator[str]:
        """The fault of a result, if it is further from the exact one than it may be."""
        if mine.numel() != their.numel() or mine.dtype != their.dtype:
            yield f"{what} {place} are {list(mine.shape)} {mine.dtype} where the module has {list(their.shape)} {their.dtype}"
            return
        mine, exact = mine.reshape(their.shape), exact.reshape(their.shape)
        size, along = _floors(their.dtype)
        error, allowed = _error(mine, exact), _error(their, exact)
        self.errors[what] = max(self.errors.get(what, 0.0), allowed)
        if not error <= FACTOR * allowed + size:
            yield f"{what} {place} are wrong by {error:.1e}, those of the module by {allowed:.1e}"
        along += 3 * max(error, allowed) / exact.numel() ** 0.5  # of a mean of roundings that know nothing of each other
        error, allowed = _stretch(mine, exact), _stretch(their, exact)
        if not error <= FACTOR * allowed + along:
            yield f"{what} {place} are too long or short by {error:.1e}, those of the module by {allowed:.1e}"

    def far(self, what: str, mine: Tensor, their: Tensor) -> bool:
        """Whether a result differs from the module's by more than two results that are both near to the exact one."""
        if mine.numel() != their.numel() or mine.dtype != their.dtype:
            return True
        return not _error(mine.reshape(their.shape), their) <= 2 * self.errors.get(what, 0.0) + _floors(their.dtype)[0] / 2


def _floors(dtype: torch.dtype) -> tuple[float, float]:
    unit = torch.finfo(dtype).eps
    size, along = _FLOOR if unit < 1e-6 else _COARSE
    return unit * size, unit * along


def _chosen(layers: Sequence[nn.Module]) -> frozenset[int]:
    """The first layer, the last, and as many evenly between as the budget allows."""
    count = len(layers)
    each = max(1, sum(p.numel() for p in layers[0].parameters()))
    many = min(count, max(2, BUDGET // each))
    return frozenset(range(count) if many >= count else (round(i * (count - 1) / (many - 1)) for i in range(many)))


class _Attending:
    """Attention of one layer over float64 copies of its caches."""

    def __init__(self, sample: Sample, exact: Exact) -> None:
        self.sample, self.exact, self.layer = sample, exact, -1

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None) -> Tensor:
        from decgraph.runtime.models.capture.ops import put

        s, i = self.sample, self.layer
        keys = put(s.keys[i].double(), key.double(), s.write)
        values = put(s.values[i].double(), value.double(), s.write)
        self.exact.keys[i], self.exact.values[i] = keys, values
        return attention_of(query.double(), keys, values, s.masks[_kind(window)], scaling)


def _kind(window: int | None) -> str:
    return "full_attention" if window is None else "sliding_attention"


def _exactly(base: Any, layers: Sequence[nn.Module], run: Run, judged: frozenset[int]) -> Exact:
    """The module in float64 with every layer replaced: it returns what was recorded, after it ran, if it is to be judged,
    in float64 from the states that were recorded."""
    exact = Exact()
    attends = _Attending(run.before, exact)

    def instead(place: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        args, kwargs, out = run.recording.layers[place]

        def layer(*given: Any, **others: Any) -> Any:
            if place == 0:
                exact.entering = given[0] if given else others["hidden_states"]
            if place in judged:
                attends.layer = place
                made = forward(*args, **kwargs)
                exact.leaving[place] = (made if isinstance(made, Tensor) else made[0]).double()
            return out

        return layer

    token = running.set(attends)
    try:
        with torch.no_grad(), attending(base), _replaced(layers, instead), Widened():
            out = base(input_ids=run.before.ids, position_ids=run.before.positions, use_cache=False)
        exact.last = out.last_hidden_state
    finally:
        running.reset(token)
    return exact


@contextmanager
def _replaced(layers: Sequence[nn.Module], instead: Callable[[int, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """The layers with other forwards; an instance's own one (accelerate sets one) is restored."""
    had = [layer.__dict__.get("forward") for layer in layers]
    for place, layer in enumerate(layers):
        layer.forward = instead(place, layer.forward)
    try:
        yield
    finally:
        for layer, own in zip(layers, had, strict=True):
            if own is None:
                del layer.forward
            else:
                layer.forward = own


class _Layerwise(CapturedForward):
    """The captured forward with every layer's states replaced, before the next layer, by those that the module had."""

    def __init__(self, program: CapturedGraph) -> None:
        super().__init__(program, Part(taps=tuple(range(len(program.kinds) + 1))))
        self.given: Sequence[Tensor] = ()
        self.taken: dict[int, Tensor] = {}

    def exchange(self, place: int, mine: Tensor) -> Tensor:
        self.taken[place] = mine
        return self.given[place].reshape(mine.shape)

    def _adapt(self, program: CapturedGraph) -> None:
        def exchange(place: int, mine: Tensor) -> Tensor:
            return self.exchange(place, mine)

        _, entering = program.output.args[0]
        for place, state in enumerate(entering):
            inner = rows_of(state)
            node: fx.Node = state if inner is None else inner
            with program.graph.inserting_after(node):
                made = program.graph.call_function(exchange, (place, node))
            made.meta.update(op="other:exchange", shape=shape_of(node), dtype=dtype_of(node), layer=node.meta["layer"])
            node.replace_all_uses_with(made, delete_user_cb=lambda user, made=made: user is not made)


def _layerwise(program: CapturedGraph, run: Run) -> tuple[list[Tensor], Sample, Tensor]:
    """The captured forward's states between layers, the sample with its caches, and its last states."""
    step, sample = _Layerwise(program), run.before.copy()
    step.given = run.recording.states
    last, _ = step(*sample.inputs())
    return [step.taken[i] for i in range(len(step.given))], sample, last


def _error(x: Tensor, exact: Tensor) -> float:
    """The largest relative error of a token's vector."""
    x, exact = x.double().flatten(2), exact.double().flatten(2)
    return float(((x - exact).norm(dim=-1) / exact.norm(dim=-1).clamp_min(1e-30)).max())


def _stretch(x: Tensor, exact: Tensor) -> float:
    """By how much vectors are too long or too short in the mean over tokens."""
    x, exact = x.double().flatten(2), exact.double().flatten(2)
    along = ((x - exact) * exact).sum(-1) / (exact * exact).sum(-1).clamp_min(1e-60)
    return abs(float(along.mean()))


def _new(cache: Tensor, sample: Sample) -> Tensor:
    """[B, T, H, D] of a cache [B, H, S, D]: the rows that were written."""
    rows = sample.write[:, None, :, None].expand(-1, cache.shape[1], -1, cache.shape[3])
    return cache.gather(2, rows).transpose(1, 2)


def _old(cache: Tensor, sample: Sample) -> Tensor:
    """A cache with the new rows blank."""
    return cache.clone().scatter_(2, sample.write[:, None, :, None].expand(-1, cache.shape[1], -1, cache.shape[3]), 0.0)
