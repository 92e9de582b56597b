"""Draft & Verify and SWIFT: drafters that are the target without halves of some layers, on the target's own keys and values."""

from __future__ import annotations

from typing import Any

import pytest
from fidelity import models
from fidelity.columns import compared, cut, stands
from fidelity.entry import recording
from fidelity.watched import run

DRAFT_AND_VERIFY = """
algorithm self_speculative(target: causal, attention: set, mlp: set, gamma: int in 1..32 = 4, eta: prob = 0.3,
                           adapts: bool = no):
    refines autoregressive(target) in tokens
    model small = target.skip(attention = attention, mlp = mlp)
    state threshold: float per sequence = eta
    state rate: float per sequence = 0.0

    while not done:
        draft t:
            repeat gamma:
                q = small(t.leaves, given = target.memory(ctx.parent))
                grow topk(q.raw, 1)
                break if any(max(q.raw) < threshold)
        verify t by match against target(t)
        if adapts and t.size > 0:
            rate = 0.5 * rate + 0.5 * t.accepted.depth / t.size
            change = 0.0
            if rate < 0.9:
                change = 0.01
            elif t.size < gamma:
                change = -0.01
            threshold += 0.1 * change
        commit t.accepted
"""

SWIFT = """
algorithm swift(target: causal, attention: set, mlp: set, reach: int in 1..32 = 25):
    refines autoregressive(target) in tokens
    model small = target.skip(attention = attention, mlp = mlp)

    while not done:
        draft t:
            repeat reach:
                q = small(t.frontier, given = target.memory(ctx.parent))
                sure = max(q.raw[0])
                width = 10
                if sure > 0.95:
                    width = 3
                elif sure > 0.8:
                    width = 5
                elif sure > 0.5:
                    width = 8
                grow topk(q.raw, width)
                t.frontier = top(t.new, 1, by = t.logprob)
                break if sure < 0.8
        verify t by match against target(t)
        commit t.accepted
"""

BACKENDS = ("torch", "reference")


def cases(file: str) -> list[Any]:
    return [pytest.param(c, b, id=f"{c['id']} {b}") for c in recording(file)["cases"] for b in BACKENDS]


def halves(case: Any) -> dict[str, list[int]]:
    p = case["parameters"]
    return {"attention": p["skip_attention_layers"], "mlp": p["skip_mlp_layers"]}


@pytest.mark.parametrize("case, backend", cases("ar/self_speculative"))
def test_draft_and_verify(case: Any, backend: str) -> None:
    p, calls = case["parameters"], case["calls"][1:]
    prompt = [*case["prompt"], calls[0]["fed"][0]]  # the recorded prefill gives the first token
    end = len(case["prompt"]) + p["max_new_tokens"]
    done = run("", prompt, {"target": models.causal("target")}, backend, text=DRAFT_AND_VERIFY, limit=p["max_new_tokens"] - 1,
               gamma=p["max_step_draft"], eta=p["th_stop_draft"], adapts=p["auto_th_stop_draft"], **halves(case))
    assert case["drafter_forwards"] == sum(len(c["proposed"]) for c in calls)
    drafts = sum(min(len(c["proposed"]), end - stands(case, c) - 1) for c in calls)  # ours drafts nothing into the last place
    found = compared(case, done, calls=calls, target=len(calls), end=end, drafter=drafts)
    assert found.ours == found.recorded


@pytest.mark.parametrize("case, backend", cases("ar/swift_fixed_layers"))
def test_swift(case: Any, backend: str) -> None:
    calls = case["calls"][1:]
    prompt = [*case["prompt"], calls[0]["fed"][0]]
    done = run("", prompt, {"target": models.causal("target")}, backend, text=SWIFT,
               limit=len(case["output"]) - len(prompt) + 40, **halves(case))
    cut(done, case, calls[-1])
    found = compared(case, done, calls=calls, target=len(calls), length=len(case["output"]))
    assert found.ours == found.recorded


