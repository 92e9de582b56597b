"""What came after DFlash: trees that are as large as they pay for, and drafts that know the ones before them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from fidelity.transcribed.block_trees import marginals, models, ours, verified_trees
from fidelity.transcribed.compared import Columns, Compared, Text, best, verified
from fidelity.transcribed.copied import columns
from fidelity.watched import run

from decgraph.runtime.models.table import TableFeatures


def costs(case: Mapping[str, Any]) -> list[float]:
    """A table of what a call takes by its nodes, flat at first, as the authors fit one to what they measured."""
    return [1.0 + case["each"] * max(0, n - case["free"]) for n in range(case["most"] + 1)]


def paying(rows: list[np.ndarray], case: Mapping[str, Any]) -> list[Text]:
    """The likeliest path left joins the tree, and opens its next sibling and its first child, until one does not make
    the expected tokens per time more."""
    ranked = [best(r, min(case["most"], len(r))) for r in rows]
    logs = [np.log(r[k]) for r, k in zip(rows, ranked, strict=True)]
    takes, found, expected = costs(case), [], 1.0
    rate = expected / (case["drafting"] + takes[0])
    open_: list[tuple[float, Text]] = [(-logs[0][0], (0,))]
    while open_ and len(found) < case["most"]:
        cost, ranks = heapq.heappop(open_)
        expected += np.exp(-cost)
        new = expected / (case["drafting"] + takes[len(found) + 1])
        if new <= rate:
            break
        rate, depth = new, len(ranks)
        found.append(tuple(ranked[i][r] for i, r in enumerate(ranks)))
        if ranks[-1] + 1 < len(ranked[depth - 1]):
            here, beside = logs[depth - 1][ranks[-1]], logs[depth - 1][ranks[-1] + 1]
            heapq.heappush(open_, (cost + here - beside, (*ranks[:-1], ranks[-1] + 1)))
        if depth < len(rows):
            heapq.heappush(open_, (cost - logs[depth][0], (*ranks, 0)))
    return found


def caddtree(case: Mapping[str, Any]) -> Columns:
    """As DDTree, with other trees."""
    return verified_trees(case, lambda rows: paying(rows, case))


def chained(case: Mapping[str, Any], places: int, draft: Callable[[list[np.ndarray], list[int]], list[int]]) -> Columns:
    """An exact token first; then chains that `draft` makes of what the head says of the places behind the last token."""
    both, text, end = models(case), list(case["prompt"]), len(case["prompt"]) + case["limit"]
    drafted: list[list[Text]] = [[]]
    accepted = [0]
    text += verified(both["target"], text, ())[0]
    while len(text) < end:
        chain = draft(marginals(both["head"], text, places + 1), text)
        paths = [tuple(chain[: i + 1]) for i in range(len(chain))]
        kept, n = verified(both["target"], text, paths)
        text += kept
        drafted.append(paths)
        accepted.append(n)
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def corrections(case: Mapping[str, Any]) -> TableFeatures:
    """A stand-in for a trained network that knows the state of a place and the drafts before it."""
    return TableFeatures(models(case)["target"], case["seed"] + 9, power=case.get("power", 1))


def added(head: TableFeatures, text: Sequence[int], chain: Sequence[int]) -> np.ndarray:
    """What it adds to the scores of the place behind these drafts."""
    row = head.eval([(*text, *chain)], head.target.memory(tuple(text[:-1])))[0]
    return np.log(np.asarray([float(w) for w in row.weights]))


def domino(case: Mapping[str, Any]) -> Columns:
    """The first drafts are the best of their places; the others of the sums of their places' scores and the correction."""
    head = corrections(case)

    def draft(rows: list[np.ndarray], text: list[int]) -> list[int]:
        chain: list[int] = []
        for i, row in enumerate(rows):
            chain.append(int(np.argmax(row if i < case["pure"] else np.log(row) + added(head, text, chain))))
        return chain

    return chained(case, case["block"], draft)


def dflash2(case: Mapping[str, Any]) -> Columns:
    """The k best of every place that is left; of these the one with the best sum of its score and how it follows the draft
    before."""
    head = corrections(case)

    def draft(rows: list[np.ndarray], text: list[int]) -> list[int]:
        chain: list[int] = []
        for row in rows[: len(case["prompt"]) + case["limit"] - len(text)]:
            few, follows = best(row, case["k"]), added(head, text, chain)
            chain.append(few[int(np.argmax([np.log(row[x]) + follows[x] for x in few]))])
        return chain

    return chained(case, case["block"] - 1, draft)


def corrected(program: str, part: str, *names: str) -> Callable[[Mapping[str, Any], str], Columns]:
    """Ours, with the stand-in as its second head."""

    def replay(case: Mapping[str, Any], backend: str) -> Columns:
        given = {**models(case), part: corrections(case)}
        params = {name: case[name] for name in names}
        return columns(run(program, case["prompt"], given, backend, limit=case["limit"], **params))

    return replay


COMPARED = [
    Compared(
        "caddtree",
        "ZhangShuai1230/CaDDTree 227dbcfc, caddtree.py, build_caddtree_tree and caddtree_generate",
        caddtree,
        ours("caddtree", "block", "most", "drafting", "each", "free"),
        {
            f"block {k} draft {d} node {e} after {f}": {
                "seed": s,
                "prompt": (1, 2, 3),
                "limit": 12,
                "block": k,
                "most": m,
                "drafting": d,
                "each": e,
                "free": f,
            }
            for s, k, m, d, e, f in (
                (1, 5, 64, 0.19, 0.02, 4),
                (2, 4, 20, 0.5, 0.05, 0),
                (3, 3, 8, 0.19, 0.0018, 192),
                (4, 6, 40, 2.0, 0.1, 1),
                (5, 2, 30, 0.0, 0.3, 0),
            )
        },
        "greedy; a line in the place of the table of measured times",
    ),
    Compared(
        "domino",
        "jianuo-huang/Domino 1e0fbf87, code/dflash.py, DFlashDraftModel.spec_generate",
        domino,
        corrected("domino", "correction", "block", "pure"),
        {
            f"block {k} pure {p}": {"seed": s, "prompt": (1, 2, 3), "limit": 14, "block": k, "pure": p}
            for s, k, p in ((1, 6, 1), (2, 4, 0), (3, 5, 3), (4, 1, 1))
        },
        "greedy; as trained with a shifted label; a head on features of its own in the place of the recurrent network",
    ),
    Compared(
        "dflash2",
        "z-lab/dflash 10129599, dflash/model.py, CandidateSelector.select and dflash_generate",
        dflash2,
        corrected("dflash2", "selector", "block", "k"),
        {
            f"block {b} of {k}": {"seed": s, "prompt": (1, 2, 3), "limit": 14, "block": b, "k": k}
            for s, b, k in ((1, 6, 2), (2, 4, 3), (3, 8, 1), (4, 2, 16), (6, 5, 4))
        },
        "greedy; a head on features of its own in the place of the low-rank product",
    ),
]
