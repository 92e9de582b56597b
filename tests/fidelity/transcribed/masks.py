"""Fast-dLLM's decoders with their caches; and what transcriptions of masked models share.

A cached call is a canvas in which the cells that are not computed are what they were when they were, so an oracle keeps that
canvas and asks for the rows that it computes. What a call does not see at all is left out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from fidelity.canvases import MASK, run, steps
from fidelity.recorded_noise import Recorded
from fidelity.transcribed.compared import Columns, Compared

from lab.recordings.grids import drawn, rows, table, uniforms


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


def filtered(place: Any, sure: Any) -> float:
    """A stand-in for the trained filter, of a whole block's confidences: is this cell above the others' mean?"""
    rest = [float(s) for i, s in enumerate(sure) if i != int(place)]
    return min(1.0, max(0.0, 0.5 + float(sure[int(place)]) - sum(rest) / len(rest)))


def learn2pd_eot(case: Mapping[str, Any]) -> Columns:
    """Calls of everything up to the predicted end; the filter's cells and a quota of the surest are decided; the text is cut
    behind the first end that the filter believes in, else behind the surest one of the whole canvas."""
    model, w = table(case["seed"], 4), Watch(case["prompt"], case["length"])
    total, size = len(w.cells), case["block"]
    stop = total
    for start in range(w.start, total, size):
        many = case["steps"] * size // case["length"]
        quota = [size // many + (i < size % many) for i in range(many)]
        while start < stop and MASK in w.cells[start : min(start + size, stop)]:
            own, live = range(start, min(start + size, stop)), range(stop)
            w.call(live)
            p = rows(model, {i: w.cells[i] for i in live}, total, range(w.start, stop))
            lanes = {i: uniforms(case["seed"], len(w.computed) - 1, (i - w.start,), 4) for i in p}
            x = {i: drawn(p[i], lanes[i]) if case["sampled"] else int(np.argmax(p[i])) for i in p}
            s = {i: float(p[i][x[i]]) for i in p}
            read = [s[i] for i in own] + [0.0] * (size - len(own))
            open_ = {i for i in p if w.cells[i] == MASK}
            believed = [i for i in own if i in open_ and filtered(i - start, read) > case["tau"]]
            surest = sorted((i for i in own if i in open_), key=lambda i: -s[i])[: quota.pop(0)]
            for i in {*believed, *surest}:
                w.cells[i] = x[i]
            ends = [i for i in sorted(open_) if x[i] in case["ends"]]
            if any(i in ends for i in believed):
                stop = next(i for i in believed if i in ends) + 1
            elif ends:
                stop = max(ends, key=lambda i: s[i]) + 1
    return {"output": tuple(w.cells[:stop]), "computed": w.computed}


def learn2pd_ours(case: Mapping[str, Any], backend: str) -> Columns:
    """What was cut is in no column: it stays what it was there, and is masked again here."""
    sampled = {"noise": source(case["seed"]), "shaping": {"temperature": 1}} if case["sampled"] else {}
    params = {name: case[name] for name in ("block", "steps", "tau", "ends")}
    model = table(case["seed"], 4)
    found = run(
        "learn2pd_eot", model, case["prompt"], case["length"], backend, externs={"final": filtered}, **sampled, **params
    )
    return {"output": found.output, "computed": [c.computed for c in found.calls]}


COMPARED = [
    Compared(
        "learn2pd_eot",
        "ims-kdks/Learning-to-Parallel-Decoding 342293c, llada/generate.py, generate_l2p_eot",
        learn2pd_eot,
        learn2pd_ours,
        {
            f"seed{s} {'drawn' if sampled else 'greedy'}": {
                "seed": s,
                "prompt": (1, 2),
                "length": 12,
                "block": 6,
                "steps": 6,
                "tau": 0.7,
                "ends": [3],
                "sampled": sampled,
            }
            for s in (3, 6, 9, 12, 31, 35)
            for sampled in (False, True)
        },
        "where a block was cut their filter is given too few numbers and fails; it is given zeros here",
    ),
]
