"""Drafts from the places of a block: the trees of DDTree and JetSpec, DSpark's chain."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, by_call, replayed, verified
from fidelity.transcribed.masks import Entries
from fidelity.watched import run

from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.reading import Reading
from decgraph.runtime.models.table import TableFeatures, TableModel

SIZE = 6


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    target = TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")
    return {"target": target, "head": TableFeatures(target, case["seed"] + 5)}


def tree(rows: list[np.ndarray], budget: int) -> list[Text]:
    """The paths of likeliest product, one after the other: each is followed by its next sibling and its first child."""
    ranked = [best(r, min(budget, len(r))) for r in rows]
    logs = [np.log(r[k]) for r, k in zip(rows, ranked, strict=True)]
    heap: list[tuple[float, Text]] = [(-logs[0][0], (0,))]
    found: list[Text] = []
    while heap and len(found) < budget:
        cost, ranks = heapq.heappop(heap)
        depth = len(ranks)
        found.append(tuple(ranked[i][r] for i, r in enumerate(ranks)))
        if ranks[-1] + 1 < len(ranked[depth - 1]):
            step = logs[depth - 1][ranks[-1]] - logs[depth - 1][ranks[-1] + 1]
            heapq.heappush(heap, (cost + step, (*ranks[:-1], ranks[-1] + 1)))
        if depth < len(rows):
            heapq.heappush(heap, (cost - logs[depth][0], (*ranks, 0)))
    return found


def fans(rows: list[np.ndarray], budget: int, width: int) -> list[Text]:
    """The likeliest open path, of equals the first, is followed by the likeliest tokens of the next place, as many as there is
    room for beside the root."""
    ranked = [best(r, min(width, len(r))) for r in rows]
    heap: list[tuple[float, int, Text]] = [(0.0, 0, ())]
    found: list[Text] = []
    while heap and len(found) + 1 < budget:
        cost, _, path = heapq.heappop(heap)
        if len(path) == len(rows):
            continue
        row = rows[len(path)]
        for token in ranked[len(path)][: budget - 1 - len(found)]:
            found.append((*path, token))
            heapq.heappush(heap, (cost - np.log(row[token]), len(found), found[-1]))
    return found


def ddtree(case: Mapping[str, Any]) -> Columns:
    """An exact token first; then a tree of what the head says of every place of the block behind the last token."""
    return verified_trees(case, lambda rows: tree(rows, case["budget"]), cut=True)


def jetspec(case: Mapping[str, Any]) -> Columns:
    """As DDTree, with other trees."""
    return verified_trees(case, lambda rows: fans(rows, case["budget"], case["width"]))


def verified_trees(case: Mapping[str, Any], grown: Callable[[list[np.ndarray]], list[Text]], cut: bool = False) -> Columns:
    """Trees of the places of a block, behind an exact token. cut: no deeper than the limit leaves them."""
    both, text, end = models(case), list(case["prompt"]), len(case["prompt"]) + case["limit"]
    drafted: list[list[Text]] = [[]]
    accepted = [0]
    text.append(int(np.argmax(after(both["target"], text))))
    while len(text) < end:
        said = marginals(both["head"], text, case["block"])[: end - len(text) - 1 if cut else None]
        paths = grown(said) if said else []
        kept, n = verified(both["target"], text, paths)
        text += kept
        drafted.append(sorted(paths))
        accepted.append(n)
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def marginals(head: Any, text: list[int], block: int) -> list[np.ndarray]:
    """What the head says behind the text and behind as many paddings, token 0, as the block has room for."""
    given = head.target.memory(tuple(text[:-1]))
    rows = head.eval([(*text, *[0] * i) for i in range(block - 1)], given)
    return [np.asarray([float(w) for w in row.weights]) for row in rows]


ours = partial(replayed, models=models, columns=by_call)


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


COMPARED = [
    Compared(
        "ddtree",
        "liranringel/ddtree c96427a1, ddtree.py, build_ddtree_tree and ddtree_generate",
        ddtree,
        ours("ddtree", "block", "budget"),
        {
            f"block {k} budget {n}": {"seed": s, "prompt": (1, 2, 3), "limit": 12, "block": k, "budget": n}
            for s, k, n in ((1, 5, 12), (2, 3, 4), (3, 2, 3), (4, 6, 40))
        },
        "padding in a block's places, which does not matter to a trained head; a tree is no deeper than the limit leaves it",
    ),
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
    Compared(
        "jetspec",
        "hao-ai-lab/JetSpec 2c7b3fae, jetspec/tree/baselines/accum_logp.py",
        jetspec,
        ours("jetspec", "block", "width", "budget"),
        {
            f"block {k} width {w} budget {n}": {"seed": s, "prompt": (1, 2), "limit": 12, "block": k, "width": w, "budget": n}
            for s, k, w, n in ((1, 5, 3, 12), (2, 3, 2, 4), (3, 2, 6, 5), (4, 6, 4, 40))
        },
        "greedy; of its trees the one that the engine builds unless told otherwise",
    ),
]
