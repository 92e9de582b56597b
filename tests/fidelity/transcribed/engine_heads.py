"""Heads as engines serve them: EAGLE-3's and P-EAGLE's chains in vLLM, greedy and sampled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from fidelity.handed import Uniforms, draws, handed
from fidelity.transcribed.compared import Columns, Compared, after
from fidelity.transcribed.eagle_trees import cases, columns, one_head, row
from fidelity.watched import run


def ours(program: str, *names: str, models: Callable[[Mapping[str, Any]], dict[str, Any]] = one_head) -> Any:
    """A program with its parameters, as columns; at temperature 1 its draws and coins are those of a list."""

    def made(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in names}
        u = Uniforms(case["seed"]) if case["temperature"] else None
        with draws(u):
            done = run(
                program,
                case["prompt"],
                models(case),
                backend,
                limit=case["limit"] + 16,
                temperature=case["temperature"],
                change=(lambda kind: kind) if u is None else (lambda kind: handed(kind, u)),
                **params,
            )
        return columns(done, case)

    return made


def rejection(
    case: Mapping[str, Any],
    draft: Callable[[list[int], Uniforms], list[tuple[int, np.ndarray | None]]],
    *,
    first: bool = True,
) -> Columns:
    """A loop around chains of drafts with their distributions, None for a certain one, and the rejection sampler: a draft of
    probability q is kept with min(1, p / q); the next token is drawn from what p has more than q, or behind the last draft from
    p. At temperature 0 every distribution is its likeliest token's. first: the text is first continued by one token."""
    from fidelity.transcribed.eagle_trees import target

    model, u = target(case), Uniforms(case["seed"])
    shape = (lambda p: p) if case["temperature"] else (lambda p: np.eye(len(p))[int(np.argmax(p))])
    pick = u.token if case["temperature"] else (lambda p: int(np.argmax(p)))
    text, drafted, accepted = list(case["prompt"]), [], []
    if first:
        text.append(pick(after(model, text)))
        drafted, accepted = [[]], [0]
    while len(text) < len(case["prompt"]) + case["limit"]:
        chain = draft(text, u)
        drafted.append([tuple(t for t, _ in chain[: i + 1]) for i in range(len(chain))])
        kept = 0
        for token, q in chain:
            p = shape(after(model, text))
            odds = q if q is not None else np.eye(len(p))[token]
            if not u.coin(p[token] / odds[token]):
                text.append(pick(np.maximum(p - odds, 0)))
                break
            text.append(token)
            kept += 1
        else:
            text.append(pick(shape(after(model, text))))
        accepted.append(kept)
    return {"tokens": tuple(text[: len(case["prompt"]) + case["limit"]]), "drafted": drafted, "accepted": accepted}


def eagle3(case: Mapping[str, Any]) -> Columns:
    """The likeliest token of every place, one call of the head after the other, verified as a certain draft."""
    head = one_head(case)["head"]

    def draft(text: list[int], _: Uniforms) -> list[tuple[int, None]]:
        chain: list[tuple[int, None]] = []
        for _i in range(case["gamma"]):
            chain.append((int(np.argmax(row(head, text, tuple(t for t, _ in chain)))), None))
        return chain

    return rejection(case, draft)  # type: ignore[arg-type]


def p_eagle(case: Mapping[str, Any]) -> Columns:
    """One call of the head over stand-ins."""
    head = one_head(case)["head"]

    def draft(text: list[int], _: Uniforms) -> list[tuple[int, None]]:
        return [(int(np.argmax(row(head, text, (case["pad"],) * i))), None) for i in range(case["gamma"])]

    return rejection(case, draft)  # type: ignore[arg-type]


BOTH = [{"gamma": g, "temperature": t, "limit": 16, "pad": 0} for g in (3, 5) for t in (0, 1)]

COMPARED = [
    Compared(
        "eagle3",
        "vllm-project/vllm 008603a3, vllm/v1/spec_decode/eagle.py, EagleProposer.propose; vllm/v1/sample/rejection_sampler.py",
        eagle3,
        ours("eagle3", "gamma"),
        cases(*BOTH),
        "gamma is num_speculative_tokens; no draft probabilities, so every draft is taken for certain",
    ),
    Compared(
        "p_eagle",
        "vllm-project/vllm 00c4f22d, vllm/v1/spec_decode/llm_base_proposer.py, propose, by default",
        p_eagle,
        ours("p_eagle", "gamma"),
        cases(*BOTH),
        "gamma is num_speculative_tokens; the stand-in is the padding token, 0 here",
    ),
]
