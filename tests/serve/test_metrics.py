"""Labels of metrics are of bounded sets: no words of a client or of an error, which may hold any value."""

from __future__ import annotations

from decgraph.runtime.trace import Stats
from decgraph.serve.metrics import Metrics


def test_errors_of_drafts_are_counted_by_line() -> None:
    metrics = Metrics()
    for n in range(9):
        metrics._count("mine", Stats(draft_errors={f"mine.dec:8: {n} is outside 0..3": 2, f"the head failed at {n}": 1}))
    lines = [line for line in metrics.text()[0].decode().splitlines() if line.startswith("decgraph_draft_errors_total{")]
    assert lines == [
        'decgraph_draft_errors_total{algorithm="mine",line="mine.dec:8"} 18.0',
        'decgraph_draft_errors_total{algorithm="mine",line=""} 9.0',
    ]
