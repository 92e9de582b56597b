"""Decoders that read the target's layers: DoLa."""

from __future__ import annotations

from fidelity import models
from fidelity.entry import Case, Entry, Outcome
from fidelity.watched import run

"""What `low` names in a model of four layers: every second one of the lower half."""


def dola(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    layers = {"half": p["dola_layers"]} if isinstance(p["dola_layers"], str) else {"layers": p["dola_layers"]}
    done = run(
        "dola",
        case["prompt"],
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"],
        settings={"repetition_penalty": p["repetition_penalty"]},
        **layers,
    )
    return Outcome(
        {"tokens": tuple(case["output"]), "target calls": case["target_forwards"]},
        {"tokens": done.tokens, "target calls": len(done.calls)},
    )


ENTRIES = [Entry("logits/dola", "dola", dola, note="the layer is the one that the divergence of the mean from both chooses")]
