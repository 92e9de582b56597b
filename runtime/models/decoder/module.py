"""Transformers' own module with `TransformerDecoder`'s interface: for families without an entry, and for modules with parts or
hooks of somebody else's (adapters, quantised weights). Its code runs unmodified. Attention is ours where a module takes it from
transformers' registry: it writes keys and values where the caller wants them, or attends to the rows of a tape. A module with
an attention of its own gets a cache object and masks, and can do no more than decode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, Cache

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.decoder import DecoderPart, LayeredForward
from decgraph.runtime.models.decoder.module_parts import (
    Entering,
    Numbered,
    OfRank,
    gap,
    layers_of,
    number_attentions,
    part_of,
    reading,
    refusing,
    same_rows,
    start_at_zero,
    with_layers,
    with_top,
)
from decgraph.runtime.models.decoder.shape import FULL, SLIDING
from decgraph.runtime.models.decoder.small import probed
from decgraph.runtime.models.decoder.states import Works
from decgraph.runtime.models.parts import LayerUse
from decgraph.runtime.models.rounding import rounded
from decgraph.runtime.models.tape import Tape

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle
    from transformers import PretrainedConfig, PreTrainedModel
    from transformers.cache_utils import CacheLayerMixin
    from transformers.modeling_outputs import BaseModelOutputWithPast

    from decgraph.runtime.models.decoder.decoder import Masks, Out
    from decgraph.runtime.models.decoder.states import Work

ATTENTION = "decgraph"
_CALL: ContextVar[Written | Tape | None] = ContextVar("call")  # what the attention of the module that runs writes to and reads
_NO_POSITIONS = {"bloom", "mpt"}  # attention biases by distance, computed from a mask of the library's
_NORMS = ("norm", "final_norm", "norm_f", "final_layernorm", "embedding_norm")  # LFM2's last one norms no embeddings
TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-3}
"""How far two forwards may be from each other, over the largest number; else 1e-1."""
_LONG = 12  # tokens, more than the windows of a small copy are (small.py)


def _attention(
    module: Numbered,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    sliding_window: int | None = None,
    **others: object,
) -> tuple[Tensor, None]:
    """Attention of queries [B, Hq, T, D] over the keys and values of the current call: a cache (`Written`) or a tape."""
    call, layer = _CALL.get(None), int(module.layer_idx)
    if isinstance(call, Tape):
        one = (x[0].transpose(0, 1) for x in (query, key, value))
        made = call.attend(layer, *one, scale=scaling, window=sliding_window, cap=softcap, sinks=s_aux)
        return made[None].contiguous(), None
    if call is None:
        raise DecError(f"{type(module).__name__} has decgraph's attention, and is called from outside of it")
    if layer < 0:  # an attention that several layers share (Zamba 2): it has just written to the cache of one of them
        layer = call.last
    key, value, mask = call.rows(layer, key, value, attention_mask, sliding_window)
    return attended(query, key, value, mask, scaling, softcap, s_aux).transpose(1, 2).contiguous(), None


# A name of its own without a mask function: transformers then creates no masks.
AttentionInterface.register(ATTENTION, _attention)


def attended(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scaling: float | None, cap: float | None, sinks: Tensor | None
) -> Tensor:
    """Softmax attention of queries [B, Hq, T, D] over [B, H, S, D] with an additive mask [B, 1, T, S]: [B, Hq, T, D].

    Query heads share keys and values in groups without copying them. Where the mask has a row per head of a group and token,
    [B, 1, G * T, S], the group is folded into the rows. Soft caps (Gemma 2) and sinks (gpt-oss) take the plain formula.
    """
    batch, heads, count, size = query.shape
    groups = heads // key.shape[1]
    if cap is None and sinks is None:
        if groups == 1 or mask.shape[2] != groups * count:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=groups > 1)
        folded = query.reshape(batch, -1, groups * count, size)
        out = F.scaled_dot_product_attention(folded, key, value, attn_mask=mask, scale=scaling)
        return out.reshape(batch, heads, count, -1)
    grouped = query.reshape(batch, -1, groups, count, size)
    scores = grouped @ key[:, :, None].transpose(-1, -2) * (size**-0.5 if scaling is None else scaling)
    if cap is not None:
        scores = torch.tanh(scores / cap) * cap
    scores = (scores + mask[:, :, None, -count:]).float()
    if sinks is not None:
        column = sinks.float().view(1, -1, groups, 1, 1).expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = scores.softmax(-1)[..., : key.shape[2]]
    return (weights.to(value.dtype) @ value[:, :, None]).reshape(batch, heads, count, -1)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A boolean mask as a term to add to scores, of the mask's shape: 0 or -inf. A mask that is such a term already is
    itself."""
    if mask.is_floating_point():
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


