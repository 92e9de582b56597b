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
    if "paths" in call:
        found: set[Path] = call["paths"]
        return found
    if "proposed" in call:
        return chain_paths(call["proposed"])
    return tree_paths(call["fed"], call.get("parents") or case["tree_parents"])


def stands(case: Case, call: dict[str, Any]) -> int:
    """How many committed tokens a recorded call stands on, the last one included, which is fed."""
    return call["past"] + 1 if call["past"] else len(case["prompt"])


def cut(run: Watched, case: Case, last: dict[str, Any]) -> None:
    """Drop our calls that stand on more text than the last recorded one."""
    run.calls = [c for c in run.calls if c.past <= stands(case, last)]


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
    end: int | None = None,
) -> Outcome:
    """Both sides' columns.

    calls: the recorded calls that count, default all. target: the recorded number of target calls, default `target_forwards`.
    skip: calls of ours before the first of them. drafter: recorded drafter calls, where they are compared. length: compare so
    much of the text, where the recorded loop runs past its limit or stops before it. end: the length of the whole text, where
    the recorded drafts reach into the last place or past it: those are left out, since decgraph does not draft them.
    """
    calls = case["calls"] if calls is None else calls
    given = [drafts(case, c) for c in calls]
    if end is not None:
        given = [{d for d in g if stands(case, c) + len(d) < end} for g, c in zip(given, calls, strict=True)]
    ours = run.calls[skip:]
    recorded: dict[str, Any] = {
        "tokens": tuple(case["output"][:length]),
        "target calls": case["target_forwards"] if target is None else target,
        "accepted": [c["accepted"] for c in calls],
        "drafted": shown(given),
    }
    made: dict[str, Any] = {
        "tokens": run.tokens[:length],
        "target calls": len(run.calls),
        "accepted": [c.accepted for c in ours],
        "drafted": shown([c.drafted for c in ours]),
    }
    if run.unheard is not None:
        recorded["tokens unheard"], made["tokens unheard"] = recorded["tokens"], run.unheard[:length]
    if drafter is not None:
        recorded["drafter calls"], made["drafter calls"] = drafter, len(run.drafter)
    return Outcome(recorded, made)
