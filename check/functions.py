"""What a program is given from outside and a check does not know: functions of the caller, and the other sequences of a batch.

A function is any function of its declared type: same arguments, same answer. In a proof an adversary answers, as it likes,
each time other arguments are asked for; a claim that survives holds for every function. Where the adversary wins, the claim
may still hold: its answers may need to know more than the arguments. So functions drawn at random are tried as well, and only
one of them refutes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from decgraph.backends.exact.world import AnyFunction
from decgraph.ir.machine import Datum
from decgraph.ir.types import Type
from decgraph.runtime.arguments import Externs
from decgraph.runtime.models.reading import AnyReading


def answers(t: Type, vocab: int, near: tuple[Fraction, ...] = (), whole: tuple[int, ...] = ()) -> list[Datum]:
    """The results that a function of a type is tried with: both of a bool, numbers next to those that the program names. whole:
    the whole numbers of these."""
    beside = [n + d for n in near for d in (Fraction(-1, 100), Fraction(0), Fraction(1, 100))]
    if t.elem == "bool":
        return [False, True]
    if t.elem == "prob":
        return [Fraction(0), Fraction(1, 2), Fraction(1), *(x for x in beside if 0 < x < 1)]
    if t.elem == "real":
        return [Fraction(0), Fraction(1, 2), Fraction(1), Fraction(-2), *beside]
    if t.elem == "int":
        return [0, 1, 2, *sorted({n + d for n in {*map(int, filter(_is_whole, near)), *whole} for d in (-1, 0, 1)} - {0, 1, 2})]
    if t.elem == "token":
        return list(range(vocab))
    if t.elem == "text":
        return ["", "a", "b"]
    return []


def _is_whole(x: Fraction) -> bool:
    return x.denominator == 1


@dataclass
class DrawnFunction:
    """A function drawn from a seed; `asked` has its results by arguments, to be shown."""

    name: str
    answers: list[Datum]
    seed: int
    asked: dict[str, Datum] = field(default_factory=dict)

    def __call__(self, *args: object) -> Datum:
        key = ", ".join(_plain(a) for a in args)
        if key not in self.asked:
            self.asked[key] = random.Random(f"{self.seed} {self.name} {key}").choice(self.answers)
        return self.asked[key]


def _plain(a: object) -> str:
    return repr(a) if isinstance(a, str) else str(a.tolist() if isinstance(a, np.ndarray) else a)


def functions_for(
    declared: Mapping[str, tuple[tuple[Type, ...], Type]],
    externs: Externs,
    vocab: int,
    *,
    near: tuple[Fraction, ...] = (),
    whole: tuple[int, ...] = (),
    seed: int | None = None,
) -> dict[str, Callable[..., object]]:
    """A function for every one that is declared and not among `externs`: an adversary's, or one drawn from a seed."""
    out: dict[str, Callable[..., object]] = dict(externs)
    for name, (_, returns) in declared.items():
        if name in out:
            continue
        options = answers(returns, vocab, near, whole)
        if len(returns.dims) == 1 and returns.elem == "token" and returns.dims[0].kind == "k":
            options = [[], [0], [vocab - 1], list(range(vocab))]  # no token, some, all of them
        elif returns.dims:
            options = []
        if options:
            if seed is None and len(options) > 4:  # an adversary's choices multiply: the ends, and two of the others
                options = [options[0], options[-1], *options[1:3]]
            out[name] = AnyFunction(name, options) if seed is None else DrawnFunction(name, options, seed)
    return out


def any_head(head: AnyReading, near: tuple[Fraction, ...], whole: tuple[int, ...] = (), *, chosen: bool) -> AnyReading:
    """A head of this one's type whose values are tried as a function's results are: an adversary's (`chosen`), or drawn."""
    options = answers(Type(head.gives), head.vocab.size, near, whole)
    if chosen and len(options) > 4:
        options = [options[0], options[-1], *options[1:3]]
    return AnyReading(head.target, head.gives, head.seed, answers=options, chosen=chosen, name=head.name)
