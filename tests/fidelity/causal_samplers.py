"""Samplers that change the distribution: Mirostat, and the watermarks of Kirchenbauer et al. and of SynthID.

Where a recording has the drawn tokens, they are drawn here too, and what is compared is the distribution of each draw; of its
uniforms, the token at each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from fidelity import models
from fidelity.entry import Case, Entry, Outcome
from fidelity.forced import Law, laws, near
from fidelity.watched import run

from decgraph import stdlib
from decgraph.runtime.models.interface import Model, Path, Scores, Vocab
from lab.recordings.tables import untied


class Recorded(Model):
    """A causal model with the recorded logits of each step."""

    def __init__(self, case: Case) -> None:
        steps = case["steps"]
        self.kind, self.vocab, self.exact, self.context = "causal", Vocab("recorded", len(steps[0]["logits"])), False, None
        self.name, self.family, self.visibility = "recorded", "recorded", "causal"
        self.first = len(case["prompt"])
        self.rows = [Scores(logits=np.array(s["logits"], dtype=np.float64)) for s in steps]

    def eval(self, paths: Sequence[Path], memory: Any = None) -> list[Scores]:
        return [self.rows[min(len(p) - self.first, len(self.rows) - 1)] for p in paths]


def drawn(text: str, case: Case, model: Model, backend: str, **params: Any) -> list[Law]:
    """The distributions of a program's draws, which are the recorded tokens."""
    tokens = [s["token"] for s in case["steps"]]
    return laws(case["prompt"], tokens, model, backend, text=text, params=params)


def kept(case: Case, found: list[Law], within: float) -> Outcome:
    """What is kept in each step, most likely first, and with which probabilities."""
    want = [dict(zip(s["kept"], s["probabilities"], strict=True)) for s in case["steps"]]
    return Outcome(
        {"kept": [sorted(w) for w in want], "probabilities": want},
        {"kept": [sorted(q) for q in found], "probabilities": [near(w, q, within) for w, q in zip(want, found, strict=True)]},
    )


