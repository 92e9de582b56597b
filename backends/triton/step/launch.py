"""Launches of kernels.py: tensors in, tensors out, nothing read back."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from decgraph.backends.triton.source import HEARD
from decgraph.backends.triton.step import kernels
from decgraph.backends.triton.tuned import Config, config

SMALL = Config(block=64, warps=1)


def new_cells(
    committed: Tensor,
    length: Tensor,
    cached: Tensor,
    node_tokens: Tensor,
    ids: Tensor,
    depth: Tensor,
    own: Tensor,
    wanted: Tensor,
    *,
    count: int,
    lead: int,
    most_uncached: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(tokens, positions, bits, rows) of a forward; see the kernel. ids, depth: int64[B or 1, count]; own: int32[B or 1,
    count, W]; with a count of 0 they have one entry, which is not read."""
    launched("new_cells")
    b, n, w = int(length.shape[0]), count, int(own.shape[2])
    at = length.device
    ids, depth, own = ids.contiguous(), depth.contiguous(), own.contiguous()
    tokens = torch.empty((b, lead + n), dtype=torch.int64, device=at)
    positions = torch.empty_like(tokens)
    bits = torch.empty((b, lead + n, w), dtype=torch.int32, device=at)
    want = int(wanted.shape[0])
    rows = torch.empty((b, want), dtype=torch.int64, device=at)
    if at.type != "meta":
        sizes = config("new_cells", (), SMALL)
        block = min(sizes.block, triton.next_power_of_2(lead + n))
        kernels.new_cells[(b,)](
            tokens,
            positions,
            bits,
            rows,
            committed,
            int(committed.shape[1]),
            length,
            cached,
            node_tokens,
            int(node_tokens.shape[1]),
            ids,
            _stride(ids),
            depth,
            _stride(depth),
            own,
            _stride(own),
            wanted,
            want,
            n,
            LEAD=lead,
            MOST_UNCACHED=most_uncached,
            WORDS=w,
            BLOCK=block,
            WANT=triton.next_power_of_2(want),
            num_warps=sizes.warps,
        )
    return tokens, positions, bits, rows


def commit_tokens(
    committed: Tensor,
    length: Tensor,
    base: Tensor,
    limit: Tensor,
    done: Tensor,
    lost: Tensor,
    ends: Tensor,
    tokens: Tensor,
    count: Tensor,
) -> Tensor:
    """Append tokens, in place; int32[B], how many were kept. See the kernel. done, lost: bool[B]."""
    launched("commit_tokens")
    b, n = int(tokens.shape[0]), int(tokens.shape[1])
    kept = torch.empty(b, dtype=torch.int32, device=length.device)
    if length.device.type != "meta":
        kernels.commit_tokens[(b,)](
            kept,
            committed,
            int(committed.shape[1]),
            length,
            base,
            limit,
            done.view(torch.uint8),
            lost.view(torch.uint8),
            ends,
            tokens.contiguous(),
            count,
            n,
            ENDS=int(ends.shape[1]),
            BLOCK=triton.next_power_of_2(n),
            num_warps=1,
        )
    return kept


def compact_cache(
    length: Tensor, cached: Tensor, kept: Tensor, path: Tensor | None, cells: Tensor | None, *, most_uncached: int, back: int
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(source int64[B, K], count int32[B]) for a model's `move`, and its cached count afterwards, int32[B]; see the kernel.
    Without a path source is None."""
    launched("compact_cache")
    b, at = int(length.shape[0]), length.device
    deepest = 0 if path is None else int(path.shape[1])
    source = torch.empty((b, most_uncached + deepest), dtype=torch.int64, device=at)
    moved, after = torch.empty_like(cached), torch.empty_like(cached)
    if at.type != "meta":
        nodes = cached if path is None else path.contiguous()
        where = cached if cells is None else cells.contiguous()
        kernels.compact_cache[(b,)](
            source,
            moved,
            after,
            length,
            cached,
            kept,
            nodes,
            deepest,
            where,
            0 if cells is None else _stride(where),
            MOST_UNCACHED=most_uncached,
            BACK=back,
            WITH_PATH=path is not None,
            BLOCK=triton.next_power_of_2(most_uncached + deepest),
            num_warps=1,
        )
    return (None if path is None else source), moved, after


def accepted_path(
    packed: Tensor, head: int, depth: int, node_tokens: Tensor, done: Tensor, lost: Tensor, tested: Tensor, accepted: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """(tokens int64[B, depth + 1], accepted nodes int32[B], tokens offered int32[B]) of a verification; see the kernel."""
    launched("accepted_path")
    b, at = int(packed.shape[0]), packed.device
    tokens = torch.empty((b, depth + 1), dtype=torch.int64, device=at)
    count, offered = (torch.empty(b, dtype=torch.int32, device=at) for _ in range(2))
    if at.type != "meta":
        kernels.accepted_path[(b,)](
            tokens,
            count,
            offered,
            tested,
            accepted,
            int(tested.shape[1]),
            done.view(torch.uint8),
            lost.view(torch.uint8),
            packed,
            head,
            depth,
            node_tokens.contiguous(),
            int(node_tokens.shape[1]),
            BLOCK=triton.next_power_of_2(depth + 1),
            num_warps=1,
        )
    return tokens, count, offered


def launched(name: str) -> None:
    """Report the launch of a kernel of kernels.py."""
    for hear in HEARD:
        hear(name, "")


def _stride(a: Tensor) -> int:
    """The stride of the sequence; 0 for an axis of one."""
    return 0 if a.shape[0] == 1 else int(a[0].numel())
