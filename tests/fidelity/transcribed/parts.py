"""Decoders that write a text's parts out of order: self-infilling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared, Text
from fidelity.transcribed.steps import Writer
from fidelity.untied import untied
from fidelity.watched import run


def target(case: Mapping[str, Any]) -> Any:
    return untied(case.get("size", 9), case["seed"], sharp=case.get("sharp", 1.0))


def parts(program: str, *names: str) -> Any:
    """Ours: the text, by what each step commits."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        with given(case["seed"]):
            done = run(
                program,
                case["prompt"],
                {"target": target(case)},
                backend,
                limit=case["limit"],
                eos=case["eos"],
                temperature=case.get("temperature", 0),
                **{name: case[name] for name in names},
            )
        return {"tokens": done.tokens, "committed": done.committed}

    return ours


def self_infilling(case: Mapping[str, Any]) -> Columns:
    """The stop test is the end token; one loop: infilled once, then left to right, which stays where it has the opening."""
    write, model, text, committed = Writer(case), target(case), tuple(case["prompt"]), []
    eos, opening = case["eos"], tuple(case["opening"])

    def piece(start: Text, begun: Text) -> Text:
        out = begun
        while len(out) < len(begun) + case["length"] and out[-1:] not in [(e,) for e in eos]:
            out = (*out, write.token(model, (*start, *out)))
        return out

    while not write.over(text):
        token = write.token(model, text)
        if write.sure(model, text) >= case["tau"]:
            done: Text = (token,)
        else:
            frame = (*case["prefix"], *text, *case["suffix"])
            after = piece(frame, opening)
            between = piece((*frame, *after, *case["middle"]), ())
            between = tuple(x for x in between if x not in eos)
            done = (*between, *after)
            if case["again"]:
                told = (*between, *piece((*text, *between), ()))
                if any(told[i : i + len(opening)] == opening for i in range(len(told) - len(opening) + 1)):
                    done = told
        done = done[: write.end - len(text)]
        for i, x in enumerate(done):
            if x in eos:
                done = done[: i + 1]
                break
        text += done
        committed.append(done)
    return {"tokens": text, "committed": committed}


COMPARED = [
    Compared(
        "self_infilling",
        "LZhengisme/self-infilling c7864c71, lm_eval/generation_pipelines/self_infill_utils.py, self_infill_completion and "
        "SelfInfillingLogitsProcessor",
        self_infilling,
        parts("self_infilling", "tau", "prefix", "suffix", "middle", "opening", "length", "again"),
        {
            f"{seed} {again}": {
                "seed": seed,
                "prompt": (1, 2),
                "limit": 20,
                "eos": (3,),
                "tau": tau,
                "prefix": (6,),
                "suffix": (7,),
                "middle": (8,),
                "opening": opening,
                "length": length,
                "again": again,
                "temperature": t,
            }
            for seed, tau, opening, length, again, t in (
                (1, 0.4, (5,), 4, True, 0),
                (2, 0.3, (4, 5), 3, False, 0),
                (3, 0.35, (0,), 5, True, 0.8),
                (4, 0.25, (5,), 4, True, 0),
                (5, 0.5, (2,), 6, True, 0.2),
                (6, 0.5, (4,), 6, True, 1.0),
            )
        },
        "parts end at the end token or their length; the marks are not ruled out, repetitive texts not dropped",
    ),
]
