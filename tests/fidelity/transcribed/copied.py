"""Drafts that are copied from a text: EMS-SD's prompt table, input-guided aggressive decoding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, Text, after, by_call, replayed, verified

from decgraph.runtime.models.table import TableModel

Draft = Callable[[Sequence[int]], Sequence[int]]


def model(case: Mapping[str, Any]) -> TableModel:
    """Few tokens, so that texts repeat themselves."""
    return TableModel(case.get("size", 4), case["seed"], window=2, vocab="t", name="target")


def words(seed: int, length: int, size: int = 4) -> Text:
    """A prompt."""
    return tuple(int(x) for x in np.random.default_rng(seed).integers(0, size, length))


def copying(case: Mapping[str, Any], draft: Draft) -> Columns:
    """A loop that verifies what `draft` says of the text so far; what no longer fits into the limit is left out, as it is in
    ours, and makes no difference to the text."""
    target, text, end = model(case), list(case["prompt"]), len(case["prompt"]) + case["limit"]
    drafted, accepted = [], []
    while len(text) < end:
        chain = list(draft(text))[: end - len(text) - 1]
        paths = [tuple(chain[: i + 1]) for i in range(len(chain))]
        kept, n = verified(target, text, paths)
        text += kept
        drafted.append(sorted(paths))
        accepted.append(n)
    return {"tokens": tuple(text), "drafted": drafted, "accepted": accepted}


ours = partial(replayed, models=lambda case: {"target": model(case)}, columns=by_call)


def ems_sd(case: Mapping[str, Any]) -> Columns:
    """A table from pairs of the prompt to the last place behind one that enough tokens follow; the first call has no draft."""
    prompt, pair, copy = list(case["prompt"]), case["reach"], case["k"]
    table = {tuple(prompt[i : i + pair]): i + pair for i in range(len(prompt) - pair - copy + 1)}

    def draft(text: Sequence[int]) -> Sequence[int]:
        at = table.get(tuple(text[-pair:])) if len(text) > len(prompt) else None
        return [] if at is None else prompt[at : at + copy]

    return copying(case, draft)


def input_guided(case: Mapping[str, Any]) -> Columns:
    """The whole input at first; later what follows the shortest end of the output, of three tokens at most, that the input has
    once. The output begins with a token that the input never has."""
    source, begun = list(case["prompt"]), len(case["prompt"])
    places: dict[Text, list[int]] = {}
    for i in range(len(source)):
        for n in range(1, case["reach"] + 1):
            if i + n <= len(source):
                places.setdefault(tuple(source[i : i + n]), []).append(i + n)

    def draft(text: Sequence[int]) -> Sequence[int]:
        output = [-1, *text[begun:]]
        if len(output) == 1:
            return source
        for n in range(1, case["reach"] + 1):
            found = places.get(tuple(output[-n:]), []) if len(output) >= n else []
            if len(found) < 2:
                return source[found[0] :] if found else []
        return []

    return copying(case, draft)


def prompted(seed: int, length: int, limit: int, **more: Any) -> dict[str, Any]:
    """A case whose prompt holds, between other words, some of what the model writes after its end."""
    case = {"seed": seed, "limit": limit, **more}
    start = words(seed, length, more.get("size", 4))
    written = list(start)
    for _ in range(limit):
        written.append(int(np.argmax(after(model(case), written))))
    return {**case, "prompt": (*written, *start)}


COMPARED = [
    Compared(
        "ems_sd",
        "niyunsheng/EMS-SD 51b8603e, examples/pytorch/gpt/utils/gpt_LLMA_EMS.py",
        ems_sd,
        ours("ems_sd", "k", "reach"),
        {
            "as published": prompted(1, 12, 16, k=7, reach=2),
            "short copies": prompted(2, 9, 16, k=3, reach=2),
            "a prompt that is too short": prompted(3, 2, 2, k=7, reach=2),
            "three tokens": prompted(4, 16, 24, k=5, reach=3, size=3),
        },
        "check_length is reach, copy_length is k; a batch of one",
    ),
    Compared(
        "input_guided_aggressive",
        "microsoft/unilm 768a3c87, decoding/IAD/inference.py, paper_aggressive_generate",
        input_guided,
        ours("input_guided_aggressive", "reach"),
        {
            "as published": prompted(1, 3, 12, reach=3, size=40),
            "two tokens": prompted(2, 4, 20, reach=2, size=20),
            "an input of its own": {"seed": 3, "prompt": words(3, 12, 8), "limit": 16, "reach": 3, "size": 8},
        },
        "the input is the prompt, in the place of an encoder's source",
    ),
]
