"""Drafters that learn while they serve: online speculative decoding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from fidelity.handed import Uniforms, draws, handed
from fidelity.transcribed.compared import Columns, Compared, after
from fidelity.transcribed.eagle_trees import cases
from fidelity.transcribed.engine_heads import beside as models
from fidelity.watched import Call, watching

import decgraph
from decgraph.backends.registry import machine
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request


def online_sd(case: Mapping[str, Any]) -> Columns:
    """Requests one after the other; the places of tokens that the target wrote, also behind a chain that was accepted whole,
    wait in a buffer, and when it has `every` requests one step goes down their mean cross entropy."""
    both, u = models(case), Uniforms(case["seed"])
    size, hot = both["target"].vocab.size, bool(case["temperature"])
    bias, buffer, out = np.zeros(size), [], {"tokens": [], "drafted": [], "bias": []}

    def drafter(text: list[int]) -> np.ndarray:
        q = after(both["drafter"], text) * np.exp(bias)
        return np.asarray(q / q.sum())

    shape = (lambda p: p) if hot else (lambda p: np.eye(len(p))[int(np.argmax(p))])
    pick = u.token if hot else (lambda p: int(np.argmax(p)))
    for request in range(case["requests"]):
        prompt = [*case["prompt"], request % size]
        text, wrong, drafted = list(prompt), [], []
        while len(text) < len(prompt) + case["limit"]:
            chain: list[int] = []
            while len(chain) < case["gamma"]:
                chain.append(pick(shape(drafter([*text, *chain]))))
            drafted.append([tuple(chain[: i + 1]) for i in range(len(chain))])
            for token in [*chain, None]:
                p, q = shape(after(both["target"], text)), shape(drafter(text))
                if token is None or not u.coin(p[token] / q[token]):
                    wrong.append(list(text))
                    text.append(pick(p if token is None else np.maximum(p - q, 0)))
                    break
                text.append(token)
        out["tokens"].append(tuple(text[: len(prompt) + case["limit"]]))
        out["drafted"].append(drafted)
        buffer += wrong
        if (request + 1) % case["every"] == 0:
            slopes = [after(both["target"], place) - drafter(place) for place in buffer]
            bias = bias + case["rate"] * np.mean(slopes, axis=0)
            buffer = []
        out["bias"].append(tuple(np.round(bias, 6)))
    return out


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("gamma", "every", "rate")}
    session = decgraph.load("online_sd").session(models(case), plan=Plan(backend=backend), **params)
    u, events = Uniforms(case["seed"]), list[Any]()
    kind = machine(backend)
    session.machine = watching(handed(kind, u) if case["temperature"] else kind, events)
    out: Columns = {"tokens": [], "drafted": [], "bias": []}
    for request in range(case["requests"]):
        events.clear()
        prompt = (*case["prompt"], request % 10)
        with draws(u if case["temperature"] else None):
            done = session.run(
                Request(prompt, max_tokens=case["limit"], temperature=case["temperature"]), listener=events.append
            )
        assert done.error is None, done.error
        out["tokens"].append((*prompt, *done.tokens))
        out["drafted"].append([sorted(e.drafted, key=len) for e in events if isinstance(e, Call)])
        (bias,) = (v for (_, name), v in session.shared.items() if name == "bias")
        out["bias"].append(tuple(np.round(np.asarray(bias, dtype=np.float64) * np.ones(10), 6)))
    return out


COMPARED = [
    Compared(
        "online_sd",
        "LiuXiaoxuanPKU/OSD 788a403d, distill/distill_trainer.py, online_training_step; distill/specInfer/generator.py",
        online_sd,
        ours,
        cases(
            *(
                {"gamma": g, "every": n, "rate": r, "temperature": t, "limit": 10, "requests": 4}
                for g, n, r in ((3, 2, 4.0), (5, 1, 1.0))
                for t in (0, 1)
            )
        ),
        "gamma is max_propose_num, every online_update_interval; the step is plain descent on the head's biases, theirs "
        "an optimizer's on all parameters; the loss is taken where the token stands, theirs one place behind",
    )
]
