"""Drafts that are copied from a text: EMS-SD's prompt table, input-guided aggressive decoding."""

from __future__ import annotations

from functools import partial
from typing import Any

from fidelity.entry import Case, Columns, recorded
from fidelity.transcribed.compared import by_chain, replayed

from lab.recordings.copied import target

ours = partial(replayed, models=lambda case: {"target": target(case)}, columns=by_chain, beyond=64)


def each(case: Case, backend: str) -> Columns:
    """One sequence of the batch after the other."""
    names = ("k", "reach", "limit", "eos", "seed", "size", "window")
    one: dict[str, Any] = {name: case[name] for name in names}
    return {"sequences": [ours("ems_sd", "k", "reach")({**one, "prompt": prompt}, backend) for prompt in case["prompts"]]}


ENTRIES = [
    recorded("ems_sd", each, note="a batch there, one sequence after the other here"),
    recorded("input_guided_aggressive", ours("input_guided_aggressive")),
]
