"""What `make test` runs of a test with many cases, and what it leaves to `make slow`.

`@pytest.mark.quick("eagle2", "eesd")` on a parametrised test: cases with one of these words among their parameters or in their
ids are quick, all others are slow. A tuple asks for all of its words: `("eagle2", "torch")`.
`@pytest.mark.quick(but=("eagle2",))`: the other way round, all cases but these are quick.
`@pytest.mark.quick(first=2)`: the first two cases are quick; with `each="backend"` those of every value of that parameter.
A case that is marked `slow` or `nightly` itself stays so. The tests of SLOW_FILES and of real/ are slow.

`@settings(max_examples=examples(200))`: `make test` draws a quarter of the examples, `make slow` all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

EVERY_EXAMPLE = bool(os.environ.get("DECGRAPH_EVERY_EXAMPLE"))
"""`make slow` sets it: hypothesis draws all the examples that a test asks for."""


SLOW_FILES = frozenset(
    (
        "check/test_museum_engine.py",
        "check/test_oracle.py",
        "check/test_powers.py",
        "dsl/test_whole_programs.py",
        "runtime/given/test_given.py",
        "runtime/given/test_programs.py",
    )
)
"""Files that `make slow` runs alone: kernels in Triton's interpreter beside the smoke tests of each kind, the GPU laboratory on
a CPU, whole random programs, and oracles that take more time than what they check. A quarter of the fast tests' time."""


@cache
def is_slow_file(path: Path) -> bool:
    """Whether a test's file is one of SLOW_FILES or in real/. path: absolute."""
    if not path.is_relative_to(FOLDER):
        return False
    here = path.relative_to(FOLDER)
    return here.parts[0] == "real" or here.as_posix() in SLOW_FILES


def examples(count: int) -> int:
    """How many examples to draw of `count`."""
    return count if EVERY_EXAMPLE else max(5, count // 4)


def words_of(identifier: str, parameters: Iterable[Any]) -> set[str]:
    """What a case can be chosen by: its id, the parts of its id, and those parameters that are words or numbers."""
    return {str(p) for p in parameters if isinstance(p, str | int | float)} | set(identifier.split("-")) | {identifier}


def wanted(mark: Any) -> tuple[Any, ...]:
    """The words, and tuples of words, that a mark names."""
    return tuple(w if isinstance(w, tuple) else str(w) for w in (*mark.args, *mark.kwargs.get("but", ())))


def slow_cases(items: Sequence[Any]) -> tuple[list[Any], dict[str, str]]:
    """The collected cases that their test's mark leaves to `make slow`; and, by test, words of marks that choose none of its
    collected cases."""
    slow, used, seen = [], set(), dict[tuple[str, str], int]()
    marked = [(i, i.get_closest_marker("quick")) for i in items if hasattr(i, "callspec")]
    for item, mark in [(i, m) for i, m in marked if m is not None]:
        test, case = item.nodeid.split("[")[0], item.callspec
        if "first" in mark.kwargs:
            key = (test, str(case.params[mark.kwargs["each"]]) if "each" in mark.kwargs else "")
            seen[key] = seen.get(key, 0) + 1
            chosen = seen[key] <= mark.kwargs["first"]
        else:
            words = words_of(case.id, case.params.values())
            fit = [w for w in wanted(mark) if {w} <= words or (isinstance(w, tuple) and set(w) <= words)]
            used |= {(test, w) for w in fit}
            chosen = bool(fit) is not ("but" in mark.kwargs)
        if not chosen:
            slow.append(item)
    idle: dict[str, list[str]] = {}
    for test, word in sorted({(i.nodeid.split("[")[0], w) for i, m in marked if m for w in wanted(m)} - used, key=str):
        idle.setdefault(test, []).append(str(word))
    return slow, {test: f"quick chooses no case by {', '.join(words)}" for test, words in idle.items()}
