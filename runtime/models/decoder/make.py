"""The net of a live transformers module: its decoder, found equal to it on some tokens, or the module as it is and why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.families import STATES, shape_of
from decgraph.runtime.models.decoder.hybrid import HybridDecoder
from decgraph.runtime.models.decoder.layers import frequencies
from decgraph.runtime.models.decoder.module import TOLERANCE, ModuleDecoder, attending
from decgraph.runtime.models.decoder.module_parts import base_of, gap, number_attentions, refusing, start_at_zero
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import FULL, SLIDING, UnknownToDecoder
from decgraph.runtime.models.decoder.small import probed
from decgraph.runtime.models.decoder.states import is_recurrent
from decgraph.runtime.models.decoder.weights import ModuleSource, canonical
from decgraph.runtime.models.forwards import ForwardChoice, note
from decgraph.runtime.models.rotary import boundary_of
from decgraph.runtime.models.watch import borrows, runs_others
from decgraph.runtime.native.decoder import native
from decgraph.runtime.native.products import output_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_log = logging.getLogger("decgraph.engine")
_OURS = ("torch.nn.modules.", "transformers.activations", "transformers.models.", "transformers.pytorch_utils")


def net_of_module(module: nn.Module, name: str = "", *, entry: bool = True) -> Net:
    """The net of a causal or masked language model of transformers, on its weights: of its decoder where its family has an
    entry (and `entry`), else of the module itself.

    Raises DecError for a module that has neither: one whose layers are in no list or do not use the attention of transformers'
    registry, whose scores are others than its layers', or whose rotary positions change all rows of a cache.
    """
    module = cast("PreTrainedModel", module)
    boundary, kind = boundary_of(module.config), type(module).__name__
    if boundary is not None and boundary.recomputed:
        raise DecError(f"{kind} is not supported: its {boundary.kind} changes all rows of a cache")
    module.eval()
    if not borrows(module):
        module.requires_grad_(False)
    with refusing(name or kind, kind):
        return _net(module, name or kind, entry=entry, encoder=kind.endswith("ForMaskedLM"))


def _net(module: PreTrainedModel, name: str, *, entry: bool, encoder: bool) -> Net:
    base, kind = base_of(module), type(module).__name__
    out = cast("nn.Module | None", module.get_output_embeddings())
    wanted = _own_scores(module, encoder=encoder)
    if encoder:
        number_attentions(base)
        start_at_zero(base)
    config = base.config.get_text_config().to_dict()
    recurrent = is_recurrent(module)
    whole = (HybridDecoder if recurrent else ModuleDecoder)(base, name, encoder=encoder)
    plain = whole.causally if encoder else whole.plain
    found = decoder_of(base, plain, encoder) if entry and not recurrent else None
    if found is None:
        whole.check_taped()
        whole.check_small(taped=True)
    if recurrent:
        note(base, ForwardChoice("module", reason=STATES))
    if out is None or (found is None and whole.norm is None and not encoder):
        raise DecError(f"{kind} is not supported: no final norm or no output matrix was found")
    read = read_out(module, name)
    if found is not None and read is out and type(read) is nn.Linear and not runs_others(read):
        product = Product(read.weight.detach(), biases=(None if read.bias is None else read.bias.detach(),))
        made = Net(found.copied(products={**found.products, "out": product}), config, base=base)
    else:
        whole._plain = None if encoder else whole.causally
        made = Net(whole if found is None else found, config, base=base, read=read)
    ids = _sample(len(made.decoder.embedding), made.decoder.device)
    if not _close(made.scores(ids, causal=not encoder), wanted, made.decoder.embedding.dtype):
        raise DecError(f"{kind} is not supported: its scores are more than its output matrix makes of its layers' last states")
    return made


def net_of_live(module: nn.Module, name: str) -> Net:
    """The net of a causal module of which nothing is wanted but its distributions. Raises DecError, by name, for one that
    cannot be run on masks, positions and caches from outside."""
    module = cast("PreTrainedModel", module)
    with torch.no_grad(), refusing(name, type(module).__name__):
        base = base_of(module)
        recurrent = is_recurrent(module)
        whole = (HybridDecoder if recurrent else ModuleDecoder)(base, name)
        read = read_out(module, name)
        if recurrent:
            note(base, ForwardChoice("module", reason=STATES))
        found = None if recurrent else decoder_of(base, whole.plain)
        try:
            used = whole.probed() if found is None or found.caches != whole.caches else found
        except DecError:
            if found is None:
                raise
            used = found  # the decoder needs no more of a module than its weights
        head = output_of(read) if isinstance(read, nn.Module) else read
        mine, wanted = head(whole.plain(_PAIR.to(whole.device))[0]), _own_scores(module, ids=_PAIR)
        if not _close(mine, wanted, mine.dtype):
            raise DecError(
                f"{name!r} is not supported: {type(module).__name__}'s logits are more than its output matrix makes of its "
                "last states"
            )
        return Net(used, base.config.get_text_config().to_dict(), base=base, read=head)


def read_out(module: PreTrainedModel, name: str) -> Callable[[Tensor], Tensor]:
    """From last states [n, width] to logits [n, V]: the module's output matrix, or a part of it that holds more, with its
    scaling and its soft cap. Raises DecError for a module without an output matrix."""
    config, matrix = module.config.get_text_config(), cast("nn.Module | None", module.get_output_embeddings())
    if matrix is None:
        raise DecError(f"{name!r} is not supported: {type(module).__name__} has no output matrix")
    whole = _readout(module, matrix)
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    scale *= float(getattr(config, "lm_head_multiplier", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)
    if scale == 1.0 and cap is None:
        return whole
    output = output_of(whole)

    def head(states: Tensor) -> Tensor:
        logits = output(states)
        if scale != 1.0:
            logits = logits * scale
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits

    head.weight = matrix.weight  # type: ignore[attr-defined]
    return head


def decoder_of(base: PreTrainedModel, plain: Callable[[Tensor], Tensor], encoder: bool = False) -> TransformerDecoder | None:
    """The decoder of a transformers base module whose last states of tokens int64[1, n] are plain's [1, n, width]; or None
    where the module has something that the decoder does not know. Then the module runs as it is, and `forwards.py` and the
    log say why. The module's joined matrices become views of shared storage, with the same values, unless they are a caller's
    (watch.py)."""

    def small(one: PreTrainedModel) -> None:
        module = ModuleDecoder(one, encoder=encoder)
        different(of_module(one), module.causally if encoder else module.plain)

    try:
        with uncollected(), torch.no_grad():
            made = of_module(base)
            different(made, plain)
            if said := probed(base, f"decoder {encoder}", small):
                raise UnknownToDecoder(said)
    except UnknownToDecoder as unknown:
        reason = str(unknown)
    except Exception as error:  # a config's or a module's that is not what its family's are
        reason = f"{type(error).__name__}: {error}"
    else:
        note(base, ForwardChoice("decoder"))
        return made
    note(base, ForwardChoice("module", reason=reason))
    _log.warning("%s runs as transformers' own module: %s", type(base).__name__, reason)
    return None


def of_module(base: PreTrainedModel) -> TransformerDecoder:
    """The decoder of a base module. Raises UnknownToDecoder where it has something that the decoder does not know."""
    if base.training:
        raise UnknownToDecoder("it is in training mode")
    for part in base.modules():
        kind = type(part)
        if runs_others(part):
            raise UnknownToDecoder(
                "it has hooks, or a `forward` of an object's own, whose code may do something else in every call"
            )
        if not kind.__module__.startswith(_OURS):
            raise UnknownToDecoder(f"{kind.__qualname__} is no class of transformers' models")
    config = base.config.get_text_config().to_dict()
    if all(type(p) is nn.Parameter and p.is_floating_point() for p in base.parameters()):
        config.pop("quantization_config", None)  # of the file that it was read from: it has plain numbers now
    shape, names = shape_of(config)
    weights, products = canonical(shape, names, ModuleSource(base, owned=not borrows(base)))
    if len({t.device for t in weights.values()}) != 1:
        raise UnknownToDecoder("it lies on several devices")
    return native(TransformerDecoder(shape, weights, products, frequencies(base, shape)))


def different(decoder: TransformerDecoder, plain: Callable[[Tensor], Tensor]) -> None:
    """Raises UnknownToDecoder where a decoder's states of 20 tokens, in two parts, are not the module's. plain: from tokens
    int64[1, n] to states [1, n, width]."""
    shape, device = decoder.shape, decoder.device
    count, first = 20, 13
    ids = (torch.arange(count, device=device)[None] * 7 + 1) % shape.vocabulary
    theirs = plain(ids)
    if not bool(torch.isfinite(theirs).all()):
        raise UnknownToDecoder("its states are not numbers")
    keys, values = caches(decoder, 1, count)
    at = torch.arange(count, device=device)[None]
    row = at[0, :, None]
    seen = {FULL: at <= row}
    window = next((w for w in decoder.windows if w is not None), None)
    if window is not None:
        seen[SLIDING] = seen[FULL] & (at > row - window)
    for begin, end in ((0, first), (first, count)):
        masks: dict[str | int, Tensor | None] = {kind: mask[None, None, begin:end] for kind, mask in seen.items()}
        mine = decoder(ids[:, begin:end], at[:, begin:end], at[:, begin:end], keys, values, masks)
        assert isinstance(mine, Tensor), "nothing is tapped"
        off = gap(mine, theirs[:, begin:end], theirs)
        if not off <= TOLERANCE.get(decoder.dtype, 0.1):
            raise UnknownToDecoder(f"the decoder's states differ from the module's by {off:.1e}")


def caches(decoder: TransformerDecoder, batch: int, rows: int) -> tuple[list[Tensor], list[Tensor]]:
    """Keys and values of zeros, [batch, heads, rows, size] by layer."""
    made = [
        [torch.zeros(batch, heads, rows, size, dtype=decoder.dtype, device=decoder.device) for size in (key, value)]
        for heads, key, value in decoder.caches
    ]
    return [k for k, _ in made], [v for _, v in made]


# Encoders of transformers: where BERT and its like have their layers, positions and output.

_SAMPLE = 6  # positions of the forward that is compared
_PAIR = torch.tensor([[0, 1]])
_CLOSE = 2e-3  # of the largest logit: rounding of float32
_HALF = 0.1  # root mean squares, of 16 bits: rounding adds up over layers; another computation is off by about 1


def _readout(module: nn.Module, matrix: nn.Module) -> nn.Module:
    """The module from last hidden states to logits: the output matrix, or a head that holds it or stands before it."""
    for name in ("cls", "predictions", "head", "lm_head"):
        found = getattr(module, name, None)
        if isinstance(found, nn.Module) and found is not matrix:
            return found if any(part is matrix for part in found.modules()) else nn.Sequential(found, matrix)
    for names in (
        ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
        ("generator_predictions", "generator_lm_head"),
    ):
        parts = [part for name in names if isinstance(part := getattr(module, name, None), nn.Module)]
        if len(parts) == len(names):
            return nn.Sequential(*parts)
    return matrix


def _sample(size: int, device: torch.device) -> Tensor:
    """int64[n]: the tokens of the forward that is compared: no special ones, which most models have at the beginning."""
    return torch.arange(_SAMPLE, device=device) * 7 % max(size - 8, 1) + min(8, size - 1)


@torch.no_grad()
def _own_scores(module: PreTrainedModel, *, encoder: bool = False, ids: Tensor | None = None) -> Tensor:
    """float64[n, vocabulary]: the scores of tokens int64[1, n], or the sample, by the module's own forward; an encoder's with
    the library's attention."""
    table = cast("nn.Embedding", module.get_input_embeddings()).weight
    read = _sample(len(table), table.device)[None] if ids is None else ids.to(table.device)
    with attending(module.config, None, "eager") if encoder else nullcontext():
        scores: Tensor = module(input_ids=read, **({} if encoder else {"use_cache": False})).logits[0]
    return scores.double()


def _close(mine: Tensor, wanted: Tensor, dtype: torch.dtype) -> bool:
    """Whether scores [n, vocabulary] differ by no more than rounding."""
    if mine.shape != wanted.shape:
        return False
    if dtype.itemsize < 4:
        return bool((mine.double() - wanted).square().mean().sqrt() <= _HALF * wanted.square().mean().sqrt())
    return gap(mine, wanted) <= _CLOSE
