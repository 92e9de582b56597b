"""Draft lengths by what a batch does: the engines' controllers, fed by batches of greedy chains."""

from __future__ import annotations

import bisect
import functools
import math
from typing import Any

import numpy as np

from lab.recordings import Case
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream

FILE = "sglang/srt/speculative/adaptive_spec_params.py"


def prompts(case: Case) -> list[tuple[int, ...]]:
    """As many different prompts as sequences."""
    return [(1, 2, i % case["size"], i // case["size"] % case["size"], i // case["size"] ** 2) for i in range(case["rows"])]


def draft_by_load(upstream: Upstream, case: Case) -> dict[str, Any]:
    names = "DEFAULT_ADAPTIVE_CONFIG", "_load_adaptive_config", "AdaptiveStepSlot", "AdaptiveSpeculativeParams"
    said: list[str] = []
    made = upstream.names(
        FILE, *names, math=math, bisect=bisect, cached_property=functools.cached_property, logger=None,
        log_info_on_rank0=lambda logger, text: said.append(text),
    )  # fmt: skip
    for entry in made["DEFAULT_ADAPTIVE_CONFIG"].values():
        entry.update({name: case[name] for name in ("update_interval", "warmup_batches", "ema_alpha")})
    control = made["AdaptiveSpeculativeParams"](case["start"])
    target = TableLM(untied(case["size"], case["seed"], window=None))
    drafter = TableLM(untied(case["size"], case["seed"], window=None, blend=(99, case["apart"])))
    texts, lengths, accepted = [[*p] for p in prompts(case)], [], []
    for _ in range(case["calls"]):
        k, correct = control.get_steps_for_batch(len(texts)), list[int]()
        for text in texts:
            chain = list[int]()
            for _i in range(k):
                chain.append(int(np.argmax(drafter.row([*text, *chain]))))
            own = [int(np.argmax(target.row([*text, *chain[:i]]))) for i in range(k + 1)]
            correct.append(next((i for i, token in enumerate(chain) if token != own[i]), k))
            text += own[: correct[-1] + 1]
        control.on_verify_complete(correct, len(texts))
        lengths.append(k)
        accepted.append(correct)
    return {"lengths": lengths, "accepted": accepted, "texts": texts}


RECORDINGS = {
    "draft_by_load": draft_by_load,
}
