# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-untyped-decorators=False
# Triton reads annotations as part of a kernel, so kernels have none.
"""Bit masks of a step's tail from the parents of its nodes: which positions each position sees."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from decgraph.backends.triton.attention.sizes import power
from decgraph.errors import DecError


@triton.jit
def below(bit, word):
    """The bits of a word (int32) below `bit`, counted from the first bit of all: those of cells 0 .. bit-1."""
    some = tl.minimum(tl.maximum(bit - word * 32, 0), 32)
    return ((tl.full((), 1, tl.int64) << some.to(tl.int64)) - 1).to(tl.int32)


@triton.jit(do_not_specialize=["nodes", "words", "offset"])
def ancestor_bits(
    parent, uncached, bits, jumps, nodes, words, offset, N: tl.constexpr, W: tl.constexpr, UNCACHED: tl.constexpr
):
    """W words of the bits of one sequence's nodes. Every iteration doubles how far up a node sees: it takes over the bits
    and the jump of the node that it jumps to. The loop ends when no node has a jump left, after log2 of the depth.

    jumps: int32[batch, programs of a sequence, 2, nodes], room for the jumps of an iteration and of the next.
    """
    b = tl.program_id(0)
    node, word = tl.arange(0, N), tl.program_id(1) * W + tl.arange(0, W)
    there = node < nodes
    mask = there[:, None] & (word < words)[None, :]
    up = tl.load(parent + b.to(tl.int64) * nodes + node, mask=there, other=-2).to(tl.int32)
    lines = bits + b.to(tl.int64) * nodes * words
    jump = jumps + (b.to(tl.int64) * tl.num_programs(1) + tl.program_id(1)) * nodes * 2
    chain = node * 0 + offset
    if UNCACHED:
        chain = node * 0 + tl.minimum(tl.load(uncached + b), offset)
    own = offset + node
    seen = tl.where((own[:, None] // 32) == word[None, :], 1 << (own[:, None] % 32), 0) | below(chain[:, None], word[None, :])
    seen = tl.where((up >= -1)[:, None], seen, 0)
    now = 0
    while tl.max(up, 0) >= 0:
        tl.store(lines + node[:, None] * words + word[None, :], seen, mask=mask)
        tl.store(jump + now * nodes + node, up, mask=there)
        tl.debug_barrier()
        climbs = up >= 0
        seen |= tl.load(lines + up[:, None] * words + word[None, :], mask=mask & climbs[:, None], other=0)
        up = tl.load(jump + now * nodes + up, mask=there & climbs, other=-1)
        now = 1 - now
        tl.debug_barrier()
    tl.store(lines + node[:, None] * words + word[None, :], seen, mask=mask)


WORDS = 8
"""Words of each node that a program keeps."""


def tree_warps(nodes: int) -> int:
    """Warps of ancestor_bits for so many nodes, a power of two."""
    return min(max(nodes // 64, 1), 8)


def ancestors(parent: Tensor, words: int, offset: int = 0, uncached: Tensor | None = None) -> Tensor:
    """int32[B, N, words]: which tail cells the nodes of trees see, themselves among them.

    parent: int64[B, N], below the node's own number; -1 for a node that hangs on the committed tokens, -2 for one that is
    padding and sees nothing. offset: cells of the tail before the first node, committed tokens that are computed in the same
    step; all nodes see them, or the first uncached[b] of them (int32[B]). Raises DecError where `words` have too few bits.
    """
    batch, nodes = parent.shape
    if offset + nodes > words * 32:
        raise DecError(f"{offset + nodes} cells do not fit into {words} words of bits")
    bits = torch.empty((batch, nodes, words), dtype=torch.int32, device=parent.device)
    if nodes:
        lanes, wide = power(nodes), min(power(words), WORDS)
        parts = -(-words // wide)
        jumps = torch.empty((batch, parts, 2, nodes), dtype=torch.int32, device=parent.device)
        ancestor_bits[(batch, parts)](
            parent.contiguous(),
            parent if uncached is None else uncached,
            bits,
            jumps,
            nodes,
            words,
            offset,
            N=lanes,
            W=wide,
            UNCACHED=uncached is not None,
            num_warps=tree_warps(lanes),
        )
    return bits


@triton.jit(do_not_specialize=["cells", "words"])
def chain_bits(count, bits, cells, words, T: tl.constexpr, W: tl.constexpr):
    """The bits of one sequence's chain."""
    b = tl.program_id(0)
    cell, word = tl.arange(0, T), tl.arange(0, W)
    real = cell < tl.load(count + b)
    seen = tl.where(real[:, None], below((cell + 1)[:, None], word[None, :]), 0)
    tl.store(
        bits + (b.to(tl.int64) * cells + cell[:, None]) * words + word[None, :],
        seen,
        mask=(cell < cells)[:, None] & (word < words)[None, :],
    )


def chains(count: Tensor, cells: int, words: int) -> Tensor:
    """int32[B, cells, words]: bits of committed tokens at the front of a tail. Cell j sees cells 0 .. j; cells at count[b]
    (int32[B]) and behind are padding. Raises DecError where `words` have too few bits."""
    if cells > words * 32:
        raise DecError(f"{cells} cells do not fit into {words} words of bits")
    bits = torch.empty((len(count), cells, words), dtype=torch.int32, device=count.device)
    if cells:
        chain_bits[(len(count),)](count, bits, cells, words, T=power(cells), W=power(words), num_warps=4)
    return bits
