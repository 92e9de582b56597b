"""Which product of one row with a matrix is the fastest on this processor: measured once for each shape, and kept.

A decoding step reads every matrix for one row, and which kernel reads it at the memory's speed depends on the processor.
Microseconds of one thread, float32, matrices read from memory (`rows`: as a module has it, [out, in]; `columns`: [in, out]):

    matrix                   AVX-512: columns, packed       AVX2 (another EPYC): rows, columns, packed
    576 -> 3072              283, 198                       635, 346, 629
    1536 -> 576              139, 95                        208, 283, 313
    576 -> 49152 (an output) 6962 (rows), 2918              8487, 4942, 7912

So no rule fits both. A measurement takes some hundredths of a second. It is kept in the user's cache under the processor's
features, torch's version and the number of threads; `products.json` may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from decgraph.runtime.models.processor import features
from decgraph.runtime.models.reordering import reordered
from decgraph.runtime.tune import kept

Way = Literal["rows", "columns", "packed"]
STREAMED = 32 << 20
"""Bytes of matrices that are read in turn, so that they come from memory and not from the processor's caches."""
ROUNDS = 5
_ARITHMETIC = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE")


def lies(weight: Tensor) -> Way:
    """How a matrix [n, m] of m inputs lies in memory."""
    return "columns" if weight.stride(0) == 1 and weight.shape[1] > 1 else "rows"


def fastest(weight: Tensor, *, copied: bool = False) -> Way:
    """The fastest product of one row with a float32 matrix [n, m] of m inputs on the CPU: as it lies, or by its packed copy;
    copied: or by a copy that lies the other way."""
    # Rows of a large matrix take the same time each, so a part of it tells: it is measured on copies.
    outputs = min(weight.shape[0], max(1, STREAMED // (4 * weight.shape[1])))
    times = measured(outputs, weight.shape[1], torch.get_num_threads())
    ways: tuple[Way, ...] = ("rows", "columns", "packed") if copied else (lies(weight), "packed")
    return min(ways, key=times.__getitem__)


@lru_cache(maxsize=256)
def measured(outputs: int, inputs: int, threads: int) -> dict[Way, float]:
    """Seconds of one row by each product: from the user's cache, or measured and put there."""
    path = kept.folder() / "products.json"
    said = [features(), torch.__version__, *(os.environ.get(name, "") for name in _ARITHMETIC)]
    where = hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]
    name = f"{where} {inputs} -> {outputs}, {threads} threads"
    known = kept.read(path).get(name)
    if isinstance(known, dict):
        found = [known.get(way) for way in ("rows", "columns", "packed")]
        if all(isinstance(seconds, float) and 0 < seconds < math.inf for seconds in found):
            return known
    times = measure(outputs, inputs)
    kept.add(path, {name: times})
    return times


def measure(outputs: int, inputs: int) -> dict[Way, float]:
    """Seconds of one row by each product: the least of a few rounds, taken in turns, over as many matrices as caches do not
    hold."""
    many = range(max(1, math.ceil(STREAMED / (4 * outputs * inputs))))
    row = torch.ones(1, inputs)
    plain = torch.ops.aten.linear.default
    packed = torch.ops.mkldnn._linear_pointwise.default
    # A busy machine takes the processor away for longer than a product lasts; a thread's own time does not show that.
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    with torch.inference_mode():
        rows = [torch.ones(outputs, inputs) for _ in many]
        columns = [matrix.view(inputs, outputs) for matrix in rows]  # the same numbers, read otherwise
        copies = [reordered(matrix) for matrix in rows]
        products: dict[Way, Callable[[], object]] = {
            "rows": lambda: [plain(row, matrix) for matrix in rows],
            "packed": lambda: [packed(row, copy, None, "none", [], "") for copy in copies],
            "columns": lambda: [torch.mm(row, matrix) for matrix in columns],
        }
        best: dict[Way, float] = dict.fromkeys(products, math.inf)
        for _ in range(ROUNDS):
            for way, product in products.items():
                began = clock()
                product()
                best[way] = min(best[way], clock() - began)
    return {way: seconds / len(many) for way, seconds in best.items()}
