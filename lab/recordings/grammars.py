"""Constraints: which tokens a grammar allows, and draws until a constraint accepts one."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
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
    """Its Cython files have nothing of Cython in them: they run as Python. The loop around it is transformers'."""
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


def awrs(upstream: Upstream, case: Case) -> dict[str, Any]:
    """One token; its noise is the case's uniforms."""
    module = {"np": np, "log1mexp": lambda x: np.log(-np.expm1(x))}
    draw = upstream.names("genlm/control/sampler/token.py", "recursive_awrs", **module)["recursive_awrs"]
    logits, noise = scores(case), uniforms(case)
    asked: list[Any] = []

    async def accept(token: int) -> bool:
        asked.append([int(token), int(token) in case["accepted"]])
        return bool(asked[-1][1])

    logps = logits - np.log(np.exp(logits).sum())
    rng = SimpleNamespace(random=lambda shape: noise)
    given = {"logps": logps, "toks": np.arange(len(logps)), "accept": accept, "rng": rng, "max_rejects": case["tries"]}
    token, weight, _ = asyncio.run(draw(**given))
    return {"token": int(token), "tried": asked, "thousandths": int(1000 * weight) if np.isfinite(weight) else None}


def scores(case: Case) -> np.ndarray:
    """float64[V]: the logits of a case."""
    return np.asarray(np.random.default_rng(case["seed"]).normal(0, 2, case["size"]))


def uniforms(case: Case) -> np.ndarray:
    """float64[V]: its noise, one number for each token."""
    return np.asarray(np.random.default_rng(case["seed"] + 1000).uniform(1e-9, 1 - 1e-9, case["size"]))


RECORDINGS = {
    "awrs": awrs,
    "grammar": grammar,
}
