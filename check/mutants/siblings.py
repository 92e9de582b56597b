"""Bugs of drafts and their distributions: order, equality, selection, and the distribution that a draft is said to come
from."""

from __future__ import annotations

from typing import Any

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.mutant import Mutant
from decgraph.check.profile import Profile
from decgraph.check.walks import Walker
from decgraph.ir.data.dist import Draw, Draws, Row
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.values import Op


def score(t: Tree, node: int) -> Any:
    """The raw probability of the token into a node."""
    d = t.nodes[node].edge
    return d.source.face("raw")[d.token] if isinstance(d, Draw) else 1


class Resorted(Walker):
    """Siblings are tested from the likeliest to the least likely."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        return sorted(children, key=lambda c: -score(t, c))


class Merged(Walker):
    """Equal siblings are one."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        seen: dict[int, int] = {}
        for c in children:
            seen.setdefault(edge_token(t.nodes[c].edge), c)
        return list(seen.values())


class Pruned(Walker):
    """Drafts that the drafter gave less than 2/5 are cut before they are tested."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        return [c for c in children if 5 * score(t, c) >= 2]


class Unconditional(ExactMachine):
    """Draws without replacement claim the distribution of the first of them."""

    def siblings(self, op: Op, row: Row, face: str, place: Any, k: int, lane: int, race: bool = False) -> list[Draw]:
        out = super().siblings(op, row, face, place, k, lane, race)
        for d in out:
            d.law = row
        return out


class PointsAsDrawn(ExactMachine):
    """Tokens that were chosen by score claim to have been drawn."""

    def walk(self, op: Op, t: Tree, evidence: Any, rest: tuple[Any, ...]) -> Any:
        for n in t.nodes:
            if isinstance(n.edge, Draw) and n.edge.point:
                n.edge.law, n.edge.law_face = n.edge.source, "shaped"
        return super().walk(op, t, evidence, rest)


class RawLaw(ExactMachine):
    """A draft is drawn from the shaped distribution and tested with the raw one."""

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
    """Tokens that were drawn elsewhere claim the distribution of the one before them."""

    def stated(self, tokens: list[int], rows: list[Row], face: str) -> list[Draw]:
        return super().stated(tokens, [rows[0], *rows][: len(rows)], face)


def tested(f: Profile) -> bool:
    """Sampled drafts are tested by their distributions."""
    return f.law and f.sampled and "distribution" in f.modes


MUTANTS = (
    # Where one-hot draws are sorted nothing that was drawn decides the order; a rule that reads `output` does not mind any.
    Mutant(
        "siblings-resorted",
        "siblings are tested in the order of their scores, not as they were drawn",
        lambda f: tested(f) and f.ordered and f.width >= 2,
        "V = 3, two siblings",
        "ar.md L4",
        engine=Resorted,
    ),
    # Without replacement no two are equal.
    Mutant(
        "siblings-merged",
        "equal drafts of one node are tested once",
        lambda f: tested(f) and f.doubled,
        "V = 3, two siblings",
        "M14",
        engine=Merged,
    ),
    Mutant(
        "pruned-by-own-score",
        "a sampled draft is cut because of its own probability",
        tested,
        "V = 2, one draft",
        "M34",
        engine=Pruned,
    ),
    Mutant(
        "distribution-with-replacement",
        "draws without replacement are tested with the distribution of the first",
        lambda f: tested(f) and f.emptied,
        "V = 3, two siblings",
        "M13",
        engine=Unconditional,
    ),
    Mutant(
        "points-as-drawn",
        "the likeliest tokens are tested as if they had been drawn",
        lambda f: f.law and f.points and "distribution" in f.modes,
        "V = 2, one draft",
        "M03, M13",
        engine=PointsAsDrawn,
    ),
    Mutant(
        "tested-with-raw",
        "drafts are drawn from the shaped distribution and tested with the unshaped one",
        lambda f: tested(f) and f.shaped,
        "V = 3, top-k or top-p",
        "M02, M06; ar.md L5, L6",
        engine=RawLaw,
        worlds=(3, 9, 11, 13),
        asks=True,
    ),
    Mutant(
        "stated-for-the-one-before",
        "a token of an inner decoder is tested with the distribution before the token that it follows",
        lambda f: tested(f) and f.stated >= 2,
        "V = 2, two tokens",
        "ar.md L6",
        engine=StatedLate,
    ),
)

__all__ = ["Draws", "MUTANTS"]
