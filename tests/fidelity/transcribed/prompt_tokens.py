"""Tokens behind drafts at which the target itself guesses: parallel prompt decoding's prompt tokens, FlexDraft's masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, after, replayed, unhurried, verified
from fidelity.transcribed.eagle_trees import Uneven, cases, columns

from decgraph.runtime.models.interface import Memory, Path, Scores
from lab.recordings.prompt_tokens import models


class Plain(Uneven):
    """A target that never says a prompt token, the last three ids."""

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        rows = [(s.weights or ())[:-3] for s in super().eval(paths)]
        return [Scores(weights=(*(w / sum(r) for w in r), Fraction(0), Fraction(0), Fraction(0))) for r in rows]


def target(case: Mapping[str, Any]) -> Plain:
    return Plain(case["size"], case["seed"], window=2, vocab="t", name="target")


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


def ppd(case: Mapping[str, Any], backend: str) -> Columns:
    """The defaults where a case gives no trees."""
    names = ("first", *(n for n in ("two", "three", "far_two", "far_three") if case[n] is not None))
    return unhurried("ppd", *names, models=models, last=1)(case, backend)


ENTRIES = [recorded("ppd", ppd)]
COMPARED = [
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
