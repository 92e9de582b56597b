"""Which pass is to blame for a captured graph at fault: it alone is left out, by name.

A pass that raises names itself. A wrong result is bisected: the shortest prefix of the passes after which the graph is
at fault ends with the one to blame. If the graph is at fault before any pass, none is, and the module runs unmodified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from decgraph.runtime.models.capture.program import CapturedGraph, Refused

# The graph after these passes. Raises PassFailed.
Build = Callable[[Sequence[str]], CapturedGraph]

RAISED = ("it raised", "the captured graph raises")
"""How the faults begin that are errors of Python, which may have come from outside (memory)."""


class PassFailed(Exception):
    """A pass raised; `name` is its name, the cause what it raised."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def without_faults(
    names: Sequence[str], build: Build, fault: Callable[[CapturedGraph], str | None]
) -> tuple[CapturedGraph, dict[str, str]]:
    """The graph after all passes that are not at fault, and the others with what was wrong. Raises Refused if the graph is
    at fault without any pass."""
    dropped: dict[str, str] = {}
    while True:
        kept = [name for name in names if name not in dropped]
        program, wrong, name = _tried(kept, build, fault)
        if program is not None and wrong is None:
            return program, dropped
        if name is None:
            name, wrong = _blamed(kept, build, fault, str(wrong))
        dropped[name] = str(wrong)


def _tried(
    names: Sequence[str], build: Build, fault: Callable[[CapturedGraph], str | None]
) -> tuple[CapturedGraph | None, str | None, str | None]:
    """The graph after these passes, what is wrong with it, and the pass that raised."""
    try:
        program = build(names)
    except PassFailed as failed:
        return None, f"{RAISED[0]} {type(failed.__cause__).__name__}: {failed.__cause__}", failed.name
    try:
        return program, fault(program), None
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever torch makes of a wrong graph
        return program, f"{RAISED[1]} {type(error).__name__}: {error}", None


def _blamed(names: Sequence[str], build: Build, fault: Callable[[CapturedGraph], str | None], wrong: str) -> tuple[str, str]:
    """The last pass of the shortest prefix at fault, and what is wrong after it."""
    good, bad = -1, len(names)  # `names[:bad]` is at fault
    while bad - good > 1:
        middle = max((good + bad) // 2, 0)
        _, found, name = _tried(names[:middle], build, fault)
        if name is not None:
            return name, str(found)
        if found is None:
            good = middle
        elif middle == 0:
            raise Refused(found)
        else:
            bad, wrong = middle, found
    if bad == 0:
        raise Refused(wrong)
    return names[bad - 1], wrong
