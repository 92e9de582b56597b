"""Whether an algorithm is proved to leave the target's distribution as it is, for those who must not be given any other.

In reinforcement learning the ratio of a rollout's probabilities under two policies assumes that the rollout was drawn from one
of them. A lossy decoder, or one whose residual is wrong, biases that ratio without a sign.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from decgraph.check.report import Report
from decgraph.errors import DecError
from decgraph.ir.values import Claim

if TYPE_CHECKING:
    from decgraph.api import Algorithm

SECONDS = 120.0
"""How long a check may take."""
_reports: dict[tuple[str, str], Report] = {}


def unconditional(claim: Claim) -> bool:
    """Whether a claim is of the target's distribution for every request: `in tokens` is, `when greedy` is not."""
    return claim.kind == "refines" and claim.spec == "autoregressive" and claim.mode in ("tokens", "distribution")


def require_proved(algorithm: Algorithm, *, seconds: float = SECONDS) -> None:
    """Raises DecError unless the algorithm claims to refine `autoregressive` in tokens or in distribution, and is proved to.

    The check runs once for every program in a process (without mutants: they test the checker, not the program), for at most
    `seconds`.
    """
    name = algorithm.name
    claims = [claim.text for claim in algorithm.function.claims]
    if name != "autoregressive" and not any(map(unconditional, algorithm.function.claims)):
        told = f"it claims {'; '.join(claims)}" if claims else "it claims nothing"
        raise DecError(
            f"{name} is not known to keep the target's distribution: {told}",
            hint="one that `refines autoregressive(target) in tokens` or `in distribution`; decgraph list shows the claims",
        )
    if name == "autoregressive" and not claims:
        return  # what the others refine
    key = (name, algorithm.ir())
    if key not in _reports:
        _reports[key] = algorithm.check(mutants=False, seconds=seconds)
    report = _reports[key]
    if report.verdict != "proved":
        why = f": {report.reasons[0]}" if getattr(report, "reasons", None) else ""
        raise DecError(
            f"{name} claims {'; '.join(claims)}, and is {report.verdict}{why}",
            hint=f"decgraph check {name} shows what was found",
        )
