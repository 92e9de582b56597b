"""Drafts of the target's first layers: DEL, which chooses the exit and where to stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fidelity.transcribed.compared import Columns, Compared, after, by_call
from fidelity.watched import run

from decgraph.runtime.models.interface import Memory, Path, Scores
from decgraph.runtime.models.table import TableModel

SIZE = 7


class Layered(TableModel):
    """A table with layers, whose exits say what it says more often the later they are."""

    layers = 5

    def derive(self, how: str, *args: Any) -> Any:
        assert how == "exit"
        return Exit(self, int(args[0]))


class Exit(TableModel):
    """The table after `layer` layers."""

    def __init__(self, whole: Layered, layer: int) -> None:
        super().__init__(SIZE, 100 + layer, window=2, vocab="t", name=f"{whole.name}.exit({layer})", family=whole.family)
        self.whole, self.layer = whole, layer

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        own, right = super().eval(paths), self.whole.eval(paths)
        chosen = [(3 * p[-1] + 5 * len(p)) % (self.whole.layers + 1) <= self.layer for p in map(tuple, paths)]
        return [r if c else o for r, o, c in zip(right, own, chosen, strict=True)]


def target(case: Mapping[str, Any]) -> Layered:
    return Layered(SIZE, case["seed"], window=2, vocab="t", name="target")


def del_(case: Mapping[str, Any]) -> Columns:
    """Counts and sums of confidences by exit, of matched and of missed places, decayed once a round. A round adds the places up
    to the first that its own exit missed, all of them if a draft of no tokens was chosen for it; the first round adds the last
    of the prompt, and drafts one token at the first exit. The exit of the next round has the most tokens a layer."""
    whole = target(case)
    exits = [Exit(whole, k + 1) for k in range(whole.layers - 1)]
    counts, sums = np.zeros((len(exits), 2)), np.zeros((len(exits), 2))
    exit_, gamma = 0, 1
    text, end = list(case["prompt"]), len(case["prompt"]) + case["limit"]
    drafted, accepted = [], []
    while len(text) < end:
        first = len(text) == len(case["prompt"])
        with np.errstate(invalid="ignore", divide="ignore"):
            bar = (sums[exit_] / counts[exit_]).sum() / 2
        draft: list[int] = []
        for _ in range(1 if first else case["most"]):
            row = after(exits[exit_], (*text, *draft))
            draft.append(int(np.argmax(row)))
            if row.max() < bar:
                break
        draft = draft[: end - len(text) - 1]
        begin = len(text) - 1
        places = [(*text, *draft)[: begin + 1 + i] for i in range(len(draft) + 1)]
        said = [int(np.argmax(after(whole, p))) for p in places]
        n = next((i for i, x in enumerate(draft) if x != said[i]), len(draft))
        shadows = [[after(e, p) for p in places] for e in exits]
        own = [int(np.argmax(r)) == x for r, x in zip(shadows[exit_], said, strict=True)]
        seen = own.index(False) + 1 if gamma > 0 and False in own else len(own)
        before = [text[: i + 1] for i in range(begin)][-case["past"] :] if first else []
        places, said = [*before, *places[:seen]], [*(int(np.argmax(after(whole, p))) for p in before), *said[:seen]]
        for k, e in enumerate(exits):
            rows = [after(e, p) for p in places]
            hits = np.array([int(np.argmax(r)) == x for r, x in zip(rows, said, strict=True)])
            sure = np.array([r.max() for r in rows])
            counts[k] = case["omega"] * counts[k] + (hits.sum(), (~hits).sum())
            sums[k] = case["omega"] * sums[k] + (sure[hits].sum(), sure[~hits].sum())
        share = counts[:, 0] / counts.sum(1)
        tokens, costs = np.ones((len(exits), case["most"])), np.zeros((len(exits), case["most"]))
        for i in range(case["most"]):
            tokens[:, i] = 1 + share * tokens[:, i - 1] if i else 1
            costs[:, i] = whole.layers - np.arange(1, len(exits) + 1) + (i + 1) * np.arange(1, len(exits) + 1)
        exit_, gamma = divmod(int(np.argmax(tokens / costs)), case["most"])
        text += [*draft[:n], int(np.argmax(after(whole, (*text, *draft[:n]))))]
        drafted.append([tuple(draft[: i + 1]) for i in range(len(draft))])
        accepted.append(n)
    return {"tokens": tuple(text), "drafted": drafted, "accepted": accepted}


def ours(case: Mapping[str, Any], backend: str) -> Columns:
    params = {name: case[name] for name in ("most", "omega", "past")}
    done = run("del", case["prompt"], {"target": target(case)}, backend, max_tokens=case["limit"], **params)
    done.calls = [c for c in done.calls if c.past >= len(case["prompt"])]  # the prompt's places are asked before
    return by_call(done)


COMPARED = [
    Compared(
        "del",
        "hoenza/DEL, in 359171110/DEL, self_speculation/DEL.py and DEL_speculation_generator.py",
        del_,
        ours,
        {
            "as published": {"seed": 1, "prompt": (1, 2, 3, 4, 5), "limit": 30, "most": 18, "omega": 0.95, "past": 32},
            "other parameters": {"seed": 2, "prompt": (3, 1, 2), "limit": 30, "most": 4, "omega": 0.5, "past": 1},
            "a prompt of a token": {"seed": 3, "prompt": (6,), "limit": 24, "most": 6, "omega": 0.8, "past": 32},
        },
        "greedy; fixed exits and FLy's window are other programs",
    )
]
