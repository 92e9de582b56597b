"""One forward of an unmodified transformers module over preallocated keys and values.

    step(ids int64[B,T], positions int64[B,T], write int64[B,T], keys, values, masks) -> [B,T,width]

keys and values are lists by layer of [B,H,S,D], written in place at the rows `write`; masks are bool[B,1,T,S] by
layer type, "full_attention" and "sliding_attention". The result is the last hidden states after the final norm.
The decoder of the module has the same signature and takes this one's place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.engine.attention import Written, additive, attending
from decgraph.runtime.models.engine.layout import FULL, SLIDING, Layout

_NO_POSITIONS = {"bloom", "mpt"}  # attention biases by distance, computed from a mask of the library's
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-3}  # of two forwards, over the largest entry; else 1e-1


class ModuleStep:
    """The base module of a causal language model (up to the last hidden states) as a step.

    Raises DecError if the module cannot be run this way: it takes no masks or positions from the caller, has layers of
    other kinds than full and sliding attention, or its results on a few tokens differ from its own forward's.
    """

    additive = True  # masks may be numbers to add to scores

    def __init__(self, base: Any, name: str, plain: Callable[[Tensor], Tensor] | None = None) -> None:
        self.base, self.name = base, name
        self._config = base.config.get_text_config()
        self.plain = plain or (lambda ids: base(input_ids=ids, use_cache=False).last_hidden_state)
        self._at: dict[int, int] = {}
        self._folds = 1
        self._refuse_by_name()
        with torch.no_grad():
            self.layout = self._probe()
            self._compare()

    def __call__(
        self,
        ids: Tensor,
        positions: Tensor,
        write: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        masks: Mapping[str, Tensor],
    ) -> Tensor:
        """The step; in place of ids it also takes states [B, T, width] that enter the first layer."""
        given = {kind: self._prepared(mask) for kind, mask in masks.items() if kind in self._types}
        cache = Written(keys, values, write, self._at)
        inputs = {"inputs_embeds" if ids.is_floating_point() else "input_ids": ids}
        with attending(self._config):
            out = self.base(
                **inputs,
                position_ids=positions,
                attention_mask=given if len(given) > 1 else next(iter(given.values())),
                past_key_values=cache,
                use_cache=True,
            )
        last: Tensor = out.last_hidden_state
        return last

    def _prepared(self, mask: Tensor) -> Tensor:
        made = additive(mask, self.layout.dtype)
        # Off the CPU, grouped heads with a mask are fast only folded into rows; the CPU's kernel takes them as such.
        return made.repeat(1, 1, self._folds, 1) if self._folds > 1 else made

    def _refuse_by_name(self) -> None:
        config, kind = self._config, type(self.base).__name__
        if getattr(config, "is_encoder_decoder", False):
            raise DecError(f"{self.name!r} is not supported: {kind} is an encoder and a decoder")
        if config.model_type in _NO_POSITIONS or getattr(config, "alibi", False):
            raise DecError(f"{self.name!r} is not supported: {kind} has attention biases (ALiBi) instead of positions")
        devices = sorted({str(weight.device) for weight in self.base.parameters()})
        if len(devices) > 1:
            raise DecError(f"{self.name!r} is not supported: its weights lie on {' and '.join(devices)}", hint="one device")
        count = int(config.num_hidden_layers)
        window = getattr(config, "sliding_window", None) if getattr(config, "use_sliding_window", True) else None
        types = getattr(config, "layer_types", None) or [SLIDING if window else FULL] * count
        odd = sorted(set(types) - {FULL, SLIDING})
        if odd:
            raise DecError(f"{self.name!r} is not supported: {kind} has layers of kind {', '.join(odd)}")
        self._layer_types: list[str] = list(types)
        self._types = set(types)
        self._capped = bool(getattr(config, "attn_logit_softcapping", None))
        self._window = int(window) if SLIDING in self._types and window is not None else None

    def _probe(self) -> Layout:
        """Runs two tokens without a cache and records the arguments of every layer's attention."""
        device = next(self.base.parameters()).device
        masks = {
            kind: torch.zeros(1, 1, 2, 2, dtype=next(self.base.parameters()).dtype, device=device)
            for kind in sorted(self._types)
        }
        seen = _Seen()
        hooks = _listen(self.base, seen)
        ids = torch.zeros(1, 2, dtype=torch.long, device=device)
        try:
            with attending(self._config):
                out = self.base(
                    input_ids=ids,
                    position_ids=torch.arange(2, device=device)[None],
                    attention_mask=masks if len(masks) > 1 else next(iter(masks.values())),
                    past_key_values=seen,
                    use_cache=True,
                )
        except DecError as error:
            raise DecError(f"{self.name!r} is not supported: {error.diagnostics[0]}") from error
        except Exception as error:  # the module's own code, called in a way that it may not support
            raise DecError(
                f"{self.name!r} is not supported: {type(self.base).__name__} cannot be run on a mask, positions and "
                f"a cache given from outside ({type(error).__name__}: {error})"
            ) from error
        finally:
            for hook in hooks:
                hook.remove()
        types: list[str] = []
        for layer in seen.order:
            # Layers of a derived model keep their numbers, while masks go by the place in the list.
            window, mask = seen.windows.get(layer), seen.masks.get(layer)
            kind = next((kind for kind, given in masks.items() if mask is given), None)
            if mask is not None and kind is None:
                raise DecError(f"{self.name!r} is not supported: {type(self.base).__name__} changes the mask it is given")
            kind = kind or self._layer_types[layer]
            if window is not None and (kind != SLIDING or int(window) != self._window):
                raise DecError(f"{self.name!r} is not supported: layer {layer} has a window of {window} but a {kind} mask")
            if window is None and kind == SLIDING and layer in seen.windows and seen.windows_passed:
                raise DecError(f"{self.name!r} is not supported: layer {layer} has no window but a {kind} mask")
            types.append(kind)
        self._at = {layer: place for place, layer in enumerate(seen.order)}
        last: Tensor = out.last_hidden_state
        if last.is_cuda and seen.groups > 1:
            self._folds = seen.groups
        return Layout(
            tuple(seen.shapes[layer] for layer in seen.order), tuple(types), self._window, last.shape[-1], last.dtype, device
        )

    def _compare(self) -> None:
        """Compares two siblings below two cached tokens with the module's own forward over each path."""
        layout, dev = self.layout, self.layout.device
        size = int(self._config.vocab_size)
        tokens = [1 % size, 2 % size, 3 % size, 5 % size]
        keys = [torch.zeros(1, h, 6, k, dtype=layout.dtype, device=dev) for h, k, _ in layout.shapes]
        values = [torch.zeros(1, h, 6, v, dtype=layout.dtype, device=dev) for h, _, v in layout.shapes]
        got: list[Tensor] = []
        for places, positions, sees in (
            ([0, 1], [0, 1], [[0], [0, 1]]),
            ([2, 3], [2, 2], [[0, 1, 2], [0, 1, 3]]),
        ):
            mask = torch.zeros(1, 1, 2, 6, dtype=torch.bool)
            for row, seen in enumerate(sees):
                for place in seen:
                    if layout.window is None or positions[row] - min(place, 2) < layout.window:
                        mask[0, 0, row, place] = True
            full = torch.zeros_like(mask)
            for row, seen in enumerate(sees):
                full[0, 0, row, seen] = True
            ids = torch.tensor([[tokens[c] for c in places]], device=dev)
            at = torch.tensor([positions], device=dev)
            out = self(ids, at, torch.tensor([places], device=dev), keys, values, {FULL: full.to(dev), SLIDING: mask.to(dev)})
            got += list(out[0])
        for path, mine in ((tokens[:3], got[2]), ([*tokens[:2], tokens[3]], got[3])):
            theirs = self.plain(torch.tensor([path], device=dev))[0, -1]
            if not bool(torch.isfinite(theirs).all()):
                raise DecError(f"{self.name!r} gave logits that are not numbers, for the tokens {path}",
                               hint="its weights hold NaN or infinity")  # fmt: skip
            gap = float((mine.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp_min(1e-9))
            if not gap <= _TOLERANCE.get(layout.dtype, 0.1):
                raise DecError(
                    f"{self.name!r} is not supported: {type(self.base).__name__} with a cache differs from itself "
                    f"without one by {gap:.1e}; it seems to use the order of tokens beside their positions",
                    hint="attn_implementation='eager', if its own attention leaves out the soft caps" if self._capped else "",
                )


class _Seen(Written):
    """A cache that stores nothing: attention sees the new tokens only. Records shapes by layer."""

    def __init__(self) -> None:
        self.layers = []
        self.order: list[int] = []
        self.shapes: dict[int, tuple[int, int, int]] = {}
        self.masks: dict[int, Tensor] = {}
        self.windows: dict[int, int | None] = {}
        self.windows_passed = False
        self.groups = 1

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        self.order.append(layer_idx)
        self.shapes[layer_idx] = (key_states.shape[1], key_states.shape[-1], value_states.shape[-1])
        return key_states, value_states

    def __len__(self) -> int:
        return len(self.order)


def _listen(base: nn.Module, seen: _Seen) -> list[Any]:  # Any: handles of hooks
    """Records the arguments of attention modules (those with a layer index)."""

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        layer = int(module.layer_idx)
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
