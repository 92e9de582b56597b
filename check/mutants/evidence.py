"""Bugs of what a verification reads: the wrong row, a row that is not there, a row that was written over."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile
from decgraph.check.walks import Walker
from decgraph.ir.data.dist import Dist, box0, value_row
from decgraph.ir.data.tree import Tree, edge_token


class AtParent(Walker):
    """A draft is judged by what the target says before its parent, one position early."""

    def row(self, t: Tree, evidence: Any, node: int) -> Any:
        return self.evidence_at(evidence, t.nodes[node].parent)


class BonusOfTheRoot(Walker):
    """The token after a fully accepted path is drawn from the row of the root."""

    def emitted(self, t: Tree, evidence: Any, node: int, children: list[int], token: Any) -> list[Any]:
        if token is None or children or node == 0:
            return super().emitted(t, evidence, node, children, token)
        return [self.redraw(self.evidence_at(evidence, 0), "bonus", node)]


class NextRow(Walker):
    """After a rejection the token is drawn from the next row, which knows the rejected draft."""

    def emitted(self, t: Tree, evidence: Any, node: int, children: list[int], token: Any) -> list[Any]:
        if token is None or not children:
            return super().emitted(t, evidence, node, children, token)
        try:
            return [self.redraw(self.evidence_at(evidence, children[0]), "next", node)]
        except LookupError:
            return [token]


class Padded(Walker):
    """A padded slot reads as token 0, and token 0 matches it."""

    def emitted(self, t: Tree, evidence: Any, node: int, children: list[int], token: Any) -> list[Any]:
        if token is None or children or edge_token(token) != 0:
            return super().emitted(t, evidence, node, children, token)
        return [token, self.redraw(self.evidence_at(evidence, node), "padded", node)]


class Zeroed(Walker):
    """An accepted token is taken out of the rows below it."""

    def row(self, t: Tree, evidence: Any, node: int) -> Any:
        row = super().row(t, evidence, node)
        if node == 0 or not isinstance(row, Dist):
            return row
        old = row.rows[()]
        gone = edge_token(t.nodes[node].edge)
        v = [0 if i == gone else x for i, x in enumerate(old.face("shaped"))]
        if not any(v):  # it was certain: the next best one is
            raw = [0 if i == gone else x for i, x in enumerate(old.face("raw"))]
            v = [int(i == raw.index(max(raw))) for i in range(len(raw))]
        total = Fraction(sum(v))
        return Dist(box0(value_row(self.vector([x / total for x in v]), like=old)), row.face, row.at)


class Dropped(Walker):
    """After accepted drafts the replacement of a rejected one is thrown away: the next is drawn from p, not the residual."""

    def emitted(self, t: Tree, evidence: Any, node: int, children: list[int], token: Any) -> list[Any]:
        if node != 0 and children:
            return []
        return super().emitted(t, evidence, node, children, token)


def lossless(f: Profile) -> bool:
    """Whether a program verifies drafts and claims the tokens or the distribution of another."""
    return f.walks and bool({"distribution", "tokens", "greedy"} & f.modes)


MUTANTS = (
    Mutant.of(AtParent, "evidence-at-parent", lambda f: lossless(f) and f.depth >= 1, "V = 2, one draft", "M09, M10"),
    Mutant.of(BonusOfTheRoot, "bonus-of-the-root", lambda f: lossless(f) and f.leaf, "V = 2, one draft", "M15"),
    Mutant.of(NextRow, "next-row", lambda f: lossless(f) and f.rejected and not f.unwalked, "V = 2, one draft", "M09"),
    # what it adds is behind the tokens that are counted
    Mutant.of(Padded, "padded-slot", lambda f: lossless(f) and f.bonus and not f.counted, "V = 2", "M15, M29; ar.md L1, L8"),
    Mutant.of(Zeroed, "zeroed-in-place", lambda f: lossless(f) and f.depth >= 1, "V = 2, one draft", "M05"),
    # A rule that reads `output` draws the same token again in the next step: dropping it costs a call and nothing else.
    Mutant.of(Dropped, "replacement-dropped", lambda f: lossless(f) and f.law and f.rejected_deep, "V = 2, two drafts"),
)
