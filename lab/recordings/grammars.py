"""Grammars: which tokens may come next."""

from __future__ import annotations

import shutil
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case, Recording, tabled
from lab.recordings.tables import Letters, Stream, TableLM, draws_of, untied
from lab.recordings.upstream import Upstream

PIECES = ("a", "b", "ab", "ba", "c", "bc", "cab", "")
EOS = 7


class Pieces(Letters):
    """A tokenizer of these pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces = list(PIECES)
        self.detokenizer = type(self.detokenizer)(tuple(p.encode() for p in PIECES))


def models(case: Case) -> dict[str, TableModel]:
    """A target and a drafter, which read the whole text."""
    seed = case["seed"]
    drafter = untied(len(PIECES), seed, window=None, name="drafter", blend=(seed + 1, 0.8))
    target = untied(len(PIECES), seed, window=None)
    target.eos = frozenset({EOS})
    return {"target": target, "drafter": drafter}


def grammar(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Its Cython files have nothing of Cython in them: they run as Python. The loop around the monitor is transformers' there."""
    names = ("alignment", "alignment.monitor", "alignment.monitor.monitor", "alignment.monitor.grammar")
    packages: dict[str, Any] = {name: ModuleType(name) for name in names}
    for name in names:
        packages[name].__path__ = [str(upstream.folder / "src")] if name == names[-1] else []
    packages[names[2]].Monitor = packages[names[2]].MonitorState = type("Monitor", (), {})
    for name in ("partial_lexer", "partial_parser"):
        shutil.copy(upstream.folder / f"src/{name}.pyx", upstream.folder / f"src/{name}.py")
    with mock.patch.dict("sys.modules", packages), upstream.importable():
        from alignment.monitor.grammar.cfg_monitor import CFGMonitor  # type: ignore[import-not-found]

        with redirect_stdout(StringIO()):
            monitor = CFGMonitor(case["lark"], {**dict(enumerate(PIECES[:EOS])), EOS: "EOS"}, EOS)
    model, text, allowed = TableLM(models(case)["target"]), list(case["prompt"]), list[Any]()
    with draws_of(Stream(case["seed"])) if case["temperature"] else nullcontext():
        for _ in range(case["limit"]):
            (may,) = monitor.filter_vocab(torch.tensor([text]))
            allowed.append(sorted(may.tolist()))
            scores = torch.full((len(PIECES),), -np.inf)
            scores[may] = model.row(text)[may]
            if case["temperature"]:
                token = torch.multinomial((scores / case["temperature"]).softmax(-1), num_samples=1)
            else:
                token = scores.argmax(keepdim=True)
            text.append(int(token))
            if text[-1] == EOS:
                break
            monitor.update(token)
    return {"tokens": text, "allowed": allowed}


LANGUAGES = {
    "(ab|ba){1,3}c": "start: WORD\nWORD: /(ab|ba){1,3}c/",
    "a*b(c|bc)": "start: WORD\nWORD: /a*b(c|bc)/",
    "(a|bc){2,5}": 'start: one one one? one? one?\n?one: "a" | "bc"',
    "b(ab)*c?": 'start: "b" pairs "c"?\npairs: | "ab" pairs',
    "(a|b|c)*": "start: letter*\n?letter: /[abc]/",
    "(a|b|c)+": "start: letter+\n?letter: /[abc]/",
}
"""Languages, and a grammar of each as Lark writes them."""

RECORDINGS = [
    Recording(
        "grammar",
        "ebmoon/greatgramma",
        "edb6cb9cf3d1bf952f259d43f6b38499cbb1e898",
        "src/cfg_monitor.py, CFGMonitor.filter_vocab and update",
        grammar,
        {
            name: {**case, "lark": LANGUAGES[case["g"]]}
            for name, case in tabled(
                "{seed} {g} {temperature}",
                "seed g gamma temperature prompt limit",
                (
                    (1, "(ab|ba){1,3}c", 3, 0, (0, 4), 12),
                    (2, "a*b(c|bc)", 2, 0, (0, 4), 12),
                    (3, "(a|bc){2,5}", 4, 0, (1,), 12),
                    (4, "b(ab)*c?", 1, 0, (0, 4, 2, 2), 12),
                    (5, "(a|b|c)*", 4, 0, (0, 4), 12),
                    (6, "(ab|ba){1,3}c", 4, 1.0, (0, 4), 12),
                    (7, "a*b(c|bc)", 3, 1.0, (3,), 12),
                    (8, "(a|bc){2,5}", 4, 0.7, (0, 4), 4),
                    (9, "b(ab)*c?", 4, 1.0, (0, 4, 1), 12),
                    (10, "(a|b|c)+", 2, 1.0, (0, 4), 12),
                ),
            ).items()
        },
        "greedy, sampled",
        "with interegular and lark. allowed: by token, what may come; drafts and jumps are not the paper's and change nothing",
    ),
]
