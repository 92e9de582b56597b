"""Decoders that choose each token by a score of their own: momentum decoding, FSD, USCD, SCMoE, Anchored Decoding, Alignment-
Enhanced Decoding, AutoDeco, Transfer Q*, proxy-tuning, PE-Rank."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, Text, after, replayed, tokens
from fidelity.watched import Watched

from lab.recordings.scores import drafter, expert, plain_one, table, worth
from lab.recordings.tables import Letters, Stream, untied

SIZE = 9


def read(program: str, *names: str, columns: Any = tokens, **more: Any) -> Any:
    """Ours: what a program with one model writes, which reads the whole text."""
    return replayed(program, *names, models=lambda case: {"target": table(case)}, columns=columns, **more)


def called(done: Watched, case: Mapping[str, Any]) -> Columns:
    """What ours writes, and in how many calls."""
    return {"tokens": done.tokens, "calls": len(done.calls)}


def with_experts(case: Mapping[str, Any]) -> dict[str, Any]:
    """A target whose experts have tables of their own."""
    made = table(case)
    made.derive = lambda how, rank: expert(case, rank)  # type: ignore[method-assign, assignment, misc]
    return {"target": made}


def two(case: Mapping[str, Any]) -> dict[str, Any]:
    """A target and a drafter that agree on many tokens. `window`: how many of the last tokens they read."""
    seed, read = case["seed"], {"sharp": case.get("sharp", 1.0), "window": case.get("window", 2)}
    drafter = untied(SIZE, seed, name="drafter", blend=(seed + 1, case.get("blend", 0.8)), **read)
    return {"target": untied(SIZE, seed, **read), "drafter": drafter}


def chosen(program: str, *names: str, using: tuple[str, ...] = ("target",), **more: Any) -> Any:
    """Ours: the text, drawn with the noise of the case's seed where its temperature is not 0."""
    return replayed(program, *names, models=two, columns=tokens, using=using, **more)


