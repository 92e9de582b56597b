"""Changes of layers of transformers' modules: a layer without one of its halves, with an attention that reads another state, or
with one expert; and where a module has its layers.

A layer adds to its state what its attention gives and what its MLP gives. A half that is skipped adds nothing; the layer's own
code runs for the other one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.parts import LayerUse

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Numbered(Protocol):
    """An attention or a recurrent layer, which has its layer's number."""

    layer_idx: int


class _Router(Protocol):
    """A router of a mixture of experts: its matrix [experts, width], and how many of the best experts it gives."""

    weight: Tensor
    top_k: int


_PERCEPTRONS = ("mlp", "feed_forward", "ffn", "block_sparse_moe")


def part_of(layer: nn.Module, use: LayerUse) -> nn.Module:
    """The layer, or the half of it that runs. Raises DecError for a layer whose halves are not sums on its state."""
    if use.attention and use.mlp:
        return layer
    kind = type(layer).__name__
    attention = [name for name, part in layer.named_children() if isinstance(getattr(part, "layer_idx", None), int)]
    mlp = [name for name, _ in layer.named_children() if name in _PERCEPTRONS]
    if len(attention) != 1 or len(mlp) != 1:
        raise DecError(f"{kind} is not supported: no attention and MLP were found in it, so neither can be skipped alone",
                       hint="skip whole layers")  # fmt: skip
    if not _adds_nothing(_silenced(layer, attention[0], mlp[0])):
        raise DecError(f"{kind} is not supported: its halves do more than add to its state, so neither can be skipped alone",
                       hint="skip whole layers")  # fmt: skip
    return _silenced(layer, *([] if use.attention else attention), *([] if use.mlp else mlp))


class Entering:
    """The state that enters a group of layers, for as long as a forward of them lasts."""

    state: Tensor


def reading(layer: nn.Module, use: LayerUse, groups: dict[int, Entering]) -> nn.Module:
    """The layer with an attention that reads the state which enters its group. Raises DecError for a layer without a norm
    before its attention (`input_layernorm`)."""
    if use.reads is None or not use.attention:
        return layer
    norm = layer._modules.get("input_layernorm")
    if norm is None:
        kind = type(layer).__name__
        raise DecError(f"{kind} is not supported: it has no norm before its attention, so it reads its own state only",
                       hint="a model with pre-norm layers, as Llama, Qwen and Mistral are")  # fmt: skip
    made = copy.copy(layer)
    made._modules = {**layer._modules, "input_layernorm": NormOf(norm, groups[use.reads], first=use.layer == use.reads)}
    return made


class NormOf(nn.Module):
    """The norm before an attention, applied to the state that entered the group. The group's first layer notes that state."""

    def __init__(self, norm: nn.Module, entering: Entering, *, first: bool) -> None:
        super().__init__()
        self.norm, self.entering, self.first = norm, entering, first

    def forward(self, hidden_states: Tensor) -> Tensor:
        if self.first:
            self.entering.state = hidden_states
        out: Tensor = self.norm(self.entering.state)
        return out


def _silenced(layer: nn.Module, *names: str) -> nn.Module:
    """The layer with these of its modules adding nothing. Shares everything else."""
    made = copy.copy(layer)
    made._modules = dict(layer._modules)
    for name in names:
        part = layer._modules[name]
        made._modules[name] = Nothing(pair=part is not None and isinstance(getattr(part, "layer_idx", None), int))
    return made


@torch.no_grad()
def _adds_nothing(layer: nn.Module) -> bool:
    """Whether a layer whose halves both return zeros leaves its state unchanged."""
    weight = next(layer.parameters(), None)
    width = next((p.shape[-1] for p in layer.parameters() if p.ndim == 1), None)  # a norm's weights
    if weight is None or width is None:
        return False
    state = torch.linspace(-1, 1, 2 * width, device=weight.device).reshape(1, 2, width).to(weight.dtype)
    try:
        out = layer(state, attention_mask=None, position_embeddings=None)
    except Exception:  # the layer's own code, called in a way that it may not know
        return False
    out = out[0] if isinstance(out, tuple) else out
    return isinstance(out, Tensor) and out.shape == state.shape and bool((out == state).all())


class Nothing(nn.Module):
    """Replaces a half of a layer by zeros. `pair`: an attention, which also returns its weights."""

    def __init__(self, *, pair: bool) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, hidden_states: Tensor, *_: object, **__: object) -> Tensor | tuple[Tensor, None]:
        zeros = torch.zeros_like(hidden_states)
        return (zeros, None) if self.pair else zeros


_LISTS = (("layers",), ("encoder", "layer"), ("transformer", "layer"), ("encoder", "layers"))
"""Where models have their layers: decoders and newer encoders, BERT and its like, DistilBERT."""


