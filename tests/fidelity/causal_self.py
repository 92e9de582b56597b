"""Decoders whose drafter is the target without halves of its layers."""

from __future__ import annotations

from fidelity import models
from fidelity.columns import compared, cut, stands
from fidelity.entry import Case, Entry, Outcome
from fidelity.watched import run

LATE = "drafts that reach into the last place or past it are left out: decgraph makes none"


def halves(case: Case) -> dict[str, list[int]]:
    """The sublayers that a drafter skips."""
    p = case["parameters"]
    return {"attention": p["skip_attention_layers"], "mlp": p["skip_mlp_layers"]}


def draft_and_verify(case: Case, backend: str) -> Outcome:
    p, calls = case["parameters"], case["calls"][1:]
    prompt = [*case["prompt"], calls[0]["fed"][0]]
    end = len(case["prompt"]) + p["max_new_tokens"]
    done = run(
        "draft_and_verify",
        prompt,
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"] - 1,
        gamma=p["max_step_draft"],
        eta=p["th_stop_draft"],
        adapts=p["auto_th_stop_draft"],
        **halves(case),
    )
    assert case["drafter_forwards"] == sum(len(c["proposed"]) for c in calls)
    drafts = sum(min(len(c["proposed"]), end - stands(case, c) - 1) for c in calls)  # ours drafts nothing into the last place
    return compared(case, done, calls=calls, target=len(calls), end=end, drafter=drafts)


def swift(case: Case, backend: str) -> Outcome:
    calls = case["calls"][1:]
    prompt = [*case["prompt"], calls[0]["fed"][0]]
    done = run(
        "swift",
        prompt,
        {"target": models.causal("target")},
        backend,
        window=4096,
        max_tokens=len(case["output"]) - len(prompt) + 40,
        **halves(case),
    )
    cut(done, case, calls[-1])
    return compared(case, done, calls=calls, target=len(calls), length=len(case["output"]))


ENTRIES = [
    Entry("ar/self_speculative", "draft_and_verify", draft_and_verify, note=LATE),
    Entry("ar/swift_fixed_layers", "swift", swift, triton=1, note="the layers are given: no search"),
]
