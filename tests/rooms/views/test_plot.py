"""Plots of runs: their axes count whole things."""

from __future__ import annotations

import pytest
from traced import traced

from decgraph.views import plot


@pytest.mark.parametrize("name", ["autoregressive", "speculative", "llada"])
@pytest.mark.parametrize("limit", [2, 6, 12])
def test_ticks_of_steps_tokens_and_positions_are_whole(name: str, limit: int) -> None:
    pytest.importorskip("matplotlib")
    run = traced(name, limit=limit, **({"length": limit, "block": limit, "steps": limit} if name == "llada" else {}))
    figure, axes = plot.pyplot().subplots(1, 2)
    try:
        drawn = (plot.cells, plot.decided) if run.stats.unmasked else (plot.tokens,)
        for one, draw in zip(axes, drawn, strict=False):
            draw(one, run)
            for axis in (one.xaxis, one.yaxis):
                ticks = axis.get_majorticklocs()
                assert len(ticks) and all(float(tick).is_integer() for tick in ticks)
    finally:
        plot.pyplot().close(figure)
