"""Steps of a text that are drafted and judged whole: Lookahead Reasoning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared
from fidelity.watched import run

from lab.recordings.steps_ahead import EOS, MARK, as_long, steps_of
from lab.recordings.tables import Letters


def lookahead_reasoning(case: Mapping[str, Any], backend: str) -> Columns:
    """With what each round commits: the drafted steps together, and the target's own."""
    done = run(
        "lookahead_reasoning", case["prompt"], steps_of(case), backend, max_tokens=case["limit"],
        eos=(EOS,) if case["size"] > EOS else (),
        externs={"alike": alike}, tokenizer=Letters([MARK]), depth=case["depth"], mark=MARK, reach=case["reach"],
    )  # fmt: skip
    return {"tokens": done.tokens[len(case["prompt"]) :], "committed": [c for c in done.committed if c]}


def alike(own: str, drafted: str) -> bool:
    """As published: equal, or the judge says so."""
    return own.replace(MARK, "") == drafted.replace(MARK, "") or as_long(own, drafted)


ENTRIES = [recorded("lookahead_reasoning", lookahead_reasoning)]
COMPARED: list[Compared] = []
