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

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx, nn

from decgraph.runtime.models.capture.experts import watched
from decgraph.runtime.models.capture.ops import put
from decgraph.runtime.models.capture.program import CapturedGraph, dtype_of, shape_of
from decgraph.runtime.models.capture.record import Recording
from decgraph.runtime.models.capture.recorder import Sample
from decgraph.runtime.models.capture.running import Calling, Form, running
from decgraph.runtime.models.capture.step import CapturedForward, Part, rows_of
from decgraph.runtime.models.capture.widened import Widened
from decgraph.runtime.models.shards import agreed, ranks_of

FACTOR = 3.0
# Units in the last place by which an error, and a mean error along the result, may exceed the above: in 32 and 64 bits, and
# in 16, where a module's own roundings are few. Norms and rotations are spelt another way than the module's.
# The most that the module's own error, with decgraph's attention and experts, may be: above it, those are at fault.
_MOST = {torch.float64: 1e-9, torch.float32: 1e-3}
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
    chosen: defaultdict[int, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def add(self, other: Exact) -> None:
        """More layers."""
        self.leaving.update(other.leaving)
        self.keys.update(other.keys)
        self.values.update(other.values)
        self.chosen.update(other.chosen)


class Judge:
    """The float64 reference of some runs of a module, computed once, and the verdicts about captured graphs of it."""

    def __init__(self, base: Any, layers: Sequence[nn.Module], runs: Sequence[Run], calling: Calling) -> None:
        self.base, self.layers, self.runs, self.calling = base, layers, list(runs), calling
        self.ranks = ranks_of(base)
        # Ranks of one module take part in every call of it, so they judge the same layers: all.
        judged = _chosen(layers) if self.ranks is None else frozenset(range(len(layers)))
        self.exact = [_exactly(base, layers, run, calling, judged) for run in runs]

    def fault(self, program: CapturedGraph) -> str | None:
        """What is wrong with a captured graph's results, in words; None if nothing is."""
        faults = (fault for run, exact in zip(self.runs, self.exact) for fault in self._faults(program, run, exact))
        if self.ranks is None:
            return next(faults, None)
        return agreed(next(iter(list(faults)), None), self.ranks)

    def _faults(self, program: CapturedGraph, run: Run, exact: Exact) -> Iterator[str]:
        with torch.inference_mode():
            mine, sample, last, chosen = _layerwise(program, run)
        theirs, own = run.recording.states, _Own()
        routed, apart, choices = run.recording.chosen, 0, 0
        if exact.entering is not None:
            yield from own.judge("the states", mine[0], theirs[0], exact.entering, "that enter layer 0")
        for i in sorted(range(len(self.layers)), key=lambda i: i not in exact.leaving):
            new = [
                ("the keys", _new(sample.keys[i], sample), _new(run.after.keys[i], sample)),
                ("the values", _new(sample.values[i], sample), _new(run.after.values[i], sample)),
                ("the states", mine[i + 1], theirs[i + 1]),
            ]
            if i not in exact.leaving and any(own.far(what, ours, their) for what, ours, their in new):
                exact.add(_exactly(self.base, self.layers, run, self.calling, frozenset({i})))
            if i in exact.leaving:
                yield from own.judge(*new[0], _new(exact.keys[i], sample), f"of layer {i}")
                yield from own.judge(*new[1], _new(exact.values[i], sample), f"of layer {i}")
                mixed = [(at, n) for n, (at, _) in enumerate(routed) if at == i]
                alike = _alike(
                    sample.ids.numel(), [routed[n][1] for _, n in mixed], [chosen[n] for _, n in mixed], exact.chosen[i]
                )
                apart, choices = apart + int((~alike).sum()), choices + alike.numel()
                yield from own.judge(*new[2], exact.leaving[i], f"that leave layer {i}", alike.view(sample.ids.shape))
            for written, before in ((sample.keys[i], run.before.keys[i]), (sample.values[i], run.before.values[i])):
                if not torch.equal(_old(written, sample), _old(before, sample)):
                    yield f"rows of layer {i}'s caches that are not new are written to"
        if apart > choices // 4 + 1:
            yield f"{apart} of {choices} tokens go to other experts than the module's"
        assert exact.last is not None
        yield from own.judge("the states", last, run.recording.outputs, exact.last, "after the final norm")


class _Own:
    """The module's own errors so far, by what they are errors of."""

    def __init__(self) -> None:
        self.errors: dict[str, float] = {}

    def judge(
        self, what: str, mine: Tensor, their: Tensor, exact: Tensor, place: str, shown: Tensor | None = None
    ) -> Iterator[str]:
        """The fault of a result, if it is further from the exact one than it may be. shown: bool[B, T], tokens to compare."""
        if mine.numel() != their.numel() or mine.dtype != their.dtype:
            yield f"{what} {place} are {list(mine.shape)} {mine.dtype} where the module has {list(their.shape)} {their.dtype}"
            return
        (size, along), most = _floors(their.dtype), _MOST.get(their.dtype, 1e-1)
        mine, their, exact = (_rows(x.reshape(their.shape), shown) for x in (mine, their, exact))
        if not len(mine):
            return
        error, allowed = _error(mine, exact), min(_error(their, exact), most)
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
        return (
            not _error(_rows(mine.reshape(their.shape)), _rows(their))
            <= 2 * self.errors.get(what, 0.0) + _floors(their.dtype)[0] / 2
        )


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
    """Attention of one layer over float64 copies of its caches, written out: it shares nothing with what is judged."""

    def __init__(self, sample: Sample, exact: Exact, cached: bool) -> None:
        self.sample, self.exact, self.cached, self.layer = sample, exact, cached, -1

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        s, i = self.sample, self.layer
        self.exact.keys[i] = put(s.keys[i].double(), key.double(), s.write)
        self.exact.values[i] = put(s.values[i].double(), value.double(), s.write)
        return self.exact.keys[i], self.exact.values[i]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, form: Form) -> Tensor:
        keys, values = (key.double(), value.double()) if self.cached else self.update(self.layer, key, value)
        groups = query.shape[1] // keys.shape[1]
        keys, values = (x.repeat_interleave(groups, dim=1) for x in (keys, values))
        factor = query.shape[-1] ** -0.5 if form.scaling is None else form.scaling
        scores = query.double() @ keys.transpose(2, 3) * factor
        if form.softcap is not None:
            scores = form.softcap * torch.tanh(scores / form.softcap)
        if form.mask is not None:
            scores = scores + form.mask
        else:
            scores = scores.masked_fill(~self.sample.masks[form.kind], float("-inf"))
        if form.sinks is not None:
            column = form.sinks.double()[None, :, None, None].expand(*scores.shape[:3], 1)
            scores = torch.cat([scores, column], dim=-1)
        out = scores.softmax(-1)[..., : keys.shape[2]] @ values
        return out.transpose(1, 2).contiguous()

    def experts(self, module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The module's own loop over its experts."""
        self.exact.chosen[self.layer].append(chosen)
        made: Tensor = type(module).forward.__wrapped__(module, hidden, chosen, weights)
        return made


def _exactly(base: Any, layers: Sequence[nn.Module], run: Run, calling: Calling, judged: frozenset[int]) -> Exact:
    """The module in float64 with every layer replaced: it returns what was recorded, after it ran, if it is to be judged,
    in float64 from the states that were recorded."""
    exact = Exact()
    attends = _Attending(run.before, exact, calling.cached)

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
        with torch.no_grad(), _replaced(layers, instead), Widened():
            exact.last = calling.call(base, run.before.ids, run.before.positions, _added(run.before.masks))
    finally:
        running.reset(token)
    return exact


def _added(masks: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Masks as terms of scores in float64."""
    return {k: torch.zeros(m.shape, dtype=torch.float64, device=m.device).masked_fill(~m, -1e300) for k, m in masks.items()}


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


def _layerwise(program: CapturedGraph, run: Run) -> tuple[list[Tensor], Sample, Tensor, list[Tensor]]:
    """The captured forward's states between layers, the sample with its caches, its last states, and the chosen experts."""
    step, sample = _Layerwise(program), run.before.copy()
    step.given = run.recording.states
    with watched() as chosen:
        last, _ = step(*sample.inputs())
    return [step.taken[i] for i in range(len(step.given))], sample, last, chosen


def _rows(x: Tensor, shown: Tensor | None = None) -> Tensor:
    """Vectors float64[n, D] of the tokens of a tensor [B, T, ...]; only of those that are shown."""
    wide = x.double().flatten(2)
    return wide.flatten(0, 1) if shown is None else wide[shown]


def _error(x: Tensor, exact: Tensor) -> float:
    """The largest relative error of a vector."""
    return float(((x - exact).norm(dim=-1) / exact.norm(dim=-1).clamp_min(1e-30)).max())


def _stretch(x: Tensor, exact: Tensor) -> float:
    """By how much vectors are too long or too short in the mean."""
    along = ((x - exact) * exact).sum(-1) / (exact * exact).sum(-1).clamp_min(1e-60)
    return abs(float(along.mean()))


def _alike(count: int, module: Sequence[Tensor], mine: Sequence[Tensor], exact: Sequence[Tensor]) -> Tensor:
    """bool[n]: the tokens that go to the same experts in a layer. Two that score alike may change places by a rounding,
    and what follows is then another result, not a worse one."""
    alike = torch.ones(count, dtype=torch.bool)
    for ours, theirs, wide in zip(mine, module, exact, strict=True):
        sets = [x.sort(-1).values for x in (ours, theirs, wide)]
        alike = alike & (sets[0] == sets[1]).all(-1).cpu() & (sets[1] == sets[2]).all(-1).cpu()
    return alike


def _new(cache: Tensor, sample: Sample) -> Tensor:
    """[B, T, H, D] of a cache [B, H, S, D]: the rows that were written."""
    rows = sample.write[:, None, :, None].expand(-1, cache.shape[1], -1, cache.shape[3])
    return cache.gather(2, rows).transpose(1, 2)


def _old(cache: Tensor, sample: Sample) -> Tensor:
    """A cache with the new rows blank."""
    return cache.clone().scatter_(2, sample.write[:, None, :, None].expand(-1, cache.shape[1], -1, cache.shape[3]), 0.0)
