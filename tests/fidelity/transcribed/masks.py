"""Learn2PD with its end-of-text prediction; and what transcriptions of masked models share.

A cached call is a canvas in which the cells that are not computed are what they were when they were, so an oracle keeps that
canvas and asks for the rows that it computes. What a call does not see at all is left out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from fidelity.canvases import MASK, run, steps
from fidelity.entry import recorded
from fidelity.recorded_noise import Recorded
from fidelity.transcribed.compared import Columns, Compared

from lab.recordings.fast_dllm import above_others
from lab.recordings.grids import table, uniforms


def source(seed: int, sites: Mapping[str, str] | None = None) -> Any:
    """Our draws' noise: a draw is known by its call, its row and how many numbers it reads, and where a program has several
    draws by what its site is called there."""

    def given(key: Recorded, n: int) -> np.ndarray:
        return uniforms(seed, key.call, key.lane, n, "" if sites is None else sites[str(key.site)])

    return given


def columns(done: Any, *, computed: bool = True) -> Columns:
    """The output, and by call what it computed and what was decided after it."""
    made: Columns = {"output": done.output, "decided": [sorted(d) for d in steps(done)]}
    if computed:
        made["computed"] = [tuple(sorted(c.computed)) for c in done.calls]
    return made


class Watch:
    """An oracle's canvas and what happened on it."""

    def __init__(self, prompt: Sequence[int], length: int) -> None:
        self.cells = [*prompt, *[MASK] * length]
        self.start = len(prompt)
        self.decided: list[list[tuple[int, int]]] = []
        self.computed: list[tuple[int, ...]] = []
        self.before = list(self.cells)

    def call(self, positions: Iterable[int]) -> None:
        """A call of these positions is made."""
        self.flush()
        self.computed.append(tuple(sorted(positions)))

    def flush(self) -> None:
        """What changed since the last call was decided by it."""
        if self.computed:
            self.decided.append([(i, b) for i, (a, b) in enumerate(zip(self.before, self.cells, strict=True)) if a != b])
        self.before = list(self.cells)

    def done(self, *, computed: bool = True) -> Columns:
        """The columns."""
        self.flush()
        made: Columns = {"output": tuple(self.cells), "decided": self.decided}
        return {**made, "computed": self.computed} if computed else made


def masked(program: str, *names: str, model: Any = None, sites: Mapping[str, str] | None = None, **more: Any) -> Any:
    """Ours: a program with its parameters, as columns."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in names}
        sampled = {"noise": source(case["seed"], sites), "shaping": {"temperature": 1}} if case.get("sampled") else {}
        made = table(case["seed"]) if model is None else model(case)
        return columns(run(program, made, case["prompt"], case["length"], backend, **sampled, **more, **params))

    return ours


def learn2pd_eot(case: Mapping[str, Any], backend: str) -> Columns:
    """What was cut is in no column: it stays what it was there, and is masked again here."""
    sampled = {"noise": source(case["seed"]), "shaping": {"temperature": 1}} if case["temperature"] else {}
    params = {name: case[name] for name in ("block", "steps", "tau", "ends")}
    model = table(case["seed"], 4)
    found = run(
        "learn2pd_eot", model, case["prompt"], case["length"], backend, externs={"final": above_others}, **sampled, **params
    )
    return {"output": found.output, "live": [len(c.computed) for c in found.calls]}


ENTRIES = [recorded("learn2pd_eot", learn2pd_eot, kind="masked")]
COMPARED: list[Compared] = []
