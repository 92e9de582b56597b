"""Whether an algorithm is proved to leave the target's distribution as it is, for those who must not be given any other.

In reinforcement learning the ratio of a rollout's probabilities under two policies assumes that the rollout was drawn from one
of them. A lossy decoder, or one whose residual is wrong, biases that ratio without a sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from decgraph.check.report import Report
from decgraph.check.verdicts import SUFFICES, Least, Premise
from decgraph.errors import DecError
from decgraph.ir.settings import holds_for
from decgraph.ir.values import Claim, Function
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.request import Request


class Checkable(Protocol):
    """What is checked: an `Algorithm` of the facade, which stands above this room."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Function: ...
    def ir(self) -> str: ...
    def check(self, *, seconds: float | None = ...) -> Report: ...


SECONDS = 120.0
"""How long a check may take."""
_reports: dict[tuple[str, str], Report] = {}


def keeps(claim: Claim, function: Function, params: Mapping[str, ParamValue]) -> bool:
    """Whether a claim is of the target's distribution for every request, with these parameters (the others at their defaults):
    `in tokens` is, `when greedy` is not, `when delta == 0` is where delta is 0."""
    known = claim.kind == "refines" and claim.spec == "autoregressive" and claim.mode in ("tokens", "distribution")
    return known and not claim.for_greedy and holds_for(claim, function, params)


def unmet(premises: Sequence[Premise], requests: Sequence[Request] | None) -> list[str]:
    """The premises of a derivation that some request does not meet, on models of which nothing is known; None: any request."""
    shaped = requests is None or any(r.repetition_penalty != 1 or r.processors for r in requests)
    return [premise.says for premise in premises if shaped or premise.code != "log-probabilities"]


def require(
    algorithm: Checkable,
    least: Least = "proved",
    params: Mapping[str, ParamValue] | None = None,
    requests: Sequence[Request] | None = None,
    *,
    seconds: float = SECONDS,
) -> None:
    """Raises DecError unless the algorithm claims to refine `autoregressive` in tokens or in distribution, and the verdict on
    such a claim is `least` or better. A claim with a condition counts where `params` (the others at their defaults) satisfy it,
    one that is proved under a premise where `requests` meet it; without `requests` it is for all that there may be.

    The check runs once for every program in a process, for at most `seconds`; where there is a derivation that is a second.
    """
    if least not in SUFFICES:
        raise DecError(f"require is {least!r}", hint='"proved", "holds", or leave it out')
    name = algorithm.name
    claims = [claim.text for claim in algorithm.function.claims]
    places = [n for n, c in enumerate(algorithm.function.claims) if keeps(c, algorithm.function, params or {})]
    if name != "autoregressive" and not places:
        told = f"it claims {'; '.join(claims)}" if claims else "it claims nothing"
        raise DecError(
            f"{name} is not known to keep the target's distribution: {told}",
            hint="one that `refines autoregressive(target) in tokens` or `in distribution`, with parameters that satisfy its "
            "`when`; decgraph list shows the claims",
        )
    if name == "autoregressive" and not claims:
        return  # what the others refine
    key = (name, algorithm.ir())
    if key not in _reports:
        _reports[key] = algorithm.check(seconds=seconds)
    report = _reports[key]
    found = [report.verdict_of(place) for place in places]
    known = [report.proofs[place] for place, verdict in zip(places, found) if verdict in SUFFICES[least]]
    left = [unmet(proof.premises, requests) if least == "proved" else [] for proof in known]
    if report.verdict != "refuted" and not all(left):
        return
    if report.verdict != "refuted" and left:
        raise DecError(
            f"{name} is proved to keep the target's distribution only under a premise: {'; '.join(left[0])}",
            hint="leave the repetition penalty and the processors out, or take a program that shapes `p.logits`",
        )
    verdict = "refuted" if report.verdict == "refuted" else "holds" if "holds" in found else "undecided"
    why = [report.proofs[places[found.index("holds")]].stopped()] if verdict == "holds" else report.reasons[:1]
    others = ', or require="holds" if no counterexample is enough' if verdict == "holds" else ""
    raise DecError(
        f"{name} claims {'; '.join(claims)}, and {'it' if verdict == 'holds' else 'is'} {verdict}"
        f"{f' {report.reach()}' if verdict == 'holds' and report.verdict == 'holds' else ''}{''.join(f': {w}' for w in why)}",
        hint=f"decgraph check {name} shows what was found{others}",
    )
