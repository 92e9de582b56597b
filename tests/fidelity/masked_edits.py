"""Decoders of block-causal models that go on editing what they decided: LLaDA2.0, LLaDA2.1, and SGLang's joint threshold."""

from __future__ import annotations

from fidelity.canvases import compared, evaluated, run
from fidelity.entry import Case, Entry, Outcome
from fidelity.masked_models import model

KEPT = (
    "the calls that only keep a block's keys and values are left out, and so is what a call computes: ours computes the text "
    "before the block again, which a block-causal model's memory would give it, and what is compared is where a call ends"
)


def llada2(case: Case, backend: str) -> Outcome:
    """The library's samplers: without a threshold for edits none are made."""
    p = case["parameters"]
    edits = {"edit": p.get("editing_threshold", 1.0), "rounds": p.get("max_post_steps", 0)}
    return replayed(case, backend, "joint_threshold", tau=p["threshold"], **edits)


def sglang(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    calls = [dict(c, range=[0, c["range"][1]]) for c in case["calls"] if "commit_kv" not in c]
    read = sum(len(evaluated(c)) for c in calls)
    named = {"threshold": "tau", "edit_threshold": "edit", "penalty_lambda": "penalty", "max_post_edit_steps": "rounds"}
    params = {ours: p[theirs] for theirs, ours in named.items() if theirs in p}
    return replayed(
        dict(case, calls=calls, forwards=len(calls), tokens_evaluated=read), backend, "sglang_joint_threshold", **params
    )


def replayed(case: Case, backend: str, program: str, **params: float) -> Outcome:
    """A recording whose last block is whole, on its block-causal model."""
    block = case["parameters"]["block_size"]
    (prompt,), (output,) = case["prompt"], case["output"]
    asked = model("llama_bidir", ("block", block))
    length = len(output) - len(prompt)
    return compared(case, [run(program, asked, prompt, length, backend, block=block, **params)])


ENTRIES = [
    Entry("dllm/llada2", "joint_threshold", llada2, "masked", note="no edits: edit = 1, rounds = 0"),
    Entry("dllm/llada21", "joint_threshold", llada2, "masked"),
    Entry("dllm2/sglang_joint_threshold", "sglang_joint_threshold", sglang, "masked", note=KEPT),
]
