"""Random trees, evidence and drafts for verification rules, and the torch backend's walk: what kernels are held against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decgraph import stdlib
from decgraph.backends.torch.draws import TorchDraws, points
from decgraph.backends.torch.lowering import lower
from decgraph.backends.torch.machine import TorchMachine
from decgraph.backends.torch.rows import Rows, TorchDist
from decgraph.backends.torch.trees import Context, TorchTree
from decgraph.backends.torch.walk import walk
from decgraph.dsl.lower import load_text
from decgraph.ir.values import Module, Op, Region, Value
from decgraph.passes.manager import optimise
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.noise import Key, exponentials
from decgraph.runtime.request import Request

_ALGORITHM = """
algorithm walks(target: causal, tau: float in 0..1 = 0.25, turns: int in 0..9 = 3):
    while not done:
        draft t:
            x ~ target(t.leaves)
            grow x
        verify t by {rule} against target(t)
        commit t.accepted
"""


RULES = (Path(stdlib.__file__).parent / "rules.dec").read_text(encoding="utf-8")


@cache
def module_of(rule: str, text: str = "") -> Module:
    """A program that verifies by a rule: one of stdlib/rules.dec, or the one that a text defines. rule: as it is called."""
    return optimise(load_text((text or RULES) + _ALGORITHM.format(rule=rule), "walks.dec"))[0]


def walk_of(module: Module) -> Op:
    """The `tree.walk` of a program."""
    return next(op for op in module.entry.body.walk() if op.opcode == "tree.walk")


class Host:
    """A rule's region as a function, each op by its torch lowering."""

    def __init__(self, m: Any, module: Module, given: dict[str, Any]) -> None:
        self.m, self.op = m, walk_of(module)
        self.env: dict[Value, Any] = {}
        for op in module.entry.body.walk():
            if op is self.op:
                break
            if op.opcode == "const" or op.opcode == "noise" and all(v in self.env for v in op.operands):
                self.run(op)
            self.env.update({a: given["turn"] for r in op.regions for a in r.args if a.type.elem == "int"})
        self.env.update({p.value: given[p.name] for p in module.entry.params if p.name in given})

    def __call__(self, *args: Any) -> Any:
        return self.region(self.op.regions[0], args)

    def region(self, region: Region, args: Sequence[Any]) -> tuple[Any, ...]:
        self.env.update(zip(region.args, args, strict=True))
        for op in region.ops:
            self.run(op)
        return tuple(self.env[v] for v in region.yields)

    def run(self, op: Op) -> None:
        known = [self.env.get(v) for v in op.operands]
        if op.opcode == "const":
            value = op.attrs["value"]
            out: Any = float(value) if hasattr(value, "numerator") and not isinstance(value, bool | int) else value
        elif op.opcode == "segment":
            out = self.region(op.regions[0], ())
            out = out[0] if len(op.results) == 1 else out
        elif op.opcode == "if":
            out = self.region(op.regions[0 if known[0] else 1], ())
            out = out[0] if len(op.results) == 1 else out
        elif op.opcode == "for":
            lo, hi, *carried = known
            for i in range(int(lo), int(hi)):
                made = self.region(op.regions[0], [i, *carried])
                carried = list(made[1:] if op.attrs.get("stops") else made)
                if op.attrs.get("stops") and made[0]:
                    break
            out = carried[0] if len(op.results) == 1 else tuple(carried)
        else:
            low = lower(op)
            out = low.fn(*([self.m] if low.machine else []), *known, **low.kwargs)
        self.env.update([(op.result, out)] if len(op.results) == 1 else zip(op.results, out, strict=True))


@dataclass
class Case:
    """One request with a drafted tree and evidence over it."""

    request: Request
    tree: TorchTree
    evidence: TorchDist
    size: int

    def machine(self, module: Module, events: list[Any] | None = None) -> TorchMachine:
        """A machine that runs the request. events: what it reports goes there."""
        return TorchMachine(
            module,
            module.main,
            {"target": TableModel(self.size, 1)},
            {"tau": 0.25, "turns": 3},
            self.request,
            listener=None if events is None else events.append,
        )


