"""Trees that a head on the target's features grows: Gumiho, Jakiro, Clover-2, Chimera, GliDe with CaPE, Falcon, Mixture of
Attentions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import log
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, Text, best, by_call, ended, replayed, unhurried, until, verified
from fidelity.watched import run

from decgraph.runtime.models.interface import Memory, Path, Scores
from decgraph.runtime.models.table import TableFeatures, TableModel
from lab.recordings import eagle_forks

SIZE = 10
Ranked = tuple[float, Text]


def uneven(key: object, size: int) -> list[Fraction]:
    """Weights of which no two sums are likely to be equal, some much larger than others."""
    rng = random.Random(repr(key))
    raw = [1 + int(1e6 * rng.random() ** 4) for _ in range(size)]
    return [Fraction(w, sum(raw)) for w in raw]


class Uneven(TableModel):
    """A table whose rows have no ties; of a text its last `window` tokens count."""

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        return [
            Scores(weights=tuple(uneven((self.seed, tuple(p[-(self.window or len(p)) :])), self.vocab.size))) for p in paths
        ]


class Near(TableFeatures):
    """A head that agrees often: half of its mass is the target's. The other half is what a table of features says."""

    below: int | None = None
    """How many drafted tokens it looks at; of those behind them it knows only how many they are."""

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        if self.below is not None and memory is not None:
            known = memory.length + 1 + self.below
            paths = [(*p[:known], *(0 for _ in p[known:])) for p in paths]
        rows = zip(self.target.eval(paths), super().eval(paths, memory), strict=True)
        return [
            Scores(weights=tuple((a + b) / 2 for a, b in zip(t.weights or (), o.weights or (), strict=True))) for t, o in rows
        ]


def target(case: Mapping[str, Any]) -> Uneven:
    """The model of a case."""
    return Uneven(case.get("size", SIZE), case["seed"], window=2, vocab="t", name="target")


def row(head: Any, text: Sequence[int], path: Text) -> np.ndarray:
    """What a head says below a drafted path: it has the target's features of all tokens but the last."""
    scores = head.eval([(*text, *path)], head.target.memory(tuple(text[:-1])))[0]
    return np.asarray([float(p) for p in scores.weights], dtype=np.float64)


def highest(nodes: Sequence[Ranked], k: int) -> list[Ranked]:
    """The k best of some paths."""
    return sorted(nodes, key=lambda n: -n[0])[:k]


def rounds(case: Mapping[str, Any], model: Any, tree: Callable[[list[int]], list[Text]]) -> Columns:
    """The loop around a tree: the target's own first token, then a tree and a greedy walk down it a call."""
    text, drafted, accepted = list(case["prompt"]), [[]], [0]
    text += verified(model, text, [])[0]
    while len(text) < len(case["prompt"]) + case["limit"]:
        paths = tree(text)
        kept, n = verified(model, text, paths)
        text += kept
        drafted.append(sorted(paths))
        accepted.append(n)
    return {"tokens": tuple(text[: len(case["prompt"]) + case["limit"]]), "drafted": drafted, "accepted": accepted}


def columns(done: Any, case: Mapping[str, Any]) -> Columns:
    """Ours, up to the call that the limit of the case ends: the run itself goes on, so that its end does not cut drafts."""
    end = len(case["prompt"]) + case["limit"]
    calls = [c for c in done.calls if c.past < end]
    return {
        "tokens": done.tokens[:end],
        "drafted": [sorted(c.drafted) for c in calls],
        "accepted": [c.accepted for c in calls],
    }


def ours(program: str, models: Callable[[Mapping[str, Any]], dict[str, Any]], *names: str) -> Any:
    """A program with its parameters, as columns."""
    return replayed(program, *names, models=models, columns=columns, beyond=16)


def one_head(case: Mapping[str, Any]) -> dict[str, Any]:
    model = target(case)
    return {"target": model, "head": Near(model, case["seed"] + 20)}


class Deep(Uneven):
    """A target whose last layers go on from a head's states; half of the mass is what it says itself."""

    def forward_from(self, layer: int, states: Mapping[int, Any], memory: Memory | None) -> Scores:
        _, _, held, below = states[max(states)]
        text = (*held, *below)
        said, other = self.eval([text])[0].weights or (), uneven((self.seed, layer, text), self.vocab.size)
        return Scores(weights=tuple((a + b) / 2 for a, b in zip(said, other, strict=True)))


class Predicting(TableFeatures):
    """A head on features, of which the states are asked."""

    def states(self, path: Path, memory: Memory) -> dict[int, Any]:
        known = min(memory.length, len(path) - 1)
        held = tuple(memory.cells[i] for i in range(known))
        return {i: ("predicted", self.name, held, path[known : i + 1]) for i in range(known, len(path))}


def predicting(case: Mapping[str, Any]) -> dict[str, Any]:
    model = Deep(case.get("size", SIZE), case["seed"], window=2, vocab="t", name="target")
    return {"target": model, "head": Predicting(model, case["seed"] + 20)}


