"""Beam search: the texts that ended with their scores, and the beams of every call."""

from __future__ import annotations

import math
from typing import Any

from fidelity import models
from fidelity.entry import Case, Entry, Outcome
from fidelity.forced import near
from fidelity.settings_requests import shaping
from fidelity.watched import Path, run

EOS = 20


def scored(tokens: Path, prompt: Path, alpha: float) -> float:
    """The score of a text: its log-probability over its length to a power, from the model asked once more."""
    rows = models.causal("target").eval([(*prompt, *tokens[:i]) for i in range(len(tokens))])
    total = 0.0
    for row, token in zip(rows, tokens, strict=True):
        total += float(row.logits[token] - math.log(sum(math.exp(x) for x in row.logits)))
    return total / len(tokens) ** alpha


def patience(case: Case, backend: str) -> Outcome:
    p, prompt = case["parameters"], tuple(case["prompt"])
    done = run(
        "beam_patience",
        prompt,
        {"target": models.causal("target")},
        backend,
        max_tokens=64,
        eos=[EOS],
        k=p["beam_size"],
        patience=p["patience_factor"],
        alpha=p["len_penalty"],
        least=p.get("min_len", 1),
    )
    found = [tuple(path) for path in done.result.results]
    best = case["hypotheses"][: p["beam_size"]]
    recorded: dict[str, Any] = {
        "tokens": tuple(case["output"]),
        "ended": [tuple(h["new_tokens"]) for h in best],
        "scores": [h["score"] for h in best],
        "target calls": case["target_forwards"],
        "beams": [sorted({tuple(row) for row in c["new_tokens_of_rows"]}) for c in case["calls"]],
    }
    ours = {
        "tokens": done.tokens,
        "ended": found,
        "scores": near(recorded["scores"], [scored(t, prompt, p["len_penalty"]) for t in found], 1e-4),
        "target calls": len(done.calls),
        "beams": [sorted({row[len(prompt) :] for row in c.rows}) for c in done.calls],
    }
    return Outcome(recorded, ours)


def usual(case: Case, backend: str) -> Outcome:
    """transformers' beam search, by each of its rules for when no better text can follow."""
    p, prompt = case["parameters"], tuple(case["prompt"])
    alpha, early = p.get("length_penalty", 1.0), p.get("early_stopping", False)
    ends = p.get("eos_token_id", [])
    eos = ends if isinstance(ends, list) else [ends]
    done = run(
        "beam",
        prompt,
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"],
        eos=eos,
        k=p["num_beams"],
        alpha=alpha,
        patient=early is not True,
        hopeful=early == "never",
        settings=shaping(p, prompt, eos, adjusts=True),
    )
    found = [tuple(path) for path in done.result.results]
    goes_on = [sorted({tuple(b["new_tokens"]) for b in c["running"]}) for c in case["calls"][:-1]]
    recorded: dict[str, Any] = {
        "tokens": tuple(case["output"]),
        "outputs": [tuple(o) for o in case["outputs"]],
        "scores": case["sequences_scores"],
        "target calls": case["target_forwards"],
        "beams": [[()], *goes_on],
    }
    ours = {
        "tokens": done.tokens,
        "outputs": [(*prompt, *t) for t in found],
        "scores": near(recorded["scores"], [scored(t, prompt, alpha) for t in found], 1e-4),
        "target calls": len(done.calls),
        "beams": [sorted({row[len(prompt) :] for row in c.rows}) for c in done.calls],
    }
    return Outcome(recorded, ours)


ENTRIES = [
    Entry(
        "logits/beam_patience",
        "beam_patience",
        patience,
        triton=1,
        note="of the texts that ended the best k are compared, which is what the program returns",
    ),
    Entry(
        "logits/beam_search",
        "beam",
        usual,
        note="early_stopping: True unless patient; False if patient; 'never' if hopeful too",
    ),
]
