"""One step of a program whose draws and coins are those of a recording: on the reference and on torch, in floats, and on the
exact interpreter, in fractions. It gives what the recordings of rules have: the tokens, the odds of every coin, and the
distribution that the extra token comes from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction as F
from typing import Any
from unittest.mock import patch

import numpy as np
from fidelity.entry import FOLDER
from fidelity.watched import Path, run

from decgraph import stdlib
from decgraph.backends.exact.choices import Choices
from decgraph.backends.exact.world import World
from decgraph.backends.torch import noise as torch_noise
from decgraph.backends.torch.machine import TorchMachine as Torch
from decgraph.check.distributions import CheckedProgram, execute
from decgraph.dsl.lower import load_text
from decgraph.ir.data.dist import Draw
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

BACKENDS = ("torch", "reference", "exact")
START = (0,)
Coin = Callable[[Any], bool]
Law = dict[int, Any]
Table = Mapping[Path, Sequence[F]]


@dataclass
class Step:
    """The first step of a run: its tokens, the odds of its coins in the order of their tosses, and the distribution of the
    last of its tokens by token, without those that it cannot be."""

    tokens: Path
    odds: list[Any]
    last: Law


@dataclass
class Script:
    """What a recording drew. drafted: for a line of the program the tokens drawn there, in turn; lines run in their order.
    coin: what a coin of these odds says; it is asked for every coin, certain ones too. target: the first token that is no
    draft, where the recording has it."""

    drafted: Mapping[int, Sequence[int]]
    coin: Coin
    target: int | None = None
    odds: list[Any] = field(default_factory=list)
    laws: list[Law] = field(default_factory=list)
    last: Law | None = None

    def __post_init__(self) -> None:
        self.rest = [list(self.drafted[line]) for line in sorted(self.drafted)]

    def token(self, q: Any) -> int:
        """The token of the next draw, from a law by token: a draft, or what comes after the drafts."""
        if self.rest:
            token = self.rest[0].pop(0)
            if not self.rest[0]:
                self.rest.pop(0)
            assert q[token] > 0
            self.laws.append({v: w for v, w in enumerate(q) if w})
            return token
        return self.after({v: w for v, w in enumerate(q) if w})

    def after(self, law: Law) -> int:
        """The token of a draw that is no draft."""
        if self.last is None:
            self.last = law
            if self.target is not None:
                return self.target
        return max(law, key=lambda v: float(law[v]))

    def toss(self, odds: Any) -> bool:
        """A coin of the first step; what later steps do is not looked at."""
        odds = min(max(odds, 0), 1)
        if self.last is not None:
            return bool(2 * odds > 1)
        self.odds.append(odds)
        return self.coin(odds)


def below(uniforms: Sequence[str]) -> Coin:
    """Coins that say yes where the next uniform is at most their odds."""
    rest = iter(uniforms)
    return lambda odds: F(next(rest)) <= odds


def certain(odds: Any) -> bool:
    """A coin whose odds are 0 or 1."""
    return {0: False, 1: True}[odds]


def lines(text: str, what: str) -> list[int]:
    """The lines of a text that say this, from 1 on."""
    return [n for n, line in enumerate(text.split("\n"), 1) if what in line]


def step(text: str, p: Table, q: Table, size: int, script: Script, backend: str, **params: Any) -> Step:
    """The first step of a program; p, q: the target's rows and the drafter's, by the tokens before."""
    models = {"target": TableModel(size, 1, table=p, name="target"), "drafter": TableModel(size, 2, table=q, name="drafter")}
    if backend == "exact":
        return exactly(text, models, script, params)
    models = {name: m for name, m in models.items() if f"{name}: causal" in text}
    if backend == "reference":
        done = run(
            "",
            START,
            models,
            backend,
            max_tokens=30,
            temperature=1,
            text=text,
            change=lambda kind: on_reference(kind, script),
            **params,
        )
    else:
        with torch_draws(script):
            done = run(
                "",
                START,
                models,
                backend,
                max_tokens=30,
                temperature=1,
                text=text,
                change=lambda kind: on_torch(kind, script),
                **params,
            )
    tokens = done.committed[0]
    assert not script.rest, "not all drafts were drawn"
    return Step(tokens, script.odds, script.last or {tokens[-1]: 1.0})


def laws(
    prompt: Sequence[int],
    tokens: Sequence[int],
    model: Any,
    backend: str,
    *,
    text: str = "",
    params: Mapping[str, Any] | None = None,
    externs: Mapping[str, Any] | None = None,
    **settings: Any,
) -> list[Law]:
    """The distributions that a request with these settings draws tokens from, one after the other, where they come out as
    given; by token, without those that it forbids. text: a program of one draw a step, by default one token at a time."""
    text = text or stdlib.text("autoregressive")
    script = Script({lines(text, "x ~ ")[0]: tokens}, certain)
    shape: dict[str, Any] = {"temperature": settings.pop("temperature", 1), "settings": settings, "externs": externs}
    shape |= params or {}
    if backend == "reference":
        run(
            "",
            prompt,
            {"target": model},
            backend,
            text=text,
            max_tokens=len(tokens),
            **shape,
            change=lambda kind: on_reference(kind, script),
        )
    else:
        with torch_draws(script):
            run("", prompt, {"target": model}, backend, text=text, max_tokens=len(tokens), **shape)
    assert len(script.laws) == len(tokens)
    return script.laws


@contextmanager
def torch_draws(script: Script) -> Iterator[None]:
    """Torch's draws from a script."""
    with (
        patch.object(torch_noise, "races", lambda q, keys: np.array([script.token(row) for row in q])),
        patch.object(torch_noise, "exponentials", lambda keys, n: np.array([arrivals(script, n) for _ in keys])),
    ):
        yield


