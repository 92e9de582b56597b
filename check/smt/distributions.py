"""Symbolic distributions of one decoding step followed by the specification, and of the specification alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decgraph.backends.exact.world import Enough
from decgraph.backends.run import Stop
from decgraph.check.smt.diagrams import Case, Diagram, Folder, Leaf, Tokens
from decgraph.check.smt.field import Fact, Field
from decgraph.check.smt.machine import SymbolicMachine, SymbolicModel, SymbolicWorld
from decgraph.check.smt.numbers import Beyond
from decgraph.check.smt.poly import ONE
from decgraph.check.smt.ratio import Ratio
from decgraph.check.smt.trail import Trail, explore
from decgraph.ir.values import Claim, Function, Module
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

PROMPT = (0, 1)
ROOM = 64
"""Tokens that the request allows: more than a step commits, so that no limit cuts it short."""


def request() -> Request:
    """The request of every obligation: temperature 1 and nothing else that shapes."""
    return Request(prompt=PROMPT, limit=ROOM)


@dataclass
class Setting:
    """An algorithm with values for its parameters, and its claim."""

    module: Module
    function: Function
    claim: Claim
    params: Mapping[str, Any]
    size: int

    def spec_of(self, models: Mapping[str, Any]) -> tuple[Function, dict[str, Any], dict[str, Any]]:
        """The specification with its models and parameters: ours by the claim's names, its own defaults else."""
        f = self.module.functions[self.claim.spec]
        theirs: dict[str, Any] = {}
        params: dict[str, Any] = {}
        for name, (kind, value) in self.claim.args:
            got = value if kind == "const" else models.get(value, self.params.get(value))
            (theirs if f.param(name).value.type.elem == "model" else params)[name] = got
        return f, theirs, check_params(f, params)


@dataclass
class Runs:
    """A setting over symbolic models, and how much was run."""

    setting: Setting
    field: Field
    length: int = 0
    runs: int = 0

    def __post_init__(self) -> None:
        self.trail = Trail(self.field)
        f = self.setting.function
        self.models = {p.name: SymbolicModel(self.trail, p.name) for p in f.params if p.value.type.elem == "model"}
        self.rows: dict[Tokens, Leaf] = {}
        self.folder = Folder(self.field, self)

    def machine(self, world: SymbolicWorld) -> SymbolicMachine:
        """A machine that runs one step of the algorithm."""
        s = self.setting
        m = SymbolicMachine(s.module, s.function.name, self.models, s.params, request())
        m.on(world, 1)
        return m

    def spec_machine(self, world: SymbolicWorld, done: Tokens, upto: int) -> SymbolicMachine:
        """A machine that runs the specification after `done` until `upto` tokens are committed."""
        f, models, params = self.setting.spec_of(self.models)
        m = SymbolicMachine(self.setting.module, f.name, models, params, request())
        m.on(world)
        m.resume(done)
        m.until = lambda m: m.committed() >= upto
        return m

    # -- distributions
    def step(self) -> list[tuple[Any, Tokens]]:
        """Every run of one step, with what it commits."""
        world = SymbolicWorld(self.trail, coupled=False)

        def program() -> Tokens:
            world.restart(self.trail)  # type: ignore[arg-type]
            return _executed(self.machine(world))

        out = []
        for forks, tokens in explore(self.trail, program):
            self.runs += 1
            out.append((forks, tokens))
        return out

    def distribution(self) -> Diagram:
        """The distribution of what one step commits; the specification goes on from there."""
        runs = self.step()
        self.length = max((len(t) for _, t in runs if t is not None), default=0)
        if any(t == () for _, t in runs):
            raise Beyond("a step that commits nothing")
        one = Ratio(self.trail, ONE)
        return self.folder.fold([(forks, None if tokens is None else {tokens: one}) for forks, tokens in runs], 0, ())

    def wrong(self, distribution: Leaf) -> Leaf:
        """What must vanish for a distribution to be the specification's."""
        return self.folder.difference(distribution, {(): Ratio(self.trail, ONE)})

    def next(self, done: Tokens) -> Leaf:
        """The specification's distribution of the token after `done`."""
        if done not in self.rows:
            world = SymbolicWorld(self.trail, coupled=False)
            saved = self.trail.prefix, self.trail.forks, self.trail.facts

            def program() -> Tokens:
                world.restart(self.trail)  # type: ignore[arg-type]
                return _executed(self.spec_machine(world, done, len(done) + 1))[len(done) :]

            runs = [(forks, {t: Ratio(self.trail, ONE)}) for forks, t in explore(self.trail, program)]
            distribution = Folder(self.field, _Nothing()).fold(runs, 0, ())
            self.trail.prefix, self.trail.forks, self.trail.facts = saved
            if distribution is None or isinstance(distribution, Case) or any(len(t) != 1 for t in distribution):
                raise Beyond("a specification that does more than draw the next token from a model's distribution")
            self.rows[done] = distribution
        return self.rows[done]

    def coupled(self) -> list[tuple[tuple[Fact, ...], Tokens, Tokens]]:
        """Every run of one step with what it commits, and what the specification commits with the same noise."""
        world = SymbolicWorld(self.trail, coupled=True)

        def program() -> tuple[tuple[Fact, ...], Tokens, Tokens]:
            world.restart(self.trail)  # type: ignore[arg-type]
            ours = _executed(self.machine(world))
            if not ours:
                raise Beyond("a step that commits nothing")
            theirs = _executed(self.spec_machine(world, (), len(ours)))
            return self.trail.facts, ours, theirs

        out = []
        for _, found in explore(self.trail, program):
            self.runs += 1
            if found is not None:
                self.length = max(self.length, len(found[1]))
                out.append(found)
        return out


class _Nothing:
    """What follows the specification's own next token: nothing that is known."""

    def next(self, done: Tokens) -> Leaf:
        return {(-1,): Ratio(None, ONE)}  # type: ignore[arg-type]  # no token: nothing is shortened


def _executed(m: SymbolicMachine) -> Tokens:
    try:
        m.run()
    except (Enough, Stop):
        pass
    return m.committed_tokens()


__all__ = ["PROMPT", "Runs", "Setting", "Tokens", "request"]
