"""Decoders that choose each token by a score of their own: momentum decoding, FSD, USCD, SCMoE, Anchored Decoding, Alignment-
Enhanced Decoding, AutoDeco, Transfer Q*."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared, Text, after, best, replayed, tokens
from fidelity.watched import Watched, run

from decgraph.runtime.models.table import TableModel
from lab.recordings import tabled
from lab.recordings.tables import Letters, Stream, untied

SIZE = 9


def target(case: Mapping[str, Any]) -> TableModel:
    return TableModel(SIZE, case["seed"], window=case.get("window", 1), vocab="t", name="target")


def calls(done: Watched, case: Mapping[str, Any]) -> Columns:
    """What ours writes, and in how many calls."""
    return {"tokens": done.tokens, "target calls": len(done.calls)}


text_of = partial(replayed, models=lambda case: {"target": target(case)}, columns=calls)


def momentum(case: Mapping[str, Any]) -> Columns:
    """The graph of the text has for each token where it stands. A candidate's run is the longest of the text's ends that,
    with the candidate behind it, stands in the text already."""
    table, text = case["resistance"], list(case["prompt"])

    def run_of(candidate: int) -> int:
        if candidate not in text:
            return 0
        for length in range(len(table), 1, -1):
            wanted = [*text[-length + 1 :], candidate]
            if any(text[i : i + length] == wanted for i in range(len(text) - length + 1)):
                return length
        return 1

    for _ in range(case["limit"]):
        p = after(target(case), text)
        choices = best(p, case["k"])
        scores = [p[c] - case["alpha"] * ([0.0, *table][run_of(c)]) for c in choices]
        text.append(choices[scores.index(max(scores))])
    return {"tokens": tuple(text), "target calls": case["limit"]}


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


def fsd(case: Mapping[str, Any]) -> Columns:
    """An n-gram model of the text, with every order's counts by context."""
    n, beta, alpha, k = case["n"], case["beta"], case["alpha"], case["k"]

    def scores(text: Text) -> np.ndarray:
        p = after(two(case)["target"], text)
        out = np.full(SIZE, -np.inf)
        for x in best(p, k):
            penalty, weight = 0.0, 1.0
            for order in range(n - 1, -1, -1) if len(text) >= n - 1 else ():
                behind = Counter(
                    text[i + order] for i in range(len(text) - order) if text[i : i + order] == text[len(text) - order :]
                )
                if not behind[x]:
                    continue
                total = sum(behind.values())
                penalty += weight * (beta * behind[x] / (total + 1) if order else behind[x] / total)
                weight -= weight * beta
            out[x] = (1 - alpha) * p[x] - alpha * penalty
        return out

    return written(case, scores)


