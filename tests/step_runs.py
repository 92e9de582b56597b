"""Programs of stdlib/ as steps on the device, on table models that the device and the reference both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import shelf
import torch
from unread import Unread

from decgraph.backends.registry import machine
from decgraph.backends.triton.step.distributions import Shape
from decgraph.backends.triton.step.machine import Frame
from decgraph.backends.triton.step.program import Outcome, StepProgram
from decgraph.backends.triton.step.table import TableOnDevice
from decgraph.backends.triton.step.why import Needs, needs_of
from decgraph.ir.values import Module
from decgraph.passes.manager import optimise
from decgraph.runtime.models.interface import Memory, Model, Scores
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Stats

V = 5
STATIC = [
    "autoregressive", "blockwise_parallel", "chimera", "eagle1", "eagle2", "eagle3", "exspec", "hydra", "medusa",
    "medusa_match", "mtp", "pass", "recursive_sd", "rsd_s", "sdsat", "sequoia", "speculative", "token_recycling"
]  # fmt: skip
"""The algorithms of causal models whose steps are of static shape."""
CANVASES = [
    "adablock", "arpg", "coherent_contextual", "credit_decoding", "dilated", "dinfer_hierarchy", "dkv_cache", "dparallel",
    "dream", "dream_confidence", "dream_margin", "dream_origin", "eb_sampler", "eoser", "eoser_ass", "explore_exploit",
    "fast_dllm", "fast_dllm_factor", "fast_dllm_prefix", "fast_dllm_uncached", "group_masked", "hyperschedule", "klass",
    "llada", "local_leap", "lpd", "maskgit", "prophet", "r2_dllm", "recap", "remdm_loop", "saber", "secondary_remask",
    "slow_fast", "static_masked", "zipar"
]  # fmt: skip
"""The algorithms of masked models whose loops run on a canvas on the device."""
CPU = torch.device("cpu")
SMALL: dict[str, Any] = {"shape": "[[0], [1], [0, 0], [1, 0], [0, 0, 0]]", "k": 2}
"""Still smaller trees than the shelf's: Triton's interpreter is slow."""


class TokenHead(Model):
    """A features model that looks at tokens alone, like a table: what steps do around it is a head's."""

    kind = "features"

    def __init__(self, table: TableModel, target: TableModel) -> None:
        self.table, self.target, self.name = table, target, "head"
        self.vocab, self.context, self.exact = table.vocab, None, True
        self.family, self.layers, self.mask = target.family, 0, None

    def eval(self, paths: Sequence[Any], given: Memory | None = None) -> list[Scores]:
        return self.table.eval(paths)


class HeadOnDevice(TableOnDevice):
    """The same on the device. Cells of accepted nodes are made anew, as those of a head with features are."""

    keeps_paths = False

    def forward(self, *cells: Any, given: torch.Tensor | None = None) -> torch.Tensor:  # type: ignore[override]
        assert given is not None
        return super().forward(*cells)


def tables(seed: int) -> dict[str, Model]:
    """Small tables for every model parameter."""
    target = TableModel(V, seed, name="target", window=2, heads=3)
    head = TokenHead(TableModel(V, seed + 20, name="head", window=2), target)
    return {"target": target, "drafter": TableModel(V, seed + 10, name="drafter", window=2), "head": head}


@cache
def optimised(name: str) -> Module:
    """An algorithm after all passes."""
    return optimise(shelf.module(name))[0]


def parameters(name: str, **more: Any) -> dict[str, Any]:
    """All parameters of an algorithm, small."""
    entry = optimised(name).entry
    usual = {p.name: p.default for p in entry.params if p.value.type.elem != "model"}
    return usual | shelf.parameters(name, **SMALL) | more


def on_device(model: Model, batch: int, capacity: int, tail: int) -> Any:
    """The device's form of a table or of a head of tokens."""
    if isinstance(model, TokenHead):
        return HeadOnDevice(model.table, batch, capacity, tail)
    return TableOnDevice(model, batch, capacity, tail)


