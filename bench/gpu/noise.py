"""The noise of draws on the device: the layout of runtime/noise.py in torch's integers, bit for bit.

The torch backend draws on the host. A Triton kernel with this layout is issue 4's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decgraph.bench.gpu.lab import Lab
from decgraph.bench.gpu.report import Items, Row
from decgraph.runtime import noise

_LOW = 0xFFFFFFFF


def stage(lab: Lab) -> Items:
    yield "words", lambda: words_equal(lab)
    yield "times", lambda: times_equal(lab)


def words(key: noise.Key, n: int, device: torch.device) -> Tensor:
    """The first n words at a key as int64[n], computed on the device. Products of two 32-bit words wrap in int64, and
    their upper half is right all the same."""
    blocks = -(-n // 4)
    c0, c1, c2 = (torch.full((blocks,), word, dtype=torch.int64, device=device) for word in key.words())
    c3 = torch.arange(blocks, dtype=torch.int64, device=device)
    k0, k1 = key.seed & _LOW, key.seed >> 32
    for _ in range(10):
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & _LOW) ^ c1 ^ k0, p1 & _LOW, (p0 >> 32 & _LOW) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return torch.stack([c0, c1, c2, c3], 1).view(-1)[:n]


KEYS = [
    noise.Key(seed, request, site, (loop, 2), (lane,))
    for seed, request, site, loop, lane in (
        (0, 0, 0, 0, 0),
        (2**63 + 5, 2**40 + 1, "stdlib/speculative.dec:11", 7, 3),
        (12345, 17, 2**31 - 1, 1000, -1),
    )
]
LENGTHS = (1, 3, 4, 257, 128256)


def words_equal(lab: Lab) -> Row:
    """Words against NumPy's, for several keys and lengths."""
    checked = different = 0
    for key in [*KEYS, noise.output_key(9, 4, 31)]:
        for n in LENGTHS:
            mine = words(key, n, lab.device).cpu().numpy()
            different += int((mine != noise.words(key, n).astype(np.int64)).sum())
            checked += n
    return {
        "checked": checked,
        "different": different,
        "right": not different,
        "says": f"{different} of {checked} words differ from NumPy's",
    }


def times_equal(lab: Lab) -> Row:
    """Arrival times -log((word + 0.5) / 2**32) in float64: another library's logarithm may differ in the last bit."""
    checked, different, worst = 0, 0, 0.0
    for key in KEYS:
        mine = -torch.log((words(key, LENGTHS[-1], lab.device).double() + 0.5) * 2.0**-32)
        theirs = noise.exponentials(key, LENGTHS[-1])
        gap = np.abs(mine.cpu().numpy() - theirs) / theirs
        checked, different, worst = checked + len(gap), different + int((gap > 0).sum()), max(worst, float(gap.max()))
    return {
        "checked": checked,
        "last_bits_differ": different,
        "worst_relative": worst,
        "right": worst < 1e-14,
        "says": f"{different} of {checked} arrival times differ, by {worst:.1e} at most",
    }