def uscd(case: Mapping[str, Any]) -> Columns:
    """The two rows of the batch: the prompt, and the lame one with the same reply."""

    def scores(text: Text) -> np.ndarray:
        model = two(case)["target"]
        p, q = after(model, text), after(model, (*case["lame"], *text[len(case["prompt"]) :]))
        if np.std(p, ddof=1) <= case["sure"]:
            keep = p >= case["least"] * p.mean()
            p = np.where(keep, p, 0) - case["weight"] * np.where(keep, q, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.nan_to_num(np.log(p), nan=-np.inf, neginf=-np.inf)

    return written(case, scores)


def scmoe(case: Mapping[str, Any]) -> Columns:
    """Raw logits of both routings; the number of the weak expert counts from 0."""
    model = TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")
    weak = model.derive("expert", case["rank"])

    def scores(text: Text) -> np.ndarray:
        s, w = np.log(after(model, text)), np.log(after(weak, text))
        mixed = (1 + case["beta"]) * s - case["beta"] * w
        return np.where(s < math.log(case["alpha"]) + s.max(), -np.inf, mixed)

    return written(case, scores)


def experts(case: Mapping[str, Any], backend: str) -> Columns:
    """Ours: of a table whose experts have tables of their own."""
    model = TableModel(SIZE, case["seed"], window=2, vocab="t", name="target")
    params = {name: case[name] for name in ("rank", "alpha", "beta")}
    with given(case["seed"]):
        done = run(
            "self_contrast_moe",
            case["prompt"],
            {"target": model},
            backend,
            max_tokens=case["limit"],
            temperature=case.get("temperature", 0),
            **params,
        )
    return {"tokens": done.tokens}


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


def nucleus(p: np.ndarray, mass: float) -> list[int]:
    """The tokens of a nucleus: with the one that crosses."""
    order = best(p, len(p))
    before = np.cumsum(p[order]) - p[order]
    return [x for x, b in zip(order, before, strict=True) if b <= mass]


def aligned(case: Mapping[str, Any]) -> Columns:
    """Rule topp_weight6; the second context is the system prompt, the end of the prompt that is shown, and the reply."""

    def scores(text: Text) -> np.ndarray:
        model, start = two(case)["target"], len(case["prompt"]) - case["shown"]
        p, q = after(model, text), after(model, (*case["preamble"], *text[start:]))
        more = len(nucleus(p, case["nucleus"])) - len(nucleus(q, case["nucleus"]))
        w = 1 / (1 + math.exp(case["bias"] - more))
        return np.asarray((1 - w) * np.log(p) + w * np.log(q))

    return written(case, scores)


def autodeco(case: Mapping[str, Any]) -> Columns:
    """A temperature and a nucleus for every token. Without weights both heads say the probability of the likeliest token."""

    def scores(text: Text) -> np.ndarray:
        p = after(two(case)["target"], text)
        q = p ** (1 / (2 * p.max()))
        q /= q.sum()
        keep = nucleus(q, p.max())
        return np.asarray([math.log(q[x]) if x in keep else -np.inf for x in range(SIZE)])

    return written(case, scores)


def transfer(case: Mapping[str, Any]) -> Columns:
    """horizon: max_new_tokens of the continuation, alpha: one over rm_weight."""
    target, aligned = two(case)["target"], two(case)["drafter"]

    def scores(text: Text) -> np.ndarray:
        p, out = after(target, text), np.full(SIZE, -np.inf)
        for x in best(p, case["k"]):
            whole = (*text, x)
            while len(whole) < len(text) + 1 + case["horizon"]:
                whole = (*whole, best(after(aligned, whole), 1)[0])
            out[x] = math.log(p[x]) + worth(whole) / case["alpha"]
        return out

    return written(case, scores)


def worth(text: Any) -> float:
    """A reward of a text: of letters, or of tokens."""
    ids = [ord(c) - 97 if isinstance(c, str) else int(c) for c in text]
    return sum((7 * x * x + 3 * i) % 11 for i, x in enumerate(ids)) % 7 / 7


COMPARED = [
    Compared(
        "momentum",
        "gmftbyGMFTBY/MomentumDecoding 84f3d8ba, models/utlis_ngram.py, ResistanceDecodingNGram and find_max_repetition_length",
        momentum,
        text_of("momentum", "k", "alpha", "resistance"),
        {
            "usual": {"seed": 1, "prompt": (1, 2, 3), "limit": 40, "k": 5, "alpha": 0.2, "resistance": (1, 2, 3, 4, 5)},
            "light": {"seed": 2, "prompt": (4, 2, 4), "limit": 40, "k": 4, "alpha": 0.02, "resistance": (1, 3, 4, 5, 6)},
            "runs": {"seed": 3, "prompt": (0, 8), "limit": 40, "k": 5, "alpha": 0.03, "resistance": (0, 0, 0, 5)},
            "two": {"seed": 4, "prompt": (7,), "limit": 40, "k": 3, "alpha": 0.1, "window": 2, "resistance": (1, 2)},
        },
        "resistance: the code's table of the lengths from 1 on, as long as its max_length",
    ),
    Compared(
        "frustratingly_simple",
        "LHRYANG/FSD 46df7d5b, utils.py, fsd_decoding, and ngram_model/fsd.py, NGram",
        fsd,
        chosen("frustratingly_simple", "k", "alpha", "n", "beta"),
        {
            f"{seed} {n}": {"seed": seed, "prompt": (1, 2, 1), "limit": 40, "k": k, "alpha": alpha, "n": n, "beta": beta}
            for seed, k, alpha, n, beta in (
                (1, 3, 0.65, 3, 0.9),
                (2, 4, 0.3, 2, 0.5),
                (3, 3, 0.4, 4, 0.9),
                (4, 5, 0.65, 1, 0.9),
                (5, 6, 0.6, 6, 0.5),
            )
        },
        "no stop words; the published loop never writes the end token",
    ),
    Compared(
        "uscd",
        "alphadl/CodeGen-USCD bcad9d40, bigcode_eval/contrast.py, EnsembleLogitsProcessor",
        uscd,
        chosen("uscd", "lame", "weight", "sure", "least"),
        tabled(
            "{seed} {temperature}",
            "seed weight sure least temperature",
            ((1, 0.7, 0.08, 0.667, 0), (2, 0.4, 0.15, 0.333, 0), (3, 0.7, 0.1, 0.667, 0.8), (4, 0.5, 0.3, 0.2, 1.0)),
            prompt=(1, 2, 5),
            limit=24,
            lame=(5,),
            window=32,
        ),
        "steps at which nothing is left, where the published scores are all NaN, do not come up",
    ),
    Compared(
        "self_contrast_moe",
        "DavidFanzz/SCMoE 857fad79, decodingmethod/moe_utils.py, scmoe and scmoe_with_sampling",
        scmoe,
        experts,
        tabled(
            "{seed} {temperature}",
            "seed rank alpha beta temperature",
            ((1, 3, 0.1, 0.5, 0), (2, 1, 0.3, 0.5, 0), (3, 2, 0.1, 1.5, 0), (4, 3, 0.2, 0.5, 1.0)),
            prompt=(1, 2, 5),
            limit=24,
        ),
        "rank: student_routed_tok + 1; the end token is not kept from coming",
    ),
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
    Compared(
        "alignment_enhanced",
        "GIGABaozi/AED 63a85994, utilz.py, Weight.update (topp_weight6) and AEDecoding.generate",
        aligned,
        chosen("alignment_enhanced", "preamble", "shown", "nucleus", "bias"),
        tabled(
            "{seed} {shown}",
            "seed shown nucleus bias",
            ((1, 0, 0.9, 1.0), (2, 2, 0.9, 0.0), (3, 0, 0.5, 2.0), (4, 1, 0.7, 0.5)),
            prompt=(1, 2, 5),
            limit=24,
            preamble=(7, 8),
        ),
        "the loop as published never calls update; here it does, in every step",
    ),
    Compared(
        "autodeco",
        "Zacks917/AutoDeco 6e347ba5, config/deepspeed/templlm_gptoss.py, _sample",
        autodeco,
        chosen("autodeco"),
        {str(seed): {"seed": seed, "prompt": (1, 2), "limit": 24, "temperature": 1.0, "sharp": 2.0} for seed in (1, 2, 3, 4)},
        "the heads stand in: what they read is not compared",
    ),
    Compared(
        "transfer_q",
        "umd-huang-lab/Transfer-Q 1f983e8e, direct.py, TQ_direct.generate_step",
        transfer,
        chosen(
            "transfer_q", "k", "horizon", "alpha", using=("target", "drafter"), externs={"reward": worth}, tokenizer=Letters()
        ),
        tabled(
            "{seed} {temperature}",
            "seed k horizon alpha temperature",
            ((1, 5, 3, 1.0, 0), (2, 3, 4, 0.3, 0), (3, 9, 2, 1.0, 0.7), (4, 4, 0, 0.5, 0.7)),
            prompt=(1, 2, 5),
            limit=12,
        ),
        "modes greedy and topk are the request's temperature; the reward reads the text with its prompt",
    ),
]
