"""Drafting while the target verifies: PEARL, DuoDecoding, SpecBranch. Their scripts are greedy; PEARL is sampled too.

In published code the text holds what is pending; `pending` says how many of its last tokens the target has not confirmed.
Beside the target's calls, the tokens that a round drafts are compared, and what it makes of the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log
from typing import Any

import numpy as np
from fidelity.handed import Uniforms, draws, handed
from fidelity.transcribed.compared import Columns, Compared, after, best
from fidelity.transcribed.eagle_trees import Uneven, cases, target
from fidelity.watched import Call, watching

import decgraph
from decgraph.backends.registry import machine
from decgraph.passes.plan import Plan
from decgraph.runtime import trace
from decgraph.runtime.models.interface import Memory, Path, Scores
from decgraph.runtime.request import Request


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


def models(case: Mapping[str, Any]) -> dict[str, Any]:
    model = target(case)
    return {"target": model, "drafter": Like(model, case["seed"] + 30)}


def likeliest(model: Any, text: list[int]) -> int:
    return best(after(model, text), 1)[0]


def along(model: Any, text: list[int], n: int) -> list[int]:
    """n greedy tokens."""
    out: list[int] = []
    for _ in range(n):
        out.append(likeliest(model, [*text, *out]))
    return out


def rounds(case: Mapping[str, Any], new: Callable[[list[int], int], list[list[int]]]) -> Columns:
    """The two processes of a round, one after the other. new: the sequences drafted behind a text, in the given round."""
    model = models(case)["target"]
    text, pending, calls, drafted, kept = list(case["prompt"]), 0, [], [], []
    while len(text) < len(case["prompt"]) + case["limit"]:
        sequences = new(text, len(calls))
        sure = len(text) - pending
        calls.append((sure, tuple(text[sure:])))
        drafted.append(sorted({tuple(s[: i + 1]) for s in sequences for i in range(len(s))}))
        wrong = next((i for i in range(sure, len(text)) if likeliest(model, text[:i]) != text[i]), None)
        if wrong is not None:  # a pending token: what was drafted in the meantime is thrown away
            text, pending = [*text[:wrong], likeliest(model, text[:wrong])], 0
        else:
            token = likeliest(model, text)
            chosen = next((s for s in sequences if s[0] == token), [token])
            text, pending = [*text, *chosen], len(chosen) - 1
        kept.append(len(text) - pending)
    end = len(case["prompt"]) + case["limit"]
    confirmed = len(text) - pending
    return {"tokens": tuple(text[:confirmed][:end]), "pending": calls, "drafted": drafted, "confirmed": kept}


def ours(program: str, *names: str) -> Any:
    """A program with its parameters, as columns."""

    def made(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in names}
        session = decgraph.load(program).session(models(case), plan=Plan(backend=backend), **params)
        events: list[Any] = []
        u = Uniforms(case["seed"]) if case.get("temperature") else None
        kind = machine(backend)
        session.machine = watching(kind if u is None else handed(kind, u), events)
        request = Request(tuple(case["prompt"]), max_tokens=case["limit"] + 60, temperature=case.get("temperature", 0))
        with draws(u):
            result = session.run(request, listener=events.append)
        assert result.error is None, result.error
        end, text = len(case["prompt"]) + case["limit"], [*case["prompt"], *result.tokens]
        calls, drafted, confirmed = [], [], []
        at, grown = len(case["prompt"]), set()
        paths: dict[int, tuple[int, ...]] = {}
        for e in events:
            match e:
                case Call():
                    pending = max(e.drafted, key=len, default=())
                    calls.append((e.past, tuple(pending)))
                case trace.Drafted():
                    paths[e.node] = (*paths.get(e.parent, ()), e.token)
                    grown.add(paths[e.node])
                case trace.Committed():
                    at += len(e.tokens)
                    drafted.append(sorted(grown))
                    confirmed.append(at)
                    grown, paths = set(), {}
        rounds = next(i + 1 for i, n in enumerate(confirmed) if n + _waiting(calls, i) >= end)
        return {
            "tokens": tuple(text[: confirmed[rounds - 1]][:end]),
            "pending": calls[:rounds],
            "drafted": drafted[:rounds],
            "confirmed": confirmed[:rounds],
        }

    return made


def _waiting(calls: list[Any], i: int) -> int:
    """How many tokens wait after round i."""
    return len(calls[i + 1][1]) if i + 1 < len(calls) else 0


def pearl(case: Mapping[str, Any]) -> Columns:
    """A chain of gamma draws. With nothing pending its first token is tested, else what is pending and this one, by the
    ratio of both models; where all of it is kept, no token of the target's own follows."""
    both, u = models(case), Uniforms(case["seed"])
    hot = bool(case["temperature"])
    shape = (lambda p: p) if hot else (lambda p: np.eye(len(p))[int(np.argmax(p))])
    pick = u.token if hot else (lambda p: int(np.argmax(p)))
    p_at, q_at = (lambda t: shape(after(both["target"], t))), (lambda t: shape(after(both["drafter"], t)))
    text, pending, calls, drafted, kept = list(case["prompt"]), 0, [], [], []
    end = len(case["prompt"]) + case["limit"]
    while len(text) < end:
        sure, new = len(text) - pending, list(text)
        for _ in range(case["gamma"]):
            new.append(pick(q_at(new)))
        calls.append((sure, tuple(text[sure:])))
        drafted.append([tuple(new[len(text) : i + 1]) for i in range(len(text), len(new))])
        for i in range(sure, len(text) + 1):
            p, q = p_at(new[:i]), q_at(new[:i])
            if not u.coin(p[new[i]] / q[new[i]]):
                text, pending = [*new[:i], pick(np.maximum(p - q, 0))], 0
                break
        else:
            text, pending = new, case["gamma"] - 1
        kept.append(len(text) - pending)
    confirmed = len(text) - pending
    return {"tokens": tuple(text[:confirmed][:end]), "pending": calls, "drafted": drafted, "confirmed": kept}


