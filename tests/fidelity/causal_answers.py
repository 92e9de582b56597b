"""The entries of decoders that draw several texts and answer with one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.watched import Watched, run

from lab.recordings import answers
from lab.recordings.tables import Letters


def decoded(program: str, case: Mapping[str, Any], backend: str, **externs: Any) -> Watched:
    """A run that draws with the case's noise."""
    with given(case["seed"]):
        return run(
            program, case["prompt"], {"target": answers.model(case)}, backend, max_tokens=case["limit"], eos=(case["eos"],),
            temperature=1, externs=externs or None, tokenizer=Letters(), n=case["n"],
        )  # fmt: skip


def spelled(done: Watched, case: Mapping[str, Any]) -> str:
    return answers.spelled(case, done.tokens[len(case["prompt"]) :])


def reward(text: str) -> float:
    """The text's end has a letter too, which published code does not see."""
    return answers.reward(text.rstrip("a"))


def best_of_n(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    done = decoded("best_of_n", case, backend, reward=reward)
    return {"answer": spelled(done, case)}


def self_consistency(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    def same(a: str, b: str) -> bool:
        return answers.answer(a.rstrip("a")) == answers.answer(b.rstrip("a"))

    done = decoded("self_consistency", case, backend, same_answer=same)
    return {"vote": answers.answer(spelled(done, case))}


def first_finish(case: Mapping[str, Any], backend: str) -> dict[str, Any]:
    done = decoded("first_finish", case, backend)
    return {"answer": spelled(done, case), "steps": len(done.tokens) - len(case["prompt"])}


ENTRIES = [
    recorded("best_of_n", best_of_n),
    recorded("self_consistency", self_consistency),
    recorded("first_finish", first_finish),
]
