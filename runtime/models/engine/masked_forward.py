"""One forward of a masked Hugging Face model over positions of many sequences.

The model's own code runs unmodified over the positions to be computed, packed side by side; attention is ours. The
positions form parts: a part is `batch` sequences with `width` fresh positions each. A part without a store attends to
itself. A part with one writes its fresh keys and values into the store at their positions, in place, and attends
to the store; a boolean mask hides positions that are not cached. A part without hidden positions has no mask.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from decgraph.errors import DecError
from decgraph.runtime.models.engine.masked_memory import Store
from decgraph.runtime.models.hf_net import Net, is_recorder
from decgraph.runtime.models.watch import HOOKS

ATTENTION = "decgraph_canvas"


class Part:
    """`batch` sequences with `width` fresh positions each, and the positions that they attend to.

    positions: int64[batch, width]. store: a slot for each sequence, or None: the fresh positions are 0 to width-1 and
    attend to each other. span: how many positions of the store count (`width` without one). where: the store's columns
    that are written: a slice or int64[width] if they are the same for all sequences, else int64[batch, width]. seen:
    bool[batch, span], the positions that may be attended to, or None: all; `layers` replaces it in some layers. ends:
    int64[batch, width], a position attends to those before its end, or None: to all. record: whether `stored` returns the keys
    and values of a part without a store afterwards.
    """

    def __init__(
        self,
        positions: Tensor,
        *,
        store: Store | None = None,
        span: int = 0,
        where: slice | Tensor | None = None,
        seen: Tensor | None = None,
        layers: dict[int, Tensor] | None = None,
        ends: Tensor | None = None,
        record: bool = False,
    ) -> None:
        self.batch, self.width = positions.shape
        self.positions, self.store, self.where, self.seen = positions, store, where, seen
        self.span = span if store is not None else self.width
        self.layers, self.ends, self.record = layers or {}, ends, record
        self._made: dict[int, tuple[Tensor, Tensor]] = {}
        self._taken: Store | None = None
        self._masks: dict[tuple[int | None, int, int], Tensor | None] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None, window: int | None
    ) -> Tensor:
        """Attention of queries [batch, heads, width, dim]: [batch, width, heads, dim]."""
        if self.store is not None:
            keys, values = self.store.rows(layer)
            key, value = self._written(keys, key), self._written(values, value)
        elif self.record:
            self._made[layer] = (key, value)
        heads = key.shape[1]
        groups = query.shape[1] // heads
        mask = self.mask(layer, window, groups)
        if groups > 1:  # heads that share keys become more queries: the mask is not causal
            query = query.reshape(self.batch, heads, groups * self.width, query.shape[-1])
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        if groups > 1:
            out = out.reshape(self.batch, heads * groups, self.width, out.shape[-1])
        return out.transpose(1, 2)

    def stored(self) -> Store:
        """The store of a recording part, created on first use: a program that never reads it copies nothing."""
        if self._taken is None:
            rows = [x for layer in sorted(self._made) for x in self._made[layer]]
            self.take(Store(torch.stack(rows).unflatten(0, (-1, 2))))
            self._made.clear()
        assert self._taken is not None
        return self._taken

    def take(self, store: Store) -> None:
        """Sets the recorded rows, from a step that has them in a store already."""
        self._taken = store

    def _written(self, cached: Tensor, fresh: Tensor) -> Tensor:
        """The store's rows [batch, heads, span, dim] once the fresh ones are written into them."""
        if isinstance(self.where, slice):
            cached[:, :, self.where] = fresh
        else:
            assert self.where is not None
            if self.where.dim() == 1:
                cached.index_copy_(2, self.where, fresh)
            else:
                cached.scatter_(2, self.where[:, None, :, None].expand_as(fresh), fresh)
        return cached if cached.shape[2] == self.span else cached[:, :, : self.span]

    def mask(self, layer: int, window: int | None, groups: int) -> Tensor | None:
        """bool[batch, 1, 1 or groups * width, span], or None if no position is hidden in a layer."""
        key = (window, layer if layer in self.layers else -1, groups)
        if key not in self._masks:
            self._masks[key] = self._made_mask(self.layers.get(layer, self.seen), window, groups)
        return self._masks[key]

    def _made_mask(self, seen: Tensor | None, window: int | None, groups: int) -> Tensor | None:
        mask = None if seen is None else seen[:, None, None, :]
        if self.ends is None and window is None:
            return mask
        columns = torch.arange(self.span, device=self.positions.device)
        rows = self.positions[:, None, :, None]
        if self.ends is not None:
            near = columns < self.ends[:, None, :, None]
            mask = near if mask is None else mask & near
        if window is not None:
            near = (rows - columns).abs() < window
            mask = near if mask is None else mask & near
        assert mask is not None
        return mask.repeat(1, 1, groups, 1) if groups > 1 else mask


