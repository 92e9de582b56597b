"""Texts side by side, and which of them goes on or is the answer: REBASE, weighted voting, SPEC-RL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns
from fidelity.watched import Watched, run

from decgraph.runtime import trace
from lab.recordings.tables import Letters, untied
from lab.recordings.votes import AGGREGATES, END, old, reward, same_answer, scores, spelled, step_ends

Case = Mapping[str, Any]


def drawn(program: str, case: Case, backend: str, externs: Mapping[str, Any], *names: str) -> Watched:
    """A run that draws as the recorded one did."""
    target = untied(5, case["seed"], window=None, sharp=case.get("sharp", 0.5))
    params = {name: case[name] for name in names}
    how = {"max_tokens": case["limit"], "eos": (END,), "temperature": 1, "externs": externs, "tokenizer": Letters()}
    with given(case["seed"]):
        return run(program, case["prompt"], {"target": target}, backend, **how, **params)


def rebase(case: Case, backend: str) -> Columns:
    """How often each text was continued, by level."""
    done = drawn("rebase", case, backend, {"reward": reward, "step_ends": step_ends}, "width", "tau")
    below, paths = dict[int, list[int]](), {0: ()}
    for e in done.result.events:
        if isinstance(e, trace.Drafted):
            below.setdefault(e.parent, []).append(e.node)
            paths[e.node] = (*paths[e.parent], e.token)

    def over(node: int) -> bool:
        return paths[node][-1:] == (END,) or len(paths[node]) == case["limit"]

    level, shares = [0], []
    while level:
        shares.append(sorted((paths[n], len(below[n])) for n in level if n in below))
        level = [child for n in level for child in below.get(n, [])]
        for i, n in enumerate(level):  # to the end of its step
            while not over(n) and not step_ends(spelled(paths[n])):
                (n,) = below[n]
            level[i] = n
        level = [n for n in level if not over(n)]
    return {"shares": [s for s in shares if s], "answer": spelled(done.tokens[len(case["prompt"]) :])}


def weighted_voting(case: Case, backend: str) -> Columns:
    """aggregate: what a text is worth, None: all the same."""
    worth = {name: lambda text, value=value: value(scores(text)) for name, value in AGGREGATES.items()}
    externs = {"reward": worth.get(case["aggregate"], lambda text: 1.0), "same_answer": same_answer}
    done = drawn("weighted_voting", case, backend, externs, "n")
    return {"answer": spelled(done.tokens[len(case["prompt"]) :])}


def spec_rl(case: Case, backend: str) -> Columns:
    """What is kept of the old text, and whether it is written on."""
    models = {"target": untied(6, case["seed"], window=None), "drafter": old(case)}
    params = {"before": case["before"], "lenience": case["lenience"]}
    with given(case["seed"]):
        done = run(
            "spec_rl", case["prompt"], models, backend, max_tokens=case["limit"], eos=case["eos"], temperature=1, **params
        )
    n, accepted = len(case["prompt"]), done.calls[0].accepted
    return {"kept": done.tokens[: n + accepted], "accepted": accepted, "goes on": len(done.tokens) > n + accepted}


ENTRIES = [
    recorded("rebase", rebase),
    recorded("weighted_voting", weighted_voting),
    recorded("spec_rl", spec_rl),
]
