"""Decoders that choose each token by a score of their own: momentum decoding, FSD, USCD, SCMoE, Anchored Decoding, Alignment-
Enhanced Decoding, AutoDeco, Transfer Q*, proxy-tuning, PE-Rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, replayed, tokens
from fidelity.watched import Watched

from lab.recordings.scores import drafter, expert, plain_one, table, worth
from lab.recordings.tables import Letters, untied

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


def anchored(case: Mapping[str, Any], backend: str) -> Columns:
    """risky: the target, safe: the drafter."""
    models = {"target": table(case), "drafter": drafter(case)}
    return replayed("anchored", "budget", "owed", models=lambda _: models, columns=tokens)(case, backend)


ANCHORED = {
    (
        "9 0.15 5 1.0",
        "tokens",
    ): "generate.py:1150: of a prompt of one token the debt is the mean of nothing, which is no number",
    ("12 0.15 5 0.7", "tokens"): "generate.py:855: a temperature shapes both models before they are mixed, here their mixture",
}
ENTRIES = [
    recorded("anchored", anchored, differs=ANCHORED),
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
