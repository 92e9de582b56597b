"""Bugs of noise: two draws that should be independent read the same exponentials, or one reads those of another place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile


class Keyed(ExactMachine):
    """Keys of draws go through `other`."""

    def key(self, key: Any, lane: tuple[int, ...], row: Any = None, index: Any = None) -> Any:
        place = super().key(key, lane, row, index)
        return place if key.kind == "output" else self.other(place)

    def other(self, place: Any) -> Any:
        return place


class OneForSiblings(Keyed):
    """Siblings drawn with replacement read one noise: they are one token."""

    def other(self, place: Any) -> Any:
        return replace(place, lane=place.lane[:1])


class OneForIterations(Keyed):
    """The drafts of one step, or its coins, read one noise."""

    def other(self, place: Any) -> Any:
        return replace(place, counters=place.counters[:1])


class OneForSteps(Keyed):
    """Every step reads the noise of the first."""

    def other(self, place: Any) -> Any:
        return replace(place, counters=(0, *place.counters[1:]))


class OneForSites(Keyed):
    """The token after a rejection reads the noise of the rejected draft."""

    def other(self, place: Any) -> Any:
        return replace(place, site="", counters=place.counters[:1])


class OutputShifted(ExactMachine):
    """The output stream is read one position late: another text for the same seed."""

    def key(self, key: Any, lane: tuple[int, ...], row: Any = None, index: Any = None) -> Any:
        place = super().key(key, lane, row, index)
        if key.kind != "output":
            return place
        return replace(place, counters=(*place.counters[:-1], place.counters[-1] + 1))


def sampled(f: Profile) -> bool:
    """Whether a program claims `in distribution` and a rule reads the distributions of its sampled drafts."""
    return f.law and f.sampled and "distribution" in f.modes


# Lanes of nodes that stand side by side may share noise unseen: verification goes below one of them only.
MUTANTS = (
    Mutant.of(
        OneForSiblings, "noise-shared-by-siblings", lambda f: sampled(f) and f.twice, "V = 3, two siblings", "M08; ar.md L7"
    ),
    Mutant.of(
        OneForIterations,
        "noise-shared-in-a-loop",
        lambda f: sampled(f) and f.depth >= 1 and f.height >= 2,
        "V = 2, two drafts",
        "M08; ar.md L7",
    ),
    Mutant.of(OneForSteps, "noise-shared-by-steps", sampled, "V = 2, one draft, two steps", "M08; ar.md L7", steps=2),
    # of several draws at once each has a number
    Mutant.of(
        OneForSites,
        "noise-shared-by-sites",
        lambda f: sampled(f) and f.rejected and "draw" in f.drafting,
        "V = 3, one draft",
        "M08",
    ),
    Mutant.of(OutputShifted, "output-shifted", lambda f: "tokens" in f.modes and f.output, "V = 2", "M44"),
)