class Choice:
    """The next token of scores: the best one, or drawn at a temperature."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.temperature, self.noise = case.get("temperature", 0), Stream(case["seed"])

    def __call__(self, scores: np.ndarray) -> int:
        if not self.temperature:
            return int(np.argmax(scores))
        w = np.exp((scores - scores.max()) / self.temperature)
        return self.noise.draw(w / w.sum())


def written(case: Mapping[str, Any], scores: Any) -> Columns:
    """A text whose tokens are chosen one by one by their scores after it."""
    choice, text = Choice(case), tuple(case["prompt"])
    while len(text) < len(case["prompt"]) + case["limit"]:
        text = (*text, choice(scores(text)))
    return {"tokens": text}


def anchored(case: Mapping[str, Any]) -> Columns:
    """budget: k_radius, owed: prefix_n. The weight is bisected to the end."""
    risky, safe = two(case)["target"], two(case)["drafter"]
    prompt, spent = case["prompt"], 0.0
    ratios = [math.log(after(risky, prompt[:i])[prompt[i]] / after(safe, prompt[:i])[prompt[i]]) for i in range(1, len(prompt))]
    largest = sorted((r for r in ratios if r > 0), reverse=True)[: case["owed"]]
    debt = sum(largest) / len(largest) if largest else 0.0

    def scores(text: Text) -> np.ndarray:
        nonlocal spent
        pd, pc = after(risky, text), after(safe, text)
        left = max(0.0, (len(text) - len(prompt) + 1) * case["budget"] - debt - spent)

        def mixed(w: float) -> np.ndarray:
            q: np.ndarray = pd**w * pc ** (1 - w)
            return q / q.sum()

        def cost(q: np.ndarray) -> float:
            return float((q * np.log(q / pc)).sum())

        low, high = (1.0, 1.0) if cost(pd) <= left else (0.0, 1.0)
        for _ in range(60 if left > 0 and low < 1 else 0):
            mid = (low + high) / 2
            low, high = (mid, high) if cost(mixed(mid)) <= left else (low, mid)
        spent += cost(mixed(low))
        return np.log(mixed(low))

    return written(case, scores)


def transfer_q(case: Mapping[str, Any], backend: str) -> Columns:
    """With the texts whose reward is asked, by step: k of them."""
    asked: list[str] = []

    def reward(text: str) -> float:
        asked.append(text)
        return worth(text)

    names = ("k", "horizon", "alpha")
    models = {"target": table(case), "drafter": table(case)}
    ours = replayed(
        "transfer_q", *names, models=lambda _: models, columns=tokens, externs={"reward": reward}, tokenizer=Letters()
    )
    return {**ours(case, backend), "asked": [sorted(asked[i : i + case["k"]]) for i in range(0, len(asked), case["k"])]}


def proxy_tuning(case: Mapping[str, Any], backend: str) -> Columns:
    """With the calls of the target, as of the two others."""
    models = {"target": table(case), "expert": drafter(case), "plain": plain_one(case)}
    return replayed("proxy_tuning", "alpha", "settings", models=lambda _: models, columns=called)(case, backend)


def pe_rank(case: Mapping[str, Any], backend: str) -> Columns:
    """The beginning of a ranking, 0, is written there, unless the prompt ends in it, and stands in our prompt."""
    n, size, prompt = case["passages"], case["size"], case["prompt"]
    given = {**case, "prompt": [*prompt, *([] if prompt[-1] == 0 else [0])], "limit": 64, "items": [*range(size, size + n)]}
    models = {"target": untied(size + n, case["seed"], window=None)}
    ours = replayed("pe_rank", "items", models=lambda _: models, columns=lambda done, _: {"ranking": done.tokens})
    return {"ranking": [x - size for x in ours(given, backend)["ranking"][len(given["prompt"]) :]]}


ENTRIES = [
    recorded("momentum", read("momentum", "k", "alpha", "resistance", columns=called)),
    recorded("frustratingly_simple", read("frustratingly_simple", "k", "alpha", "n", "beta", columns=called)),
    recorded(
        "uscd",
        read("uscd", "lame", "weight", "sure", "least"),
        differs={("generate 8 0", "tokens"): "bigcode_eval/contrast.py:27: where the model is sure each row goes its own way"},
    ),
    recorded("self_contrast_moe", replayed("self_contrast_moe", "rank", "alpha", "beta", models=with_experts, columns=tokens)),
    recorded("alignment_enhanced", read("alignment_enhanced", "preamble", "shown", "nucleus", "bias")),
    recorded("autodeco", read("autodeco")),
    recorded(
        "transfer_q",
        transfer_q,
        differs={
            ("5 8", name): "direct.py:132: it continues a token that ends a text, and goes on behind it"
            for name in ("tokens", "asked")
        },
    ),
    recorded("proxy_tuning", proxy_tuning),
    recorded("pe_rank", pe_rank),
]
COMPARED = [
    Compared(
        "anchored",
        "jacqueline-he/anchored-decoding a12ecd9a, ProximalDecodingFactory._decode, _compute_prefix_debt_fast and "
        "_solve_theta_newton",
        anchored,
        chosen("anchored", "budget", "owed", using=("target", "drafter")),
        {
            f"{seed} {budget} {owed} {temperature}": {
                "seed": seed,
                "prompt": (1, 2, 5, 7, 0, seed),
                "limit": 24,
                "budget": budget,
                "owed": owed,
                "temperature": temperature,
            }
            for seed, budget, owed, temperature in (
                (1, 0.15, 5, 0),
                (2, 0.05, 2, 0),
                (3, 0.15, 5, 1.0),
                (4, 0.02, 3, 1.0),
                (5, 0.3, 1, 1.0),
            )
        },
        "temperatures other than 1 are left out: published versions shape both models before they are mixed, or refuse to",
    ),
]