def mixture_of_attentions(case: Mapping[str, Any]) -> Columns:
    """EAGLE-2's tree, whose rows the target's last layers, or its head alone, make of the states that are predicted."""
    m = predicting(case)
    model, head = m["target"], m["head"]
    layer = max(0, model.layers - case["late"])

    def below(text: list[int], path: Text) -> np.ndarray:
        given, whole = model.memory(tuple(text[:-1])), (*text, *path)
        states = head.states(whole, given)
        scores = model.forward_from(layer, {i: states[i] for i in range(len(text) - 1, len(whole))}, given)
        return np.asarray([float(p) for p in scores.weights], dtype=np.float64)

    def tree(text: list[int]) -> list[Text]:
        level: list[Ranked] = [(0.0, ())]
        grown: list[Ranked] = []
        for _ in range(case["depth"]):
            rows = [(score, path, below(text, path)) for score, path in level]
            new = [(score + log(p[t]), (*path, t)) for score, path, p in rows for t in best(p, case["k"])]
            grown += new
            level = highest(new, case["k"])
        return [path for _, path in highest(grown, case["budget"])]

    return rounds(case, model, tree)


def cases(*settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Each setting with seeds of its own."""
    return {
        f"{i}{chr(97 + j)}": {"prompt": (1, 2, 3, i % 5), "limit": 12, "seed": 10 * i + j, **setting}
        for j, setting in enumerate(settings)
        for i in (1, 2, 3)
    }


def first(program: str, *names: str) -> Any:
    """Ours, as many calls as a case has, with the prompt's."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        params = {name: case[name] for name in (*names, "eos") if case.get(name) is not None}
        done = run(program, case["prompt"], eagle_forks.one_head(case), backend, max_tokens=64, **params)
        done.calls = until(done, case["eos"])[: case["calls"] + 1]
        end = len(case["prompt"]) + sum(c.accepted + 1 for c in done.calls)
        return by_call(replace(done, tokens=done.tokens[:end]))

    return ours


TWICE = "theirs lists a node of the tree twice, which makes the second one its next sibling (models/choices.py:25)"
ROWS = "theirs reads the token of a last level, of which some parents have no child, off other rows (clover/model/utils.py:508)"
LONE = "theirs drops a lone token above the mass in the last level (clover/model/clover2.py:1374)"


def clover(case: Mapping[str, Any], backend: str) -> Columns:
    """The first tree of each text, by the ranks of its tokens, and the tokens."""
    text, trees, ranks = tuple(case["prompt"]), [], []
    head = eagle_forks.one_head(case)["head"]
    for _ in range(case["limit"]):
        params = {name: case[name] for name in ("depth", "mass", "budget")}
        done = run("clover", text, eagle_forks.one_head(case), backend, max_tokens=16, **params)
        known, text = text, done.tokens[: len(text) + 1]
        drafted = sorted(done.calls[1].drafted)
        rows = {path: sorted(head.row(known, (text[-1], *path)), reverse=True) for path in {p[:-1] for p in drafted}}
        said = {path: head.row(known, (text[-1], *path)) for path in rows}
        places = [tuple(rows[p[:i]].index(said[p[:i]][t]) for i, t in enumerate(p)) for p in drafted]
        trees.append(drafted)
        ranks.append(sorted(places))
    return {"tokens": text, "ranks": ranks, "drafted": trees}


ENTRIES = [
    recorded("chimera", first("chimera", "depth", "k")),
    recorded(
        "falcon",
        first("falcon", "shape"),
        differs={("4 of 24", "drafted"): TWICE},
    ),
    recorded("glide_cape", unhurried("glide_cape", "gamma", models=eagle_forks.one_head, last=1)),
    recorded(
        "clover",
        clover,
        differs={
            ("1 4 0.95 9", "drafted"): ROWS,
            ("2 4 0.95 20", "drafted"): ROWS,
            ("4 3 0.2 6", "ranks"): LONE,
            ("4 3 0.2 6", "drafted"): LONE,
        },
    ),
    recorded(
        "gumiho",
        unhurried("gumiho", "early", "late", "k", "offers", "width", "budget", models=eagle_forks.gumiho_models, last=2),
        differs=ended("gumiho/model/cnets.py:808", "3 2 2 3 2 2 10", "5 2 1 5 3 3 6"),
    ),
    recorded(
        "jakiro",
        unhurried("jakiro", "depth", "k", "budget", models=eagle_forks.jakiro_models, last=2),
    ),
]
COMPARED = [
    Compared(
        "mixture_of_attentions",
        "huawei-noah/HEBO 433c5812, moa_spec/models/inference/single_device/moa_spec.py, _sample",
        mixture_of_attentions,
        ours("mixture_of_attentions", predicting, "late", "depth", "k", "budget"),
        cases(
            {"late": 0, "depth": 6, "k": 8, "budget": 62, "limit": 4},
            {"late": 0, "depth": 3, "k": 3, "budget": 9},
            {"late": 1, "depth": 2, "k": 4, "budget": 7},
        ),
        "depth is theirs less one, k breadth, budget total_tokens, late target_layer_inference",
    ),
]
