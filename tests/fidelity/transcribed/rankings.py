"""A ranking by exclusion: IRanker. What is asked, and who is named in a reply, are functions of the caller's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fidelity.entry import Case, Entry, Outcome
from fidelity.transcribed.compared import Compared
from fidelity.watched import run

from lab.recordings import plain
from lab.recordings.rankings import NAMES, asked
from lab.recordings.tables import Letters, untied


def iterative_elimination(case: Case, backend: str) -> Outcome:
    """The caller's function that reads a reply answers as theirs did."""
    p, answers, seen = case["parameters"], {(said, *left): at for said, left, at in case["columns"]["named"]}, list[Any]()

    def named(reply: str, left: Sequence[Any]) -> int:
        key = (str(reply), *map(int, left))
        seen.append([key[0], [*key[1:]], answers[key]])
        return int(answers[key])

    models, externs = {"target": untied(len(NAMES), p["seed"], window=None)}, {"asked": asked, "named": named}
    done = run(
        "iterative_elimination", p["prompt"], models, backend, max_tokens=16, eos=p["eos"], externs=externs,
        tokenizer=Letters(NAMES), items=p["items"], reach=p["reach"],
    )  # fmt: skip
    ranking = done.tokens[len(p["prompt"]) :]
    return Outcome(case["columns"], plain({"ranking": ranking, "calls": [c.rows[0] for c in done.calls], "named": seen}))


ENTRIES = [Entry("authors/iterative_elimination", "iterative_elimination", iterative_elimination)]
COMPARED: list[Compared] = []
