"""Decoders that write a piece, judge it, and write it again or keep it: Monitoring Decoding, AdaDec, CNTP, GRACE, Arbitrage,
RSD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared
from fidelity.watched import run

from lab.recordings.judged import MARK
from lab.recordings.steps import models
from lab.recordings.tables import Letters, untied
from lab.recordings.trials import MARKS


def monitoring(case: Mapping[str, Any], backend: str) -> Columns:
    """As many tokens as the authors' loop wrote in its steps."""
    params = {name: case[name] for name in ("depth", "width", "branch", "tau")}
    bound = {name: models(case)[name] for name in ("target", "drafter")}
    limit = case["steps"] * case["depth"]
    done = run("monitoring", case["prompt"], bound, backend, max_tokens=limit, eos=case["eos"], **params)
    return {"tokens": done.tokens[len(case["prompt"]) :], "committed": [c for c in done.committed if c]}


def adadec(case: Mapping[str, Any], backend: str) -> Columns:
    """With how many tokens were chosen by looking ahead: by as many rows in a call as there are candidates."""
    models, names = {"target": untied(case["size"], case["seed"], window=None)}, ("k", "length", "tau")
    params = {name: case[name] for name in names}
    done = run("adadec", case["prompt"], models, backend, max_tokens=case["limit"], eos=case["eos"], **params)
    ahead = [c for c in done.calls if len(c.rows) == case["k"]]
    return {"tokens": done.tokens, "lookaheads": len(ahead) // case["length"]}


def drawn(program: str, *names: str, using: tuple[str, ...], **more: Any) -> Any:
    """Ours: the text, by what each step commits, of a program whose pieces are drawn."""

    def ours(case: Mapping[str, Any], backend: str) -> tuple[list[int], list[list[int]]]:
        params = {name: case[name] for name in (*names, "temperature")}
        bound, limit = {name: models(case)[name] for name in using}, case.get("limit", 400)
        with given(case["seed"]):
            done = run(
                program, case["prompt"], bound, backend, max_tokens=limit, eos=case.get("eos", ()), **more, **params
            )  # fmt: skip
        return list(done.tokens[len(case["prompt"]) :]), [list(c) for c in done.committed if c]

    return ours


def cautious(case: Mapping[str, Any], backend: str) -> Columns:
    made = drawn("cautious", "low", "high", "most", using=("target",), tokenizer=Letters(MARKS))
    tokens, committed = made(case, backend)
    return {"tokens": tokens, "committed": committed}


def discriminator_guided(case: Mapping[str, Any], backend: str) -> Columns:
    """As many steps as theirs."""
    made = drawn("discriminator_guided", "k", "beta", "reach", using=("target", "reader"), mark="|", tokenizer=Letters("|"))
    return {"tokens": sum(made(case, backend)[1][: case["steps"]], [])}


def judged(program: str, threshold: str, *names: str) -> Any:
    """Ours: the text until the authors' loop ends, and who wrote each step: 2 where the target was asked at its beginning."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        bound = {name: models(case)[name] for name in ("target", "drafter", *names)}
        params = {name: case[name] for name in (threshold, "reach", "eos", "temperature")}
        with given(case["seed"]):
            done = run(program, case["prompt"], bound, backend, max_tokens=400, mark=MARK, tokenizer=Letters([MARK]), **params)
        asked = {len(row) for call in done.calls for row in call.rows}
        text, writers, most, reach = list(case["prompt"]), list[int](), case["steps"], case["reach"]
        for step in done.committed:
            writers.append(2 if len(text) in asked else 1)
            text += step
            if step[-1] or len(writers) == most or len(text) >= reach:
                break
        ends = text[-1:] in ([0], *([e] for e in case["eos"]))
        return {"tokens": text[len(case["prompt"]) : len(text) - ends], "writers": writers}

    return ours


def unmarked(line: str, *cases: str) -> dict[tuple[str, str], str]:
    """What differs in cases whose last step has no mark."""
    why = f"the mark is put behind every step before it is judged there ({line}), also where a step ended without one"
    return {(case, column): why for case in cases for column in ("tokens", "writers")}


LAST_END = "a text is cut behind its last end token there (decoding.py:253), behind its first one here"

ENTRIES = [
    recorded("cautious", cautious),
    recorded("discriminator_guided", discriminator_guided),
    recorded(
        "reward_guided_sd",
        judged("reward_guided_sd", "delta", "judge"),
        differs=unmarked("external/skywork_o1_prm_inference/model_utils/io_utils.py:15", "3 0.6 2048", "4 0.6 2048", "7 0 5"),
    ),
    recorded(
        "arbitrage",
        judged("arbitrage", "tau", "reader"),
        differs=unmarked("arbitrage.py:278", "2 0.6 2048", "4 0.6 2048", "5 0.6 2048", "6 0.6 2048", "7 0 5"),
    ),
    recorded("adadec", adadec),
    recorded("monitoring", monitoring, differs={("5 0.9", column): LAST_END for column in ("tokens", "committed")}),
]
COMPARED: list[Compared] = []
