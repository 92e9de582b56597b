"""What stands in for a module's attention, experts and cache while it is recorded or judged.

A module is called in one of two ways. Most hand their new keys and values to the attention registered with transformers,
which writes them to our caches and attends (`cached` is false). Others attend themselves, or make their keys of what their
cache holds (DeepSeek's latent attention): they are called as a decoder calls them, with masks and a cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn
from transformers import AttentionInterface, Cache
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

from decgraph.runtime.models.capture.program import Refused

ATTENTION = EXPERTS = "decgraph_recorded"
FULL, SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True)
class Form:
    """How a layer attends: the factor of its scores, its window, the cap of its scores, its sinks [Hq], and the mask, added
    to the scores, that a module called with masks hands on."""

    scaling: float | None
    window: int | None
    softcap: float | None = None
    sinks: Tensor | None = None
    mask: Tensor | None = None

    @property
    def kind(self) -> str:
        """The kind of mask."""
        return FULL if self.window is None else SLIDING


class StandIn(Protocol):
    """What takes the place of a module's attention, experts and cache while it runs."""

    cached: bool

    def attend(self, query: Tensor, key: Tensor, value: Tensor, form: Form) -> Tensor:
        """Attention of queries [B, Hq, T, D]: [B, T, Hq, D]. Keys and values are those of the new tokens [B, H, T, D]; for a
        module called with a cache, all [B, H, S, D]."""
        ...

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Writes new keys and values [B, H, T, D] to the caches of the layer of this number; returns these, [B, H, S, D]."""
        ...

    def experts(self, module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """States [n, width] through the experts chosen, int64[n, k], weighted with [n, k]: [n, width]."""
        ...


running: ContextVar[StandIn | None] = ContextVar("decgraph_recorder", default=None)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    dropout: float = 0.0,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention over the caches of the sample being run, with the mask of the layer's kind."""
    runs = running.get()
    if runs is None:
        raise RuntimeError("only a recorder runs a module with this attention")
    for name in ("position_bias", "block_mask", "cache"):
        if others.get(name) is not None:
            raise Refused(f"{type(module).__name__} hands {name} to its attention")
    if attention_mask is not None and not runs.cached:
        raise Refused(f"{type(module).__name__} hands a mask of its own to its attention")
    if dropout:
        raise Refused(f"{type(module).__name__} drops attention weights out")
    return runs.attend(query, key, value, Form(scaling, sliding_window, softcap, s_aux, attention_mask)), None


# A name of its own without a mask function: transformers then creates no mask, and ours are used here.
AttentionInterface.register(ATTENTION, _attention)


def _experts(module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor, *_: Any, **__: Any) -> Tensor:
    runs = running.get()
    if runs is None:
        raise RuntimeError("only a recorder runs a module with these experts")
    return runs.experts(module, hidden, chosen, weights)


ALL_EXPERTS_FUNCTIONS.register(EXPERTS, _experts)


class _Cache(Cache):
    """A cache that hands what it is given on."""

    def __init__(self, layers: int) -> None:
        self.layers: list[Any] = []  # the library's own per-layer objects: none
        self._count = layers

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """See `StandIn.update`."""
        runs = running.get()
        assert runs is not None
        return runs.update(layer_idx, key_states, value_states)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """0: positions and masks are given with every call."""
        return 0

    def __len__(self) -> int:
        return self._count


@dataclass(frozen=True)
class Calling:
    """How a base module is called: without a cache, or with one and masks: then each layer's kind of mask and window."""

    cached: bool
    kinds: tuple[str, ...] = ()
    windows: tuple[int | None, ...] = ()

    def call(self, base: Any, ids: Tensor, positions: Tensor, masks: Mapping[str, Tensor]) -> Tensor:
        """The module's last states [B, T, width]. masks: added to scores, [B, 1, T, S] by kind; used with a cache alone."""
        with attending(base):
            if not self.cached:
                out = base(input_ids=ids, position_ids=positions, use_cache=False)
            else:
                given = {kind: masks[kind] for kind in sorted(set(self.kinds))}
                out = base(
                    input_ids=ids,
                    position_ids=positions,
                    attention_mask=given if len(given) > 1 else next(iter(given.values())),
                    past_key_values=_Cache(len(self.kinds)),
                    use_cache=True,
                )
        last: Tensor = out.last_hidden_state
        return last


def with_cache(base: Any, layers: int) -> Calling:
    """The call of a module with a cache; its configuration says which layers slide."""
    config = base.config.get_text_config()
    window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
    kinds = tuple(getattr(config, "layer_types", None) or [SLIDING if window else FULL] * layers)
    if set(kinds) - {FULL, SLIDING} or len(kinds) != layers:
        raise Refused("its layers attend in other ways than to all tokens or to a window")
    return Calling(True, kinds, tuple(int(window) if kind == SLIDING and window else None for kind in kinds))


@contextmanager
def attending(base: Any) -> Iterator[None]:
    """Sets the attention and experts above in the module's config and restores the previous: others use the module too."""
    config = base.config.get_text_config() if hasattr(base.config, "get_text_config") else base.config
    had = config._attn_implementation, getattr(config, "_experts_implementation", None)
    config._attn_implementation_internal, config._experts_implementation_internal = ATTENTION, EXPERTS
    try:
        yield
    finally:
        config._attn_implementation_internal, config._experts_implementation_internal = had
