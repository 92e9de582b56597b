"""Chains in engines, greedy and sampled: EAGLE-3's and P-EAGLE's in vLLM, a drafter with another vocabulary in transformers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.handed import Uniforms, draws, handed
from fidelity.transcribed.compared import Columns, Compared, Text, after, by_chain, replayed, verified
from fidelity.transcribed.eagle_trees import SIZE, Uneven, cases, columns, one_head, target
from fidelity.watched import run

from decgraph.runtime.models.interface import Memory, Path, Scores
from lab.recordings import assisted, engine_heads


class Like(Uneven):
    """A drafter that agrees often: half of its mass is another model's."""

    def __init__(self, other: Uneven, seed: int, share: int = 2) -> None:
        super().__init__(other.vocab.size, seed, window=1, vocab=other.vocab.name, name="drafter")
        self.other, self.share = other, share

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        rows = zip(self.other.eval(paths), super().eval(paths), strict=True)
        n = self.share
        return [
            Scores(weights=tuple((a + (n - 1) * b) / n for a, b in zip(t.weights or (), o.weights or (), strict=True)))
            for t, o in rows
        ]


def beside(case: Mapping[str, Any]) -> dict[str, Any]:
    """A target, and a drafter like it."""
    model = target(case)
    return {"target": model, "drafter": Like(model, case["seed"] + 30)}


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
                max_tokens=case["limit"] + 16,
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


def ngram_or_head(case: Mapping[str, Any]) -> Columns:
    """The longest end of the text that ends somewhere before, at its first place; the head's chain where it is too short."""
    head = one_head(case)["head"]

    def draft(text: list[int], _: Uniforms) -> list[tuple[int, None]]:
        for n in range(len(text) - 1, case["threshold"] - 1, -1):
            ends = [i for i in range(n, len(text)) if text[i - n : i] == text[len(text) - n :]]
            if ends:
                return [(token, None) for token in text[ends[0] : ends[0] + case["gamma"]]]
        chain: list[tuple[int, None]] = []
        for _i in range(case["gamma"]):
            chain.append((int(np.argmax(row(head, text, tuple(t for t, _ in chain)))), None))
        return chain

    return rejection(case, draft)  # type: ignore[arg-type]


class Layered(Like):
    """A drafter whose layers can be computed in groups, which gives rows of their own."""

    def derive(self, how: str, *args: Any) -> Any:
        assert how == "parallel"
        made = Layered(self.other, (self.seed or 0) + 7 * args[0])
        made.family = self.family
        return made


def in_groups(case: Mapping[str, Any]) -> dict[str, Any]:
    model = target(case)
    return {"target": model, "drafter": Layered(model, case["seed"] + 30)}


def easyspec(case: Mapping[str, Any]) -> Columns:
    """Greedy drafts of the grouped drafter; at first, and after a round with a rejection, it reads the text layer after layer,
    and that call gives the round's first draft."""
    model, exact = in_groups(case)["target"], in_groups(case)["drafter"]
    fuzzy, refill = exact.derive("parallel", case["group"]), True
    text, drafted, accepted = list(case["prompt"]), [], []
    while len(text) < len(case["prompt"]) + case["limit"]:
        chain: Text = ()
        for i in range(case["gamma"]):
            chain = (*chain, int(np.argmax(after(exact if refill and i == 0 else fuzzy, (*text, *chain)))))
        paths = [chain[: i + 1] for i in range(len(chain))]
        kept, n = verified(model, text, paths)
        refill = n < len(chain)
        text += kept
        drafted.append(paths)
        accepted.append(n)
    return {"tokens": tuple(text[: len(case["prompt"]) + case["limit"]]), "drafted": drafted, "accepted": accepted}


