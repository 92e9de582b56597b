"""Guidance and contrast: the target under two prompts, or against an amateur, and the texts that each call read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity import models
from fidelity.entry import Case, Entry, Outcome
from fidelity.settings_requests import shaping
from fidelity.watched import Path, Watched, run


def read(calls: list[Mapping[str, Any]], name: str = "") -> list[Path]:
    """The whole text that each recorded call stands after; calls of several branches keep caches of their own."""
    texts: dict[str, Path] = {}
    out: list[Path] = []
    for c in calls:
        branch = c.get("branch", name)
        texts[branch] = (*texts.get(branch, ())[: c["past"]], *c["fed"])
        out.append(texts[branch])
    return out


def outcome(case: Case, done: Watched, texts: list[Path] | None = None) -> Outcome:
    recorded: dict[str, Any] = {"tokens": tuple(case["output"]), "target calls": case["target_forwards"]}
    ours: dict[str, Any] = {"tokens": done.tokens, "target calls": len(done.calls)}
    if texts is not None:
        recorded["texts read"], ours["texts read"] = sorted(texts), sorted(c.rows[0] for c in done.calls)
    return Outcome(recorded, ours)


def decoded(program: str, case: Case, backend: str, **params: Any) -> Watched:
    limit = len(case["output"]) - len(case["prompt"])
    names = {"target": models.causal("target")}
    if program == "contrastive_decoding":
        names["drafter"] = models.causal("drafter")
    return run(program, case["prompt"], names, backend, max_tokens=limit, **params)


def guidance(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    shaped = shaping(p, case["prompt"])
    negative = p.get("negative_prompt_ids", [])
    done = decoded("cfg", case, backend, scale=p["guidance_scale"], negative=negative, settings=shaped)
    return outcome(case, done, read(case["calls"]))


def context_aware(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    alpha = -p["assigned_weight"][1]
    done = decoded(
        "context_aware_decoding",
        case,
        backend,
        context=len(case["context"]),
        alpha=alpha,
        kept=p["filter_p"],
        prior=p["filter_p_prior"],
    )
    return outcome(case, done, read(case["calls_with_context"]) + read(case["calls_without_context"]))


def instructive(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    done = decoded("instructive_decoding", case, backend, epsilon=p["eps"], noisy=case["noisy_prompt"])
    new = case["output"][len(case["prompt"]) :]
    texts = [(*start, *new[:n]) for start in (case["prompt"], case["noisy_prompt"]) for n in range(len(new))]
    return outcome(case, done, texts)


def contrastive(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    settings = {"weight": p["st_coef"], "tau": p["student_temperature"]}
    done = decoded("contrastive_decoding", case, backend, alpha=0, **settings)
    compared = outcome(case, done)
    recorded = {**compared.recorded, "drafter calls": case["student_forwards"]}
    return Outcome(recorded, {**compared.ours, "drafter calls": len(done.drafter)})


BEAMS = (
    "a beam search whose candidates are, after the first step, chosen by the row's own log-probability "
    "(transformers/src/transformers/generation_utils.py:2647)"
)
ENTRIES = [
    Entry("logits/cfg", "cfg", guidance, triton=1),
    Entry("logits/context_aware_decoding", "context_aware_decoding", context_aware, triton=1),
    Entry("logits/instructive_decoding", "instructive_decoding", instructive, triton=1),
    Entry(
        "logits/contrastive_decoding",
        "contrastive_decoding",
        contrastive,
        triton=1,
        leaves_out=dict.fromkeys(("beams5_st0.5_t0.5", "beams3_st0.3_t0.5"), BEAMS),
        note="the greedy branch has no cut: alpha is 0",
    ),
]
