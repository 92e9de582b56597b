"""What a forward of n rows costs on this machine, for one model: measured once and kept.

A draft of n tokens makes a forward of n + 1 rows, a batch of B of them one of B (n + 1). On a GPU that is nearly free until
the device is busy; on a CPU every row beyond the first few costs arithmetic, with small weights most of all. The quotient of
the costs of n rows and of one is how many tokens a call has to commit before drafting pays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from decgraph import cache
from decgraph.runtime.models.interface import Model
from decgraph.runtime.placement import placement_of_all
from decgraph.runtime.tune import facts

ROWS = (1, 2, 5, 11, 16, 64)
CONTEXT = 64  # tokens before the rows
_SECONDS = 0.03  # of each number of rows, and two forwards at least


def row_costs(model: Model, rows: Sequence[int] = ROWS, *, fresh: bool = False) -> dict[int, float]:
    """Milliseconds of a forward of each number of rows, read-out included, after a short text: the least of a few, of the
    processor's time on a CPU and of the wall's elsewhere. Kept in the user's cache by processor and its instructions,
    versions, threads, dtype and the model's sizes; measured again with `fresh`. Raises what the model raises."""
    path, key = cache.folder() / "rows.json", _key(model)
    known = {} if fresh else {int(n): float(ms) for n, ms in cache.read(path).get(key, {}).items()}
    missing = [n for n in rows if n not in known]
    if missing:
        known |= _measured(model, missing)
        cache.add(path, {key: {str(n): known[n] for n in sorted(known)}})
    return {n: known[n] for n in rows}


def _key(model: Model) -> str:
    """What times depend on: the machine, the versions, and the sizes and the dtype of the model's layers."""
    import torch

    from decgraph.runtime.models.decoder.decoder import TransformerDecoder
    from decgraph.runtime.models.engine.saved_rows import caching_engine
    from decgraph.runtime.native.formats import QuantizedBlocks

    placed = facts.of_placement(placement_of_all({"model": model}))
    engine = caching_engine(model)
    layout = None if engine is None else engine.layout
    step = None if engine is None else engine.step
    products = {
        name: [(tuple(m.shape), m.format if isinstance(m, QuantizedBlocks) else "") for m in product.matrices]
        for name, product in (step.products if isinstance(step, TransformerDecoder) else {}).items()
    }
    return facts.digest(repr((placed, torch.backends.cpu.get_cpu_capability(), model.vocab.size, layout, products)))


def _measured(model: Model, rows: Sequence[int]) -> dict[int, float]:
    from decgraph.runtime.models.engine.forward_call import ForwardCall
    from decgraph.runtime.models.engine.of import causal_engine_of

    engine, sequence = causal_engine_of(model), object()
    clock = time.process_time if placement_of_all({"model": model}).device == "cpu" else time.perf_counter
    context = [n % model.vocab.size for n in range(CONTEXT)]

    def forward(n: int) -> float:
        """Seconds of a forward of n rows: a chain of tokens that no cache keeps."""
        call = ForwardCall(sequence, context, (), [0] * n, list(range(-1, n - 1)), [-1] * n, list(range(n)))
        started = clock()
        (made,) = engine.compute([call])
        if isinstance(made, Exception):
            raise made
        float(made[-1, 0])  # waits for a device
        return clock() - started

    try:
        return {n: 1000 * _least(lambda n=n: forward(n)) for n in rows}  # type: ignore[misc]  # bound at once
    finally:
        engine.close(sequence)


def _least(run: Callable[[], float]) -> float:
    run()
    times = [run(), run()]
    while sum(times) < _SECONDS:
        times.append(run())
    return min(times)
