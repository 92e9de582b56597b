"""The derivation of each claim as plain data, and the words of the verdicts.

`proved` is said of a claim with a derivation (check/proof), `holds` of one that no world refuted and that has none.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from decgraph.check.proof.claims import prove
from decgraph.check.proof.derive import Derivation
from decgraph.check.proof.invariants import Step
from decgraph.ir.values import Claim, Constant, Module

Least = Literal["proved", "holds"]
"""What may be required of a claim: a derivation, or no counterexample."""
SUFFICES: Mapping[str, tuple[str, ...]] = {"proved": ("proved",), "holds": ("proved", "holds")}
FOR_ALL = "for every vocabulary, model, context and request"


@dataclass(frozen=True)
class Premise:
    """What a derivation takes for granted of the models and the requests: a stable code, and the words beside the verdict."""

    code: str
    says: str


PREMISES = {
    # `warp` shapes logarithms of probabilities in the place of scores.
    "log-probabilities": "with a repetition penalty or processors: for models whose scores are log-probabilities",
    # Of claims about other specifications than `autoregressive`.
    "no-errors": "errors: not derived",
}


@dataclass(frozen=True)
class Proof:
    """The derivation of a claim, or the line at which there was none (0: nowhere in particular), and why.

    model, mode, greedy, settings, when: what it shows of which model, and where (check/proof/derive.py)."""

    claim: str
    steps: tuple[Step, ...] = ()
    model: str = ""
    mode: str = ""
    greedy: bool = False
    settings: tuple[tuple[str, Constant], ...] = ()
    when: str = ""
    line: int = 0
    why: str = ""
    premises: tuple[Premise, ...] = ()

    @property
    def derived(self) -> bool:
        """Whether there is a derivation."""
        return not self.why

    def stopped(self) -> str:
        """Where it stopped and why, in words."""
        return f"no derivation: {f'line {self.line}: ' if self.line else ''}{self.why}"

    def to_json(self, verdict: str) -> dict[str, object]:
        """Plain data for `--json`."""
        told: dict[str, object] = {"claim": self.claim, "verdict": verdict}
        if self.derived:
            steps = [{"line": step.line, "text": step.text, "rule": step.rule} for step in self.steps]
            return {**told, "proof": steps, "premises": [asdict(premise) for premise in self.premises]}
        return {**told, "stopped": {"line": self.line, "why": self.why}}


def proof_of(module: Module, claim: Claim, faults: list[str]) -> Proof:
    """A claim's derivation as data. An error of the prover's own is a fault of decgraph, and no derivation."""
    try:
        found = prove(module, claim)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        faults.append(f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})")
        return Proof(claim.text, why="the search for one failed")
    if isinstance(found, Derivation):
        steps = tuple(dict.fromkeys(step for case in (found, *found.others) for step in case.steps))
        premises = tuple(Premise(code, PREMISES[code]) for code in found.premises)
        shown = (found.model, found.mode, found.greedy, found.settings, found.when)
        return Proof(claim.text, steps, *shown, premises=premises)
    return Proof(claim.text, line=found.line, why=found.why)


__all__ = ["FOR_ALL", "Least", "PREMISES", "Premise", "Proof", "SUFFICES", "proof_of"]
