"""The page table of a program: which slots of the pools of keys and values are whose.

A pool is a tensor with a row for every slot of every page; all models of a program have pools of the same pages. A lane's slot
(a token's position, or a place behind the text) is a row of the pool by the lane's pages. The host gives pages to lanes between
steps; steps only read the table. Page 0 is nobody's: entries of the table that are not used name it, so that what a lane
without a request computes goes there.

Pages that a lane leaves keep what they have until they are needed, the ones that were left first going first. A lane whose text
begins with the tokens of such a page, or of one that another lane has, shares it. Steps write no shared page.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from decgraph.backends.triton.kernels.shared import PAGE


@dataclass
class PagedTensor:
    """A tensor with a row for every slot of every page. data: [rows, W], or [n, H, rows, D] of n layers, whose parts are
    `layers`; others when there are more pages."""

    data: Tensor
    axis: int

    def __post_init__(self) -> None:
        self.layers: tuple[Tensor, ...] = self.data.unbind(0) if self.axis else ()

    def grow(self, rows: int) -> None:
        """More rows of zeros."""
        shape = list(self.data.shape)
        shape[self.axis] += rows
        larger = self.data.new_zeros(shape)
        larger.narrow(self.axis, 0, shape[self.axis] - rows).copy_(self.data)
        self.data = larger
        self.__post_init__()


class Pages:
    """Pages of B lanes with at least `slots` slots each. pooled: the lanes have pages as they need them (`take`); else each has
    all of its own from the beginning, one behind the other. The last page of a lane's table is nobody's.

    table: int32[B, N], pages by lane; rows: int64[B, N * PAGE], the row of each slot in the pools. behind: how many tokens
    after those of a page decide what it has."""

    def __init__(self, batch: int, slots: int, device: torch.device | str = "cpu", *, pooled: bool = False) -> None:
        self.batch, self.device, self.pooled, self.behind = batch, torch.device(device), pooled, 0
        self.width = -(-slots // PAGE)
        self.capacity = (self.width + 1) * PAGE
        self.count = 1 if pooled else batch * (self.width + 1)
        self.pools: list[PagedTensor] = []
        shape = (batch, self.width + 1)
        own = torch.arange(self.count, dtype=torch.int32, device=self.device)
        self.table = torch.zeros(shape, dtype=torch.int32, device=self.device) if pooled else own.view(shape)
        self._inside = torch.arange(PAGE, device=self.device)
        self.rows = self._rows(self.table)
        own_pages = [[n * (self.width + 1) + i for i in range(self.width)] for n in range(batch)]
        self.lanes: list[list[int]] = [[] for _ in range(batch)] if pooled else own_pages
        """The pages of each lane."""
        self.uses = [1] * self.count
        """By page: how many lanes have it."""
        self.unused: OrderedDict[int, None] = OrderedDict()
        """Pages of no lane, in the order in which they are taken."""
        self.names: dict[int, bytes] = {}
        """By page that is computed to its end: what it and all before it have. `named` is the other way round."""
        self.named: dict[bytes, int] = {}
        self.ends: list[list[bytes]] = [[] for _ in range(batch)]
        """By lane: the names of what its first pages have."""
        self.shared = [0] * batch
        """By lane: how many slots were shared when its text began."""

    def _rows(self, table: Tensor) -> Tensor:
        """int64[b, n * PAGE]: the rows of the pages int32[b, n]."""
        return (table.long()[..., None] * PAGE + self._inside).flatten(-2)

    # -- pools
    def pool(self, before: Sequence[int], after: Sequence[int], dtype: torch.dtype) -> PagedTensor:
        """A pool of zeros [*before, rows, *after]."""
        made = PagedTensor(torch.zeros((*before, self.count * PAGE, *after), dtype=dtype, device=self.device), len(before))
        self.pools.append(made)
        self.named.clear()  # it has nothing of what the other pools have
        self.names.clear()
        return made

    def at(self, slots: Tensor, lanes: slice = slice(None)) -> Tensor:
        """int64[b, K]: the rows of slots int64[b or 1, K] of some lanes."""
        rows = self.rows[lanes]
        return rows.gather(1, slots.expand(len(rows), -1))

    def whole(self, pool: Tensor) -> Tensor:
        """Rows [H, rows, D] of pages that are each lane's own, as [B, H, S, D], without a copy."""
        assert not self.pooled
        return pool.unflatten(1, (self.batch, -1)).transpose(0, 1)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page in all pools."""
        return sum(pool.data.nbytes for pool in self.pools) // self.count

    @torch.no_grad()
    def grow(self, more: int) -> None:
        """More pages. The pools have other addresses then: what was recorded with the old ones is void."""
        for pool in self.pools:
            pool.grow(more * PAGE)
        self.uses += [0] * more
        self.unused.update(dict.fromkeys(range(self.count, self.count + more)))
        self.count += more

    # -- lanes
    def begins(self, lane: int, tokens: Sequence[int], most: int) -> list[int]:
        """The pages, of at most so many slots, that have what a lane's text begins with."""
        found, name = list[int](), b""
        for n in range(min(most // PAGE, self.width)):
            name = self._name(name, tokens, n)
            page = self.named.get(name)
            if page is None or not (self.pooled or page == self.lanes[lane][n]):
                break
            found.append(page)
        return found

    def share(self, lane: int, tokens: Sequence[int], most: int) -> int:
        """Give a lane, of which nothing is computed, the pages that have what its text begins with, in place of its own; how
        many slots they have."""
        found = self.begins(lane, tokens, most)
        if len(found) * PAGE > self.shared[lane]:
            self.ends[lane], self.shared[lane] = [self.names[page] for page in found], len(found) * PAGE
            if self.pooled:
                for page in found:
                    self.unused.pop(page, None)
                    self.uses[page] += 1
                self._drop(self._set(lane, 0, found))
        if not self.pooled:
            self._begin_anew(lane, len(found))
        return self.shared[lane]

    def missing(self, lane: int, slots: int) -> int:
        """How many unused pages there are too few of for so many slots of a lane."""
        return max(0, self._more(lane, slots) - len(self.unused))

    def _more(self, lane: int, slots: int) -> int:
        return max(0, min(-(-slots // PAGE), self.width) - len(self.lanes[lane]))

    @torch.no_grad()
    def take(self, lane: int, slots: int) -> None:
        """Give a lane pages for so many slots."""
        first, pages = len(self.lanes[lane]), [self.unused.popitem(last=False)[0] for _ in range(self._more(lane, slots))]
        if pages:
            self._set(lane, first, pages)
            self._begin_anew(lane, first)

    def _begin_anew(self, lane: int, first: int) -> None:
        """Forget what the pages of a lane from this one on have: numbers that are none would go through a mask."""
        for page in self.lanes[lane][first:]:
            self.uses[page] = 1
            self.named.pop(self.names.pop(page, b""), None)
        rows = self.rows[lane, first * PAGE : len(self.lanes[lane]) * PAGE]
        for pool in self.pools:
            pool.data.index_fill_(pool.axis, rows, 0)

    def note(self, lane: int, tokens: Sequence[int], slots: int) -> None:
        """What a lane has below so many slots follows from tokens, and no step writes it again: others may share it."""
        ends = self.ends[lane]
        for n in range(len(ends), min(slots // PAGE, len(self.lanes[lane]))):
            ends.append(self._name(ends[-1] if ends else b"", tokens, n))
            page = self.lanes[lane][n]
            if self.named.setdefault(ends[-1], page) == page:
                self.names[page] = ends[-1]

    def _name(self, before: bytes, tokens: Sequence[int], n: int) -> bytes:
        """The name of what page n of a text has, from that of the page before it."""
        own = np.array(tokens[n * PAGE : (n + 1) * PAGE + self.behind], dtype=np.int64)
        return hashlib.blake2b(before + own.tobytes(), digest_size=16).digest()

    @torch.no_grad()
    def release(self, lane: int) -> None:
        """A lane leaves its pages, which have what they have until another lane takes them."""
        self.ends[lane], self.shared[lane] = [], 0
        if not self.pooled:
            return
        self._drop(self.lanes[lane])
        self.lanes[lane] = []
        self.table[lane] = 0
        self.rows[lane] = self._inside.repeat(self.width + 1)

    def _drop(self, pages: Sequence[int]) -> None:
        """A lane has these pages no more. The end of a text is taken before its beginning, and what has no name first."""
        for page in reversed(pages):
            self.uses[page] -= 1
            if not self.uses[page]:
                self.unused[page] = None
                if page not in self.names:
                    self.unused.move_to_end(page, last=False)

    def _set(self, lane: int, first: int, pages: list[int]) -> list[int]:
        """Put pages into the table of a lane, from its page `first` on; those that were there."""
        end = first + len(pages)
        before, self.lanes[lane][first:end] = self.lanes[lane][first:end], pages
        if pages:
            # On CUDA from pinned memory, so that the host waits for no step.
            numbers = torch.empty(len(pages), dtype=torch.int32, pin_memory=self.device.type == "cuda")
            numbers.numpy()[:] = pages
            self.table[lane, first:end].copy_(numbers, non_blocking=True)
            self.rows[lane, first * PAGE : end * PAGE] = self._rows(self.table[lane, first:end])
        return before
