"""torch's own attention over the same keys and values: what tree attention is compared with.

queries [B, H, T, D]; keys, values [B, G, N, D] with G query groups; seen: bool[B, 1, T, N]. Whatever a peer wants to have in
another form (repeated heads, a block mask, a compiled kernel) is made before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from lab.gpu.clocks import Work

Peer = Callable[[Tensor, Tensor, Tensor, Tensor], Work]


def dense_grouped(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Work:
    """SDPA with a dense mask, heads grouped by SDPA: [B, H, T, D]."""
    return partial(sdpa, q, k, v, attn_mask=seen, enable_gqa=True)


def dense_repeated(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Work:
    """SDPA with a dense mask over keys and values repeated for every query head, as transformers calls it: [B, H, T, D]."""
    many = q.shape[1] // k.shape[1]
    return partial(sdpa, q, k.repeat_interleave(many, 1), v.repeat_interleave(many, 1), attn_mask=seen)


def flash(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Work:
    """SDPA's flash kernel, for one cell or a chain: it knows no other mask than the causal one. [B, H, T, D]."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.attention.bias import causal_lower_right

    bias: Any = None if q.shape[2] == 1 else causal_lower_right(q.shape[2], k.shape[2])

    def run() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out: Tensor = sdpa(q, k, v, attn_mask=bias, enable_gqa=True)
            return out

    return run


def flex(q: Tensor, k: Tensor, v: Tensor, seen: Tensor) -> Work:
    """FlexAttention, compiled, its block mask made of the dense one: [B, H, T, D]."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    allowed = seen[:, 0]

    def mask(b: Tensor, h: Tensor, t: Tensor, n: Tensor) -> Tensor:
        return allowed[b, t, n]

    blocks = create_block_mask(mask, q.shape[0], None, q.shape[2], k.shape[2], device=str(q.device))
    compiled = torch.compile(flex_attention, dynamic=False)
    return partial(compiled, q, k, v, block_mask=blocks, enable_gqa=True)


DENSE: dict[str, Peer] = {"sdpa, grouped": dense_grouped, "sdpa, repeated": dense_repeated}
