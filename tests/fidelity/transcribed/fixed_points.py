"""Blocks that are called until they stay as they are: the Jacobi decoding of CLLMs."""

from __future__ import annotations

from fidelity.entry import Case, Columns, recorded
from fidelity.given_noise import given
from fidelity.watched import run

from lab.recordings.tables import untied


def consistency_llm(case: Case, backend: str) -> Columns:
    """By call, the text that it stands on and the guesses behind that."""
    models, length = {"target": untied(case["size"], case["seed"], window=None)}, case["length"]
    blocks = -(-case["limit"] // length)
    with given(case["seed"]):
        limit = blocks * length + 2 * length
        done = run("consistency_llm", case["prompt"], models, backend, max_tokens=limit, eos=case["eos"], length=length)
    tokens = done.tokens[: len(case["prompt"]) + blocks * length]
    return {
        "tokens": tokens,
        "calls": [(c.past, max(c.drafted, key=len, default=())) for c in done.calls[1:] if c.past <= len(tokens)],
    }


BEHIND = "cllm/cllm_llama_modeling.py:405 asks that all guesses stay, here nothing is guessed behind an end token"
ENTRIES = [recorded("consistency_llm", consistency_llm, differs={(case, "calls"): BEHIND for case in ("5 5", "6 6")})]
