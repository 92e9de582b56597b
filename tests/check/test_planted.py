"""A check that finds nothing is evidence only if it finds bugs where there are some: bugs planted in the rules of stdlib, and
in the machine below a program, are refuted in the small programs named here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lib import broken_machines as broken

import decgraph
from decgraph import stdlib
from decgraph.backends.exact.run import ExactMachine
from decgraph.check import check_algorithm, check_module
from decgraph.check.algorithm import find

RULES = (Path(decgraph.__file__).parent / "stdlib" / "rules.dec").read_text(encoding="utf-8")
PROGRAMS = Path(__file__).parent / "programs"
PLANTED = {
    "every draft is accepted": ("rejection", "speculative", "if bernoulli(p[x] / x.law[x]):", "if yes:"),
    "drafts are accepted where p >= q": ("rejection", "speculative", "bernoulli(p[x] / x.law[x])", "p[x] >= x.law[x]"),
    "nothing is left out after a rejection": ("rejection", "speculative", "        p = normalize(relu(p - x.law))\n", ""),
    "the likeliest token is emitted": ("rejection", "speculative", "y ~ p", "y = argmax(p)"),
    "siblings are tested against one p": (
        "rejection",
        "sequoia",
        "    for x in children:\n",
        "    first = p\n    for x in children:\n        p = first\n",
    ),
    "noise of its own": ("match", "eagle2", "y ~ p as output", "y ~ p"),
    "drafts are not compared": ("match", "eagle2", "if x == y:", "if yes:"),
    "a block's worth is not capped": ("block_rejection", "block_verification", "a = min(1, a * ", "a = (a * "),
    "a block's worth is its last draft's": ("block_rejection", "block_verification", "min(1, a * p[i]", "min(1, p[i]"),
    "a block's rest forgets its worth": ("block_rejection", "block_verification", "relu(a * p[i] - q)", "relu(p[i] - q)"),
    "a leaf is always accepted": ("traverse", "traversal", "n == root or bernoulli(worth[n])", "yes"),
    "the nodes above need not be typical": ("typical_longest", "medusa", "live = down(t, ok, all)", "live = ok"),
    "a lower threshold": ("typical_longest", "medusa", "[t.token] > min(", "[t.token] > 0.25 * min("),
    "any edit is followed": ("agreed", "freedave", "if x == then:", "if yes:"),
}


def planted(what: str) -> str:
    """The program, with the rule that it uses and the bug in it."""
    rule, host, old, new = PLANTED[what]
    text = next(part for part in re.split(r"\n(?=rule )", RULES) if part.startswith(f"rule {rule}("))
    program = stdlib.text(host)
    assert text.count(old) == 1 and f"by {rule}" in program
    return f"{text.replace(old, new).replace(f'rule {rule}(', 'rule planted(')}\n\n" + program.replace(
        f"by {rule}", "by planted"
    )


@pytest.mark.quick(
    "drafts are accepted where p >= q", "drafts are not compared", "any edit is followed", "the nodes above need not be typical"
)
@pytest.mark.parametrize("what", PLANTED)
def test_bugs_of_rules_are_refuted(what: str) -> None:
    assert check_algorithm(planted(what), seconds=60).verdict == "refuted"


MACHINES = {
    broken.Unconditional: "sequoia",
    broken.PointsAsDrawn: "points",
    broken.OncePerStep: "speculative",
    broken.OneForIterations: "speculative",
    broken.OneForSites: "speculative",
    broken.OutputShifted: "eagle2",
    broken.Stale: "speculative",
    broken.Scattered: "sequoia",
    broken.NoShaping: "speculative",
    broken.OneTokenLate: "cfg",
}


@pytest.mark.quick("PointsAsDrawn", "OutputShifted", "OneTokenLate", "Stale")
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.__name__)
def test_bugs_of_machines_are_refuted(machine: type[ExactMachine]) -> None:
    path = PROGRAMS / f"{MACHINES[machine]}.dec"
    module, _ = find(path if path.exists() else MACHINES[machine])
    assert check_module(module, engine=machine, models=20, seconds=60).verdict == "refuted"


class Same(ExactMachine):
    """A bug that is none."""


@pytest.mark.slow
def test_no_bug_is_never_found() -> None:
    found = check_module(find("speculative")[0], engine=Same, params={"gamma": 1}, models=4)
    assert found.verdict == "holds", found.reasons