def case(
    seed: int,
    size: int = 7,
    *,
    shape: Sequence[int] = (3, 2, 1),
    how: str = "mixed",
    dtype: torch.dtype = torch.float64,
    part: bool = False,
    **request: Any,
) -> Case:
    """A random case. shape: children of every node, level by level (some are left out). how: drafts "with" or "without"
    replacement, "points", or "mixed". part: evidence is missing at some nodes."""
    rng = np.random.default_rng(seed)
    asked = Request(
        prompt=tuple(int(t) for t in rng.integers(0, size, 4)), seed=seed * 7 + 1, request_id=seed + 2**33, **request
    )
    tree = TorchTree.start(Context(list(asked.prompt), 4))
    base = rng.normal(size=(64, size))
    frontier, uid = [0], 0
    for width in shape:
        new: list[int] = []
        kinds = ["with", "without", "points"] if how == "mixed" else [how]
        kind = kinds[int(rng.integers(len(kinds)))]
        near = np.stack([base[n] for n in frontier]) + rng.normal(scale=1.6, size=(len(frontier), size))
        scores = torch.tensor(near, dtype=dtype)
        rows = Rows(scores, replace(asked, allow=None), positions=np.full(len(frontier), 4), nodes=np.array(frontier))
        draws = _drafted(rng, rows, kind, width)
        flat = draws.ravel()
        keep = np.flatnonzero((flat.tokens >= 0) & (rng.random(len(flat.tokens)) < 0.85))
        parents = np.array(frontier)[keep // width] if len(keep) else np.zeros(0, dtype=np.int64)
        first = len(tree)
        tree = tree.grow(
            flat,
            keep,
            flat.tokens[keep],
            parents,
            tree.depth[parents] + 1,
            uid + np.arange(len(keep)),
            np.full(len(keep), np.nan),
            {},
            [],
        )
        uid += len(keep)
        new = list(range(first, len(tree)))
        if not new:
            break
        frontier = new
    scores = torch.tensor(np.stack([base[n] for n in range(len(tree))]), dtype=dtype)
    rows = Rows(
        scores,
        asked,
        positions=np.full(len(tree), 4),
        nodes=np.arange(len(tree)),
        tree=tree,
        path=lambda i: (*asked.prompt, *(int(tree.token[n]) for n in tree.path_nodes(i)[1:])),
    )
    evidence = TorchDist.all(rows)
    if part:
        kept = np.sort(np.concatenate(([0], np.flatnonzero(rng.random(len(tree)) < 0.6))))
        kept = np.unique(kept)
        evidence = TorchDist(rows, kept, "shaped", kept)
    return Case(asked, tree, evidence, size)


def _drafted(rng: np.random.Generator, rows: Rows, kind: str, width: int) -> TorchDraws:
    """`width` drafts from every row."""
    n, probs = rows.count, rows.face("shaped").double().numpy()
    row = np.broadcast_to(np.arange(n)[:, None], (n, width))
    if kind == "points":
        order = np.argsort(-probs, axis=-1, kind="stable")[:, :width]
        return TorchDraws(order, rows, row[:, : order.shape[1]], "shaped", point=True)
    tokens = np.full((n, width), -1, dtype=np.int64)
    for i in range(n):
        for j in range(width):
            q = probs[i].copy()
            if kind == "without":
                q[tokens[i, :j]] = 0
            if q.sum() > 0:
                times = exponentials(Key(int(rng.integers(2**40)), 1, "draft", (i, j)), len(q))
                with np.errstate(divide="ignore"):
                    tokens[i, j] = int(np.argmin(np.where(q > 0, times / np.maximum(q, 1e-300), np.inf)))
    if kind == "with":
        return TorchDraws(tokens, rows, row, "shaped")
    return TorchDraws(
        tokens,
        rows,
        row,
        "shaped",
        rank=np.broadcast_to(np.arange(width), (n, width)),
        group=np.broadcast_to(np.arange(n)[:, None], (n, width)),
        members=tokens,
    )


def on_host(module: Module, c: Case, events: list[Any] | None = None, turn: int = 5) -> tuple[Any, TorchMachine]:
    """The torch backend's walk: the path and the machine that it ran on."""
    m = c.machine(module, events)
    op = walk_of(module)
    rule: Callable[..., Any] = Host(m, module, {"turn": turn, "tau": 0.25, "turns": 3})
    return walk(m, c.tree, c.evidence, rule, scope=op.attrs["scope"]), m


def captured_values(host: Host, values: Sequence[Value]) -> list[Any]:
    """What a driver would give for captured values."""
    return [host.env[v] for v in values]


__all__ = ["Case", "Host", "captured_values", "case", "module_of", "on_host", "points", "walk_of"]
