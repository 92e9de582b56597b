"""Bugs of drafts and their distributions: order, equality, selection, and the distribution that a draft is said to come
from."""

from __future__ import annotations

from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile
from decgraph.check.walks import Walker
from decgraph.ir.data.dist import Draw, Row
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.values import Op


def score(t: Tree, node: int) -> Any:
    """The raw probability of the token into a node."""
    d = t.nodes[node].edge
    return d.source.face("raw")[d.token] if isinstance(d, Draw) else 1


class Resorted(Walker):
    """Siblings are tested in the order of their scores, not as they were drawn."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        return sorted(children, key=lambda c: -score(t, c))


class Merged(Walker):
    """Equal drafts of one node are tested once."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        seen: dict[int, int] = {}
        for c in children:
            seen.setdefault(edge_token(t.nodes[c].edge), c)
        return list(seen.values())


class Pruned(Walker):
    """A sampled draft is cut because of its own probability."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        return [c for c in children if 5 * score(t, c) >= 2]


class Unconditional(ExactMachine):
    """Draws without replacement are tested with the distribution of the first."""

    def siblings(self, op: Op, row: Row, face: str, place: Any, k: int, lane: int, race: bool = False) -> list[Draw]:
        out = super().siblings(op, row, face, place, k, lane, race)
        for d in out:
            d.law = row
        return out


class PointsAsDrawn(ExactMachine):
    """The likeliest tokens are tested as if they had been drawn."""

    def walk(self, op: Op, t: Tree, evidence: Any, rest: tuple[Any, ...]) -> Any:
        for n in t.nodes:
            if isinstance(n.edge, Draw) and n.edge.point:
                n.edge.law, n.edge.law_face = n.edge.source, "shaped"
        return super().walk(op, t, evidence, rest)


class RawLaw(ExactMachine):
    """Drafts are drawn from the shaped distribution and tested with the unshaped one."""

    def draw(self, *args: Any, **more: Any) -> Draw:
        d = super().draw(*args, **more)
        d.law_face = "raw"
        return d

    def draw_many(self, *args: Any, **more: Any) -> list[Draw]:
        out = super().draw_many(*args, **more)
        for d in out:
            d.law_face = "raw"
        return out

    def draw_race(self, *args: Any, **more: Any) -> list[Draw]:
        out = super().draw_race(*args, **more)
        for d in out:
            d.law_face = "raw"
        return out

    def stated(self, tokens: list[int], rows: list[Row], face: str) -> list[Draw]:
        out = super().stated(tokens, rows, face)
        for d in out:
            d.law_face = "raw"
        return out


class StatedLate(ExactMachine):
    """A token of an inner decoder is tested with the distribution before the token that it follows."""

    def stated(self, tokens: list[int], rows: list[Row], face: str) -> list[Draw]:
        return super().stated(tokens, [rows[0], *rows][: len(rows)], face)


def tested(f: Profile) -> bool:
    """Sampled drafts are tested by their distributions."""
    return f.law and f.sampled and "distribution" in f.modes


MUTANTS = (
    # Where one-hot draws are sorted nothing that was drawn decides the order; a rule that reads `output` does not mind any.
    Mutant.of(
        Resorted, "siblings-resorted", lambda f: tested(f) and f.ordered and f.width >= 2, "V = 3, two siblings", "ar.md L4"
    ),
    # Without replacement no two are equal.
    Mutant.of(Merged, "siblings-merged", lambda f: tested(f) and f.doubled, "V = 3, two siblings", "M14"),
    Mutant.of(Pruned, "pruned-by-own-score", tested, "V = 2, one draft", "M34"),
    Mutant.of(Unconditional, "distribution-with-replacement", lambda f: tested(f) and f.emptied, "V = 3, two siblings", "M13"),
    Mutant.of(
        PointsAsDrawn,
        "points-as-drawn",
        lambda f: f.law and f.points and "distribution" in f.modes,
        "V = 2, one draft",
        "M03, M13",
    ),
    Mutant.of(
        RawLaw,
        "tested-with-raw",
        lambda f: tested(f) and f.shaped,
        "V = 3, top-k or top-p",
        "M02, M06; ar.md L5, L6",
        worlds=(3, 9, 11, 13),
        asks=True,
    ),
    Mutant.of(StatedLate, "stated-for-the-one-before", lambda f: tested(f) and f.stated >= 2, "V = 2, two tokens", "ar.md L6"),
)
