"""Texts side by side, and which of them is the answer: REBASE, weighted voting.

What was drawn is read from our tree and handed over: how often a text is continued, and which is chosen, is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from fidelity.transcribed.compared import Columns, Compared, Text
from fidelity.watched import Watched, run
from lib.stdlib.letters import Letters

from decgraph.runtime import trace
from decgraph.runtime.models.table import TableModel

END = 0
Tree = dict[int, list[tuple[int, int]]]


def reward(text: str) -> float:
    """Between 0 and 1, and not the same for two texts: of equals the published order is that of expansion, ours that of
    completion."""
    return sum(7**i * (ord(c) - 96) for i, c in enumerate(text)) % 997 / 997


def step_ends(text: str) -> bool:
    return text.endswith(("b", "d"))


def same_answer(a: str, b: str) -> bool:
    return len(a) % 3 == len(b) % 3


def watched(case: Mapping[str, Any], backend: str) -> Watched:
    names = {"reward": reward, "step_ends": step_ends, "same_answer": same_answer}
    program = case["program"]
    externs = {n: names[n] for n in case["externs"]}
    params = {n: case[n] for n in ("width", "tau", "n") if n in case}
    return run(
        program,
        case["prompt"],
        {"target": TableModel(5, case["seed"], window=2, vocab="t", name="target")},
        backend,
        max_tokens=case["limit"],
        eos=(END,),
        temperature=1,
        settings={"seed": case["seed"]},
        externs=externs,
        tokenizer=Letters(),
        **params,
    )


def grown(done: Watched) -> tuple[Tree, dict[int, Text]]:
    """Below each node its children and their tokens; and every node's tokens."""
    below: Tree = {}
    paths: dict[int, Text] = {0: ()}
    for e in done.result.events:
        if isinstance(e, trace.Drafted):
            below.setdefault(e.parent, []).append((e.node, e.token))
            paths[e.node] = (*paths[e.parent], e.token)
    return below, paths


def spelled(case: Mapping[str, Any], path: Text) -> str:
    return Letters().decode(path)


def over(case: Mapping[str, Any], path: Text) -> bool:
    return path[-1:] == (END,) or len(path) >= case["limit"]


def step(case: Mapping[str, Any], below: Tree, paths: dict[int, Text], node: int) -> int:
    """The node at which the step that begins with this one ends."""
    while not over(case, paths[node]) and not step_ends(spelled(case, paths[node])):
        ((node, _),) = below[node]
    return node


def rebase(case: Mapping[str, Any]) -> Columns:
    """Level by level: what ended takes one of the width; the others, the highest reward first, get what is left of the width by
    their share of what is left of the weights, rounded up."""
    below, paths = grown(watched(case, "reference"))
    level, width, shares, ended = [0], case["width"], [], []
    scores = {0: 1.0}
    for _ in range(25):
        width -= sum(n != 0 and over(case, paths[n]) for n in level)
        level = [n for n in level if n == 0 or not over(case, paths[n])]
        if width <= 0 or not level:
            break
        order = sorted(level, key=lambda n: scores[n])[::-1]
        weights = [math.exp(scores[n] / case["tau"]) for n in order]
        left, asked = width, {}
        for i, n in enumerate(order):
            asked[n] = math.ceil(left * weights[i] / math.fsum(weights[i:]) - 1e-9)
            left -= asked[n]
        shares.append(sorted((paths[n], k) for n, k in asked.items()))
        level = [step(case, below, paths, child) for n in order if asked[n] for child, _ in below.get(n, [])]
        scores |= {n: reward(spelled(case, paths[n])) for n in level}
        ended += [n for n in level if over(case, paths[n])]
    answer = paths[max(ended, key=lambda n: scores[n])]
    return {"shares": shares, "answer": reward(spelled(case, answer))}


def ours_rebase(case: Mapping[str, Any], backend: str) -> Columns:
    """How often each text was continued, by level."""
    done = watched(case, backend)
    below, paths = grown(done)
    level, shares = [0], []
    while level:
        shares.append(sorted((paths[n], len(below.get(n, []))) for n in level))
        level = [step(case, below, paths, child) for n in level for child, _ in below.get(n, [])]
        level = [n for n in level if not over(case, paths[n])]
    answer = tuple(done.tokens[len(case["prompt"]) :])
    return {"shares": shares, "answer": reward(spelled(case, answer))}


def texts(case: Mapping[str, Any]) -> list[Text]:
    """The drawn texts, those first that ended first."""
    below, paths = grown(watched(case, "reference"))
    return sorted((p for n, p in paths.items() if n and n not in below), key=len)


def voted(case: Mapping[str, Any]) -> Columns:
    """Classes of equal answers collect the rewards of their texts, in order; whenever one has more than all had before, the
    text that made it so is the answer."""
    classes: list[tuple[str, float]] = []
    most, answer = -math.inf, ()
    for path in texts(case):
        text = spelled(case, path)
        weight = reward(text) if "reward" in case["externs"] else 1.0
        for i, (first, votes) in enumerate(classes):
            if same_answer(text, first):
                classes[i] = (first, votes + weight)
                break
        else:
            i = len(classes)
            classes.append((text, weight))
        if classes[i][1] > most:
            most, answer = classes[i][1], path
    return {"answer": answer}


def ours_voted(case: Mapping[str, Any], backend: str) -> Columns:
    return {"answer": tuple(watched(case, backend).tokens[len(case["prompt"]) :])}


def cases(program: str, externs: tuple[str, ...], *given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    base = {"program": program, "externs": externs, "prompt": (1, 2, 3), "limit": 16}
    return {f"seed{i}": {**base, "seed": i, **g} for i, g in enumerate(given, 1)}


Ours = Callable[[Mapping[str, Any], str], Columns]
CODE = "thu-wyz/inference_scaling 0fe7da96, "

COMPARED = [
    Compared(
        "rebase",
        CODE + "rebase.py, select_softmax and select_and_expand",
        rebase,
        ours_rebase,
        cases(
            "rebase", ("reward", "step_ends"), *({"width": w, "tau": t} for w, t in ((8, 0.2), (5, 0.5), (12, 0.1), (16, 2.0)))
        ),
        "of what ended the one of the highest last reward, as math_evaluate.py has it among others",
    ),
    Compared(
        "weighted_voting",
        CODE + "math_evaluate.py, majority_vote",
        voted,
        ours_voted,
        cases("weighted_voting", ("reward", "same_answer"), *({"n": n} for n in (3, 6, 9, 16, 12, 7))),
        "a text's reward is one number; the texts that ended first vote first",
    ),
]
