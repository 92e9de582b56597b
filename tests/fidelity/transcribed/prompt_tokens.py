"""Tokens behind drafts at which the target itself guesses: parallel prompt decoding's prompt tokens, FlexDraft's masks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, replayed, verified
from fidelity.transcribed.eagle_trees import Uneven, cases, columns

from decgraph.runtime.models.interface import Memory, Path, Scores


class Plain(Uneven):
    """A target that never says a prompt token, the last three ids."""

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        rows = [(s.weights or ())[:-3] for s in super().eval(paths)]
        return [Scores(weights=(*(w / sum(r) for w in r), Fraction(0), Fraction(0), Fraction(0))) for r in rows]


def target(case: Mapping[str, Any]) -> Plain:
    return Plain(case["size"], case["seed"], window=2, vocab="t", name="target")


def ppd(case: Mapping[str, Any]) -> Columns:
    """A tree of (path, number of prompt tokens) for every number of rows that the accepted node had; the root always has three.
    The first call has the root alone, with its three, as the published prefill has."""
    model, k, first = target(case), case["k"], case["first"]
    shapes = {}
    for rows, shape, far in ((2, case["two"], case["far_two"]), (3, case["three"], case["far_three"])):
        paths = sorted((tuple(p) for p in json.loads(shape)), key=lambda p: (len(p), p))
        shapes[rows] = [(p, 3 if i in far else 2) for i, p in enumerate(paths, 1)]
    text, drafted, accepted, named = list(case["prompt"]), [], [], list[list[int]]()
    while len(text) < len(case["prompt"]) + case["limit"]:
        tree: dict[Text, int] = {(): 3}
        for ranks, many in shapes[len(named)] if named else []:
            tree[tuple(named[d][rank] for d, rank in enumerate(ranks))] = many
        prompts = {path: [tuple(first + i for i in range(n + 1)) for n in range(many)] for path, many in tree.items()}
        drafted.append(sorted({*tree, *((*path, *more) for path in tree for more in prompts[path])} - {()}))
        kept, n = verified(model, text, list(tree))
        named = [best(after(model, (*text, *kept[:n], *more)), k) for more in prompts[kept[:n]]]
        text += kept
        accepted.append(n)
    return {"tokens": tuple(text[: len(case["prompt"]) + case["limit"]]), "drafted": drafted, "accepted": accepted}


def flexdraft(case: Mapping[str, Any]) -> Columns:
    """A block is the bonus token and its drafts, of which `compute_verify_len` says how many are verified. Below each of these,
    and below the bonus token, stands a group of as many masks; the output of the first one is dropped."""
    model, size = target(case), case["gamma"] + 1
    text, drafts, drafted, accepted = list(case["prompt"]), list[int](), [], []
    while len(text) < len(case["prompt"]) + case["limit"]:
        spine = [tuple(drafts[:i]) for i in range(len(drafts) + 1)]
        drafted.append(sorted({*spine, *((*path, *[0] * (i + 1)) for path in spine for i in range(size))} - {()}))
        kept, n = verified(model, text, spine[1:])
        rows = [after(model, (*text, *kept[:n], *[0] * (i + 1))) for i in range(1, size)]
        product = np.cumprod([max(p) for p in rows])
        text += kept
        drafts = [int(np.argmax(p)) for p in rows][: min(max(int((product >= case["tau"]).sum()), 1), size - 1)]
        accepted.append(n)
    return {"tokens": tuple(text[: len(case["prompt"]) + case["limit"]]), "drafted": drafted, "accepted": accepted}


ours = partial(replayed, models=lambda case: {"target": target(case)}, columns=columns, beyond=16)


TREES = {
    "two": "[[0], [1], [2], [0, 0], [0, 1], [1, 0]]",
    "far_two": [1, 4],
    "three": "[[0], [1], [0, 0], [0, 1], [0, 0, 0]]",
    "far_three": [1, 2],
}
PUBLISHED = {
    "two": "[[0],[1],[2],[3],[4],[5],[6],[7],[8],[9],[0,0],[0,1],[0,2],[0,3],[1,0],[1,1],[2,0],[3,0]]",
    "far_two": [1, 2, 11, 12, 13],
    "three": "[[0],[1],[2],[3],[4],[5],[6],[7],[8],[9],[0,0],[0,1],[1,0],[2,0],[0,0,0],[0,0,1]]",
    "far_three": [1, 2, 11],
}

COMPARED = [
    Compared(
        "ppd",
        "hmarkc/parallel-prompt-decoding 2ba3a1cd, prompt/model/model.py, ppd_generate and update_inference_inputs",
        ppd,
        ours("ppd", "first", "k", "two", "three", "far_two", "far_three"),
        cases(
            {**TREES, "first": 5, "k": 3, "size": 8, "limit": 16},
            {**PUBLISHED, "first": 10, "k": 10, "size": 13, "limit": 8},
        ),
        "greedy; a prompt token is an id of the vocabulary here, and a node has two or three of them as in the default trees",
    ),
    Compared(
        "flexdraft",
        "Yaro1214/FlexDraft d684800e, flexdraft/draft_bias.py, dual_attn_parallel_generate; utils.py, compute_verify_len",
        flexdraft,
        ours("flexdraft", "gamma", "tau"),
        cases({"gamma": 3, "tau": 0.9, "size": 8, "limit": 16}, {"gamma": 4, "tau": 0.25, "size": 6, "limit": 16}),
        "gamma is block_size - 1, tau the threshold of cumulative_product; without the drafts' calibration, and masks see "
        "what stands before them only",
    ),
]
