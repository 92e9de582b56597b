"""Tree and canvas attention on the device: against float64, then against the bandwidth of a copy and torch's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lab.gpu import attention_peers as peers
from lab.gpu import exact
from lab.gpu.clocks import copies, launch_ms, over_copy, peer_ms
from lab.gpu.lab import Lab
from lab.gpu.poison import poisoned
from lab.gpu.pool import Check, judged
from lab.gpu.report import Items, OutOfTime, Row, limited

ALLOWED = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}  # of the norm


@dataclass(frozen=True)
class Case:
    """held: slots of each sequence; cells: new ones, the last of a tail of first + cells; kind: a tree's bits are its
    ancestors', a chain's all before, a canvas has no bits."""

    held: tuple[int, ...]
    cells: int
    first: int = 0
    heads: tuple[int, int] = (32, 8)
    size: int = 128
    kind: str = "tree"
    dtype: torch.dtype = torch.bfloat16
    window: int | None = None
    softcap: float | None = None
    shared: int = 0

    def __str__(self) -> str:
        more = "".join(
            f", {n} {v}"
            for n, v in (("first", self.first), ("window", self.window), ("softcap", self.softcap), ("shared", self.shared))
            if v
        )
        return (
            f"{self.kind} {self.cells} over {'+'.join(map(str, self.held))}, heads {self.heads[0]}/{self.heads[1]} x "
            f"{self.size}, {str(self.dtype).removeprefix('torch.')}{more}"
        )


CASES = [
    Case((1000,), 1),
    Case((1000,), 64),
    Case((0,), 1),
    Case((5,), 7),
    Case((1023, 17, 512), 16),
    Case((300, 0), 256),
    Case((700, 90), 24, first=8),
    Case((4000,), 33, kind="chain"),
    Case((900, 1200), 20, window=256),
    Case((513,), 64, softcap=30.0),
    Case((100, 3, 77), 9, shared=600),
    Case((300,), 40, dtype=torch.float32),
    Case((300,), 40, dtype=torch.float16),
    Case((260,), 17, heads=(4, 4), size=64),
    Case((260,), 17, heads=(8, 1), size=96),
    Case((200,), 12, heads=(4, 2), size=256),
    Case((512, 480), 32, kind="canvas", heads=(32, 32)),
    Case((37,), 5, kind="canvas"),
    Case((9000,), 64, heads=(8, 2)),
]
TINY = [Case((9,), 1, heads=(2, 1), size=16), Case((7, 3), 5, heads=(4, 2), size=16, dtype=torch.float32),
        Case((0,), 2, heads=(2, 2), size=16), Case((12,), 4, first=2, heads=(2, 1), size=16, window=6),
        Case((5, 8), 3, heads=(2, 1), size=16, shared=6), Case((9, 6), 4, heads=(2, 2), size=16, kind="canvas")]  # fmt: skip


@dataclass
class Made:
    """A case's tensors. seen: bool[B, T, N] over the N slots of `keys` (behind the shared ones, where there are any)."""

    q: Tensor
    keys: Tensor
    values: Tensor
    held: Tensor
    bits: Tensor
    seen: Tensor
    positions: Tensor
    prefix: tuple[Tensor, Tensor, Tensor] | None


def ancestors(cells: int, kind: str, made: torch.Generator) -> Tensor:
    """bool[cells, cells]: which cells of the tail each one sees, itself among them."""
    seen = torch.eye(cells, dtype=torch.bool)
    for n in range(1, cells):
        parent = n - 1 if kind == "chain" else int(torch.randint(max(-1, n - 9), n, (), generator=made))
        if parent >= 0:  # else it hangs from what is held
            seen[n] |= seen[parent]
    return seen


def as_bits(seen: Tensor, words: int) -> Tensor:
    """bool[..., n] as int32[..., words]: bit j % 32 of word j // 32."""
    wide = torch.zeros((*seen.shape[:-1], words * 32), dtype=torch.int64)
    wide[..., : seen.shape[-1]] = seen.long()
    shift = torch.arange(32)
    packed = (wide.view(*seen.shape[:-1], words, 32) << shift).sum(-1)
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()