@contextmanager
def refusing(name: str, kind: str) -> Iterator[None]:
    """Raises DecError, inside, for what a module's own code raises where it is called in a way that it does not support."""
    try:
        yield
    except DecError:
        raise
    except Exception as error:
        raise DecError(
            f"{name!r} is not supported: {kind} cannot be run on a mask, positions and a cache given from outside "
            f"({type(error).__name__}: {error})",
            hint="generate without custom_generate",
        ) from error


def base_of(module: PreTrainedModel) -> PreTrainedModel:
    """The part of a language model that gives last states. Raises DecError for a module without one."""
    base: nn.Module | None = module.base_model
    if base is module:  # a class with another prefix than its part has (Mllama's text model)
        base = next((part for part in nn.Module.children(module) if hasattr(part, "get_input_embeddings")), None)
    if base is None:
        raise DecError(f"{type(module).__name__} is not supported: it has no model inside that gives its last states")
    return cast("PreTrainedModel", base)


def layer_list(base: nn.Module) -> list[nn.Module]:
    """The modules from a base model down to its list of layers, the list last. Raises DecError for a model without one."""
    for names in _LISTS:
        found: list[nn.Module | None] = [base]
        for name in names:
            found.append(getattr(found[-1], name, None))
        if isinstance(found[-1], nn.ModuleList):
            return [part for part in found if part is not None]
    raise DecError(f"{type(base).__name__} is not supported: it has no list of layers")


def layers_of(base: nn.Module) -> nn.ModuleList:
    """A base model's list of layers. Raises DecError for a model without one."""
    last = layer_list(base)[-1]
    assert isinstance(last, nn.ModuleList), "the list is the last"
    return last


def with_layers(base: nn.Module, layers: nn.ModuleList) -> nn.Module:
    """A base model with another list of layers, everything else shared."""
    old = layer_list(base)
    new: nn.Module = layers
    for outer, inner in zip(reversed(old[:-1]), reversed(old[1:]), strict=True):
        made = copy.copy(outer)
        made._modules = {name: new if child is inner else child for name, child in outer._modules.items()}
        new = made
    return new


class OfRank(nn.Module):
    """A router of transformers (logits, weights [n, k] and indices [n, k] of the k best experts, best first) that sends every
    token to the expert of this rank alone, with weight 1."""

    def __init__(self, router: nn.Module, rank: int) -> None:
        super().__init__()
        self.router, self.rank = router, rank

    def forward(self, *args: object, **more: object) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits, weights, indices = self.router(*args, **more)
        return logits, torch.ones_like(weights[..., -1:]), indices[..., self.rank - 1 :]


def with_top(router: nn.Module, rank: int, name: str) -> nn.Module:
    """The router with as many best experts as the rank needs. Raises DecError where it does not give them best first."""
    theirs = cast("_Router", router)
    count = int(getattr(router, "num_experts", 0) or theirs.weight.shape[0])
    if not 1 <= rank <= count:
        raise DecError(f"{name!r} has no expert({rank}): a router has {count} experts", hint=f"a rank in 1..{count}")
    made = copy.copy(router)
    cast("_Router", made).top_k = rank
    width = int(theirs.weight.shape[-1])
    with torch.no_grad():
        out = made(torch.linspace(-1, 1, width, device=theirs.weight.device, dtype=theirs.weight.dtype)[None])
    good = isinstance(out, tuple) and len(out) == 3 and out[2].shape[-1] == rank and out[1].shape[-1] == rank
    if not good or bool((out[1][..., 1:] > out[1][..., :-1]).any()):
        raise DecError(f"{name!r} has no expert({rank}): {type(router).__name__} does not give its best experts in order")
    return made


def number_attentions(base: nn.Module) -> None:
    """Numbers attentions that do not have the number of their layer (DistilBERT)."""
    for index, layer in enumerate(layers_of(base)):
        for part in layer.modules():
            if "Attention" in type(part).__name__ and getattr(part, "layer_idx", None) is None:
                cast("Numbered", part).layer_idx = index


def start_at_zero(base: PreTrainedModel) -> None:
    """Drops the rows of a position table that no position has: RoBERTa counts from its padding's id + 1."""
    embeddings = getattr(base, "embeddings", None)
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
    base.config.max_position_embeddings = len(rows)


def same_rows(mask: Tensor, other: Tensor) -> bool:
    """Whether a mask [B, 1, T, S] is the given one, or a view of all of it."""
    return mask is other or (mask.data_ptr() == other.data_ptr() and mask.shape == other.shape)


def gap(mine: Tensor, theirs: Tensor, among: Tensor | None = None) -> float:
    """The largest difference of two tensors [...], over the largest number of the second, or `among` others."""
    largest = (theirs if among is None else among).double().abs().max().clamp_min(1e-9)
    return float((mine.double() - theirs.double()).abs().max() / largest)
