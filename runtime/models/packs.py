"""Matrices packed for oneDNN, a second copy that products of several rows read two to four times faster.

Why: MKL's product of 2 to 64 float32 rows costs two to four times one of a single row, though both read the matrix once.
oneDNN's product of a matrix that was reordered for it once does not. Microseconds of one thread of an EPYC with AVX-512
(torch 2.13), matrices read from memory, MKL / packed:

    matrix        1 row        2 rows       5 rows        11 rows       64 rows       512 rows
    576 x 3072    283 / 198    487 / 226    690 / 232     930 / 318     2540 / 1059   16747 / 7222
    1536 x 576    139 / 95     288 / 103    309 / 131     449 / 182     1242 / 553    8438 / 3682
    576 x 49152   6962 / 2918  14277 / 2960 10977 / 3437  14527 / 4848  45283 / 16787
    256 x 1408    18 / 28      34 / 27      84 / 29       133 / 46      465 / 198     3476 / 1474     (in the cache)

In bfloat16, where the processor has it, oneDNN computes all products, packed or not, to the same bits:

    576 x 3072    267 / 142    256 / 143    279 / 158     327 / 226     928 / 823
    576 x 49152   3888 / 1905  4097 / 2308  4189 / 2225   4785 / 3107   14020 / 12420
    256 x 1408    35 / 20      34 / 21      39 / 22       48 / 32       174 / 156                     (in the cache)

So every product of several rows is packed. A call of the packed product costs 9 us more than one of `mm`, which is why one
row of float32 is packed only in a model whose matrices do not stay in the processor's caches from one step to the next
(`_CACHED`), and matrices of less than `_SMALL` numbers never are. Of those that remain the packed copy is read by one row where
it is the fastest on this processor: without AVX-512 it mostly is not (one_row.py, which measures).

Memory: as much again as the matrices take. There is none of it on other devices and in other dtypes, where less than
twice the bytes is available, and where the environment variable DECGRAPH_PACKED is 0.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path

import torch
from torch import Tensor, nn

from decgraph.ir.memo import memo_of
from decgraph.runtime.models.one_row import fastest
from decgraph.runtime.models.reordering import reordered

_CACHED = 24 << 20  # bytes of matrices that a processor's caches are taken to hold between two steps
_SMALL = 1 << 16  # numbers

_version = attrgetter("_version")  # read of all weights in every forward

_log = logging.getLogger("decgraph.engine")


def packable(matrix: Tensor | None) -> bool:
    """Whether oneDNN has a packed product for a matrix [n, m] of this kind, and it pays."""
    return (
        matrix is not None
        and matrix.dim() == 2
        and matrix.device.type == "cpu"
        and matrix.numel() >= _SMALL
        and torch.backends.mkldnn.is_available()
        and (matrix.dtype == torch.float32 or (matrix.dtype == torch.bfloat16 and _has_bfloat16()))
    )


def _has_bfloat16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def streamed(matrices: Iterable[Tensor]) -> bool:
    """Whether tensors [...], all read in every step, come from memory each time."""
    return size(matrices) > _CACHED


def for_one_row(matrix: Tensor, *, streamed: bool) -> bool:
    """Whether one row reads the packed copy of a matrix [n, m] that `packable` takes. streamed: as the function of that name
    says of all matrices of a step."""
    return matrix.dtype == torch.bfloat16 or (streamed and fastest(matrix) == "packed")


def size(matrices: Iterable[Tensor]) -> int:
    """The bytes of tensors [...]."""
    return sum(m.numel() * m.element_size() for m in matrices)


def room(count: int) -> bool:
    """Whether that many bytes may be taken for packed copies."""
    if os.environ.get("DECGRAPH_PACKED") == "0":
        return False
    free = _available()
    if free is None or 2 * count <= free:
        return True
    _log.warning("matrices stay unpacked, so several tokens a step cost more: %d bytes are needed, %d are free", count, free)
    return False


def _available() -> int | None:
    """Bytes that can be allocated without swapping; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError):
        pass
    return None


def version(weights: Sequence[Tensor]) -> int:
    """A number that grows when one of these tensors [...] is changed in place."""
    return sum(map(_version, weights))


class Linear(nn.Linear):
    """A linear module whose products of several rows read a packed copy of its matrix, where no gradient is wanted.

    For the matrices of drafting heads that no decoder has. Parameters, names and the module's own product, that of
    one row and of training, are those of `nn.Linear`. The copy is made when it is first read, again for other weights, and is
    neither copied nor saved with the module.
    """

    def forward(self, input: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        weight, width = self.weight, input.shape[-1]
        rows = input.numel() // max(width, 1)
        if torch.is_grad_enabled() or input.dtype != weight.dtype or (rows < 2 and weight.dtype == torch.float32):
            return super().forward(input)
        packed = memo_of(self).once("packed", _Copy).of(weight)
        if packed is None:
            return super().forward(input)
        made: Tensor = torch.ops.mkldnn._linear_pointwise.default(input.reshape(rows, width), packed, self.bias, "none", [], "")
        return made.view(*input.shape[:-1], weight.shape[0])

    @property
    def copied(self) -> int:
        """Bytes of the packed copy so far."""
        found: _Copy | None = memo_of(self).get("packed")
        return 0 if found is None else found.bytes


class _Copy:
    """The packed copy of one matrix."""

    def __init__(self) -> None:
        self.bytes = 0
        self._allowed: bool | None = None
        self._weight: tuple[int, int, int] | None = None
        self._packed: Tensor | None = None

    def of(self, weight: Tensor) -> Tensor | None:
        """The copy of a matrix [n, m] as it is now; None where there is to be none."""
        if self._allowed is None:
            self._allowed = packable(weight) and room(size([weight]))
        if not self._allowed or weight.is_inference():
            return None
        now = (id(weight), weight.data_ptr(), weight._version)
        if now != self._weight:
            self._packed, self._weight = None, now  # the old one goes before the new one is made
            self._packed = reordered(weight) if packable(weight) else None
            self.bytes = 0 if self._packed is None else size([weight])
        return self._packed
