"""Plots of runs: their axes count whole things."""

from __future__ import annotations

import pytest
from lib.stdlib.recorded_runs import traced

from decgraph.views import plot


@pytest.mark.parametrize("name", ["autoregressive", "speculative", "llada"])
@pytest.mark.parametrize("limit", [2, 6, 12])
def test_ticks_of_steps_tokens_and_positions_are_whole(name: str, limit: int) -> None:
    pytest.importorskip("matplotlib")
    run = traced(name, max_tokens=limit, **({"length": limit, "block": limit, "steps": limit} if name == "llada" else {}))
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


@pytest.mark.parametrize("name", ["speculative", "fast_dllm"])
def test_a_plot_does_not_mislead(name: str) -> None:
    """Positions are counted from none to all; nothing that was decided is white; every share has its count and its interval."""
    pytest.importorskip("matplotlib")
    run = traced(name, max_tokens=12, **({"length": 12, "block": 12} if name == "fast_dllm" else {}))
    figure, axes = plot.pyplot().subplots(1, 2)
    try:
        if name == "fast_dllm":
            plot.decided(axes[0], run)
            (line,) = axes[0].get_lines()
            assert axes[0].get_ylim()[0] == 0 and (line.get_xdata()[0], line.get_ydata()[0]) == (0, 0)
            assert line.get_ydata()[-1] == 12
            assert max(plot.shades()(0.0)[:3]) < 0.95 and tuple(plot.shades().get_bad()[:3]) == (1, 1, 1)
        else:
            plot.acceptance(axes[1], run)
            counts = [text.get_text() for text in axes[1].texts]
            assert counts == [f"{a} of {t}" for a, t in zip(run.stats.accepted, run.stats.tested, strict=True)]
            (whiskers,) = axes[1].collections[0:1]
            ends = [tuple(segment[:, 1]) for segment in whiskers.get_segments()]
            assert [end == pytest.approx(pair) for end, pair in zip(ends, run.stats.intervals, strict=True)]
    finally:
        plot.pyplot().close(figure)
