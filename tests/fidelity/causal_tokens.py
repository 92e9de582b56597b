"""Decoders whose calls depend on guesses drawn at random, which stdlib makes otherwise: their texts; early exits."""

from __future__ import annotations

from fidelity import models
from fidelity.columns import compared
from fidelity.entry import Case, Entry, Outcome
from fidelity.watched import Watched, run


def texts(case: Case, done: Watched) -> Outcome:
    """The text, and that of a run that nobody listens to."""
    ours = {"tokens": done.tokens} | ({} if done.unheard is None else {"tokens unheard": done.unheard})
    return Outcome(dict.fromkeys(ours, tuple(case["output"])), ours)


def lookahead(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    n = len(case["output"]) - len(case["prompt"])
    done = run(
        "lookahead",
        case["prompt"],
        {"target": models.causal("target")},
        backend,
        max_tokens=n,
        w=p["WINDOW_SIZE"],
        n=p["LEVEL"],
        g=p["GUESS_SET_SIZE"],
    )
    return texts(case, done)


def jacobi(case: Case, backend: str) -> Outcome:
    n = len(case["output"]) - len(case["prompt"])
    done = run(
        "jacobi",
        case["prompt"],
        {"target": models.causal("target")},
        backend,
        max_tokens=n,
        length=case["parameters"]["n_token_seq_length"],
    )
    return texts(case, done)


def early_exit(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    target = models.causal("target")
    both = {"target": target, "drafter": models.exit_of("target", p["assistant_early_exit"])}
    done = run("speculative", case["prompt"], both, backend, max_tokens=p["max_new_tokens"], gamma=p["num_assistant_tokens"])
    return compared(case, done, drafter=case["drafter_forwards"])


ENTRIES = [
    Entry(
        "ar/lookahead",
        "lookahead",
        lookahead,
        triton=1,
        note="the first window is random there, the prompt here: texts are compared",
    ),
    Entry(
        "ar/cllm_jacobi",
        "jacobi",
        jacobi,
        triton=1,
        note="the first guesses are random tokens there, padding here: texts are compared",
    ),
    Entry("ar/hf_early_exit", "speculative", early_exit, note="the drafter is the target's first layers"),
]
