"""Steps of a text that are drafted and judged whole: Lookahead Reasoning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after
from fidelity.watched import run
from lib.stdlib.letters import Letters

from decgraph.runtime.models.table import TableModel

SIZE = 6


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    """After two thirds of all pairs of tokens the drafter's table is the target's."""
    target = TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")
    pairs = [(s, t) for s in range(SIZE) for t in range(SIZE) if (s + t) % 3]
    rows = {pair: [int(1000 * p) for p in after(target, pair)] for pair in pairs}
    return {"target": target, "drafter": TableModel(SIZE, case["seed"] + 1, rows, window=2, vocab="t", name="drafter")}


def step(model: Any, text: Sequence[int], mark: int, most: int) -> list[int]:
    """Tokens up to the mark."""
    new: list[int] = []
    while len(new) < most and mark not in new:
        new.append(int(np.argmax(after(model, (*text, *new)))))
    return new


def alike(own: str, drafted: str) -> bool:
    """A judge that is neither equality nor whatever: steps of the same length mean the same."""
    return own == drafted or len(own) == len(drafted)


def spelled(tokens: Sequence[int]) -> str:
    return Letters().decode(tokens)


def lookahead(case: Mapping[str, Any]) -> Columns:
    """From the last step that stands: the drafter's steps ahead, the target's step after each, and the judge, as far as it says
    yes; behind a step that was cut, it is not asked and the answer is no."""
    both, text, mark = models(case), list(case["prompt"]), "abcdef".index(case["mark"])
    end, whole = len(text) + case["limit"], False
    judged: dict[tuple[str, str], None] = {}
    committed: list[tuple[int, ...]] = []
    while len(text) < end:
        most = min(case["reach"], end - len(text))
        ahead: list[list[int]] = []
        while len(ahead) < case["depth"]:
            ahead.append(step(both["drafter"], [*text, *sum(ahead, [])], mark, most))
        passed = 0
        while True:
            own = step(both["target"], [*text, *sum(ahead[:passed], [])], mark, most)
            before = whole if passed == 0 else mark in ahead[passed - 1]
            if passed == case["depth"] or not before:
                break
            pair = spelled(own), spelled(ahead[passed])
            judged[pair] = None
            if not alike(*pair):
                break
            passed += 1
        whole = mark in own
        drafted = sum(ahead[:passed], [])[: end - len(text)]
        own = own[: end - len(text) - len(drafted)]
        text += [*drafted, *own]
        committed += [tuple(c) for c in (drafted, own) if c]
    return {"tokens": tuple(text), "judged": [*judged], "committed": committed}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    judged: dict[tuple[str, str], None] = {}

    def asked(own: str, drafted: str) -> bool:
        judged[str(own), str(drafted)] = None
        return alike(own, drafted)

    params = {name: case[name] for name in ("depth", "mark", "reach")}
    prompt, externs = case["prompt"], {"alike": asked}
    done = run(
        "lookahead_reasoning",
        prompt,
        models(case),
        backend,
        max_tokens=case["limit"],
        externs=externs,
        tokenizer=Letters(),
        **params,
    )
    return {"tokens": done.tokens, "judged": [*judged], "committed": [tuple(map(int, c)) for c in done.committed if c]}


COMPARED = [
    Compared(
        "lookahead_reasoning",
        "hao-ai-lab/LookaheadReasoning c826d030, src/lr.py, run_problem; src/lr_tree.py",
        lookahead,
        ours,
        {
            f"{s} {d} {r}": {"seed": s, "prompt": (1, 2, 3), "limit": 30, "depth": d, "mark": m, "reach": r}
            for s, d, m, r in ((1, 4, "b", 100), (2, 2, "c", 5), (3, 3, "a", 3), (4, 0, "b", 8), (5, 4, "d", 6))
        },
        "greedy, a width of one, where the drafter is not slower than the target; the judge is handed over",
    )
]
