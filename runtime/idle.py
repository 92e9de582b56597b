"""Loops that wait for cells to be decided, and decide none."""

from __future__ import annotations

from collections.abc import Mapping

from decgraph.errors import DecError

Seen = Mapping[str, tuple[tuple[int, int], int]]
"""By a loop's place its progress, and the iteration that made it."""
MOST_IDLE = 100
"""Consecutive iterations that may decide nothing: a schedule may skip some, a draw may miss a threshold."""


def idle(seen: Seen, where: str, iteration: int, now: tuple[int, int]) -> Seen:
    """Each loop's state before an iteration of the loop at `where`.

    Raises DecError after too many iterations without progress.
    """
    before = seen.get(where)
    if not iteration or before is None or before[0] != now:
        return {**seen, where: (now, iteration)}
    if iteration - before[1] >= MOST_IDLE:
        raise DecError(
            f"{where}: {MOST_IDLE} consecutive iterations of this loop decided no cell",
            hint="let the surest be chosen too: where sure(s, tau); or bound it: while condition at most n:",
        )
    return dict(seen)