def make(case: Case, device: torch.device, seed: int, spare: int = 5) -> Made:
    """Random tensors of a case; slots that nobody may read are NaN."""
    g = torch.Generator().manual_seed(seed)
    batch, tail = len(case.held), case.first + case.cells
    tail = 0 if case.kind == "canvas" else tail
    capacity = max(case.held) + tail + spare
    hq, hkv = case.heads
    held = torch.tensor(case.held, dtype=torch.int32)

    def random(*shape: int) -> Tensor:
        on = torch.Generator(device).manual_seed(int(torch.randint(2**31, (), generator=g)))
        return torch.randn(shape, generator=on, device=device).to(case.dtype)

    keys, values = random(batch, hkv, capacity, case.size), random(batch, hkv, capacity, case.size)
    slots = torch.arange(capacity)
    for b, n in enumerate(case.held):
        keys[b, :, n + tail :], values[b, :, n + tail :] = torch.nan, torch.nan
    seen = (slots < held[:, None])[:, None].repeat(1, case.cells, 1)
    words = max(1, -(-tail // 32))
    bits = torch.zeros((batch, case.cells, words), dtype=torch.int32)
    positions = torch.zeros((batch, max(tail, 1)), dtype=torch.int64)
    for b, n in enumerate(case.held if tail else ()):
        whole = ancestors(tail, case.kind, g)
        part = whole[case.first :]
        bits[b] = as_bits(part, words)
        seen[b, :, n : n + tail] = part
        positions[b] = case.shared + n + whole.sum(1) - 1
    if case.window is not None:
        of_slots = torch.cat([slots, torch.zeros(1, dtype=torch.int64)])[None, :capacity].repeat(batch, 1) + case.shared
        for b, n in enumerate(case.held):
            of_slots[b, n : n + tail] = positions[b]
        seen &= of_slots[:, None] > positions[:, case.first :, None] - case.window
    prefix = None
    if case.shared:
        prefix = (
            random(hkv, case.shared + 3, case.size),
            random(hkv, case.shared + 3, case.size),
            torch.tensor([case.shared], dtype=torch.int32, device=device),
        )
    return Made(
        random(batch, case.cells, hq, case.size),
        keys,
        values,
        held.to(device),
        bits.to(device),
        seen.to(device),
        positions.to(device),
        prefix,
    )


def ours(case: Case, x: Made) -> Callable[[], Tensor]:
    """The kernel's call, which returns [B, T, H, D]."""
    from decgraph.backends.triton.attention.attend import attend, attend_canvas

    scale = case.size**-0.5
    if case.kind == "canvas":
        return partial(attend_canvas, x.q, x.keys, x.values, x.held, scale=scale, softcap=case.softcap)
    at = {} if case.window is None else {"positions": x.positions[:, case.first :].contiguous(), "tail_positions": x.positions}
    return partial(
        attend,
        x.q,
        x.keys,
        x.values,
        x.held,
        x.bits,
        case.first,
        scale=scale,
        window=case.window,
        softcap=case.softcap,
        prefix=x.prefix,
        **at,
    )


def right(case: Case, x: Made) -> Tensor:
    """float64[B, T, H, D]."""
    keys, values, seen = (t.nan_to_num(0.0) for t in (x.keys, x.values, x.seen.double()))
    if x.prefix is not None:
        more = (p[None, :, : case.shared].expand(len(case.held), -1, -1, -1) for p in x.prefix[:2])
        keys, values = (torch.cat([a, b], 2) for a, b in zip(more, (keys, values)))
        seen = torch.cat([torch.ones_like(seen[..., :1]).expand(-1, -1, case.shared), seen], -1)
    return exact.attention(x.q, keys.transpose(1, 2), values.transpose(1, 2), seen.bool(), case.size**-0.5, case.softcap)


def checked(lab: Lab, case: Case) -> list[Check]:
    """How far the kernel is from float64, of the norm, with some seeds."""
    out = []
    for seed in range(3 if lab.cuda else 1):
        x = make(case, lab.device, 100 * case.cells + seed)
        with poisoned():
            mine = ours(case, x)()
        out.append((str(case), exact.apart(mine, right(case, x)), ALLOWED[case.dtype]))
    return out


def checks(lab: Lab) -> Row:
    """Every case against float64."""
    return judged(lab, checked, CASES if lab.cuda else TINY)


def stage(lab: Lab) -> Items:
    """Timings, for the stage `kernels`."""
    contexts, batches, trees = (
        ((1024, 8192, 32768), (1, 8), (1, 16, 64, 256)) if lab.sizes.name != "tiny" else ((32,), (1,), (1, 4))
    )
    for context in contexts:
        for batch in batches:
            yield f"attention, {batch} x {context}", partial(timed, lab, context, batch, trees)
    yield "attention against Flex", partial(against_flex, lab)


def shape(lab: Lab, context: int, batch: int, cells: int) -> Case:
    """A tree of so many cells over a context, with a large model's heads."""
    heads, size = ((32, 8), 128) if lab.sizes.name != "tiny" else ((2, 1), 16)
    return Case((context,) * batch, cells, heads=heads, size=size, dtype=lab.sizes.dtype)


def moved(case: Case) -> int:
    """Bytes that must be read and written: keys and values of what is held and of the tail, queries and outputs."""
    each = torch.empty((), dtype=case.dtype).element_size()
    slots = sum(case.held) + len(case.held) * case.cells
    return each * case.size * (2 * slots * case.heads[1] + 2 * len(case.held) * case.cells * case.heads[0])


def timed(lab: Lab, context: int, batch: int, trees: tuple[int, ...]) -> Row:
    """Trees of some sizes over one context: bandwidth, and torch's attention with the same dense mask."""
    row: Row = {"trees": []}
    says = []
    for cells in trees:
        case = shape(lab, context, batch, cells)
        made = [make(case, lab.device, seed) for seed in range(copies(lab, moved(case)))]
        found = {"cells": cells, **over_copy(lab, moved(case), launch_ms(lab, [ours(case, x) for x in made]))}
        mine = found["ms"]["median"]
        del made[8:]
        wanted: dict[str, Any] = dict(peers.DENSE) | ({"sdpa, flash": peers.flash} if cells == 1 and lab.cuda else {})
        found["peers"] = {name: peer_ms(lab, [peer(*as_torch(case, x)) for x in made]) for name, peer in wanted.items()}
        took = [p["ms"]["median"] for name, p in found["peers"].items() if "ms" in p and name in peers.DENSE]
        found["over_dense"] = round(min(took) / mine, 3) if took else None
        row["trees"].append(found)
        flash = found["peers"].get("sdpa, flash", {}).get("ms", {}).get("median")
        says.append(
            f"{cells}: {1000 * mine:.0f} us, {found['of_copy']:.0%} of a copy, {found['over_dense']} times dense SDPA"
            + (f", {flash / mine:.2f} times flash" if flash else "")
        )
    return {**row, "says": "; ".join(says)}


def as_torch(case: Case, x: Made) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Queries, keys, values and mask as torch's attention takes them ([B, H, T, D], [B, G, N, D] twice, bool[B, 1, T, N]),
    without the slots that nobody has."""
    rows = case.held[0] + case.cells
    return (
        x.q.transpose(1, 2).contiguous(),
        x.keys[:, :, :rows].contiguous(),
        x.values[:, :, :rows].contiguous(),
        x.seen[:, None, :, :rows].contiguous(),
    )


def against_flex(lab: Lab, seconds: float = 40) -> Row:
    """FlexAttention with a block mask, for as many shapes as it compiles in so many seconds."""
    row: Row = {"shapes": []}
    says = []
    if not lab.cuda:
        return {"says": "FlexAttention is timed on a GPU only"}
    try:
        with limited(seconds):
            for context, cells in ((8192, 64), (8192, 1), (1024, 64)):
                case = shape(lab, context, 1, cells)
                x = make(case, lab.device, 1)
                mine = launch_ms(lab, [ours(case, x)]).median
                took = peer_ms(lab, [peers.flex(*as_torch(case, x))])
                row["shapes"].append({"context": context, "cells": cells, "ms": mine, "flex": took})
                ratio = took["ms"]["median"] / mine if "ms" in took else None
                says.append(f"{cells} over {context}: {f'{ratio:.2f} times Flex' if ratio else took}")
    except OutOfTime:
        row["left_out"] = f"more than {seconds:g} s"
    return {**row, "says": "; ".join(says) or "FlexAttention did not compile in time"}
