"""The columns of causal recordings, from a case's `calls` and from a watched run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fidelity.entry import Case, Outcome
from fidelity.watched import Path, Watched


def chain_paths(tokens: Sequence[int]) -> set[Path]:
    """The paths of a chain."""
    return {tuple(tokens[: i + 1]) for i in range(len(tokens))}


def tree_paths(fed: Sequence[int], parents: Sequence[int]) -> set[Path]:
    """The drafted paths of a tree whose node 0 is the last committed token."""
    paths: list[Path] = [()]
    for token, parent in zip(fed[1:], parents[1:], strict=True):
        paths.append((*paths[parent], token))
    return set(paths[1:])


def drafts(case: Case, call: dict[str, Any]) -> set[Path]:
    """What a recorded call verified."""
    if "proposed" in call:
        return chain_paths(call["proposed"])
    return tree_paths(call["fed"], call.get("parents") or case["tree_parents"])


def shown(paths: Sequence[set[Path]]) -> list[list[Path]]:
    """Drafts in an order that reads well where they differ."""
    return [sorted(p) for p in paths]


def compared(
    case: Case,
    run: Watched,
    *,
    calls: Sequence[dict[str, Any]] | None = None,
    target: int | None = None,
    skip: int = 0,
    drafter: int | None = None,
    length: int | None = None,
) -> Outcome:
    """Both sides' columns.

    calls: the recorded calls that count, default all. target: the recorded number of target calls, default `target_forwards`.
    skip: calls of ours before the first of them. drafter: recorded drafter calls, where they are compared. length: compare so
    much of the text, where the recorded loop runs past its limit or stops before it.
    """
    calls = case["calls"] if calls is None else calls
    ours = run.calls[skip:]
    recorded: dict[str, Any] = {
        "tokens": tuple(case["output"][:length]),
        "target calls": case["target_forwards"] if target is None else target,
        "accepted": [c["accepted"] for c in calls],
        "drafted": shown([drafts(case, c) for c in calls]),
    }
    made: dict[str, Any] = {
        "tokens": run.tokens[:length],
        "target calls": len(run.calls),
        "accepted": [c.accepted for c in ours],
        "drafted": shown([c.drafted for c in ours]),
    }
    if drafter is not None:
        recorded["drafter calls"], made["drafter calls"] = drafter, len(run.drafter)
    return Outcome(recorded, made)
