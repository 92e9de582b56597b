"""What `decgraph tune --rows` does: what a forward of n rows costs, and how many tokens a call has to commit to be worth it."""

from __future__ import annotations

import os
from collections.abc import Mapping

import decgraph
from decgraph.cli import output
from decgraph.runtime.placement import Placement

HEADINGS = ("rows", "milliseconds", "times one row")


def show(models: Mapping[str, str], placed: Placement, threads: int | None, *, fresh: bool, as_json: bool) -> None:
    """Measure the model (the shipped one by default) unless its costs are cached, and print them. Raises DecError
    for a model that cannot be read."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads or max(1, (os.cpu_count() or 2) // 2)))
    import torch

    from decgraph.models import bind, shipped
    from decgraph.runtime.tune.rows import row_costs

    if threads is not None:
        torch.set_num_threads(threads)
    function = decgraph.load("autoregressive").function
    bound = bind(function, {**shipped(function), **models}, device=placed.device, dtype=placed.dtype)
    costs = row_costs(bound.models["target"], fresh=fresh)
    if as_json:
        output.emit_json({"rows": [{"rows": n, "milliseconds": ms} for n, ms in costs.items()]})
        return
    output.print_table(HEADINGS, [(n, f"{ms:.2f}", f"{ms / costs[1]:.2f}") for n, ms in costs.items()])
