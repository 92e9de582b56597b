"""Drafts from the places of a block: the trees of DDTree, CaDDTree and JetSpec, DSpark's chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, Text, after, by_call, replayed, unhurried, verified
from fidelity.watched import run

from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.reading import Reading
from decgraph.runtime.models.table import TableFeatures, TableModel
from lab.recordings import marginal_trees
from lab.recordings.grids import Entries

SIZE = 6


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    target = TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")
    return {"target": target, "head": TableFeatures(target, case["seed"] + 5)}


def marginals(head: Any, text: list[int], block: int) -> list[np.ndarray]:
    """What the head says behind the text and behind as many paddings, token 0, as the block has room for."""
    given = head.target.memory(tuple(text[:-1]))
    rows = head.eval([(*text, *[0] * i) for i in range(block - 1)], given)
    return [np.asarray([float(w) for w in row.weights]) for row in rows]


ours = partial(replayed, models=models, columns=by_call)


trees = partial(unhurried, models=marginal_trees.models)


def confident(place: int, token: int) -> float:
    """A stand-in for the trained head, of a place and the token before it."""
    return (place * 5 + token * 3) % 7 / 6


class Sure(Reading):
    """The same, of the states of a table's places: a state knows the tokens from the root on."""

    def of_states(self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None) -> list[Any]:
        assert tokens is not None
        return [confident(len(row[0][3]) - 1, t) for row, t in zip(states, tokens, strict=True)]


def markov_table(case: Mapping[str, Any]) -> TableModel:
    """By the last token, or by a place and the last token; then without equal sums, which rounding would decide."""
    made = TableModel(SIZE, case["seed"] + 9, window=2 if "eta" in case else 1, vocab="t", name="markov")
    if "eta" in case:
        made._table = Entries(case["seed"] + 9, SIZE)  # type: ignore[assignment]
    return made


class Gated(Reading):
    """What a table adds of the token before, another one at every place: gated by the state there."""

    def __init__(self, head: Any, table: TableModel) -> None:
        super().__init__(head, "dist", "markov")
        self.table = table

    def scores_of(
        self, states: np.ndarray, layer: int | None, tokens: Sequence[int] | None = None, joint: bool = False
    ) -> list[Scores]:
        assert tokens is not None
        return self.table.eval([((len(row[0][3]) - 1) % SIZE, t) for row, t in zip(states, tokens, strict=True)])


def dspark(case: Mapping[str, Any]) -> Columns:
    """A block that begins with the last token gives scores for as many places; each draft is the best of the place's scores and
    those of the token before it, which the state of the place gates. What is verified ends before the first place that is not
    sure enough."""
    both, text, end = models(case), list(case["prompt"]), len(case["prompt"]) + case["limit"]
    gated = "eta" in case
    markov = markov_table(case)
    drafted: list[list[Text]] = [[]]
    accepted = [0]
    text.append(int(np.argmax(after(both["target"], text))))
    while len(text) < end:
        rows, chain = marginals(both["head"], text, case["block"] + 1), [text[-1]]
        for i, row in enumerate(rows):
            before = [i % SIZE, chain[-1]] if gated else chain[-1:]
            chain.append(int(np.argmax(np.log(row) + np.log(after(markov, before)))))
        unsure = [i for i in range(len(rows)) if case.get("eta", 0) > 0 and confident(i, chain[i]) < case["eta"]]
        paths = [tuple(chain[1 : i + 1]) for i in range(1, (unsure or [len(rows)])[0] + 1)]
        kept, n = verified(both["target"], text, paths)
        text += kept
        drafted.append(paths)
        accepted.append(n)
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def ours_dspark(case: Mapping[str, Any], backend: str) -> Columns:
    given: dict[str, Any] = models(case)
    table = markov_table(case)
    if "eta" not in case:
        given["markov"] = table
        return by_call(run("dspark", case["prompt"], given, backend, max_tokens=case["limit"], block=case["block"]))
    given |= {"markov": Gated(given["head"], table), "sure": Sure(given["head"], "prob", "sure")}
    asked = {"block": case["block"], "eta": case["eta"]}
    return by_call(run("dspark_confident", case["prompt"], given, backend, max_tokens=case["limit"], **asked))


ENTRIES = [
    recorded("ddtree", trees("ddtree", "block", "budget", last=1)),
    recorded("jetspec", trees("jetspec", "block", "width", "budget", last=0), note="of its trees the one it builds by default"),
]
COMPARED = [
    Compared(
        "dspark",
        "deepseek-ai/DeepSpec afdfa7c9, deepspec/eval/dspark/draft_ops.py and modeling/dspark/markov_head.py",
        dspark,
        ours_dspark,
        {f"block {k}": {"seed": s, "prompt": (1, 2, 3), "limit": 14, "block": k} for s, k in ((1, 7), (2, 4), (3, 3), (4, 1))},
        "greedy, the vanilla Markov head, a confidence threshold of 0, as it is by default",
    ),
    Compared(
        "dspark_confident",
        "deepseek-ai/DeepSpec afdfa7c9, eval/dspark/draft_ops.py, build_dspark_proposal, and markov_head.py, GatedMarkovHead",
        dspark,
        ours_dspark,
        {
            f"block {k} confidence {eta}": {"seed": s, "prompt": (1, 2, 3), "limit": 14, "block": k, "eta": eta}
            for s, k, eta in ((4, 3, 0.0), (1, 7, 0.2), (2, 4, 0.5), (3, 6, 0.9))
        },
        "greedy; both heads are functions of the place and the token before it",
    ),
]