def duodecoding(case: Mapping[str, Any]) -> Columns:
    """The budget is split among the first tokens that are likelier than the best two together, rounded down by a table."""
    drafter = models(case)["drafter"]
    table = {12: (1, 2, 3, 4, 6), 16: (1, 2, 4, 8), 24: (1, 2, 3, 4, 6, 8)}[case["budget"]]

    def new(text: list[int], call: int) -> list[list[int]]:
        if call == 0:
            return [along(drafter, text, 1)]
        p = after(drafter, text)
        first = best(p, 8)
        both = log(p[first[0]]) + log(max(after(drafter, [*text, first[0]])))
        many = 1
        while many < len(first) and both < log(p[first[many]]):
            many += 1
        k = max(n for n in table if n <= many)
        return [[f, *along(drafter, [*text, f], case["budget"] // k - 1)] for f in first[:k]]

    return rounds(case, new)


def specbranch(case: Mapping[str, Any]) -> Columns:
    """Every round branches at its first new token. From its third token on, a branch ends before one that is not sure."""
    drafter = models(case)["drafter"]

    def new(text: list[int], call: int) -> list[list[int]]:
        out = []
        for f in best(after(drafter, text), case["k"]):
            branch = [f]
            while len(branch) < case["gamma"]:
                p = after(drafter, [*text, *branch])
                if len(branch) > 1 and max(p) <= case["epsilon"]:
                    break
                branch.append(best(p, 1)[0])
            out.append(branch)
        return out

    return rounds(case, new)


COMPARED = [
    Compared(
        "pearl",
        "smart-lty/ParallelSpeculativeDecoding 5a6f3690, src/engine.py, parallel_speculative_decoding",
        pearl,
        ours("pearl", "gamma"),
        cases(*({"gamma": g, "temperature": t} for g in (4, 2, 1) for t in (0, 1))),
    ),
    Compared(
        "duodecoding",
        "KaiLv69/DuoDecoding 154f0a1f, src/engine.py, duodecoding; src/model_cpu.py, generate_k_seq",
        duodecoding,
        ours("duodecoding", "budget"),
        cases({"budget": 12, "limit": 24}, {"budget": 16, "limit": 24}, {"budget": 24, "limit": 24}),
        "gamma is `budget`; its tables are the divisors of 12, 16 and 24",
    ),
    Compared(
        "specbranch",
        "Sylvan820/Specbranch 277d88dc, src/engine.py, branch_speculative_decoding; src/branch_model.py, _branch_generate",
        specbranch,
        ours("specbranch", "gamma", "k", "epsilon"),
        cases(
            {"gamma": 5, "k": 3, "epsilon": 0.0},
            {"gamma": 6, "k": 2, "epsilon": 0.6},
            {"gamma": 1, "k": 3, "epsilon": 0.0},
            {"gamma": 7, "k": 3, "epsilon": 0.0},
        ),
        "temperature 0, where its ratio test keeps the target's own token; epsilon is the confidence at which a branch is cut",
    ),
]