class Runs:
    """One algorithm with its models and parameters, by the reference and as steps."""

    def __init__(self, name: str, seed: int = 1, params: dict[str, Any] | None = None, module: Module | None = None) -> None:
        self.name, self.params = name, parameters(name) if params is None and module is None else dict(params or {})
        self.module = optimised(name) if module is None else module
        self.plain = shelf.module(name) if module is None else module
        known = tables(seed)
        self.models = {p.name: known[p.name] for p in self.module.entry.params if p.value.type.elem == "model"}

    def wanted(self, requests: Sequence[Request]) -> list[Result]:
        """What the reference does with each request, each in a session of its own."""
        made = []
        for request in requests:
            session = Session(self.plain, self.models, self.params, machine=machine("reference"))
            made.append(session.run(request, keep_events=False))
        assert all(r.error is None for r in made), [r.error for r in made]
        return made

    def needs(self, shape: Shape) -> Needs:
        return needs_of(self.module, self.module.main, self.models, self.params, shape)

    def program(self, requests: Sequence[Request], *, batch: int = 0, capacity: int = 24, **more: Any) -> StepProgram:
        """The steps for requests of one shaping."""
        shape = Shape.of(requests[0])
        assert all(Shape.of(r) == shape for r in requests)
        batch, needs = batch or len(requests), self.needs(shape)
        models = {n: on_device(m, batch, capacity + 40, needs.tails[n]) for n, m in self.models.items()}
        ends = max(1, *(len(r.eos) for r in requests))
        return StepProgram(
            self.module, self.module.main, models, self.params, Frame(batch, capacity, shape, CPU, ends), needs, **more
        )

    def compare(self, requests: Sequence[Request], outcomes: Sequence[Outcome]) -> None:
        """Tokens and statistics are the reference's."""
        for request, have, want in zip(requests, outcomes, self.wanted(requests), strict=True):
            where = f"{self.name}, {request}"
            assert not have.lost, where
            assert have.tokens == want.tokens, where
            assert (have.tested, have.accepted, have.drafted) == (want.stats.tested, want.stats.accepted, want.stats.drafted), (
                where
            )
            calls = {self.models[n.split(".")[0]].name + n[len(n.split(".")[0]) :]: c for n, c in have.calls.items()}
            assert_calls(calls, want.stats.calls, "target", where)


def assert_stats(have: Stats, want: Stats) -> None:
    """The driver's statistics, but for calls of drafters."""
    assert replace(have, draft_calls=0, calls={}) == replace(want, draft_calls=0, calls={})
    assert have.draft_calls >= want.draft_calls
    assert_calls(have.calls, want.calls, "target")


def assert_calls(have: dict[str, int], want: dict[str, int], target: str, where: str = "") -> None:
    """The target is called as the driver calls it; drafters as often at least, since a step drafts on where drafts are of no
    use: its graph is the same in every turn."""
    assert have.get(target) == want.get(target), where
    assert all(have.get(name, 0) >= n for name, n in want.items()), where


PROMPTS = [(0, 1), (2, 3, 4, 1, 0), (1, 1, 3)]


def requests(temperature: float = 1, count: int = 3, **more: Any) -> list[Request]:
    """Ragged prompts with different limits; the second ends at token 4."""
    return [
        Request(
            prompt=PROMPTS[i],
            limit=(5, 6, 3)[i],
            seed=2**40 + i,
            request_id=2**33 * i + i,
            temperature=temperature,
            eos={4} if i == 1 else (),
            **more,
        )
        for i in range(count)
    ]


class Guard(Unread):
    """The host neither waits nor copies anything to the device. Memory comes as zeros: no kernel writes it here."""

    def __init__(self) -> None:
        super().__init__(copies=False)

    @staticmethod
    def zeros() -> Guard:
        """Only the zeros."""
        made = Guard()
        made.refused = set()
        return made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return out.zero_() if "empty" in func.overloadpacket.__name__ else out
