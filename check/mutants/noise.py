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
    """The number of a sibling is left out."""

    def other(self, place: Any) -> Any:
        return replace(place, lane=place.lane[:1])


class OneForIterations(Keyed):
    """Only the step is in the key, not the iterations of loops inside it."""

    def other(self, place: Any) -> Any:
        return replace(place, counters=place.counters[:1])


class OneForSteps(Keyed):
    """The step is not in the key."""

    def other(self, place: Any) -> Any:
        return replace(place, counters=(0, *place.counters[1:]))


class OneForSites(Keyed):
    """The site is not in the key: a draft and the token that replaces it race with the same exponentials."""

    def other(self, place: Any) -> Any:
        return replace(place, site="", counters=place.counters[:1])


class OutputShifted(ExactMachine):
    """The output stream is read one position late."""

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
    Mutant(
        "noise-shared-by-siblings",
        "siblings drawn with replacement read one noise: they are one token",
        lambda f: sampled(f) and f.twice,
        "V = 3, two siblings",
        "M08; ar.md L7",
        engine=OneForSiblings,
    ),
    Mutant(
        "noise-shared-in-a-loop",
        "the drafts of one step, or its coins, read one noise",
        lambda f: sampled(f) and f.depth >= 1 and f.height >= 2,
        "V = 2, two drafts",
        "M08; ar.md L7",
        engine=OneForIterations,
    ),
    Mutant(
        "noise-shared-by-steps",
        "every step reads the noise of the first",
        sampled,
        "V = 2, one draft, two steps",
        "M08; ar.md L7",
        engine=OneForSteps,
        steps=2,
    ),
    Mutant(
        "noise-shared-by-sites",
        "the token after a rejection reads the noise of the rejected draft",
        lambda f: sampled(f) and f.rejected and "draw" in f.drafting,  # of several draws at once each has a number
        "V = 3, one draft",
        "M08",
        engine=OneForSites,
    ),
    Mutant(
        "output-shifted",
        "the output stream is read one position late: another text for the same seed",
        lambda f: "tokens" in f.modes and f.output,
        "V = 2",
        "M44",
        engine=OutputShifted,
    ),
)
