"""Decoders that write a text's parts out of order: self-infilling, parallel branches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared, after, by_step, replayed
from fidelity.transcribed.steps import Writer
from fidelity.watched import run

from lab.recordings import tabled
from lab.recordings.parts import marked
from lab.recordings.tables import untied


def target(case: Mapping[str, Any]) -> Any:
    return untied(case.get("size", 9), case["seed"], sharp=case.get("sharp", 1.0))


parts = partial(replayed, models=lambda case: {"target": target(case)}, columns=by_step)


def self_infilling(case: Mapping[str, Any], backend: str) -> Columns:
    """With the end and the marks that the last four tokens are there."""
    end, *marks = range(case["size"] - 4, case["size"])
    params = {name: case[name] for name in ("tau", "opening", "length", "again", "temperature")}
    params |= dict(zip(("prefix", "suffix", "middle"), ((m,) for m in marks), strict=True))
    models = {"target": marked(case["size"], case["seed"])}
    with given(case["seed"]):
        return {"tokens": run("self_infilling", case["prompt"], models, backend, max_tokens=64, eos=(end,), **params).tokens}


def parallel_branches(case: Mapping[str, Any]) -> Columns:
    """Three stages: the titles, the branches side by side, the rest. The marks are tokens."""
    write, model, text = Writer(case), target(case), tuple(case["prompt"])
    fork, colon, join, dots, line = case["fork"], case["colon"], case["join"], tuple(case["dots"]), tuple(case["line"])
    start, forced = len(text), [dots[0], *line, fork]
    while not write.over(text) and (fork not in text[start:]):
        if colon in text[start:]:  # what stands behind a colon is given
            text = (*text, forced[len(text) - start - text[start:].index(colon) - 1])
        else:
            text = (*text, write.token(model, text))
    if fork not in text[start:]:
        return {"tokens": text}
    text = text[: text.index(fork, start)]
    plan: list[int] = [fork]
    while plan[-1] != join:
        back = next((i for i in range(1, len(forced) + 1) if plan[-i] == colon), None) if colon in plan else None
        if back is not None and back <= len(forced):
            plan.append(forced[back - 1])
        else:
            plan.append(write.token(model, (*text, *plan), banned=[fork] if plan[-1] == fork else []))
    beams = [list(b) for b in split(plan[:-2], fork)]
    assert all(b[-len(forced) :] == [colon, *forced[:-1]] for b in beams), "a title without a colon loses its last tokens there"
    branches = [[fork, *b[: -len(forced) + 1]] for b in beams]
    for branch in branches:
        while len(branch) < case["reach"] + 1 and branch[-1] not in (fork, *case["eos"]) or len(branch) == 1:
            p = after(model, (*text, *branch)).copy()
            if branch[-1] == colon:
                p[list(dots)] = 0
            branch.append(int(p.argmax()))
    for branch in branches:
        text = (*text, *line, fork, *(x for x in branch[1:] if x != fork))
    ends = [i for i, x in enumerate(text) if i >= start and x in case["eos"]]
    text = text[: min(write.end, *(e + 1 for e in ends), write.end)]
    while not write.over(text):
        text = (*text, write.token(model, text))
    return {"tokens": text}


def split(tokens: list[int], at: int) -> list[list[int]]:
    """The pieces between tokens, without empty ones."""
    out: list[list[int]] = [[]]
    for x in tokens:
        if x == at:
            out.append([])
        else:
            out[-1].append(x)
    return [b for b in out if b]


def whole(program: str, *names: str) -> Any:
    """Ours: the text."""
    made = parts(program, *names)
    return lambda case, backend: {"tokens": made(case, backend)["tokens"]}


ENTRIES = [recorded("self_infilling", self_infilling)]
COMPARED = [
    Compared(
        "parallel_branches",
        "yuyijiong/parallel-decoding-in-one-sequence 8c4e0210, modeling_qwen2.py, generate_with_parallel, generate_parallel, "
        "CustomLogitsProcessor",
        parallel_branches,
        whole("parallel_branches", "fork", "colon", "join", "dots", "line", "reach"),
        tabled(
            "{seed} {reach} {temperature}",
            "seed reach temperature",
            ((25, 9, 1.0), (28, 9, 1.0), (43, 9, 1.0), (57, 4, 1.0), (391, 12, 1.0), (300, 4, 1.0)),
            size=9,
            prompt=(4, 5),
            limit=70,
            eos=(),
            fork=1,
            colon=2,
            join=3,
            dots=(0, 7),
            line=(6,),
        ),
        "there is a title, and each has its colon; no end token, which would end a branch here",
    ),
]