def on_reference(kind: Any, script: Script) -> Any:
    """The reference's machine with draws and coins from a script."""

    class Forced(kind):  # type: ignore[misc]
        def draw(self, op: Any, row: Any, face: str, *place: Any) -> Draw:
            return Draw(script.token(row.face(face)), row, face)

        def draw_many(self, op: Any, row: Any, face: str, k: int, replace: bool, key: Any, lane: int) -> list[Draw]:
            tokens = siblings(script, row.face(face), k)
            if not replace:
                found: list[Draw] = self.group(row, face, tokens, lane)
                return found
            return [Draw(v, row, face, group=lane, rank=j) for j, v in enumerate(tokens)]

        def flip(self, op: Any, p: Any, *place: Any) -> bool:
            return script.toss(p)

    return Forced


def siblings(script: Script, q: Any, k: int) -> list[int]:
    """The tokens of k draws from one law; they are drafts, or belong to a later step and do not matter."""
    return [script.token(q) for _ in range(k)] if script.last is None else [int(v) for v in np.argsort(-q)[:k] if q[v] > 0]


def on_torch(kind: type[Torch], script: Script) -> Any:
    """Torch's machine with coins from a script; its draws are races, which are patched."""

    class Forced(kind):  # type: ignore[misc, valid-type]
        def flip(self, p: float, *place: Any) -> bool:
            return script.toss(p)

    return Forced


def arrivals(script: Script, n: int) -> np.ndarray:
    """Arrival times for draws without replacement that put the drafts first, in their order."""
    times = np.ones(n)
    for rank, token in enumerate(script.rest.pop(0) if script.rest else ()):
        times[token] = 1e-30 * 1e3**rank
    return times


class Replay(Choices):
    """The choices of the exact interpreter from a script, by the labels of its draws."""

    def __init__(self, script: Script) -> None:
        super().__init__(())
        self.script = script

    def choose(self, weights: list[F], values: list[Any], label: str, kind: str = "chance") -> Any:
        if values == [True, False]:
            return self.script.toss(weights[0])
        found = re.search(r"line (\d+) \(iteration 1(?:, inner (\d+))?", label)
        drawn = self.script.drafted.get(int(found[1]), ()) if found else ()
        if drawn and found:
            number = re.search(r"number (\d+)$", label)
            token = drawn[int(number[1]) if number else int(found[2] or 1) - 1]
            assert weights[values.index(token)] > 0
            return token
        return self.script.after({v: w for v, w in zip(values, weights, strict=True) if w})


def exactly(text: str, models: Mapping[str, Any], script: Script, params: Mapping[str, Any]) -> Step:
    """The step on the exact interpreter."""
    module = load_text(text, "replayed.dec")
    named = {v.value.name: models[v.value.name] for v in module.functions[module.main].params if v.value.name in models}
    world = World(coupled=False)
    world.restart(Replay(script))
    machine = execute(CheckedProgram(module, module.main, named, params).machine(Request(START, max_tokens=30), world, 1))
    tokens = tuple(machine.committed_tokens())
    return Step(tokens, script.odds, script.last or {tokens[-1]: F(1)})


def near(recorded: Any, ours: Any, within: float = 1e-9) -> Any:
    """Ours; where they are floats that agree with the recorded numbers, those. A token's share of less than 1e-12 is none."""
    if recorded is None or ours is None:
        return ours
    if isinstance(recorded, dict):
        return {
            v: near(recorded.get(v), w, within) for v, w in ours.items() if v in recorded or isinstance(w, F) or abs(w) > 1e-12
        }
    if isinstance(recorded, list):
        return [near(a, b, within) for a, b in zip(recorded, ours, strict=False)] + list(ours[len(recorded) :])
    return recorded if isinstance(ours, float) and abs(float(recorded) - ours) < within else ours


def rule_text(name: str) -> str:
    """A program of stdlib or of the museum."""
    path = FOLDER.parent / "check" / "museum" / f"{name}.dec"
    return path.read_text(encoding="utf-8") if path.exists() else stdlib.text(name)
