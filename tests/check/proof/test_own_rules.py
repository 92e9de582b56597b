"""Rules of verification that an author writes: what is derived of them is what NumPy says of their numbers.

Each rule has its text, and the same in NumPy: the chance with which a token is accepted, and the row that is drawn from
afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import decgraph
from decgraph.check.proof.claims import Open, prove

Row = np.ndarray
PROGRAM = """
algorithm a(target: causal, drafter: causal, gamma: int in 1..16 = 4, c: prob = 0.8, k: int in 1..4 = 2):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            repeat gamma:
                DRAFT
        verify t by r(c) against target(t)
        commit t.accepted
"""
ONE_EACH, SIBLINGS = "x ~ drafter(t.leaves)\n                grow x", "grow sample(drafter(t.leaves), k)"


@dataclass(frozen=True)
class Rule:
    """when: the condition of a branch around the coin, or none. coin: its chance. rest: the row afterwards."""

    coin: str
    rest: str
    chance: Callable[[Row, Row, float], Row]
    left: Callable[[Row, Row, float], Row]
    when: str = ""
    right: bool = True

    def text(self, draft: str) -> str:
        inner = [f"if bernoulli({self.coin}):", "    accept x"]
        lines = [f"if {self.when}:", *(f"    {line}" for line in inner)] if self.when else inner
        body = "".join(f"        {line}\n" for line in (*lines, f"p = normalize({self.rest})"))
        head = "rule r(p: dist, children: draws, c: prob = 0.8):\n    for x in children:\n"
        return head + body + "    y ~ p\n    emit y\n" + PROGRAM.replace("DRAFT", draft)


def least(p: Row, q: Row) -> Row:
    return np.minimum(p, q)


def some(p: Row, q: Row) -> Row:
    return least(1, p / q)


SMALL = "min(1, p[x] / x.law[x])"
RULES = {
    "rejection": Rule(SMALL, "relu(p - x.law)", lambda p, q, c: some(p, q), lambda p, q, c: np.maximum(p - q, 0)),
    "a share": Rule(
        f"c * {SMALL}", "p - c * min(p, x.law)", lambda p, q, c: c * some(p, q), lambda p, q, c: p - c * least(p, q)
    ),
    "half": Rule(
        f"0.5 * {SMALL}", "p - 0.5 * min(p, x.law)", lambda p, q, c: some(p, q) / 2, lambda p, q, c: p - least(p, q) / 2
    ),
    "of a share": Rule(
        "min(1, c * p[x] / x.law[x])",
        "p - min(c * p, x.law)",
        lambda p, q, c: some(c * p, q),
        lambda p, q, c: p - least(c * p, q),
    ),
    "above a threshold": Rule(
        SMALL,
        "p - where(p > c, min(p, x.law), 0)",
        lambda p, q, c: (p > c) * some(p, q),
        lambda p, q, c: p - (p > c) * least(p, q),
        when="p[x] > c",
    ),
    "a share below a threshold": Rule(
        f"c * {SMALL}",
        "p - where(p <= 0.3, c * min(p, x.law), 0)",
        lambda p, q, c: (p <= 0.3) * c * some(p, q),
        lambda p, q, c: p - (p <= 0.3) * c * least(p, q),
        when="p[x] <= 0.3",
    ),
    "two coins": Rule(
        SMALL, "p - c * min(p, x.law)", lambda p, q, c: c * some(p, q), lambda p, q, c: p - c * least(p, q), when="bernoulli(c)"
    ),
    "a mixture": Rule(
        f"c * {SMALL} + (1 - c) * min(1, 0.5 * p[x] / x.law[x])",
        "p - c * min(p, x.law) - (1 - c) * min(0.5 * p, x.law)",
        lambda p, q, c: c * some(p, q) + (1 - c) * some(p / 2, q),
        lambda p, q, c: p - c * least(p, q) - (1 - c) * least(p / 2, q),
    ),
    "a share, the residual of all": Rule(
        f"c * {SMALL}", "relu(p - x.law)", lambda p, q, c: c * some(p, q), lambda p, q, c: np.maximum(p - q, 0), right=False
    ),
    "a share, its square in the residual": Rule(
        f"c * {SMALL}",
        "p - c * c * min(p, x.law)",
        lambda p, q, c: c * some(p, q),
        lambda p, q, c: p - c * c * least(p, q),
        right=False,
    ),
    "of a share, a share of all": Rule(
        "min(1, c * p[x] / x.law[x])",
        "p - c * min(p, x.law)",
        lambda p, q, c: some(c * p, q),
        lambda p, q, c: p - c * least(p, q),
        right=False,
    ),
    "another threshold": Rule(
        SMALL,
        "p - where(p > c * c, min(p, x.law), 0)",
        lambda p, q, c: (p > c) * some(p, q),
        lambda p, q, c: p - (p > c * c) * least(p, q),
        when="p[x] > c",
        right=False,
    ),
    "a threshold of the draft": Rule(
        SMALL,
        "p - where(p > c, min(p, x.law), 0)",
        lambda p, q, c: (q > c) * some(p, q),
        lambda p, q, c: p - (p > c) * least(p, q),
        when="x.law[x] > c",
        right=False,
    ),
    "one of two coins in the residual": Rule(
        SMALL,
        "p - min(p, x.law)",
        lambda p, q, c: c * some(p, q),
        lambda p, q, c: p - least(p, q),
        when="bernoulli(c)",
        right=False,
    ),
    "a mixture of one": Rule(
        f"c * {SMALL} + (1 - c) * min(1, 0.5 * p[x] / x.law[x])",
        "p - c * min(p, x.law)",
        lambda p, q, c: c * some(p, q) + (1 - c) * some(p / 2, q),
        lambda p, q, c: p - c * least(p, q),
        right=False,
    ),
    "more than all": Rule(
        f"(1 + c) * {SMALL}",
        "p - (1 + c) * min(p, x.law)",
        lambda p, q, c: least(1, (1 + c) * some(p, q)),
        lambda p, q, c: p - (1 + c) * least(p, q),
        right=False,
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_what_is_derived_is_what_the_numbers_say(name: str) -> None:
    rule, draws = RULES[name], np.random.default_rng(0)
    gaps = []
    for _ in range(200):
        p, q = draws.dirichlet([0.6] * 4, 2)
        c = draws.uniform()
        taken, rest = q * rule.chance(p, q, c), np.maximum(rule.left(p, q, c), 0)
        law = taken + (1 - taken.sum()) * rest / max(rest.sum(), 1e-300)
        gaps.append(np.abs(law - p).max())
    assert bool(max(gaps) < 1e-12) == rule.right
    for draft in (ONE_EACH, SIBLINGS):
        module = decgraph.parse(rule.text(draft)).module
        found = prove(module, module.entry.claims[0])
        assert isinstance(found, Open) is not rule.right, found
