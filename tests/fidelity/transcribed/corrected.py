"""What came after DFlash: trees that are as large as they pay for, and drafts that know the ones before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.handed import Uniforms
from fidelity.transcribed.block_trees import trees
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, by_call
from fidelity.transcribed.eagle_trees import Near, cases, one_head, row
from fidelity.transcribed.engine_heads import ours as chained
from fidelity.transcribed.engine_heads import rejection
from fidelity.watched import run


def heads(part: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A head, and another in the place of a trained network that knows the state of a place and the drafts before it."""

    def made(case: Mapping[str, Any]) -> dict[str, Any]:
        both = one_head(case)
        return {**both, part: Near(both["target"], case["seed"] + 40)}

    return made


def domino(case: Mapping[str, Any]) -> Columns:
    """The first drafts are of their places' scores; the others of the sums of these and the correction. They are kept as
    long as the target, in whose place a draw stands as well, says the same."""
    m, u = heads("correction")(case), Uniforms(case["seed"])
    text, end = list(case["prompt"]), len(case["prompt"]) + case["limit"]

    def pick(p: np.ndarray) -> int:
        return u.token(p) if case["temperature"] else int(np.argmax(p))

    text.append(pick(after(m["target"], text)))
    drafted: list[list[Text]] = [[]]
    accepted = [0]
    while len(text) < end:
        chain: Text = ()
        for i in range(case["block"]):
            p = row(m["head"], text, (0,) * i)
            chain = (*chain, pick(p if i < case["pure"] else p * row(m["correction"], text, chain)))
        kept = 0
        while True:
            token = pick(after(m["target"], (*text, *chain[:kept])))
            if kept == len(chain) or token != chain[kept]:
                break
            kept += 1
        text += [*chain[:kept], token]
        drafted.append([chain[: i + 1] for i in range(len(chain))])
        accepted.append(kept)
    return {"tokens": tuple(text[:end]), "drafted": drafted, "accepted": accepted}


def dflash2(case: Mapping[str, Any]) -> Columns:
    """The k best of every place; of these a draw, or the best, by the sum of the place's score and how it follows the draft
    before. Rejection decides. A block is no longer than the text may still become, where a case looks at its end."""
    m, end = heads("selector")(case), len(case["prompt"]) + case["limit"]

    def draft(text: list[int], u: Uniforms) -> list[tuple[int, np.ndarray | None]]:
        chain: list[tuple[int, np.ndarray | None]] = []
        for i in range(min(case["block"] - 1, end - len(text)) if case.get("ends") else case["block"] - 1):
            p = row(m["head"], text, (0,) * i)
            q = np.zeros(len(p))
            few = best(p, case["k"])
            q[few] = p[few] * row(m["selector"], text, tuple(t for t, _ in chain))[few]
            q /= q.sum()
            chain.append((u.token(q), q) if case["temperature"] else (int(np.argmax(q)), None))
        return chain

    return rejection(case, draft)


ENTRIES = [
    recorded(
        "caddtree",
        trees("caddtree", "block", "most", "drafting", "each", "free", last=1),
        note="a line in the place of the table of measured times",
    )
]
COMPARED = [
    Compared(
        "domino",
        "jianuo-huang/Domino 1e0fbf87, code/dflash.py, DFlashDraftModel.spec_generate",
        domino,
        chained("domino", "block", "pure", models=heads("correction")),
        cases(
            {"block": 6, "pure": 1, "temperature": 0},
            {"block": 4, "pure": 0, "temperature": 1},
            {"block": 5, "pure": 3, "temperature": 1},
        ),
        "as trained with a shifted label; a head on features of its own in the place of the recurrent network; of the target's "
        "draws those behind the first that differs, which nobody reads, are left out",
    ),
    Compared(
        "dflash2",
        "z-lab/dflash 10129599, dflash/model.py, CandidateSelector.select and dflash_generate",
        dflash2,
        chained("dflash2", "block", "k", models=heads("selector")),
        cases(
            {"block": 6, "k": 3, "temperature": 0},
            {"block": 5, "k": 4, "temperature": 1},
            {"block": 8, "k": 16, "temperature": 1},
        ),
        "a head on features of its own in the place of the low-rank product",
    ),
    Compared(
        "dflash2",
        "z-lab/dflash 10129599, dflash/model.py, dflash_generate",
        dflash2,
        lambda case, backend: by_call(
            run(
                "dflash2",
                case["prompt"],
                heads("selector")(case),
                backend,
                max_tokens=case["limit"],
                block=case["block"],
                k=case["k"],
            )
        ),
        cases({"block": 6, "k": 3, "temperature": 0, "ends": True}),
        "the blocks at the end of a text",
    ),
]
