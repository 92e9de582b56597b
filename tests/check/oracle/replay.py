"""The oracle's worlds on decgraph's reference machine: simulations to compare the two."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.data.topology import Topology
from decgraph.runtime import request as theirs
from decgraph.runtime.models.interface import MASK, Scores
from decgraph.runtime.models.table import TableModel
from oracle.worlds import Model, Request, World


class Rows(TableModel):
    """A table model whose rows are those of one of the oracle's."""

    def __init__(self, rows: Model, kind: Any, heads: int) -> None:
        super().__init__(rows.vocab, seed=0, kind=kind, heads=heads, name=rows.name)
        self.of = rows

    def eval(self, paths: Any, memory: Any = None) -> list[Scores]:
        return [Scores(weights=self.of.row(tuple(p))) for p in paths]

    def eval_canvas(self, cells: Any, at: Any, memory: Any = None) -> list[Scores]:
        seen = tuple("_" if c is MASK else c for c in cells)
        base = seen.index("_") if "_" in seen else len(seen)
        base = min(base, self.prompt)
        return [Scores(weights=self.of.row((*seen, "cell", i - base), i)) for i in at]

    def heads(self, path: Any) -> list[Scores]:
        return [Scores(weights=self.of.row(("head", h, *path), len(path))) for h in range(self.heads_count)]

    prompt = 0


def request_of(r: Request, seed: int) -> theirs.Request:
    """One of the oracle's requests as decgraph's."""
    return theirs.Request(
        prompt=r.prompt,
        max_tokens=r.max_tokens,
        seed=seed,
        temperature=r.temperature,
        top_k=r.top_k,
        bans=frozenset(r.bans),
        eos=frozenset(r.eos),
        min_length=r.min_length,
        presence_penalty=theirs.Factor(Fraction(r.presence)) if r.presence != 1 else 0,
        bias={t: theirs.Factor(Fraction(f)) for t, f in r.bias},
    )


class Replay:
    """A program in one of the oracle's worlds, on the reference machine."""

    def __init__(self, text: str, world: World, spec: str = "") -> None:
        self.module, self.world = load_text(text), world
        self.name = spec or self.module.main
        self.models = {}
        for p in self.module.functions[self.name].params:
            if p.value.type.elem == "model":
                kind, visibility = str(p.value.type.of[0]), str(p.value.type.of[3])
                self.models[p.name] = Rows(world.models[p.name], kind, 3 if "heads" in visibility else 0)
                self.models[p.name].prompt = len(world.requests[0].prompt)
        known = {p.name: p for p in self.module.functions[self.name].params}
        self.params = {
            k: Topology.of(v) if isinstance(v, str) else float(v) if isinstance(v, Fraction) else v
            for k, v in world.params.items()
            if k in known
        }

    def session(self, seed: int) -> tuple[tuple[int, ...], ...] | None:
        """The tokens of the world's requests, one after the other; None where a run cannot go on."""
        shared: dict[Any, Any] = {}
        out = []
        for i, r in enumerate(self.world.requests):
            made = request_of(r, seed * 7 + i)
            m = ReferenceMachine(self.module, self.name, self.models, self.params, made, shared=shared)
            try:
                m.run()
            except DecError:
                return None
            out.append(m.committed_tokens())
        return tuple(out)

    def frequencies(self, runs: int) -> Counter[Any]:
        """How often each outcome of a session came up."""
        return Counter(self.session(seed) for seed in range(runs))


def distance(law: dict[Any, Fraction], seen: Counter[Any]) -> float:
    """The largest difference of a probability and a frequency, in standard deviations of the frequency."""
    n = sum(seen.values())
    worst = 0.0
    for key in {*law, *seen}:
        p = float(law.get(key, 0))
        if p in (0.0, 1.0):
            if seen.get(key, 0) != p * n:
                return float("inf")
            continue
        worst = max(worst, abs(seen.get(key, 0) / n - p) / (p * (1 - p) / n) ** 0.5)
    return worst
