"""Finding a derivation: the invariants of loops, by weakening what holds before them until their bodies keep it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from decgraph.check.proof.endings import errors
from decgraph.check.proof.environment import Environment, Judged
from decgraph.check.proof.invariants import DerivationStopped, Invariant, NotKept, Step
from decgraph.check.proof.judgments import judge
from decgraph.check.proof.kernel import Kernel
from decgraph.ir.facts import Certainty
from decgraph.ir.settings import Condition
from decgraph.ir.values import Constant, Function, Module, Op

MOST_ROUNDS = 200


@dataclass(frozen=True)
class Derivation:
    """A proof that every step of a function commits tokens of `model` in a mode: what the kernel checks. when: the condition
    under which it holds, beside `settings`. scheduled, same: it commits a canvas as an algorithm does, `model` (schedules.py):
    in distribution, or in tokens. spends: no more than `model` says (spending.py)."""

    function: str
    model: str
    mode: Certainty | Literal["scheduled", "same", "spends"]
    greedy: bool
    settings: tuple[tuple[str, Constant], ...]
    invariants: Mapping[Op | None, Invariant]
    steps: tuple[Step, ...]
    when: str = ""
    condition: Condition = ()
    others: tuple[Derivation, ...] = ()
    """Of a condition with `or`: derivations for its other cases."""
    errors: tuple[tuple[int, str], ...] = ()
    """Lines whose errors may end a run, and what may fail there; none: no run ends in an error."""
    premises: tuple[str, ...] = ()
    """What it takes for granted of models and requests: codes of check/verdicts.py PREMISES."""


def judged(kernel: Environment, op: Op) -> Judged:
    """The judgment on a rule; on an algorithm that is run: `own` or `inside`, if all that it commits is."""
    if op.opcode != "run":
        return judge(kernel, op)
    callee = kernel.module.functions[op.attrs["callee"]]
    (argument,) = op.attrs["args"]
    if any(inner.opcode == "run" for inner in callee.body.walk()):
        return "", f"`{callee.name}` runs another algorithm"
    mode: Certainty = "inside" if kernel.mode == "inside" else "own"
    try:
        kernel.inside[op] = derive(kernel.module, callee, argument, mode, normalised=kernel.normalised).errors
    except DerivationStopped as stopped:
        return "", stopped.why
    return mode, ""


def derive(
    module: Module,
    function: Function,
    model: str,
    mode: Certainty,
    *,
    greedy: bool = False,
    settings: Mapping[str, Constant] | None = None,
    condition: Condition = (),
    normalised: Callable[[], bool] = lambda: False,
) -> Derivation:
    """A derivation, or Stopped with the op at which nothing follows. normalised: asked where it would follow if the scores of
    models were the logarithms of their probabilities; whether they may be taken for that."""
    invariants: dict[Op | None, Invariant] = {}
    given = dict(settings or {})
    for _ in range(MOST_ROUNDS):
        try:
            kernel = Kernel(module, function, model, mode, judged, invariants, greedy, given, condition, normalised)
            steps = kernel.run()
        except NotKept as found:
            invariants[found.op] = found.weaker
            continue
        failing = tuple(errors(kernel)) if mode != "inside" else ()
        return Derivation(
            function.name,
            model,
            mode,
            greedy,
            tuple(sorted(given.items())),
            invariants,
            tuple(steps),
            condition=condition,
            errors=failing,
        )
    raise DerivationStopped(None, f"no invariant of a loop was found in {MOST_ROUNDS} rounds")
