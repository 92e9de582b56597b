"""The decoder of a live transformers module, found equal to it on some tokens; or why there is none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.decoder.decoder import Decoder
from decgraph.runtime.models.decoder.families import shape_of
from decgraph.runtime.models.decoder.layers import frequencies
from decgraph.runtime.models.decoder.shape import FULL, SLIDING, Unknown
from decgraph.runtime.models.decoder.weights import ModuleSource, canonical
from decgraph.runtime.models.forwards import Forward, note
from decgraph.runtime.models.hf_net import is_recorder
from decgraph.runtime.models.shadow import borrows
from decgraph.runtime.models.watch import runs_others
from decgraph.runtime.native.decoder import native

_log = logging.getLogger("decgraph.engine")
TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-3}  # of two forwards, over the largest number; else 1e-1
_OURS = ("torch.nn.modules.", "transformers.activations", "transformers.models.", "transformers.pytorch_utils")


def decoder_of(base: Any, plain: Callable[[Tensor], Tensor]) -> Decoder | None:
    """The decoder of a transformers base module whose last states of tokens int64[1, n] are plain's [1, n, width]; or None
    where it has something that the decoder does not know: then the module runs as it is, and `forwards.py` and the log say
    why. The module's joined matrices become views of shared storage, with the same values, unless they are a caller's
    (shadow.py)."""
    try:
        with uncollected(), torch.no_grad():
            made = of_module(base)
            different(made, plain)
    except Unknown as unknown:
        reason = str(unknown)
    except Exception as error:  # a config's or a module's that is not what its family's are
        reason = f"{type(error).__name__}: {error}"
    else:
        note(base, Forward("decoder"))
        return made
    note(base, Forward("module", reason=reason))
    _log.warning("%s runs as transformers' own module: %s", type(base).__name__, reason)
    return None


def of_module(base: Any) -> Decoder:
    """The decoder of a base module. Raises Unknown where it has something that the decoder does not know."""
    if base.training:
        raise Unknown("it is in training mode")
    for part in base.modules():
        kind = type(part)
        if runs_others(part, is_recorder):
            raise Unknown("it has hooks, or a `forward` of an object's own, whose code may do something else in every call")
        if not kind.__module__.startswith(_OURS):
            raise Unknown(f"{kind.__qualname__} is no class of transformers' models")
    shape, names = shape_of(base.config.get_text_config().to_dict())
    weights, products = canonical(shape, names, ModuleSource(base, owned=not borrows(base)))
    if len({t.device for t in weights.values()}) != 1:
        raise Unknown("it lies on several devices")
    return native(Decoder(shape, weights, products, frequencies(base, shape)))


def different(decoder: Decoder, plain: Callable[[Tensor], Tensor]) -> None:
    """Raises Unknown where a decoder's states of 20 tokens, in two parts, are not the module's. plain: from tokens int64[1, n]
    to states [1, n, width]."""
    shape, device = decoder.shape, decoder.device
    count, first = 20, 13
    ids = (torch.arange(count, device=device)[None] * 7 + 1) % shape.vocabulary
    theirs = plain(ids)
    if not bool(torch.isfinite(theirs).all()):
        raise Unknown("its states are not numbers")
    keys, values = caches(decoder, 1, count)
    at = torch.arange(count, device=device)[None]
    row = at[0, :, None]
    seen = {FULL: at <= row}
    window = next((w for w in decoder.windows if w is not None), None)
    if window is not None:
        seen[SLIDING] = seen[FULL] & (at > row - window)
    for begin, end in ((0, first), (first, count)):
        masks = {kind: mask[None, None, begin:end] for kind, mask in seen.items()}
        mine = decoder(ids[:, begin:end], at[:, begin:end], at[:, begin:end], keys, values, masks)
        gap = float((mine.double() - theirs[:, begin:end].double()).abs().max() / theirs.double().abs().max().clamp_min(1e-9))
        if not gap <= TOLERANCE.get(decoder.dtype, 0.1):
            raise Unknown(f"the decoder's states differ from the module's by {gap:.1e}")


def caches(decoder: Decoder, batch: int, rows: int) -> tuple[list[Tensor], list[Tensor]]:
    """Keys and values of zeros, [batch, heads, rows, size] by layer."""
    made = [
        [torch.zeros(batch, heads, rows, size, dtype=decoder.dtype, device=decoder.device) for size in (key, value)]
        for heads, key, value in decoder.caches
    ]
    return [k for k, _ in made], [v for _, v in made]