@contextmanager
def attending(
    config: PretrainedConfig, call: Written | Tape | None = None, attention: str | None = ATTENTION
) -> Iterator[None]:
    """Inside, a module with this config has an attention of the registry, which serves a call: a `Written` or a tape. The
    previous one is there again at the end: others may use the module too."""
    had = config._attn_implementation
    config._attn_implementation_internal = attention
    token = _CALL.set(call)
    try:
        yield
    finally:
        _CALL.reset(token)
        config._attn_implementation_internal = had


class Written(Cache):
    """Keys and values [B, H, S, D] per layer, which the caller owns; `write` int64[B, T] is the row of each new token. at: the
    place of each layer's number. masks: of numbers to add to scores, by layer or by kind of layer. kinds: of layers. reuses:
    layers that write nothing attend to another layer's rows (Gemma 4); those of an encoder have their own written here."""

    works: Works | None = None  # of recurrent layers (hybrid.py)

    def __init__(
        self,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        write: Tensor,
        at: Mapping[int, int],
        masks: Mapping[str | int, Tensor] | None = None,
        kinds: Sequence[str] = (),
        *,
        reuses: bool = False,
    ) -> None:
        self.reuses = reuses
        self.layers: list[CacheLayerMixin] = []  # the library's own per-layer objects: none
        self._keys, self._values, self._at, self._masks, self._kinds = keys, values, at, masks or {}, kinds
        self._one = len(write) == 1
        self._there: set[int] = set()
        # One index for all layers: rows of a single sequence; else broadcast over heads and dimensions.
        self._write = write[0] if self._one else write[:, None, :, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Writes new keys and values [B, H, T, D] of a layer in place; returns all of that layer's."""
        self._there.add(layer_idx)
        self.last = layer_idx
        keys, values = self._keys[self._at[layer_idx]], self._values[self._at[layer_idx]]
        if self._one:
            keys.index_copy_(2, self._write, key_states)
            values.index_copy_(2, self._write, value_states)
        else:
            keys.scatter_(2, self._write.expand(key_states.shape), key_states)
            values.scatter_(2, self._write.expand(value_states.shape), value_states)
        return keys, values

    def rows(
        self, layer: int, key: Tensor, value: Tensor, mask: Tensor | None, window: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The keys and values [B, H, S, D] that a layer attends to, and its mask. An encoder does not write its own, so they
        are written here.
        Raises DecError for a module that hands its attention no mask."""
        if layer not in self._there and not self.reuses:
            key, value = self.update(key, value, layer)
        own = self._masks.get(layer, mask)
        if own is None and self._kinds and layer in self._at:
            own = self._masks[self._kinds[self._at[layer]]]
        if own is None:
            raise DecError("a module does not hand the mask it is given on to its attention")
        return key, value, own

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions and masks are given with every call, nothing is to be inferred from a length."""
        return 0

    def __len__(self) -> int:
        return len(self._keys)


class ShapeProbe(Written):
    """A cache that stores nothing: attention sees the new tokens only. Notes each layer's shapes, window and mask."""

    def __init__(self, *, reuses: bool = False) -> None:
        self.layers, self.reuses = [], reuses
        self.order: list[int] = []
        self.shapes: dict[int, tuple[int, int, int]] = {}
        self.masks: dict[int, Tensor] = {}
        self.windows: dict[int, int | None] = {}
        self.windows_passed = False
        self.groups = 1

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        self.order.append(layer_idx)
        self.last = layer_idx
        self.shapes[layer_idx] = (key_states.shape[1], key_states.shape[-1], value_states.shape[-1])
        return key_states, value_states

    def rows(
        self, layer: int, key: Tensor, value: Tensor, mask: Tensor | None, window: int | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if layer not in self.shapes and not self.reuses:  # an encoder's
            self.update(key, value, layer)
            self.windows[layer] = window
        if mask is None:
            mask = key.new_zeros(1, 1, key.shape[2], key.shape[2])
        return key, value, mask

    def __len__(self) -> int:
        return len(self.order)


@dataclass(frozen=True)
class _Found:
    """What a probing forward found out about the layers that attend: the place of each layer's cache, their kinds and windows,
    the shapes of cached keys and values, how often the rows of a mask are repeated, and the dtype and width of states."""

    at: dict[int, int]
    kinds: tuple[str, ...]
    windows: tuple[int | None, ...]
    caches: tuple[tuple[int, int, int], ...]
    folds: int
    dtype: torch.dtype
    width: int


class ModuleDecoder(LayeredForward):
    """The base module of a causal or masked language model, up to the last states, in the place of `TransformerDecoder`;
    there may be parts of it as there are of one.

    encoder: it reads no cache and no masks: its attention, which has to be the registry's, has both. plain: its own last states
    [1, n, width] of tokens int64[1, n], by which its forward over caches is judged. Raises DecError, where caches are first
    wanted, for a module that cannot be run so: it takes no masks or positions from the caller, has layers of other kinds than
    full and sliding attention, or its results on a few tokens differ from its own forward's.
    """

    additive = True  # masks may be numbers to add to scores
    recurrent = False  # whether it has layers with states (hybrid.py)

    def __init__(
        self, base: PreTrainedModel, name: str = "", *, encoder: bool = False, plain: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self.base, self.name, self.encoder, self._plain = base, name or type(base).__name__, encoder, plain
        self._known: _Found | None = None
        self.config = base.config.get_text_config()
        self.part, self.whole, self.layers = DecoderPart(), base, int(self.config.num_hidden_layers)
        self.uses = tuple(map(LayerUse, range(self.layers)))
        self.device = next(base.parameters()).device

    @cached_property
    def listed(self) -> list[nn.Module]:
        """All layers of the module, whichever run."""
        return list(layers_of(self.whole))

    def probed(self) -> ModuleDecoder:
        """Itself, found to run over caches. Raises DecError for a module that cannot."""
        return self if self._found else self

    caches = property(lambda self: self._found.caches)
    kinds = property(lambda self: self._found.kinds)
    windows = property(lambda self: self._found.windows)
    dtype = property(lambda self: self._found.dtype)
    width = property(lambda self: self._found.width)

    def plain(self, ids: Tensor) -> Tensor:
        """The module's own last states [1, n, width] of one path's tokens int64[1, n], without a cache."""
        if self._plain is not None:
            return self._plain(ids)
        attention = self.config._attn_implementation
        with attending(self.config, None, "eager" if attention == ATTENTION else attention):
            last: Tensor = self.base(input_ids=ids, use_cache=False).last_hidden_state
        return last

    def causally(self, ids: Tensor) -> Tensor:
        """The same by the attention of a tape."""
        count, at = ids.shape[1], ids.device
        return self.run(ids[0], Tape(torch.arange(count, device=at), torch.ones(count, count, dtype=torch.bool).tril().to(at)))[
            None
        ]

    # Embeddings, the final norm and parts, as a decoder has them.

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [vocabulary, width]."""
        return cast("nn.Embedding", self.base.get_input_embeddings()).weight

    def looked_up(self, ids: Tensor) -> Tensor:
        """The embeddings [n, width] of tokens int64[n], as the module's own code looks them up."""
        rows: Tensor = self.base.get_input_embeddings()(ids)
        return rows

    def placed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings [n, width] of positions int64[B, T] as they enter the module: themselves."""
        return x

    @property
    def norm(self) -> nn.Module | None:
        """The final norm; None for a module without one."""
        return next((getattr(self.whole, n) for n in _NORMS if hasattr(self.whole, n)), None)

    def final(self, states: Tensor) -> Tensor:
        """The final norm of states [n, width]. Raises DecError for a module without one."""
        if self.norm is None:
            raise DecError(f"{type(self.base).__name__} has no final norm, so no layer but its last can be read out")
        out: Tensor = self.norm(states)
        return out

    def above(self) -> Self:
        """Itself: it tells states from tokens."""
        return self

    def quantized(self, bits: int) -> ModuleDecoder:
        """The same layers with their matrices rounded to so many bits, row by row."""
        made = self._copied()
        for layer in made.listed:
            for part in layer.modules():
                if isinstance(part, nn.Linear):
                    part.weight.data = cast("Tensor", rounded(part.weight.data, bits))
        return made._like(self.part)

    def expert(self, rank: int, name: str) -> ModuleDecoder:
        """The same weights, with every token sent to the expert of this rank alone. Raises DecError for a model without routers
        of the known form, and for a rank that a router does not have."""
        made = self._copied(weight for layer in self.listed for weight in (*layer.parameters(), *layer.buffers()))
        found = 0
        for parent in [part for layer in made.listed for part in layer.modules()]:
            for at, router in list(parent.named_children()):
                if type(router).__name__.endswith("TopKRouter"):
                    found += 1
                    setattr(parent, at, OfRank(with_top(router, rank, name), rank))
        if not found:
            raise DecError(
                f"{name!r} has no expert({rank}): none of its layers is a mixture of experts that decgraph knows",
                hint="Mixtral, Qwen-MoE, OLMoE and their like have a router for each layer",
            )
        return made._like(self.part)

    def _copied(self, shared: Iterable[Tensor] = ()) -> ModuleDecoder:
        """The same module with copies of the layers, in which these objects are not copied."""
        known = {id(one): one for one in (self.base.config, self.config, *shared)}  # the config says which attention runs
        made = self._like(self.part)
        made.listed = [copy.deepcopy(layer, dict(known)) for layer in self.listed]
        return made

    def _like(self, part: DecoderPart) -> Self:
        made = type(self)(self.whole, self.name, encoder=self.encoder)
        uses = made.uses if part.uses is None else part.uses
        made.part, made.listed, made.uses = part, self.listed, uses
        groups = {use.reads: Entering() for use in uses if use.reads is not None}
        parts = [reading(part_of(self.listed[use.layer], use), use, groups) for use in uses]
        made.base = cast("PreTrainedModel", with_layers(self.whole, nn.ModuleList(parts)))  # a copy of it
        if not part.norm:
            norm = self.norm
            made.base._modules = {k: nn.Identity() if v is norm else v for k, v in made.base._modules.items()}
        made._plain = made.causally
        return made

    # Forwards.

    @torch.no_grad()
    def run(self, cells: Tensor, tape: Tape) -> Tensor:
        """The last hidden states [fresh, width], after the final norm, of fresh positions: token ids int64[fresh] or embeddings
        [fresh, width]. Fills in the tape."""
        given = {"inputs_embeds" if cells.is_floating_point() else "input_ids": cells[None]}
        with attending(self.config, tape), self._noting(range(self.layers), tape.states, first=True):
            out = self.base(**given, position_ids=tape.positions[None], **({} if self.encoder else {"use_cache": False}))
        last: Tensor = out.last_hidden_state[0]
        return last

    def _numbers(self, count: int) -> Tensor:
        """So many tokens int64[1, count]."""
        return torch.arange(1, count + 1, device=self.device)[None] % int(self.config.vocab_size)

    @torch.no_grad()
    def check_taped(self, count: int = 1, wanted: Tensor | None = None) -> None:
        """Raises DecError for a module whose layers do not use the attention of the registry, and for one whose states of so
        many tokens differ from `wanted` [1, count, width]."""
        ids = self._numbers(count)
        seen = torch.ones(count, count, dtype=torch.bool, device=self.device)
        tape = Tape(torch.arange(count, device=self.device), seen if self.encoder else seen.tril())
        mine = self.run(ids[0], tape)[None]
        if set(tape.keys) != set(range(self.layers)) or set(tape.states) != set(tape.keys):
            raise DecError(
                f"{type(self.base).__name__} is not supported: its layers do not use the attention of transformers' registry"
            )
        if wanted is not None and not gap(mine, wanted) <= TOLERANCE.get(mine.dtype, 0.1):
            raise DecError(f"{type(self.base).__name__} is not supported: its layers look at other tokens than they say")

    @torch.no_grad()
    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Masks,
        works: Sequence[Work] = (),
    ) -> Out:
        """See `TransformerDecoder`; in place of ids it also takes states [B, T, width] that enter the first layer. works: of
        recurrent layers (hybrid.py)."""
        found = self._found
        blank = (len(positions), 1, positions.shape[1], keys[0].shape[2] if keys else 1)
        given: dict[str | int, Tensor] = {
            kind: self._prepared(mask, found, blank)
            for kind, mask in masks.items()
            if kind in found.kinds or isinstance(kind, int)
        }
        cache = Written(keys, values, write, found.at, given, found.kinds, reuses=not self.encoder)
        cache.works = Works(works) if works else None
        inputs: dict[str, object] = {"inputs_embeds" if ids.is_floating_point() else "input_ids": ids}
        # A part of the layers may have fewer kinds than the config names, or no attention at all.
        other = given[found.kinds[0]] if found.kinds else self._prepared(None, found, blank)
        shown = {kind: given.get(kind, other) for kind in self._types}
        tapped: dict[int, Tensor] = {}
        with attending(self.config, cache), self._noting(self.part.taps, tapped):
            out = self.base(**inputs, **self._given(cache, positions, shown))
        last: Tensor = out.last_hidden_state
        return (last, tuple(tapped[tap] for tap in self.part.taps)) if self.part.taps else last

    def _given(self, cache: Written, positions: Tensor, masks: Mapping[str, Tensor]) -> dict[str, object]:
        """What the module's forward takes beside tokens or states. masks: by each kind of layer that its config names."""
        if self.encoder:
            return {"position_ids": positions}
        mask = masks if len(masks) > 1 else next(iter(masks.values()))
        return {"attention_mask": mask, "past_key_values": cache, "use_cache": True, "position_ids": positions}

    def _prepared(self, mask: Tensor | None, layout: _Found, blank: tuple[int, ...]) -> Tensor:
        if mask is None:
            mask = torch.zeros(blank, dtype=layout.dtype, device=self.device)
        made = additive(mask, layout.dtype)
        # Off the CPU, grouped heads with a mask are fast only folded into rows; the CPU's kernel takes them as such.
        return made.repeat(1, 1, layout.folds, 1) if layout.folds > 1 else made

    @contextmanager
    def _noting(self, numbers: Iterable[int], into: dict[int, Tensor], *, first: bool = False) -> Iterator[None]:
        """Inside, the states that enter layers are noted by their numbers: [B, T, width], or of the first sequence alone."""

        def noting(number: int) -> Callable[[nn.Module, tuple[object, ...], dict[str, object]], None]:
            def note(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
                states = args[0] if args else kwargs["hidden_states"]
                assert isinstance(states, Tensor)
                into[number] = states[0] if first else states

            return note

        handles = [self.listed[n].register_forward_pre_hook(noting(n), with_kwargs=True) for n in numbers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    # What a module can do.

    @cached_property
    def _types(self) -> list[str]:
        """The kinds of its layers, as its config has them."""
        window = getattr(self.config, "sliding_window", None) if getattr(self.config, "use_sliding_window", True) else None
        types = getattr(self.config, "layer_types", None) or [SLIDING if window else FULL]
        return sorted(set(types))

    @property
    def _found(self) -> _Found:
        if self._known is None:
            self._refuse_by_name()
            with torch.no_grad(), refusing(self.name, type(self.base).__name__):
                found = self._known = self._probed()
                try:
                    if not self.encoder:
                        self._compare(found)
                        if self.base is self.whole:
                            self.check_small(taped=False)
                except BaseException:
                    self._known = None
                    raise
        return self._known

    def _refuse_by_name(self) -> None:
        config, kind = self.config, type(self.base).__name__
        if getattr(config, "is_encoder_decoder", False):
            raise DecError(f"{self.name!r} is not supported: {kind} is an encoder and a decoder")
        if config.model_type in _NO_POSITIONS or getattr(config, "alibi", False):
            raise DecError(f"{self.name!r} is not supported: {kind} has attention biases (ALiBi) instead of positions")
        devices = sorted({str(weight.device) for weight in self.base.parameters()})
        if len(devices) > 1:
            raise DecError(f"{self.name!r} is not supported: its weights lie on {' and '.join(devices)}", hint="one device")
        odd = sorted(set(self._types) - {FULL, SLIDING})
        if odd:
            raise DecError(f"{self.name!r} is not supported: {kind} has layers of kind {', '.join(odd)}")

    def _probed(self) -> _Found:
        """Runs two tokens without a cache and notes the arguments of every layer's attention."""
        dtype, device = next(self.base.parameters()).dtype, self.device
        masks = {kind: torch.zeros(1, 1, 2, 2, dtype=dtype, device=device) for kind in self._types}
        seen = ShapeProbe(reuses=not self.encoder)
        hooks = _listen(self.base, seen)
        try:
            with attending(self.config, seen):
                out = self._probe(torch.zeros(1, 2, dtype=torch.long, device=device), masks, seen)
        finally:
            for hook in hooks:
                hook.remove()
        kinds, windows = [], []
        for layer in seen.order:
            found, window = self._kind(layer, masks, seen)
            kinds.append(found)
            windows.append(window)
        last = out.last_hidden_state
        assert last is not None, "a base module gives its last states"
        return _Found(
            {layer: place for place, layer in enumerate(seen.order)},
            tuple(kinds),
            tuple(windows),
            tuple(seen.shapes[layer] for layer in seen.order),
            seen.groups if last.is_cuda else 1,
            last.dtype,
            last.shape[-1],
        )

    def _probe(self, ids: Tensor, masks: Mapping[str, Tensor], seen: ShapeProbe) -> BaseModelOutputWithPast:
        """The module's output of tokens int64[1, n], with masks and a cache that notes."""
        return self.base(input_ids=ids, **self._given(seen, torch.arange(ids.shape[1], device=self.device)[None], masks))

    def _kind(self, layer: int, masks: Mapping[str, Tensor], seen: ShapeProbe) -> tuple[str, int | None]:
        """The kind of a layer, and its window. Raises DecError where its mask or window is not what the config says."""
        window, mask, name = seen.windows.get(layer), seen.masks.get(layer), type(self.base).__name__
        if self.encoder:
            return (FULL if window is None else SLIDING), window
        types = getattr(self.config, "layer_types", None)
        stated = getattr(self.config, "sliding_window", None)
        # Layers of a derived model keep their numbers, while masks go by the place in the list.
        kind = next((kind for kind, given in masks.items() if mask is not None and same_rows(mask, given)), None)
        if mask is not None and kind is None:
            raise DecError(f"{self.name!r} is not supported: {name} changes the mask it is given")
        kind = kind or (types[layer] if types else self._types[0])
        # A layer with a full mask may have the attribute and not use it; check_small finds one that does.
        if window is not None and kind == SLIDING and int(window) != int(stated or 0):
            raise DecError(f"{self.name!r} is not supported: layer {layer} has a window of {window} but a {kind} mask")
        if window is None and kind == SLIDING and layer in seen.windows and seen.windows_passed:
            raise DecError(f"{self.name!r} is not supported: layer {layer} has no window but a {kind} mask")
        return kind, int(stated) if kind == SLIDING and stated is not None else None

    def _compare(self, layout: _Found, committed: int = 2) -> None:
        """Compares some tokens, read in two parts, and two siblings below them with the module's own forward over each path."""
        dev, size, rows = self.device, int(self.config.vocab_size), committed + 4
        window = next((w for w in layout.windows if w is not None), None)
        tokens = [(7 * n + 1) % size for n in range(committed + 2)]
        keys = [torch.zeros(1, h, rows, k, dtype=layout.dtype, device=dev) for h, k, _ in layout.caches]
        values = [torch.zeros(1, h, rows, v, dtype=layout.dtype, device=dev) for h, _, v in layout.caches]
        got: list[Tensor] = []
        for places in (range(committed - 2), range(max(committed - 2, 0), committed), range(committed, committed + 2)):
            if not places:
                continue
            full = torch.zeros(1, 1, len(places), rows, dtype=torch.bool)
            near, positions = full.clone(), [min(place, committed) for place in places]
            for row, place in enumerate(places):
                seen = [*range(positions[row]), place]
                full[0, 0, row, seen] = True
                near[0, 0, row, [p for p in seen if window is None or positions[row] - min(p, committed) < window]] = True
            ids, at, write = (
                torch.tensor([one], device=dev) for one in (tokens[slice(places[0], places[-1] + 1)], positions, places)
            )
            out = self(ids, at, write, keys, values, {FULL: full.to(dev), SLIDING: near.to(dev)})
            got += list((out[0] if self.part.taps else out)[0])
        for last in (committed, committed + 1):
            path = [*tokens[:committed], tokens[last]]
            theirs = self.plain(torch.tensor([path], device=dev))[0]
            if not bool(torch.isfinite(theirs).all()):
                raise DecError(f"{self.name!r} gave logits that are not numbers, for the tokens {path}",
                               hint="its weights hold NaN or infinity")  # fmt: skip
            off = gap(torch.stack([*got[:committed], got[last]]), theirs)
            if not off <= TOLERANCE.get(layout.dtype, 0.1):
                capped = getattr(self.config, "attn_logit_softcapping", None)
                raise DecError(
                    f"{self.name!r} is not supported: {type(self.base).__name__} with a cache differs from itself "
                    f"without one by {off:.1e}; it seems to use the order of tokens beside their positions",
                    hint="attn_implementation='eager', if its own attention leaves out the soft caps" if capped else "",
                )

    def check_small(self, *, taped: bool) -> None:
        """Raises DecError where a small copy of the module, by the attention of a tape or over caches, differs from its own
        forward over a text that is longer than its windows."""

        def check(small: PreTrainedModel) -> None:
            made = type(self)(small, self.name, encoder=self.encoder)
            with torch.no_grad():
                if taped:
                    wanted = made.plain(made._numbers(_LONG))
                    if self.encoder:  # its own forward counts positions from elsewhere
                        number_attentions(small)
                        start_at_zero(small)
                    made.check_taped(_LONG, wanted)
                else:
                    made._known = made._probed()
                    made._compare(made._known, _LONG)

        if said := probed(self.base, f"{type(self).__name__} {taped}", check):
            raise DecError(said)


def _listen(base: nn.Module, seen: ShapeProbe) -> list[RemovableHandle]:
    """Notes the arguments of attention modules (those with a layer index)."""

    def note(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        layer = int(cast("Numbered", module).layer_idx)
        mask = kwargs.get("attention_mask", next((a for a in args if isinstance(a, Tensor) and a.ndim == 4), None))
        if isinstance(mask, Tensor):
            seen.masks[layer] = mask
        seen.windows[layer] = getattr(module, "sliding_window", None)
        seen.windows_passed = seen.windows_passed or hasattr(module, "sliding_window")
        seen.groups = max(seen.groups, int(getattr(module, "num_key_value_groups", 1)))

    return [
        module.register_forward_pre_hook(note, with_kwargs=True)
        for module in base.modules()
        if isinstance(getattr(module, "layer_idx", None), int) and hasattr(module, "config")
    ]
