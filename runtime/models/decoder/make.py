"""The net of a live transformers module: its decoder, found equal to it on some tokens, or the module as it is and why."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.decoder.families import STATES, shape_of
from decgraph.runtime.models.decoder.hybrid import HybridDecoder
from decgraph.runtime.models.decoder.layers import frequencies
from decgraph.runtime.models.decoder.module import ATTENTION, TOLERANCE, ModuleDecoder, attending, gap
from decgraph.runtime.models.decoder.module_parts import Numbered, layers_of
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import FULL, SLIDING, UnknownToDecoder
from decgraph.runtime.models.decoder.states import is_recurrent
from decgraph.runtime.models.decoder.weights import ModuleSource, canonical
from decgraph.runtime.models.forwards import ForwardChoice, note
from decgraph.runtime.models.rotary import boundary_of
from decgraph.runtime.models.watch import borrows, runs_others
from decgraph.runtime.native.decoder import native
from decgraph.runtime.native.linear import output_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_log = logging.getLogger("decgraph.engine")
_OURS = ("torch.nn.modules.", "transformers.activations", "transformers.models.", "transformers.pytorch_utils")


def net_of_module(module: nn.Module, name: str = "", *, entry: bool = True) -> Net:
    """The net of a causal or masked language model of transformers, on its weights: of its decoder where its family has an
    entry (and `entry`), else of the module itself.

    Raises DecError for a module that has neither: one whose layers are in no list or do not use the attention of transformers'
    registry, whose logits are more than scaled or capped, or whose rotary positions change all rows of a cache.
    """
    module = cast("PreTrainedModel", module)
    boundary, kind = boundary_of(module.config), type(module).__name__
    if boundary is not None and boundary.recomputed:
        raise DecError(f"{kind} is not supported: its {boundary.kind} changes all rows of a cache")
    module.eval()
    if not borrows(module):
        module.requires_grad_(False)
    base, encoder = cast("PreTrainedModel", module.base_model), kind.endswith("ForMaskedLM")
    out = cast("nn.Module | None", module.get_output_embeddings())
    config = base.config.get_text_config().to_dict()
    wanted = _own_scores(module) if encoder else None
    if encoder:
        _number(base)
        _start_at_zero(module)
    recurrent = is_recurrent(module)
    whole = (HybridDecoder if recurrent else ModuleDecoder)(base, name or kind, encoder=encoder)
    read: Callable[[Tensor], Tensor] | None = _readout(module) if encoder else None
    head = getattr(module, "head", None)  # ModernBERT's, between the last state and the output matrix
    plain = whole.causally if encoder else partial(own_states, base)
    found = decoder_of(base, plain) if entry and not recurrent else None
    changed = [
        n
        for n in ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
        if config.get(n) not in (None, 0, 1.0)
    ]
    if (
        found is not None
        and out is not None
        and type(out) is nn.Linear
        and read is None
        and head is None
        and not runs_others(out)
    ):
        product = Product(out.weight.detach(), biases=(None if out.bias is None else out.bias.detach(),))
        made = Net(found.copied(products={**found.products, "out": product}), config, base=base)
    else:
        if found is None:
            whole.check_taped()
        if recurrent:
            note(base, ForwardChoice("module", reason=STATES))
        if out is None or (whole.norm is None and not encoder):
            raise DecError(f"{kind} is not supported: no final norm or no output matrix was found")
        if read is None:
            read = read_out(module, name or kind) if changed else out if head is None else nn.Sequential(head, out)
        whole._plain = None if encoder else whole.causally
        made = Net(whole if found is None else found, config, base=base, read=read)
    if wanted is not None:
        _check_scores(made, wanted, kind)
    return made


def net_of_live(module: nn.Module, name: str) -> Net:
    """The net of a causal module of which nothing is wanted but its distributions. Raises DecError, by name, for one that
    cannot be run on masks, positions and caches from outside."""
    module = cast("PreTrainedModel", module)
    base = cast("PreTrainedModel", module.base_model)
    recurrent = is_recurrent(module)
    whole = (HybridDecoder if recurrent else ModuleDecoder)(base, name).probed()
    head = read_out(module, name)
    if recurrent:
        note(base, ForwardChoice("module", reason=STATES))
    found = None if recurrent else decoder_of(base, whole.plain)
    used = whole if found is None or found.caches != whole.caches else found
    return Net(used, base.config.get_text_config().to_dict(), base=base, read=head)


def read_out(module: PreTrainedModel, name: str) -> Callable[[Tensor], Tensor]:
    """A function from last states [n, width] to logits [n, V]: the module's output matrix, its scaling and its soft cap.

    Raises DecError if the result differs from the module's own logits.
    """
    config, matrix = module.config.get_text_config(), cast("nn.Module | None", module.get_output_embeddings())
    if matrix is None:
        raise DecError(f"{name!r} is not supported: {type(module).__name__} has no output matrix")
    output = output_of(matrix)
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    scale *= float(getattr(config, "lm_head_multiplier", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)

    def head(states: Tensor) -> Tensor:
        logits = output(states)
        if scale != 1.0:
            logits = logits * scale
        if cap is not None:
            logits = torch.tanh(logits / cap) * cap
        return logits

    with torch.no_grad():
        ids = torch.tensor([[0, 1]], device=cast("nn.Linear", matrix).weight.device)
        last = module.base_model(input_ids=ids, use_cache=False).last_hidden_state
        mine, theirs = head(last).double(), module(input_ids=ids, use_cache=False).logits.double()
    if not float((mine - theirs).abs().max()) <= 1e-2 * float(theirs.abs().max().clamp_min(1e-6)):
        raise DecError(
            f"{name!r} is not supported: {type(module).__name__}'s logits are more than its output matrix makes of its "
            "last states"
        )
    head.weight = matrix.weight  # type: ignore[attr-defined]
    return head


def own_states(base: PreTrainedModel, ids: Tensor) -> Tensor:
    """A base module's own last states [1, n, width] of tokens int64[1, n]."""
    config = base.config.get_text_config()
    attention = config._attn_implementation
    with attending(config, None, "eager" if attention == ATTENTION else attention):
        last: Tensor = base(input_ids=ids, use_cache=False).last_hidden_state
    return last


