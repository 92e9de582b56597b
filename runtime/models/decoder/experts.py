"""Mixtures of experts: which experts a token is read by, and what they make of it."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.runtime.models.decoder.products import Product
from decgraph.runtime.models.decoder.shape import Experts, Shape

NAMES = ("experts_up", "experts_down", "experts_up.b", "experts_down.b")
AT_ONCE = 64  # choices whose matrices are gathered together, where nothing may be read on the host


class HasExperts(Protocol):
    """What of a decoder its mixtures read."""

    weights: dict[str, Tensor]
    products: dict[str, Product]
    shape: Shape
    wide: torch.dtype
    gathers: bool

    def activation(self, x: Tensor) -> Tensor: ...

    def gated(self, name: str, x: Tensor) -> Tensor: ...


def mixture(decoder: HasExperts, at: str, experts: Experts, x: Tensor) -> Tensor:
    """States [n, width] through the chosen experts of the layer whose weights' names begin with `at`, and its shared ones."""
    w = decoder.weights
    chosen, shares = routed(decoder, at, experts, x)
    if experts.rank:
        chosen = chosen[:, experts.rank - 1 : experts.rank]
        shares = torch.ones_like(shares[:, :1])
    out = (_gathered if decoder.gathers else _grouped)(decoder, at, experts, x, chosen, shares).to(x.dtype)
    if at + "shared_up" in decoder.products:
        shared = decoder.products[at + "shared_down"](decoder.gated(at + "shared_up", x))
        gate = w.get(at + "shared_gate")
        out = out + (shared if gate is None else shared * torch.sigmoid(F.linear(x, gate)))
    return out


def _grouped(decoder: HasExperts, at: str, experts: Experts, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """Each chosen expert's matrices are read once, for its tokens: which these are is read on the host."""
    w = decoder.weights
    up, down, up_bias, down_bias = (w.get(at + name) for name in NAMES)
    assert up is not None and down is not None
    out = torch.zeros(x.shape, dtype=decoder.wide, device=x.device)
    for j in torch.unique(chosen).tolist():
        row, column = (chosen == j).nonzero(as_tuple=True)
        y = F.linear(x[row], up[j], None if up_bias is None else up_bias[j])
        y = F.linear(_inner(decoder, experts, y), down[j], None if down_bias is None else down_bias[j])
        out.index_add_(0, row, (y * shares[row, column, None]).to(out.dtype))
    return out


def _gathered(decoder: HasExperts, at: str, experts: Experts, x: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """Every choice has its own product, some at a time: nothing is read on the host."""
    w, (count, top) = decoder.weights, chosen.shape
    up, down, up_bias, down_bias = (w.get(at + name) for name in NAMES)
    assert up is not None and down is not None
    parts = []
    for first in range(0, count * top, AT_ONCE):
        some = torch.arange(first, min(first + AT_ONCE, count * top), device=x.device)
        which = chosen.reshape(-1)[some]
        y = torch.bmm(up[which], x[some // top].unsqueeze(-1)).squeeze(-1)
        y = _inner(decoder, experts, y if up_bias is None else y + up_bias[which])
        y = torch.bmm(down[which], y.unsqueeze(-1)).squeeze(-1)
        parts.append(y if down_bias is None else y + down_bias[which])
    made = torch.cat(parts).to(decoder.wide).view(count, top, -1)
    return (made * shares[..., None]).sum(1)


def _inner(decoder: HasExperts, experts: Experts, y: Tensor) -> Tensor:
    """Outputs of an expert's first matrix [n, 2 inner] to the inputs of its second [n, inner]."""
    if not decoder.shape.gated:
        return decoder.activation(y)
    gate, up = (y[..., ::2], y[..., 1::2]) if experts.interleaved else y.chunk(2, -1)
    if experts.clamp is None:
        return decoder.activation(gate) * up
    slope, limit = experts.clamp
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return (up + 1) * gate * torch.sigmoid(gate * slope)


def routed(decoder: HasExperts, at: str, experts: Experts, x: Tensor) -> tuple[Tensor, Tensor]:
    """Which experts read states [n, width], int64[n, top], and with which weights [n, top]."""
    w, e = decoder.weights, experts
    bias = w.get(at + "router.b")
    scores = F.linear(x.to(decoder.wide), w[at + "router"].to(decoder.wide), None if bias is None else bias.to(decoder.wide))
    if e.route == "topk_softmax":
        best, chosen = scores.topk(e.top, -1)
        return chosen, torch.softmax(best, -1) * e.scale
    if e.route == "sparse_mixer":
        return _sparse_mixer(scores, e.top, e.jitter)
    chance = torch.softmax(scores, -1) if e.route == "softmax_topk" else torch.sigmoid(scores)
    ranked = chance + w[at + "router_bias"].to(decoder.wide) if at + "router_bias" in w else chance
    if e.groups > 1:
        grouped = ranked.view(-1, e.groups, e.count // e.groups)
        score = grouped.topk(2, -1)[0].sum(-1) if e.scores == "two" else grouped.amax(-1)
        out = torch.ones(len(x), e.groups, dtype=torch.bool, device=x.device)
        out.scatter_(1, score.topk(e.top_groups, -1)[1], False)
        ranked = ranked.masked_fill(out.repeat_interleave(e.count // e.groups, 1), -torch.inf)
    chosen = ranked.topk(e.top, -1)[1]
    shares = chance.gather(1, chosen)
    if e.renormalised:
        shares = shares / (shares.sum(-1, keepdim=True) + e.epsilon)
    return chosen, shares * e.scale


def _sparse_mixer(scores: Tensor, top: int, jitter: float) -> tuple[Tensor, Tensor]:
    left, chosen, shares = scores, [], []
    for _ in range(top):
        best, index = left.max(-1, keepdim=True)
        far = (best - scores) / scores.abs().clamp(min=best) > 2 * jitter
        chosen.append(index)
        shares.append(left.masked_fill(far, -torch.inf).softmax(-1).gather(-1, index))
        left = left.scatter(-1, index, -torch.inf)
    return torch.cat(chosen, -1), torch.cat(shares, -1)