def vocab_trim(case: Mapping[str, Any]) -> Columns:
    """The v most frequent tokens of a text, for the largest utility of coverage and saved operations; the drafter's head has
    rows for these alone. body: the operations beside the head, in those of one of its rows."""
    drafter, size, text = beside(case)["drafter"], case.get("size", SIZE), list(case["prompt"])
    frequent = Counter(sorted(text)).most_common()
    worth = {}
    for v in range(1, size + 1):
        coverage = sum(n for _, n in frequent[:v]) / len(text)
        reduction = 1.0 - (case["body"] + v) / (case["body"] + size)
        worth[v] = case["weight"] * coverage + (1 - case["weight"]) * reduction if coverage >= case["least"] else -1.0
    kept = [t for t, _ in frequent][: max(worth, key=lambda v: worth[v])]

    def draft(text: list[int], u: Uniforms) -> list[tuple[int, np.ndarray | None]]:
        chain: list[tuple[int, np.ndarray | None]] = []
        for _ in range(case["gamma"]):
            q, p = np.zeros(size), after(drafter, [*text, *(t for t, _ in chain)])
            q[kept] = p[kept] / p[kept].sum()
            token = u.token(q) if case["temperature"] else int(np.argmax(q))
            chain.append((token, q if case["temperature"] else None))
        return chain

    return rejection(case, draft, first=False)


TEXT = (1, 2, 1, 3, 1, 2, 4, 4, 1, 0, 2)
BOTH = [{"gamma": g, "temperature": t, "limit": 16, "pad": 0} for g in (3, 5) for t in (0, 1)]

TWICE = (
    "candidate_generator.py:316 hands the request's temperature to the drafter beside a configuration that has it too, "
    "so that its scores are divided twice; here once"
)
ENTRIES = [
    recorded("eagle3", replayed("eagle3", "gamma", models=engine_heads.models, columns=by_chain, beyond=32)),
    recorded("p_eagle", replayed("p_eagle", "gamma", models=engine_heads.models, columns=by_chain, beyond=32)),
    recorded(
        "heterogeneous_vocab",
        replayed("heterogeneous_vocab", "gamma", "least", models=assisted.models, columns=by_chain, beyond=40),
        differs={("3 3 0.0 0.7", column): TWICE for column in ("tokens", "chains", "accepted")},
    ),
]

COMPARED = [
    Compared(
        "ngram_or_head",
        "NVIDIA/TensorRT-LLM 1503aa80, kernels/speculativeDecoding/suffixAutomaton/suffixAutomaton.h, lookup and "
        "getDraftTokens; 1a487b3f, tensorrt_llm/_torch/speculative/sa_enhancer.py, SADraftEnhancer",
        ngram_or_head,
        ours("ngram_or_head", "gamma", "threshold"),
        cases(
            *(
                {"gamma": g, "threshold": m, "temperature": 0, "limit": 24, "pad": 0, "size": n, "prompt": TEXT}
                for g, m, n in ((4, 4, 5), (3, 2, 5), (5, 1, 8), (4, 2, 6), (2, 3, 5))
            )
        ),
        "the engine asks the head in every step, and where fewer tokens follow than are drafted it fills the rest up",
    ),
    Compared(
        "easyspec",
        "Yize-Wu/EasyInfra 6327f7bf, easyinfra/generation/utils/candidate_generator.py, EVERY_MISMATCH; "
        "easyinfra/models/llama3_hyperdraft/modeling_llama3_hyperdraft.py",
        easyspec,
        ours("easyspec", "group", "gamma", models=in_groups),
        cases(*({"group": g, "gamma": n, "temperature": 0, "limit": 24} for g, n in ((2, 3), (4, 1), (4, 2)))),
        "groups of equal size, where theirs are listed; greedy; what a grouped layer computes is the model's, here a table",
    ),
    Compared(
        "vocab_trim",
        "Ofir408/balanced-coverage-latency-spec-decoding 40d85351, optimize_vocab_size.py, VocabOptimizer",
        vocab_trim,
        ours("vocab_trim", "gamma", "least", "weight", "body", models=beside),
        cases(
            *(
                {"gamma": 3, "least": m, "weight": w, "body": b, "temperature": t, "limit": 16, "prompt": TEXT}
                for m, w, b in ((0.0, 0.5, 3), (0.0, 0.3, 0), (0.9, 0.3, 0), (0.0, 0.5, 71680))
                for t in (0, 1)
            )
        ),
        "every v is tried, theirs are proposed by a Parzen estimator; the text is the prompt; their code does not decode",
    ),
]
