"""The experts of a mixture as one call: which expert takes which token depends on the data, so no graph has room for it.

transformers lets an implementation of all experts be registered by name; the one registered here is recorded as a single
call. On the CPU it reads the matrices of the experts that were chosen, each once, for its tokens: for one token that is the
few matrices that the model reads at best, and no copy of them is made, as the library's batched form does. Elsewhere, where
a list of the chosen experts would wait for the device, every choice has its own product, some tokens at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from decgraph.runtime.models.capture.program import Refused

_AT_ONCE = 64  # choices whose matrices are gathered together, off the CPU

_watching: ContextVar[list[Tensor] | None] = ContextVar("decgraph_experts_watched", default=None)


class Experts:
    """The experts of one layer as a function; equal for the same module, so that recordings can be compared."""

    def __init__(self, module: Any) -> None:
        if getattr(module, "_is_expert_parallel", False):
            raise Refused(f"{type(module).__name__} has its experts on several devices")
        self.module, self.__name__ = module, "experts"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Experts) and other.module is self.module

    def __hash__(self) -> int:
        return id(self.module)

    def __call__(self, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """States [n, width] through the experts `chosen` int64[n, k], weighted with [n, k] and summed: [n, width]."""
        watched = _watching.get()
        if watched is not None:
            watched.append(chosen)
        # Sums of 16-bit numbers are kept in 32 bits and rounded once.
        wide = torch.promote_types(hidden.dtype, torch.float32)
        total = torch.zeros(hidden.shape, dtype=wide, device=hidden.device)
        if hidden.device.type == "cpu":
            for expert, tokens, places in _groups(chosen):
                every = len(tokens) == len(hidden)
                made = self._one(hidden if every else hidden[tokens], expert)
                made = made * weights[tokens, places].unsqueeze(-1)
                total = total + made.to(wide) if every else total.index_add_(0, tokens, made.to(wide))
            return total.to(hidden.dtype)
        choices, count = chosen.reshape(-1), chosen.shape[1]
        parts = []
        for first in range(0, len(choices), _AT_ONCE):
            some = torch.arange(first, min(first + _AT_ONCE, len(choices)), device=hidden.device)
            made = self._each(hidden[some // count], choices[some])
            parts.append(made * weights.reshape(-1)[some].unsqueeze(-1))
        return torch.cat(parts).view(*chosen.shape, -1).to(wide).sum(1).to(hidden.dtype)

    def _one(self, x: Tensor, expert: int) -> Tensor:
        """Rows [n, width] through one expert."""
        m = self.module
        gated = m.has_gate
        first, bias = (m.gate_up_proj, "gate_up_proj_bias") if gated else (m.up_proj, "up_proj_bias")
        x = F.linear(x, self._matrix(first[expert]), getattr(m, bias)[expert] if m.has_bias else None)
        x = m._apply_gate(x) if gated else m.act_fn(x)
        x = F.linear(x, self._matrix(m.down_proj[expert]), m.down_proj_bias[expert] if m.has_bias else None)
        return m.post_expert_norm(x) if m.has_post_expert_norm else x

    def _each(self, x: Tensor, experts: Tensor) -> Tensor:
        """Rows [n, width], each through its own expert."""
        m = self.module
        gated = m.has_gate
        first, bias = (m.gate_up_proj, "gate_up_proj_bias") if gated else (m.up_proj, "up_proj_bias")
        x = self._products(x, first[experts], getattr(m, bias)[experts] if m.has_bias else None)
        x = m._apply_gate(x) if gated else m.act_fn(x)
        x = self._products(x, m.down_proj[experts], m.down_proj_bias[experts] if m.has_bias else None)
        return m.post_expert_norm(x) if m.has_post_expert_norm else x

    def _matrix(self, weight: Tensor) -> Tensor:
        """An expert's matrix as [out, in]."""
        return weight.transpose(-1, -2) if self.module.is_transposed else weight

    def _products(self, x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        out = torch.bmm(self._matrix(weights), x.unsqueeze(-1)).squeeze(-1)
        return out if bias is None else out + bias


def _groups(chosen: Tensor) -> Iterator[tuple[int, Tensor, Tensor]]:
    """The experts that were chosen, in order: (expert, its tokens, which of a token's choices it is)."""
    of: dict[int, tuple[list[int], list[int]]] = {}
    for token, experts in enumerate(chosen.tolist()):
        for place, expert in enumerate(experts):
            tokens, places = of.setdefault(expert, ([], []))
            tokens.append(token)
            places.append(place)
    for expert in sorted(of):
        yield expert, torch.tensor(of[expert][0]), torch.tensor(of[expert][1])


@contextmanager
def watched() -> Iterator[list[Tensor]]:
    """What was chosen, int64[n, k] by call, while this is entered."""
    found: list[Tensor] = []
    token = _watching.set(found)
    try:
        yield found
    finally:
        _watching.reset(token)
