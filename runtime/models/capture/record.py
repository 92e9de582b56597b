"""Records a module's forward: it runs on small random inputs, and every torch function that it calls is recorded.

Why not torch.export: for the shipped target that takes 1.4 s, 2.5 s with dynamic sizes, and returns ATen operations
as transformers' eager code would run them; recording takes as long as the forward, keeps the operations that the
module's authors wrote (`linear`, `embedding`, `scaled_dot_product_attention`), and needs nothing that differs between
torch 2.11 and 2.13. Code that branches on tensor values (`.item()`, `if tensor:`) is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from decgraph.runtime.models.capture.program import Refused
from decgraph.runtime.models.capture.recorder import RecordedCall, Recorder, Ref, Sample
from decgraph.runtime.models.capture.running import Calling, Form, running, with_cache

Shape = tuple[int, int, int]  # heads, sizes of keys and of values


@dataclass
class Recording:
    """The record of one forward: its calls in order, the last hidden states, and the states entering every layer and
    leaving the last; for each layer the kind of mask, the window of its attention, and the arguments and result of its
    call; and which experts were chosen, int64[n, k] by layer."""

    calls: list[RecordedCall]
    last: Ref
    entering: list[Ref]
    kinds: list[str]
    windows: list[int | None]
    loose: dict[str, Tensor]
    outputs: Tensor
    states: list[Tensor]
    layers: list[tuple[tuple[Any, ...], dict[str, Any], Any]]
    chosen: list[tuple[int, Tensor]]


class _Shapes:
    """Records the shapes of keys and values that a module hands to its attention, or to its cache; all tokens are shown."""

    def __init__(self, cached: bool) -> None:
        self.cached = cached
        self.found: list[Shape] = []

    def attend(self, query: Tensor, key: Tensor, value: Tensor, form: Form) -> Tensor:
        if not self.cached:
            self.found.append((key.shape[1], key.shape[3], value.shape[3]))
        return (
            F.scaled_dot_product_attention(query, key, value, scale=form.scaling, enable_gqa=True).transpose(1, 2).contiguous()
        )

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        self.found.append((key.shape[1], key.shape[3], value.shape[3]))
        return key, value

    def experts(self, module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return hidden


def callings(base: Any, layers: Sequence[nn.Module]) -> list[tuple[Calling, list[Shape]]]:
    """The ways in which a module can be recorded, each with the shapes of its caches: without a cache of its own, and with
    one. The first is left out where the module's cache holds something else than what it attends to. Raises Refused if
    there is none."""
    plain, cached = Calling(False), None
    found: list[tuple[Calling, list[Shape]]] = []
    try:
        found = [(plain, _shapes(base, layers, plain))]
        reason = ""
    except Refused as refused:
        reason = str(refused)
    try:
        cached = with_cache(base, len(layers))
        shapes = _shapes(base, layers, cached)
    except Exception as error:  # a module without a cache, a masked one, may raise anything
        if not found:
            raise Refused(reason or str(error)) from error
        return found
    return [*(f for f in found if f[1] == shapes), (cached, shapes)]


def _shapes(base: Any, layers: Sequence[nn.Module], calling: Calling) -> list[Shape]:
    shapes = _Shapes(calling.cached)
    weight = next(base.parameters())
    one = torch.zeros(1, 1, dtype=torch.long, device=weight.device)
    masks = {kind: torch.zeros(1, 1, 1, 1, dtype=weight.dtype, device=weight.device) for kind in calling.kinds}
    token = running.set(shapes)
    try:
        with torch.no_grad():
            calling.call(base, one, one, masks)
    except Refused:
        raise
    except Exception as error:  # the module's own code, without a mask
        raise Refused(f"its own attention cannot be called as decgraph calls it ({type(error).__name__}: {error})") from error
    finally:
        running.reset(token)
    if len(shapes.found) != len(layers):
        raise Refused("its layers do not use the attention registered with transformers" if not calling.cached else
                      "its layers do not have one cache each")  # fmt: skip
    return shapes.found


def record(base: Any, layers: Sequence[nn.Module], sample: Sample, calling: Calling) -> Recording:
    """Runs a transformers base module (up to the last hidden states) on a sample; writes its caches.

    Any: a module of the library. Raises Refused where a straight-line graph cannot represent the forward.
    """
    names = {id(t): name for name, t in base.named_parameters(remove_duplicate=False)}
    names.update({id(t): name for name, t in base.named_buffers(remove_duplicate=False)})
    recorder = Recorder(sample, names, calling)
    entering: list[Tensor] = []

    def enters(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        entering.append(args[0] if args else kwargs["hidden_states"])
        recorder.layer += 1

    def leaves(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        ran.append((args, kwargs, out))
        if module is layers[-1]:
            entering.append(out if isinstance(out, Tensor) else out[0])
            recorder.layer += 1

    ran: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []
    hooks = [layer.register_forward_pre_hook(enters, with_kwargs=True) for layer in layers]
    hooks += [layer.register_forward_hook(leaves, with_kwargs=True) for layer in layers]
    token = running.set(recorder)
    try:
        with torch.no_grad(), recorder:
            last = calling.call(base, sample.ids, sample.positions, recorder.added_masks())
    finally:
        running.reset(token)
        for hook in hooks:
            hook.remove()
    if len(entering) != len(layers) + 1 or len(recorder.kinds) != len(layers):
        raise Refused("its layers do not all run once, with one attention each")
    places = [recorder.place(t) for t in entering]
    return Recording(
        recorder.calls,
        recorder.place(last),
        places,
        recorder.kinds,
        recorder.windows,
        recorder.loose,
        last,
        entering,
        ran,
        recorder.chosen,
    )
