"""Encoders of transformers as a `Net`: where BERT and its like have their layers, positions and output.

What is put together here is compared with the module's own forward, so a model that is laid out otherwise is refused, not
misread.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.hf_net import Net, layer_list
from decgraph.runtime.models.tape import Tape

_SAMPLE = 6  # positions of the forward that is compared
_TOLERANCE = 2e-4  # of the largest logit: rounding of float32


class _States(nn.Sequential):
    """An output made of several modules of a model, one after the other."""


def masked_net(module: Any) -> Net:
    """A module's `Net`, checked to give its scores. The module's attention is the one that `Net` registers.

    Raises DecError for a module without a list of layers, whose layers do not use the attention registered, and whose scores
    are not those of its own forward.
    """
    wanted = _own_scores(module) if type(module).__name__.endswith("ForMaskedLM") else None
    _number(module)
    _start_at_zero(module)
    net = Net(module, _readout(module))
    if wanted is not None:
        gap = float((_scores(net) - wanted).abs().max())
        if not gap <= _TOLERANCE * max(1.0, float(wanted.abs().max())):
            raise DecError(
                f"{type(module).__name__} is not supported: its scores are not those of its layers, off by {gap:.1e}"
            )
    return net


def _number(module: Any) -> None:
    """Numbers attentions that do not have the number of their layer (DistilBERT)."""
    for index, layer in enumerate(layer_list(module.base_model)[-1]):
        for part in layer.modules():
            if "Attention" in type(part).__name__ and getattr(part, "layer_idx", None) is None:
                part.layer_idx = index


def _start_at_zero(module: Any) -> None:
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
    made = nn.Embedding(*rows.shape, _weight=rows)
    made.weight.requires_grad_(False)
    embeddings.position_embeddings = made  # type: ignore[union-attr]  # it has a table of them
    module.config.max_position_embeddings = len(rows)


def _readout(module: Any) -> nn.Module | None:
    """What turns last hidden states into logits, where that is not the output matrix alone."""
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
        parts = [getattr(module, name, None) for name in names]
        if all(isinstance(part, nn.Module) for part in parts):
            return _States(*parts)
    return None


def _sample(size: int, device: torch.device) -> Tensor:
    """int64[n]: the tokens of the forward that is compared: no special ones, which most models have at the beginning."""
    return torch.arange(_SAMPLE, device=device) * 7 % max(size - 8, 1) + min(8, size - 1)


@torch.no_grad()
def _own_scores(module: Any) -> Tensor:
    """float64[n, vocabulary]: the scores of the sample by the module's own forward, with the library's attention."""
    from decgraph.runtime.models.engine.masked_forward import twin

    table = module.get_input_embeddings().weight
    scores: Tensor = twin(module.eval(), "eager")(input_ids=_sample(len(table), table.device)[None]).logits[0]
    return scores.double()


def _scores(net: Net) -> Tensor:
    """float64[n, vocabulary]: the same by `Net`."""
    device = net.embedding.device
    tape = Tape(torch.arange(_SAMPLE, device=device), torch.ones(_SAMPLE, _SAMPLE, dtype=torch.bool, device=device))
    return net.logits(net.run(_sample(len(net.embedding), device), tape))
