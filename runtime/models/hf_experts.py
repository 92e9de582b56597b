"""A mixture of experts in which every token goes to the expert of one rank."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from decgraph.errors import DecError

if TYPE_CHECKING:
    from decgraph.runtime.models.hf_net import Net


class OfRank(nn.Module):
    """A router of transformers (logits, weights [n, k] and indices [n, k] of the k best experts, best first) that sends every
    token to the expert of this rank alone, with weight 1."""

    def __init__(self, router: Any, rank: int) -> None:
        super().__init__()
        self.router, self.rank = router, rank

    def forward(self, *args: Any, **more: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits, weights, indices = self.router(*args, **more)
        return logits, torch.ones_like(weights[..., -1:]), indices[..., self.rank - 1 :]


def expert_net(net: Net, rank: int, name: str) -> Net:
    """A net on the same weights whose mixtures of experts are their expert of this rank alone. Raises DecError for a model
    without routers that are read so, and for a rank that one does not have."""
    made = net.copied(weight for layer in net.layers for weight in (*layer.parameters(), *layer.buffers()))
    found = 0
    for layer in made.layers:
        for parent in list(layer.modules()):
            for part, router in list(parent.named_children()):
                if not type(router).__name__.endswith("TopKRouter"):
                    continue
                found += 1
                setattr(parent, part, OfRank(_asked(router, rank, name), rank))
    if not found:
        raise DecError(
            f"{name!r} has no expert({rank}): none of its layers is a mixture of experts that decgraph knows",
            hint="Mixtral, Qwen-MoE, OLMoE and their like have a router for each layer",
        )
    return made.using(net.uses)


def _asked(router: Any, rank: int, name: str) -> Any:
    """The router with as many best experts as the rank needs. Raises DecError where it does not give them best first."""
    count = int(getattr(router, "num_experts", 0) or router.weight.shape[0])
    if not 1 <= rank <= count:
        raise DecError(f"{name!r} has no expert({rank}): a router has {count} experts", hint=f"a rank in 1..{count}")
    made = copy.copy(router)
    made.top_k = rank
    width = int(router.weight.shape[-1])
    with torch.no_grad():
        out = made(torch.linspace(-1, 1, width, device=router.weight.device, dtype=router.weight.dtype)[None])
    good = isinstance(out, tuple) and len(out) == 3 and out[2].shape[-1] == rank and out[1].shape[-1] == rank
    if not good or bool((out[1][..., 1:] > out[1][..., :-1]).any()):
        raise DecError(f"{name!r} has no expert({rank}): {type(router).__name__} does not give its best experts in order")
    return made