def decoder_of(base: PreTrainedModel, plain: Callable[[Tensor], Tensor]) -> TransformerDecoder | None:
    """The decoder of a transformers base module whose last states of tokens int64[1, n] are plain's [1, n, width]; or None
    where the module has something that the decoder does not know. Then the module runs as it is, and `forwards.py` and the
    log say why. The module's joined matrices become views of shared storage, with the same values, unless they are a caller's
    (watch.py)."""
    try:
        with uncollected(), torch.no_grad():
            made = of_module(base)
            different(made, plain)
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
_CLOSE = 2e-4  # of the largest logit: rounding of float32
_HALF = 0.1  # root mean squares, of 16 bits: rounding adds up over layers; another computation is off by about 1


def _number(base: nn.Module) -> None:
    """Numbers attentions that do not have the number of their layer (DistilBERT)."""
    for index, layer in enumerate(layers_of(base)):
        for part in layer.modules():
            if "Attention" in type(part).__name__ and getattr(part, "layer_idx", None) is None:
                cast("Numbered", part).layer_idx = index


def _start_at_zero(module: PreTrainedModel) -> None:
    """Drops the rows of a position table that no position has: RoBERTa counts from its padding's id + 1."""
    embeddings = getattr(module.base_model, "embeddings", None)
    table, pad = (getattr(embeddings, name, None) for name in ("position_embeddings", "padding_idx"))
    if (
        not isinstance(table, nn.Embedding)
        or not isinstance(pad, int)
        or not hasattr(embeddings, "create_position_ids_from_input_ids")
    ):
        return
    first = pad + 1
    rows = table.weight[first:]
    made = nn.Embedding(rows.shape[0], rows.shape[1], _weight=rows)
    made.weight.requires_grad_(False)
    embeddings.position_embeddings = made  # type: ignore[union-attr]  # it has a table of them
    module.config.max_position_embeddings = len(rows)


def _readout(module: nn.Module) -> nn.Module | None:
    """The module from last hidden states to logits, where there is more than an output matrix; None where there is not."""
    for name in ("cls", "predictions"):
        if isinstance(found := getattr(module, name, None), nn.Module):
            return found
    head = getattr(module, "lm_head", None)
    if isinstance(head, nn.Module) and not isinstance(head, nn.Linear):
        return head
    for names in (
        ("vocab_transform", "activation", "vocab_layer_norm", "vocab_projector"),
        ("generator_predictions", "generator_lm_head"),
    ):
        parts = [part for name in names if isinstance(part := getattr(module, name, None), nn.Module)]
        if len(parts) == len(names):
            return nn.Sequential(*parts)
    return None


def _sample(size: int, device: torch.device) -> Tensor:
    """int64[n]: the tokens of the forward that is compared: no special ones, which most models have at the beginning."""
    return torch.arange(_SAMPLE, device=device) * 7 % max(size - 8, 1) + min(8, size - 1)


@torch.no_grad()
def _own_scores(module: PreTrainedModel) -> Tensor:
    """float64[n, vocabulary]: the scores of the sample by the module's own forward, with the library's attention."""
    table = cast("nn.Embedding", module.get_input_embeddings()).weight
    with attending(module.config, None, "eager"):
        scores: Tensor = module(input_ids=_sample(len(table), table.device)[None]).logits[0]
    return scores.double()


def _check_scores(net: Net, wanted: Tensor, kind: str) -> None:
    """Raises DecError unless a net gives these scores float64[n, vocabulary] of the sample."""
    off = net.scores(_sample(len(net.decoder.embedding), net.decoder.device), causal=False) - wanted
    gap = float(off.abs().max())
    if net.decoder.embedding.dtype.itemsize < 4:
        close = bool(off.square().mean().sqrt() <= _HALF * wanted.square().mean().sqrt())
    else:
        close = gap <= _CLOSE * max(1.0, float(wanted.abs().max()))
    if not close:
        raise DecError(f"{kind} is not supported: its scores are not those of its layers, off by {gap:.1e}")
