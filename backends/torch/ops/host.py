"""Lowerings of ir/ops/host.py: the program's own Python functions and the step barrier."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from decgraph.backends.run import calls
from decgraph.backends.torch.data import whole
from decgraph.backends.torch.lowering import on_host
from decgraph.backends.torch.ops.selection import ranked, top
from decgraph.backends.torch.pending import MeetingCall
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.transfer import fetched
from decgraph.ir.data.numbers import Number
from decgraph.ir.ops.common import plain
from decgraph.ir.ops.host import folded, shares

on_host("extern", why="it is a Python function of the user's")


@calls
def batch_top(m: Machine, x: object, k: int, by: Sequence[object], site: str) -> MeetingCall:
    """The meaning of `batch.top`: a call that waits for the other sequences' candidates."""
    _, _, order, keys = ranked(m, x, by)
    best: list[tuple[Number, ...]] = [tuple(key[i].item() for key in keys) for i in order[: max(0, int(k))]]
    return MeetingCall((best, int(k)), shares, site, finish=lambda n: top(m, x, whole(n), *by))


@calls
def fold(m: Machine, x: object, fn: str, site: str) -> MeetingCall:
    """The meaning of `batch.fold`: a call that waits for the other sequences."""
    value = fetched(x) if isinstance(x, torch.Tensor) else x
    return MeetingCall(plain(value), partial(folded, fn), site)
