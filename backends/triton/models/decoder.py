"""Loaded causal models: the decoder (runtime/models/decoder) over keys and values by slot.

Keys and values of layers of one size are one pool [n, H, rows, D]. What attention's kernel has no form of (sinks, windows to
both sides, a module of transformers that the decoder has no entry for and that runs as it is) runs over masks of all slots,
where the pages of each lane are its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from decgraph.backends.triton.kernels.attend import attend
from decgraph.backends.triton.models.interface import Chunk, DeviceModel, Seen, put, put_heads
from decgraph.backends.triton.pages import PagedTensor, Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.ir.memo import memo_of
from decgraph.runtime.models.decoder.decoder import Cache, DecoderPart, Out, Rotation, TransformerDecoder
from decgraph.runtime.models.decoder.layers import step_of_layers
from decgraph.runtime.models.decoder.module import ModuleDecoder
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import Layer
from decgraph.runtime.models.decoder.states import is_recurrent
from decgraph.runtime.models.derive import Applied, Headed, Upto
from decgraph.runtime.models.engine.exits import adapted_head, normed
from decgraph.runtime.models.engine.nets import net_of
from decgraph.runtime.models.heads.base import DraftLayers
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.hf_heads import HFAdapter
from decgraph.runtime.models.hf_live import LiveModel
from decgraph.runtime.models.hf_soft_prompts import SoftPrompted
from decgraph.runtime.models.interface import Model

Stage = TransformerDecoder | ModuleDecoder
"""A decoder over slots, or a module of transformers that runs as it is."""


@dataclass
class Sight:
    """What new tokens see in one forward. positions, slots: int64[B, T]; slot_positions: int64[B, S], of what the slots hold;
    table: int32[B, N], see `attend`. both: whether windows reach to both sides."""

    seen: Seen
    positions: Tensor
    slots: Tensor
    slot_positions: Tensor
    table: Tensor
    memory: Callable[[Tensor], Tensor]
    """Keys or values [H, rows, D] as [B, H, S, D], where each lane has pages of its own."""
    both: bool = False
    of_chunk: Sight | None = None
    """What the tokens of a chunk see, that come behind the others in one row of them all."""
    _masks: dict[int | tuple[int | None, int] | None, Tensor] = field(default_factory=dict)

    def each(self, attended: Callable[..., Tensor], *parts: Tensor | None) -> Tensor:
        """What `attended` makes of a sight and of parts [B, T, ...] of its tokens; of a chunk's, which stand behind them in one
        row [1, B T + C, ...], by itself."""
        if self.of_chunk is None:
            return attended(self, *parts)
        b, t = self.positions.shape
        own = (None if a is None else a[:, : b * t].reshape(b, t, *a.shape[2:]) for a in parts)
        behind = (None if a is None else a[:, b * t :] for a in parts)
        return torch.cat([attended(replace(self, of_chunk=None), *own), attended(self.of_chunk, *behind)])

    def prepared(self, window: int | None, groups: int, make: Callable[[Tensor, int], Tensor]) -> Tensor:
        """The mask as a decoder adds it to the scores of so many queries a head of keys, made once a forward.
        made for [B, T] new tokens."""
        key = window, groups
        if key not in self._masks:
            self._masks[key] = make(self.mask(window), self.positions.shape[1])
        return self._masks[key]

    def mask(self, window: int | None) -> Tensor:
        """bool[B, 1, T, S], computed once a forward."""
        made = self._masks.get(window)
        if made is None:
            made = self.seen.dense(self.slot_positions.shape[1])
            if window is not None:
                back = self.positions[..., None] - self.slot_positions[:, None]
                made = made & ((back.abs() if self.both else back) < window)
            made = self._masks[window] = made[:, None]
        return made


class SlotDecoder(TransformerDecoder):
    """A decoder whose attention is over slots: `masks` maps every kind of layer to the same `Sight`; keys and values are
    [H, rows, D]. Unlike a decoder's, results are ordinary tensors, and nothing is read on the host. Without gradients only."""

    def __init__(self, whole: TransformerDecoder, part: DecoderPart | None = None) -> None:
        # A graph records torch's operations, so products are torch's, each one launch.
        each = {name: p.side_by_side() if uses_kernels(whole) else p for name, p in whole.products.items()}
        products = {name: p.by_torch() for name, p in each.items()}
        super().__init__(whole.shape, whole.weights, products, whole.ropes, part or whole.part)
        self.gathers = True
        self._last = None if self.part.norm else products.get(f"{self._end - 1}.down")
        shape, named = self.shape, self.weights
        self.kernel = uses_kernels(self) and not self._two and not any(name.endswith(".sinks") for name in named)
        halves = shape.latent is None and not shape.pairs and not shape.rotary_at and shape.stretch is None
        self.fused = self.kernel and halves and not shape.late_norms

    def __call__(
        self, ids: Tensor, positions: Tensor, write: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor],
        masks: Mapping[Any, Any],
    ) -> Out:  # fmt: skip
        """See `TransformerDecoder`; write: int64[B, T], slots."""
        size, table = (positions.shape[0], positions.shape[1]), self.weights.get("positions")
        # Lanes that are over may have positions for which nothing was learned.
        within = positions if table is None else positions.clamp(0, len(table) - self.shape.position_offset - 1)
        x = ids.reshape(size[0] * size[1], -1) if self.part.embedded else self.embedded(ids, within)
        return self._layers(x, size, self.rotations(positions), write, keys, values, masks)

    def _like(self, part: DecoderPart) -> Self:
        return type(self)(self, part)

    def paged(self, both: bool) -> bool:
        """Whether no layer needs a mask over all slots of a lane. both: whether windows reach to both sides."""
        return self.kernel and not (both and any(self.windows))

    def _branch(self, norm: str, x: Tensor, product: Product, y: Tensor) -> Tensor:
        # `addmm` copies x on a device before it adds to it; a sum is fused with the norm that follows, where one does.
        if product is self._last:
            return super()._branch(norm, x, product, y)
        return self._added(x, self._norm(norm, product(y)))

    def _attended(
        self, n: int, layer: Layer, x: Tensor, size: tuple[int, int], rotation: Rotation | None, cache: Cache
    ) -> Tensor:
        rows, keys, values, _ = cache
        sight = cast(Sight, cache[3])
        if not self.fused or (sight.both and layer.window is not None):
            q, k, v = self._heads(f"{n}.", x, size, rotation)
            put_heads(keys, rows, k.transpose(1, 2))
            put_heads(values, rows, v.transpose(1, 2))
            return self._attention(n, layer, q, keys, values, sight)
        turn = (None, None) if rotation is None else [part.squeeze(2) for part in rotation]

        def attended(sight: Sight, q: Tensor, k: Tensor, v: Tensor, *turn: Tensor | None) -> Tensor:
            heads = (part.transpose(1, 2) for part in (q, k, v))
            return self._kernel(layer, keys, values, sight, *heads, sight.slots, *turn)

        return sight.each(attended, *self._heads(f"{n}.", x, size, None), *turn)

    def _attention(self, n: int, layer: Layer, q: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
        def attended(sight: Sight, q: Tensor) -> Tensor:
            if self.kernel and not (sight.both and layer.window is not None):
                return self._kernel(layer, keys, values, sight, q.transpose(1, 2))
            seen = sight.prepared(layer.window, self._groups, self._prepared)
            return super(SlotDecoder, self)._attention(n, layer, q, sight.memory(keys), sight.memory(values), seen)

        return cast(Sight, mask).each(attended, q)

    def _kernel(self, layer: Layer, keys: Tensor, values: Tensor, sight: Sight, q: Tensor, *new: Tensor | None) -> Tensor:
        """The attention's output [B T, heads D] of queries [B, heads, T, D]. new: what has no slots yet, see `attend`."""
        places = (None, None) if layer.window is None else (sight.positions, sight.slot_positions)
        how = layer.scale or self._scale, layer.window, *places, self.shape.cap
        made: Tensor = attend(q, keys, values, sight.table, *sight.seen, *how, *new)
        return made.transpose(1, 2).reshape(q.shape[0] * q.shape[2], -1)


def uses_kernels(decoder: TransformerDecoder) -> bool:
    """Whether attention and rotation are the kernels', or on a CPU their torch forms, which read only what is seen; else they
    are torch's over masks of all slots."""
    return decoder.device.type == "cpu" or decoder.dtype.itemsize <= 4


@dataclass(frozen=True)
class Weights:
    """A model's forward. stages: decoders, each on the states of the one before it. head: last states [..., width] to logits
    [..., V or more]. guesses: heads of its own, states [B, R, width] to one tensor a head, logits where `own_output`."""

    stages: tuple[Stage, ...]
    head: Callable[[Tensor], Tensor]
    guesses: nn.Module | None = None

    @property
    def last(self) -> Stage:
        """The decoder whose states are the model's."""
        return self.stages[-1]


class CausalModel(DeviceModel):
    """A `DeviceModel` of some weights. both: whether windows reach to both sides."""

    both = False

    def __init__(self, model: Model, weights: Weights, pages: Pages) -> None:
        super().__init__(model, pages)
        self.last: PagedTensor | None = None
        self.weights, self.width, self.dtype = weights, int(weights.last.width), weights.last.dtype
        sizes = [(heads, size) for of in (1, 2) for stage in weights.stages for heads, size in _sizes(stage, of)]
        pools = {
            size: self.pool(size[1], dtype=self.dtype, before=(sizes.count(size), size[0])) for size in dict.fromkeys(sizes)
        }
        self._caches = [(pools[size], sizes[:n].count(size)) for n, size in enumerate(sizes)]
        self.taps: dict[int, PagedTensor] = {}
        self._steps: list[Stage] = list(weights.stages)
        self.windowed = any(window is not None for stage in weights.stages for window in stage.windows)
        self.positioned = [self.slot_positions] if self.windowed else []
        self.paged = all(isinstance(stage, SlotDecoder) and stage.paged(self.both) for stage in weights.stages)

    @property
    def keys(self) -> list[Tensor]:
        """By layer, [H, rows, D]."""
        return [pool.layers[n] for pool, n in self._caches[: len(self._caches) // 2]]

    @property
    def values(self) -> list[Tensor]:
        """By layer, [H, rows, D]."""
        return [pool.layers[n] for pool, n in self._caches[len(self._caches) // 2 :]]

    def keep_states(self, layers: Sequence[int] = ()) -> None:
        """See `DeviceModel`. layers: whose entering states are kept too, in `taps`."""
        if self.last is None:
            self.last = self.pool(self.width, dtype=self.dtype)
        fresh = [n for n in layers if n not in self.taps and n != self.layers]
        self.taps |= {n: self.pool(self.width, dtype=self.dtype) for n in fresh}
        if fresh:
            self._steps[0] = self.weights.stages[0].tapped(*self.taps)

    def stored_states(self, layers: Sequence[int] | None, slots: Tensor, lanes: slice = slice(None)) -> Tensor:
        """The kept states [b, R, n width] of layers side by side at slots int64[b, R]; None: the last ones."""
        states = [self.last if n == self.layers else self.taps[n] for n in ((self.layers,) if layers is None else layers)]
        return torch.cat([self.stored(made, slots, lanes) for made in states if made is not None], -1)

    def fill_part(self, tokens: Tensor, at: Tensor, first: int, lanes: slice) -> None:
        if self.following:
            self.adopt(at, at, lanes)
        else:
            self.run(tokens, at, at, Seen(at + 1), lanes, first + at.shape[1])

    def compute(
        self, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen, parents: Tensor | None, known: Tensor | None
    ) -> Tensor:
        return self.run(tokens, positions, self.followed(positions, slots, known), seen)

    @property
    def takes_chunks(self) -> bool:  # type: ignore[override]
        """Heads and what is derived read the states of other models, which have to be there."""
        return type(self) is CausalModel and self.paged and not self.following

    def compute_with_chunk(self, chunk: Chunk, tokens: Tensor, positions: Tensor, slots: Tensor, seen: Seen) -> Tensor:
        return self._run(tokens, positions, slots, seen, chunk=chunk)

    @property
    def followed_model(self) -> CausalModel:
        """The model whose keys and values are copied."""
        assert isinstance(self.origin, CausalModel)
        return self.origin

    def follow(self) -> None:
        """See `DeviceModel`. Raises NotSteppable for a model that is not made of layers of the other one's."""
        super().follow()
        origin = self.followed_model
        places = {use.layer: n for n, use in enumerate(use for use in origin.weights.last.uses if use.attention)}
        used = [use.layer for use in self.weights.last.uses if use.attention]
        if len(self.weights.stages) + len(origin.weights.stages) > 2 or not set(used) <= set(places):
            raise NotSteppable(f"{self.name!r} has other keys and values than {origin.name!r}")
        self._places = [places[layer] for layer in used]

    def followed(self, positions: Tensor, slots: Tensor, known: Tensor | None) -> Tensor:
        """The slots int64[B, T] that tokens write to. Those of positions below `known` are copied from the model that this one
        follows, if it does, and written nowhere."""
        if not self.following:
            return slots
        if known is None:
            raise NotSteppable(f"{self.name!r} is called on a memory of {self.followed_model.name!r}, and without one")
        theirs = positions < known[:, None]
        self.adopt(slots, torch.where(theirs, slots, self.capacity - 1))
        return torch.where(theirs, self.capacity - 1, slots)

    def adopt(self, source: Tensor, dest: Tensor, lanes: slice = slice(None)) -> None:
        """Copies keys and values of the model that this one follows, from slots int64[b, K] to slots."""
        origin = self.followed_model
        self.placed(dest, origin.slot_positions[lanes].gather(1, source), lanes)
        here, there = (self.pages.at(at, lanes).flatten() for at in (source, dest))
        for mine, theirs in ((self.keys, origin.keys), (self.values, origin.values)):
            for made, place in zip(mine, self._places, strict=True):
                made.index_copy_(1, there, theirs[place].index_select(1, here))

    def run(
        self, x: Tensor, positions: Tensor, slots: Tensor, seen: Seen, lanes: slice = slice(None), room: int | None = None
    ) -> Tensor:
        """The last states [b, T, W] of some lanes' tokens int64[b, T], or of states [b, T, ...] that enter the first layer.
        room: only as many slots are looked at."""
        return self._run(x, positions, slots, seen, lanes, room)

    def _run(
        self, x: Tensor, positions: Tensor, slots: Tensor, seen: Seen, lanes: slice = slice(None), room: int | None = None,
        chunk: Chunk | None = None,
    ) -> Tensor:  # fmt: skip
        """`run`, with a chunk of a prompt in the same forward."""
        at, rows, used, size = self.slot_positions[lanes], self.pages.at(slots, lanes), 0, x.shape[:2]
        self.placed(slots, positions, lanes)

        def memory(pool: Tensor) -> Tensor:
            return self.pages.whole(pool)[lanes, :, :room]

        sight = Sight(seen, positions, slots, at[:, :room], self.pages.table[lanes], memory, self.both)
        if chunk is not None:
            sight.of_chunk = self._sight_of(chunk, memory)
            others = chunk.tokens, chunk.at, self.pages.rows[chunk.lane].gather(1, chunk.at)
            x, positions, rows = (
                torch.cat([a.reshape(1, -1), b], 1) for a, b in zip((x, positions, rows), others, strict=True)
            )
        every = self.keys, self.values
        for step in self._steps:
            n = len(step.kinds)
            keys, values = (kept[used : used + n] for kept in every)
            used += n
            if isinstance(step, SlotDecoder):
                masks: dict[Any, Any] = dict.fromkeys(step.kinds, sight)
                out = step(x, positions, rows, keys, values, masks)
            else:  # a module's masks are by kind of layer; one kind has one window
                masks = {kind: sight.mask(window) for kind, window in zip(step.kinds, step.windows, strict=True)}
                if self.model.context is not None:  # lanes that are over may ask for positions that no table has
                    positions = positions.clamp(0, self.model.context - 1)
                out = step(x, positions, slots, [*map(memory, keys)], [*map(memory, values)], masks)
            if not isinstance(out, tuple):
                x = out
            else:
                x, tapped = out
                for made, states in zip(self.taps.values(), tapped, strict=True):
                    put(made, rows, states)
        if self.last is not None:
            put(self.last, rows, x)
        return x if chunk is None else x[0, : size.numel()].view(*size, -1)

    def _sight_of(self, chunk: Chunk, memory: Callable[[Tensor], Tensor]) -> Sight:
        """What the tokens of a chunk see."""
        below = torch.where(chunk.at < self.capacity - 1, chunk.at + 1, 0)
        places, table = self.slot_positions[chunk.lane], self.pages.table[chunk.lane]
        return Sight(Seen(below), chunk.at, chunk.at, places, table, memory)

    @torch.no_grad()
    def read(self, states: Tensor) -> Tensor:
        return self.weights.head(states)[..., : self.vocab_size]

    @torch.no_grad()
    def heads(self, states: Tensor) -> Tensor:
        if self.weights.guesses is None:
            return super().heads(states)
        made = torch.stack(self.weights.guesses(states), 2)
        return made[..., : self.vocab_size] if self.weights.guesses.own_output else self.read(made)


def _sizes(stage: Stage, part: int) -> list[tuple[int, int]]:
    """Heads and numbers of each layer's keys (1) or values (2)."""
    return [(shape[0], shape[part]) for shape in stage.caches]


def weights_of(model: Model) -> Weights:
    """The weights of a loaded causal model, or of one that is derived from it. Raises NotSteppable for others, and DecError
    for a module that cannot be run over caches."""
    match model:
        case SoftPrompted():
            raise NotSteppable(f"{model.name!r} reads a soft prompt before every text")
        case LiveModel() if is_recurrent(model.module):
            raise NotSteppable(f"{model.name!r} has recurrent layers, whose states are no slots")
        case LiveModel() if model.boundary is not None:
            raise NotSteppable(f"{model.name!r} has rotary frequencies that change where a text grows past a length")
        case HFCausal() if model.net.decoder.recurrent:
            raise NotSteppable(f"{model.name!r} has recurrent layers, whose states are no slots")
        case HFCausal(attached=heads) if heads is not None:
            return replace(of_net(net_of(model), model.name), guesses=heads.module)
        case HFCausal() | LiveModel():
            return of_net(net_of(model), model.name)
        case Headed(target=HFCausal() as target, inner=inner) if not target.net.decoder.recurrent:
            return _headed(model, target, inner)
    raise NotSteppable(f"{model.name!r} is a {type(model).__name__}, which has no step")


def _headed(model: Headed, target: HFCausal, inner: Model) -> Weights:
    """`target.head(inner)`, of the states of lower layers or of an adapter over them."""
    read = target.net.head if model.bare else normed(target.net)
    if isinstance(inner, Applied) and isinstance(inner.adapter, HFAdapter) and not model.bare:
        read = adapted_head(target.net, inner.adapter.module)
    return Weights(lower(model.name, target, inner), read)


def lower(name: str, target: HFCausal, inner: Model) -> tuple[Stage, ...]:
    """The decoders of a layers model: of the target's lower layers, and of an adapter over them. Raises NotSteppable for
    others."""
    above: tuple[Stage, ...] = ()
    if isinstance(inner, Applied) and isinstance(inner.adapter, HFAdapter):
        above, inner = (layers_of(inner.adapter.module, name),), inner.inner
    if not isinstance(inner, Upto) or inner.target is not target or inner.after_norm:
        raise NotSteppable(f"{name!r} reads states of another kind than those that leave its own layers")
    uses = [use for use in target.net.decoder.uses if use.layer < inner.layer]
    return (*of_net(target.net.using(uses).without_norm(), name).stages, *above)


def of_net(net: Net, name: str) -> Weights:
    """A net's decoder over slots; models that share a net share it. Raises NotSteppable for a module whose code reads values
    on the host."""

    def build() -> Weights:
        if isinstance(net.decoder, ModuleDecoder):
            _silent(net.decoder.probed(), name)
            return Weights((net.decoder,), net.read)
        return Weights((SlotDecoder(net.decoder),), net.read)

    return memo_of(net).once("slot decoder", build)


def layers_of(module: object, name: str) -> SlotDecoder:
    """The layers of a head, on states [B, T, width]. Raises NotSteppable where the decoder does not know them."""
    made = step_of_layers(cast("DraftLayers", module))
    if not isinstance(made, TransformerDecoder):
        raise NotSteppable(f"{name!r} has layers that the decoder does not know")
    return SlotDecoder(made)


@torch.no_grad()
def _silent(step: ModuleDecoder, name: str) -> None:
    """Raises NotSteppable for a module whose code reads values on the host, or fails: tried with tensors that have none."""
    keys, values = (
        [torch.zeros(2, heads, 4, size, dtype=step.dtype, device=step.device) for heads, size in _sizes(step, part)]
        for part in (1, 2)
    )
    cell = torch.zeros((2, 1), dtype=torch.int64, device=step.device)
    mask = torch.ones((2, 1, 1, 4), dtype=torch.bool, device=step.device)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            keys, values = ([mode.from_tensor(made) for made in kept] for kept in (keys, values))
            cell, mask = mode.from_tensor(cell), mode.from_tensor(mask)
            step(cell, cell, cell, keys, values, dict.fromkeys(step.kinds, mask))
    except (DataDependentOutputException, DynamicOutputShapeException) as read:
        raise NotSteppable(f"{name!r} runs code of its own, which reads a tensor's values ({read.func})") from read
    except Exception as error:  # a module's code, and the kernels that torch has no shapes for, may raise anything
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise NotSteppable(f"{name!r} runs code of its own, which cannot be tried without values: {said}") from error
