"""A model found by the proof, put into tables and run by the exact checker: only what it confirms is called refuted."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from decgraph.backends.exact.choices import Choices, TooMany, runs
from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.exact.world import Enough, Unlikely, World
from decgraph.backends.run import Stop
from decgraph.check.smt.diagrams import Tokens
from decgraph.check.smt.distributions import PROMPT, Setting, request
from decgraph.check.smt.points import Point
from decgraph.errors import DecError
from decgraph.runtime.models.table import TableModel

Distribution = dict[Tokens, Fraction]
MOST = 20_000


def tables(setting: Setting, point: Point) -> dict[str, TableModel]:
    """The models of a point: the rows that it has, and others at random that nothing should depend on."""
    out = {}
    for i, p in enumerate(p for p in setting.function.params if p.value.type.elem == "model"):
        rows = {path: row for (name, path), row in point.rows.items() if name == p.name}
        out[p.name] = TableModel(setting.size, seed=i, table=rows, name=p.name)
    return out


def distributions(setting: Setting, models: dict[str, Any], length: int) -> tuple[Distribution, Distribution]:
    """The exact distributions of the first `length` tokens: of a step followed by the specification, and of the
    specification."""
    f, theirs, params = setting.spec_of(models)
    spec_rows: dict[Tokens, Distribution] = {}

    def after(done: Tokens) -> Distribution:
        if done not in spec_rows:

            def draw(world: World) -> Tokens:
                m = _machine(setting, f.name, theirs, params, world, None).resume(done)
                m.until = lambda m: m.committed() > len(done)
                return _executed(m)[len(done) :]

            spec_rows[done] = _distribution(draw)
        return spec_rows[done]

    def extended(distribution: Distribution) -> Distribution:
        out: Distribution = {}
        for tokens, w in distribution.items():
            rest = (
                {tokens[:length]: w}
                if len(tokens) >= length
                else extended({(*tokens, *t): w * x for t, x in after(tokens).items()})
            )
            for t, x in rest.items():
                out[t] = out.get(t, Fraction(0)) + x
        return out

    ours = _distribution(lambda world: _executed(_machine(setting, setting.function.name, models, setting.params, world, 1)))
    return extended(ours), extended({(): Fraction(1)})


def difference(setting: Setting, point: Point, length: int) -> tuple[Distribution, Distribution] | None:
    """The two distributions in the tables of a point, if the exact checker finds them to differ."""
    try:
        ours, theirs = distributions(setting, tables(setting, point), length)
    except (TooMany, Unlikely, DecError):
        return None
    return (ours, theirs) if ours != theirs else None


def tokens_differ(setting: Setting, point: Point) -> tuple[Distribution, Distribution] | None:
    """What the two commit with the same noise, if there is noise with which the exact checker finds it to differ."""
    models = tables(setting, point)
    f, theirs, params = setting.spec_of(models)
    world = World(coupled=True)

    def both(choices: Choices) -> tuple[Tokens, Tokens]:
        world.restart(choices)
        ours = _executed(_machine(setting, setting.function.name, models, setting.params, world, 1))
        m = _machine(setting, f.name, theirs, params, world, None)
        m.until = lambda m: m.committed() >= len(ours)
        return ours, _executed(m)

    try:
        for _, (a, b) in runs(both, MOST):
            if a != b:
                return {a: Fraction(1)}, {b: Fraction(1)}
    except (TooMany, Unlikely, DecError):
        pass
    return None


def _machine(setting: Setting, name: str, models: Any, params: Any, world: World, steps: int | None) -> ExactMachine:
    return ExactMachine(setting.module, name, models, params, request()).on(world, steps)


def _executed(m: ExactMachine) -> Tokens:
    try:
        m.run()
    except (Enough, Stop):
        pass
    return m.committed_tokens()


def _distribution(run: Callable[[World], Tokens]) -> Distribution:
    world = World(coupled=False)
    out: Distribution = {}
    for choices, tokens in runs(lambda choices: (world.restart(choices), run(world))[1], MOST):  # type: ignore[func-returns-value]
        out[tokens] = out.get(tokens, Fraction(0)) + choices.weight()
    return out


__all__ = ["PROMPT", "difference", "distributions", "tables", "tokens_differ"]
