"""Trees that a head on the target's features grows: Gumiho, Jakiro, Clover-2, Chimera, GliDe with CaPE,
Mixture of Attentions."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import log
from typing import Any

import numpy as np
from fidelity.entry import recorded
from fidelity.transcribed.compared import Columns, Compared, Text, best, ended, replayed, unhurried, verified

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


def children(head: Any, text: Sequence[int], nodes: Sequence[Ranked], k: int) -> list[Ranked]:
    """The k likeliest tokens below every node, with the scores of their paths."""
    rows = [(score, path, row(head, text, path)) for score, path in nodes]
    return [(score + log(p[t]), (*path, t)) for score, path, p in rows for t in best(p, min(k, len(p)))]


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


def clover(case: Mapping[str, Any]) -> Columns:
    """Whole levels, until one is larger than what is left; the token that would pass the mass is not kept."""
    m = one_head(case)

    def tree(text: list[int]) -> list[Text]:
        level: list[Ranked] = [(0.0, ())]
        made: list[Text] = []
        for _ in range(case["depth"]):
            new: list[Ranked] = []
            for score, path in level:
                p = row(m["head"], text, path)
                tokens = best(p, case["budget"])
                share = p[tokens] / p[tokens].sum()
                many = max(1, int((np.cumsum(share) <= case["mass"]).sum()))
                new += [(score + log(share[i]), (*path, tokens[i])) for i in range(many)]
            left = case["budget"] - len(made)
            level = highest(new, left)
            made += [path for _, path in level]
            if len(new) >= left:
                break
        return made

    return rounds(case, m["target"], tree)


def chimera(case: Mapping[str, Any]) -> Columns:
    """A full tree: every path is read again with its own tokens."""
    m = one_head(case)

    def tree(text: list[int]) -> list[Text]:
        level: list[Ranked] = [(0.0, ())]
        made: list[Text] = []
        for _ in range(case["depth"]):
            level = children(m["head"], text, level, case["k"])
            made += [path for _, path in level]
        return made

    return rounds(case, m["target"], tree)


def glide_cape(case: Mapping[str, Any]) -> Columns:
    """A chain; beside each of its tokens stand more of the likeliest where the drafter is less sure, by tenths."""
    m = one_head(case)
    bins = (8, 8, 8, 6, 6, 6, 4, 4, 2, 2, 2)

    def tree(text: list[int]) -> list[Text]:
        chain: Text = ()
        made: list[Text] = []
        for _ in range(case["gamma"]):
            p = row(m["head"], text, chain)
            tokens = best(p, bins[int(10 * max(p))])
            made += [(*chain, t) for t in tokens]
            chain = (*chain, tokens[0])
        return made

    return rounds(case, m["target"], tree)


def falcon(case: Mapping[str, Any]) -> Columns:
    """Levels in pairs: a call gives both below each node that ends a pair, the second one without knowing the first."""
    m = one_head(case)
    template = sorted((tuple(p) for p in json.loads(case["shape"])), key=lambda p: (len(p), p))

    def tree(text: list[int]) -> list[Text]:
        named: dict[Text, Text] = {(): ()}
        for ranks in template:
            block = ranks[: (len(ranks) - 1) // 2 * 2]
            behind = (*named[block], *[0] * (len(ranks) - 1 - len(block)))
            named[ranks] = (*named[ranks[:-1]], best(row(m["head"], text, behind), 20)[ranks[-1]])
        return sorted(set(named.values()) - {()})

    return rounds(case, m["target"], tree)


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


ENTRIES = [
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
        "clover",
        "XiaoBin1992/clover 9d37214a, clover/model/clover2.py, Clover2Model.beam_genrate",
        clover,
        ours("clover", one_head, "depth", "mass", "budget"),
        cases(
            {"depth": 4, "mass": 0.95, "budget": 9},
            {"depth": 4, "mass": 0.95, "budget": 20, "size": 30, "limit": 6},
            {"depth": 3, "mass": 0.5, "budget": 6},
            {"depth": 3, "mass": 0.2, "budget": 6},
        ),
        "depth is num_heads; in the last level at least one child stays, as in the others",
    ),
    Compared(
        "chimera",
        "kafkayu/Chimera a4cd9f4d, chimera/model/Chimera_model.py, ChimeraModel.generate, greedy_search",
        chimera,
        ours("chimera", one_head, "depth", "k"),
        cases({"depth": 4, "k": 3, "limit": 6}, {"depth": 3, "k": 2}, {"depth": 2, "k": 3}),
        "topk = 1, so a guess is accepted where it is the target's own token",
    ),
    Compared(
        "glide_cape",
        "NonvolatileMemory/GliDe_with_a_CaPE_ICML_24 edf4c9a8, glide/glideModel.py, medusa_forward and medusa_generate_stream",
        glide_cape,
        ours("glide_cape", one_head, "gamma"),
        cases({"gamma": 4}, {"gamma": 3, "size": 5}),
        "the bins of inference/cape/cape.sh, greedy; gamma is the length that the code has as a number, 4",
    ),
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
    Compared(
        "falcon",
        "Bestpay-inc/Falcon 367030ea, models/cnets.py, topK_genrate; models/utils.py, generate_tree_buffers, temperature 0",
        falcon,
        ours("falcon", one_head, "shape"),
        cases(
            {"shape": "[[0], [1], [2], [0, 0], [0, 1], [1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1]]"},
            {"shape": "[[0], [1], [0, 0], [1, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]"},
        ),
        "k_mask = 2; the second of a pair is what the head says behind a padding token, 0, theirs at the block's second place",
    ),
]