def mirostat(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    if case["version"] == "v2":
        return kept(case, drawn(stdlib.text("mirostat"), case, Recorded(case), backend, tau=p["tau"], eta=p["eta"]), 1e-5)
    theirs = {"m": p["m"], "n": 32, "least": 0, "full": False}
    return kept(
        case, drawn(stdlib.text("mirostat_v1"), case, Recorded(case), backend, tau=p["tau"], eta=p["eta"], **theirs), 1e-5
    )


def script(case: Case, backend: str) -> Outcome:
    p = case["parameters"]
    target = models.causal("dllm/models/qwen2_ar")
    found = drawn(stdlib.text("mirostat_v1"), case, target, backend, tau=p["tau"], eta=p["learning_rate"], n=p["n"])
    recorded = {"kept": [s["k"] for s in case["steps"]], "tokens": [s["token"] for s in case["steps"]]}
    at = [inverse(law, s["uniform"]) for law, s in zip(found, case["steps"], strict=True)]
    return Outcome(recorded, {"kept": [len(law) for law in found], "tokens": at})


def inverse(law: Law, uniform: float) -> int:
    """The token at which the cumulative sum, most likely first, passes a uniform number."""
    order = sorted(law, key=lambda v: -law[v])
    return int(order[int((np.cumsum([law[v] for v in order]) <= uniform).sum())])


def greens(key: int, share: float, size: int = 32, *, last: bool = False) -> Callable[[Any], Any]:
    """The green tokens after a token: torch's generator is part of the published scheme."""

    def green(token: Any) -> Any:
        generator = torch.Generator().manual_seed(key * int(token) % (2**64 - 1))
        order, n = torch.randperm(size, generator=generator), int(size * share)
        return (order[size - n :] if last else order[:n]).numpy()

    return green


def watermarked(case: Case, backend: str) -> Outcome:
    p, official = case["parameters"], "delta" in case["parameters"]
    key = p["hash_key"] if official else p.get("hashing_key", 15485863)
    share, delta = (p["gamma"], p["delta"]) if official else (p["greenlist_ratio"], p["bias"])
    green = greens(key, share, last=not p.get("select_green_tokens", True))
    done = run(
        "kgw_watermark",
        case["prompt"],
        {"target": models.causal("target")},
        backend,
        max_tokens=p["max_new_tokens"],
        externs={"green": green},
        delta=delta,
    )
    before = done.tokens[len(case["prompt"]) - 1 : -1]
    recorded = {"tokens": tuple(case["output"]), "green": [s["greenlist"] for s in case["steps"]]}
    return Outcome(recorded, {"tokens": done.tokens, "green": [sorted(green(t).tolist()) for t in before]})


def tournament(case: Case, backend: str) -> Outcome:
    p, steps = case["parameters"], case["steps"]
    bits: Mapping[tuple[int, ...], Any] = {tuple(s["context"]): s["g_values_of_all_tokens"] for s in steps}

    def ones(context: Any, layer: Any) -> Any:
        return np.array([v for v, g in enumerate(bits[tuple(int(t) for t in context)]) if g[int(layer)] == "1"])

    found = laws(
        case["prompt"],
        [s["token"] for s in steps],
        Recorded(case),
        backend,
        text=stdlib.text("synthid"),
        externs={"ones": ones},
        params={"depth": len(p["keys"]), "ngram": p["ngram_len"], "history": p["context_history_size"]},
    )
    want = [dict(enumerate(s["probabilities"])) for s in steps]
    ours = [near(w, {v: float(q.get(v, 0.0)) for v in w}, 2e-6) for w, q in zip(want, found, strict=True)]
    recorded = {"probabilities": want, "likeliest": [s["token"] for s in steps]}
    return Outcome(recorded, {"probabilities": ours, "likeliest": [max(q, key=lambda v, q=q: q[v]) for q in found]})  # type: ignore[misc]


def sampler(program: str, *names: str, settings: Sequence[str] = ()) -> Entry:
    """An entry of lab/recordings/samplers.py. names: parameters of the program; settings: of the request."""

    def replay(case: Case, backend: str) -> Outcome:
        p, want = case["parameters"], case["columns"]
        target = untied(p["size"], p["seed"], window=None, sharp=p["sharp"])
        params, asked = {name: p[name] for name in names}, {name: p[name] for name in settings if p[name]}
        if not p["temperature"]:
            models = {"target": target}
            done = run(program, p["prompt"], models, backend, max_tokens=p["limit"], settings=asked, **params)
            return Outcome(want, {"tokens": [*done.tokens[len(p["prompt"]) :]]})
        found = laws(
            *(p["prompt"], want["tokens"][: p["limit"]], target, backend),
            text=stdlib.text(program),
            params={**params, "temperature": p["temperature"]},
            **asked,
        )
        recorded = [{int(v): q for v, q in law.items()} for law in want["probabilities"]]
        ours = [near(a, {v: float(q) for v, q in b.items()}, 1e-5) for a, b in zip(recorded, found, strict=True)]
        return Outcome({**want, "probabilities": recorded}, {"tokens": want["tokens"], "probabilities": ours})

    return Entry(f"authors/{program}", program, replay)


V1 = "mirostat_v1"
ENTRIES = [
    Entry(
        "logits/mirostat_v1",
        V1,
        script,
        note="how many tokens are kept, and the token at the recorded uniform, in each step",
    ),
    Entry(
        "logits/mirostat_llama_cpp",
        "mirostat",
        mirostat,
        note="the recorded tokens are drawn; cases of its first version are replayed with mirostat_v1",
    ),
    Entry("logits/kgw_watermark", "kgw_watermark", watermarked, note="torch's permutation is the function that is handed over"),
    Entry("logits/kgw_watermark_official", "kgw_watermark", watermarked),
    Entry("logits/synthid", "synthid", tournament, note="the recorded bits are the function that is handed over"),
    sampler("adaptive_p", "aim", "decay", settings=["top_k"]),
    sampler("dry", "multiplier", "base", "allowed", "breakers"),
    sampler("p_less", "norm"),
    sampler("top_h", "alpha", "n"),
    sampler("min_k", "tau"),
]
