"""Decoders that compare hidden states: contrastive search."""

from __future__ import annotations

from fidelity import models
from fidelity.entry import Case, Entry, Outcome
from fidelity.settings_requests import shaping
from fidelity.watched import run

from decgraph.runtime import trace


def contrastive_search(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    eos = [p["eos_token_id"]] if "eos_token_id" in p else []
    done = run(
        "contrastive_search",
        case["prompt"],
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"],
        eos=eos,
        settings=shaping(p, case["prompt"], eos, adjusts=True),
        k=p["top_k"],
        alpha=p["penalty_alpha"],
    )
    drafted = [e.token for e in done.result.events if isinstance(e, trace.Drafted)]
    k = p["top_k"]
    return Outcome(
        {
            "tokens": tuple(case["output"]),
            "candidates": [s["candidates"] for s in case["steps"]],
            "target calls": case["target_forwards"] - 1,
        },
        {
            "tokens": done.tokens,
            "candidates": [drafted[i : i + k] for i in range(0, len(drafted), k)],
            "target calls": len(done.calls),
        },
    )


ENTRIES = [
    Entry(
        "logits/contrastive_search",
        "contrastive_search",
        contrastive_search,
        note="a call that gives the candidates' states gives the chosen one's next candidates as well: the recorded last call, "
        "whose candidates are not read, is left out",
    )
]