class MaskedForward(Protocol):
    """The forward that an engine runs. packs: whether the parts of a batch share one forward of the model. blank: keys
    and values [layers, 2, 1, heads, 1, dim] of one position, for their shape."""

    @property
    def packs(self) -> bool: ...

    @property
    def blank(self) -> Tensor: ...

    def __call__(self, cells: Tensor, positions: Tensor, parts: Sequence[Part]) -> Tensor:
        """The last hidden states [n, width], after the final norm, of inputs packed part by part: ids int64[n] or
        embeddings [n, width] at positions int64[n]. Writes the parts' stores, or records into the parts."""
        ...


class ModuleStep:
    """The forward of an unmodified transformers model, whose weights it shares."""

    packs = True

    def __init__(self, net: Net) -> None:
        self.base = twin(net.base, ATTENTION)
        probe = Part(torch.zeros(1, 1, dtype=torch.long, device=net.embedding.device), record=True)
        self(torch.zeros(1, dtype=torch.long, device=net.embedding.device), probe.positions[0], [probe])
        name, made = type(net.base).__name__, probe._made
        if set(made) != set(range(len(net.layers))):
            raise DecError(f"{name} is not supported: its layers do not use the attention registered")
        if len({x.shape for pair in made.values() for x in pair}) > 1:
            raise DecError(f"{name} is not supported: its layers' keys and values differ in shape")
        block = probe.stored().block
        assert block is not None
        self.blank: Tensor = block

    @torch.no_grad()
    def __call__(self, cells: Tensor, positions: Tensor, parts: Sequence[Part]) -> Tensor:
        # A single part keeps its batch shape; several are packed into one row.
        shape = (parts[0].batch, parts[0].width) if len(parts) == 1 else (1, len(positions))
        name = "inputs_embeds" if cells.is_floating_point() else "input_ids"
        given = {name: cells.view(*shape, *cells.shape[1:])}
        out = self.base(**given, position_ids=positions.view(shape), decgraph=parts)
        last: Tensor = out.last_hidden_state
        return last.reshape(-1, last.shape[-1])


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    decgraph: Sequence[Part] | None = None,
    sliding_window: int | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of packed queries [1, heads, n, dim], or [batch, heads, width, dim] of the only part."""
    if decgraph is None:
        raise DecError("the model does not hand keyword arguments on to its attention")
    if others.get("softcap") is not None or others.get("s_aux") is not None:
        raise DecError(f"{type(module).__name__} needs soft caps or sinks, which decgraph's attention lacks")
    layer = int(module.layer_idx)
    if len(decgraph) == 1:
        return decgraph[0].attend(layer, query, key, value, scaling, sliding_window), None
    outs, start = [], 0
    for part in decgraph:
        end = start + part.batch * part.width
        q, k, v = (_unpacked(x, start, end, part) for x in (query, key, value))
        outs.append(part.attend(layer, q, k, v, scaling, sliding_window).flatten(0, 1))
        start = end
    return torch.cat(outs)[None], None


def _unpacked(x: Tensor, start: int, end: int, part: Part) -> Tensor:
    """A part's rows [batch, heads, width, dim] of packed ones [1, heads, n, dim]."""
    return x[0, :, start:end].unflatten(1, (part.batch, part.width)).transpose(0, 1)


# A name of its own without a mask function: transformers then creates no masks.
AttentionInterface.register(ATTENTION, _attention)


def twin(module: nn.Module, attention: str) -> Any:  # Any: a module of the library
    """The same module, its parameters and buffers shared, with another attention, no cache and without the hooks of `Net`."""
    configs: dict[int, Any] = {}  # Any: the library's configurations
    made: dict[int, nn.Module] = {}

    def config_of(old: Any) -> Any:
        if id(old) not in configs:
            configs[id(old)] = copy.copy(old)
            configs[id(old)]._attn_implementation = attention
            configs[id(old)].use_cache = False
        return configs[id(old)]

    def copied(old: nn.Module) -> nn.Module:
        if id(old) in made:
            return made[id(old)]
        new = made[id(old)] = copy.copy(old)
        new._modules = {name: None if child is None else copied(child) for name, child in old._modules.items()}
        for name in HOOKS:
            setattr(new, name, OrderedDict((key, hook) for key, hook in vars(old)[name].items() if not is_recorder(hook)))
        if hasattr(getattr(old, "config", None), "_attn_implementation"):
            new.config = config_of(old.config)
        return new

    return copied(module)
