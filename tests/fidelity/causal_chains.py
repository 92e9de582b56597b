"""Chains of drafts: transformers' assisted generation and prompt lookup, Kangaroo."""

from __future__ import annotations

from fidelity import models
from fidelity.columns import compared, cut
from fidelity.entry import Case, Entry, Outcome
from fidelity.watched import run


def greedy(case: Case, backend: str) -> Outcome:
    n = len(case["output"]) - len(case["prompt"])
    done = run("autoregressive", case["prompt"], {"target": models.causal(case["model"])}, backend, max_tokens=n)
    ours = {"tokens": done.tokens, "target calls": len(done.calls)}
    return Outcome({"tokens": tuple(case["output"]), "target calls": n}, ours)


def assisted(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    eos = [case["eos_token_id"]] if "eos_token_id" in case else []
    both = {"target": models.causal("target"), "drafter": models.causal("drafter")}
    done = run(
        "speculative", case["prompt"], both, backend, max_tokens=p["max_new_tokens"], eos=eos, gamma=p["num_assistant_tokens"]
    )
    return compared(case, done, drafter=case["drafter_forwards"])


def lookup(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    done = run(
        "prompt_lookup",
        case["prompt"],
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"],
        k=p["prompt_lookup_num_tokens"],
        reach=p["max_matching_ngram_size"],
    )
    return compared(case, done, end=len(case["prompt"]) + p["max_new_tokens"])


def kangaroo(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    both = {"target": models.causal("target"), "adapter": models.kangaroo()}
    prompt = [*case["prompt"], case["calls"][0]["fed"][0]]
    gamma = p["SPECULATIVE_DECODING_STEPS"]  # the recorded loop stops so many tokens before its limit
    done = run(
        "kangaroo",
        prompt,
        both,
        backend,
        max_tokens=len(case["output"]) - len(prompt) + gamma,
        gamma=gamma,
        eta=p["threshold"],
        exit=2,
    )
    cut(done, case, case["calls"][-1])
    return compared(case, done, target=case["deep_forwards"], length=len(case["output"]))


ENTRIES = [
    Entry("ar/greedy", "autoregressive", greedy, triton=1),
    Entry("ar/hf_assisted", "speculative", assisted, triton=1),
    Entry("ar/hf_assisted_eos", "speculative", assisted, triton=2),
    Entry("ar/hf_prompt_lookup", "prompt_lookup", lookup, triton=1),
    Entry("ar/kangaroo", "kangaroo", kangaroo, triton=1),
]
