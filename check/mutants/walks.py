"""Bugs of verification as machines that have them: in what order siblings are tested, from which distribution they are said to
come, which row a node reads, what is committed past the end of a text."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from decgraph.backends.exact.run import ExactMachine
from decgraph.backends.reference.walk import single
from decgraph.check.mutant import Mutant
from decgraph.check.profile import AlgorithmProfile
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, Row, Symbol, box, box0, value_row
from decgraph.ir.data.numbers import Number
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.machine import Datum
from decgraph.ir.ops.draws import NoiseKey
from decgraph.ir.values import Op
from decgraph.runtime.noise import Key
from decgraph.runtime.stop import StopMachine, StopState


class TokenTreeWalk(ExactMachine):
    """The walk of the reference over trees of tokens, in steps that a mutant overrides."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        """The children in the order in which the rule sees them."""
        return children

    def row(self, t: Tree, evidence: Datum, node: int) -> Datum:
        """The evidence at a node."""
        return self.evidence_at(evidence, node)

    def taken(self, t: Tree, node: int, children: list[int], child: int | None) -> int | None:
        """The child that the walk goes on to, given the one that the rule accepted."""
        return child

    def emitted(self, t: Tree, evidence: Datum, node: int, children: list[int], token: Symbol | None) -> list[Symbol]:
        """What is committed after the accepted path, given the token that the rule emitted."""
        return [] if token is None else [token]

    def walk(self, op: Op, t: Tree, evidence: Datum, rest: tuple[Datum, ...]) -> Path | Canvas:
        if op.attrs["scope"] == "tree" or isinstance(t.base, Canvas):
            return super().walk(op, t, evidence, rest)
        node, depth = 0, 0
        while True:
            try:
                row = self.row(t, evidence, node)
            except LookupError:
                return self.walked(op, t, node, None)
            children = self.order(t, node, t.children(node))
            edges = [t.nodes[c].edge for c in children]
            has, accepted, emits, token = self.region(op.regions[0], (depth, row, Draws(box(edges))))
            child = None
            if self.num.truth(has):
                edge = single(accepted)
                child = next(c for c, e in zip(children, edges, strict=True) if e is edge)
            child = self.taken(t, node, children, child)
            if child is None:
                last = single(token) if self.num.truth(emits) else None
                assert not isinstance(last, Edit), "a tree of tokens has no edits"
                return self.end(op, t, evidence, node, children, last)
            node, depth = child, depth + 1

    def end(self, op: Op, t: Tree, evidence: Datum, node: int, children: list[int], token: Symbol | None) -> Path:
        tokens = self.emitted(t, evidence, node, children, token)
        path = self.walked(op, t, node, tokens[0] if tokens else None)
        assert isinstance(path, Path)
        path.tokens += tokens[1:]
        return path

    def redraw(self, row: Datum, site: str, depth: int) -> Draw:
        """A fresh draw from a row of evidence, keyed by `site`."""
        one = row.row if isinstance(row, Dist) else row
        assert self.op is not None and isinstance(one, Row)
        return self.draw(self.op, one, "shaped", NoiseKey(site, (self.committed(), depth)), 0, None)


def score(t: Tree, node: int) -> Number | Fraction:
    """The raw probability of the token into a node."""
    d = t.nodes[node].edge
    return d.source.face("raw")[d.token] if isinstance(d, Draw) else 1


class Resorted(TokenTreeWalk):
    """Siblings are tested in the order of their scores, not as they were drawn."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        return sorted(children, key=lambda c: -score(t, c))


class Merged(TokenTreeWalk):
    """Equal drafts of one node are tested once."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        seen: dict[int, int] = {}
        for c in children:
            seen.setdefault(edge_token(t.nodes[c].edge), c)
        return list(seen.values())


class PrunedByProbability(TokenTreeWalk):
    """A sampled draft is cut because of its own probability."""

    def order(self, t: Tree, node: int, children: list[int]) -> list[int]:
        return [c for c in children if score(t, c) * 5 >= 2]


class Unconditional(ExactMachine):
    """Draws without replacement are tested with the distribution of the first."""

    def siblings(self, op: Op, row: Row, face: str, place: Key, k: int, lane: int, race: bool = False) -> list[Draw]:
        out = super().siblings(op, row, face, place, k, lane, race)
        for d in out:
            d.law = row
        return out


class PointsAsDrawn(ExactMachine):
    """The likeliest tokens are tested as if they had been drawn."""

    def walk(self, op: Op, t: Tree, evidence: Datum, rest: tuple[Datum, ...]) -> Path | Canvas:
        for n in t.nodes:
            if isinstance(n.edge, Draw) and n.edge.point:
                n.edge.law, n.edge.law_face = n.edge.source, "shaped"
        return super().walk(op, t, evidence, rest)


class RawLaw(ExactMachine):
    """Drafts are drawn from the shaped distribution and tested with the unshaped one."""

    def draw(self, op: Op, row: Row, face: str, key: NoiseKey, lane: int, index: int | None) -> Draw:
        d = super().draw(op, row, face, key, lane, index)
        d.law_face = "raw"
        return d

    def draw_many(self, op: Op, row: Row, face: str, k: int, replace: bool, key: NoiseKey, lane: int) -> list[Draw]:
        out = super().draw_many(op, row, face, k, replace, key, lane)
        for d in out:
            d.law_face = "raw"
        return out

    def draw_race(self, op: Op, row: Row, face: str, key: NoiseKey, lane: int, under: Number | None) -> list[Draw]:
        out = super().draw_race(op, row, face, key, lane, under)
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


def tested(f: AlgorithmProfile) -> bool:
    """Sampled drafts are tested by their distributions."""
    return f.reads_rows and f.sampled and "distribution" in f.modes


class AtParent(TokenTreeWalk):
    """A draft is judged by what the target says before its parent, one position early."""

    def row(self, t: Tree, evidence: Datum, node: int) -> Datum:
        return self.evidence_at(evidence, t.nodes[node].parent)


class BonusOfTheRoot(TokenTreeWalk):
    """The token after a fully accepted path is drawn from the row of the root."""

    def emitted(self, t: Tree, evidence: Datum, node: int, children: list[int], token: Symbol | None) -> list[Symbol]:
        if token is None or children or node == 0:
            return super().emitted(t, evidence, node, children, token)
        return [self.redraw(self.evidence_at(evidence, 0), "bonus", node)]


class NextRow(TokenTreeWalk):
    """After a rejection the token is drawn from the next row, which knows the rejected draft."""

    def emitted(self, t: Tree, evidence: Datum, node: int, children: list[int], token: Symbol | None) -> list[Symbol]:
        if token is None or not children:
            return super().emitted(t, evidence, node, children, token)
        try:
            return [self.redraw(self.evidence_at(evidence, children[0]), "next", node)]
        except LookupError:
            return [token]


class Padded(TokenTreeWalk):
    """A padded slot reads as token 0, and token 0 matches it."""

    def emitted(self, t: Tree, evidence: Datum, node: int, children: list[int], token: Symbol | None) -> list[Symbol]:
        if token is None or children or edge_token(token) != 0:
            return super().emitted(t, evidence, node, children, token)
        return [token, self.redraw(self.evidence_at(evidence, node), "padded", node)]


class Zeroed(TokenTreeWalk):
    """An accepted token is taken out of the rows below it."""

    def row(self, t: Tree, evidence: Datum, node: int) -> Datum:
        row = super().row(t, evidence, node)
        if node == 0 or not isinstance(row, Dist):
            return row
        old = row.row
        gone = edge_token(t.nodes[node].edge)
        v = [0 if i == gone else x for i, x in enumerate(old.face("shaped"))]
        if not any(v):  # it was certain: the next best one is
            raw = [0 if i == gone else x for i, x in enumerate(old.face("raw"))]
            v = [int(i == raw.index(max(raw))) for i in range(len(raw))]
        total = Fraction(sum(v))
        return Dist(box0(value_row(self.vector([x / total for x in v]), like=old)), row.face, row.at)


class Dropped(TokenTreeWalk):
    """After accepted drafts the replacement of a rejected one is thrown away: the next is drawn from p, not the residual."""

    def emitted(self, t: Tree, evidence: Datum, node: int, children: list[int], token: Symbol | None) -> list[Symbol]:
        if node != 0 and children:
            return []
        return super().emitted(t, evidence, node, children, token)


class OncePerStep(ExactMachine):
    """An end of text inside an accepted path is not seen: stops are tested once a step."""

    def sees(self, state: StopState, token: int) -> StopState:
        return replace(state, count=state.count + 1)

    def commit(self, op: Op, x: Datum, tree: Tree | None) -> None:
        tokens = [edge_token(t) for t in self.commit_tokens(x, tree)]
        if self.parent is not None or len(tokens) < 2 or self.done():
            super().commit(op, x, tree)
            return
        for t in tokens[:-1]:
            self.tokens.append(t)
            self.stop_state = self.sees(self.stop_state, t)
        fed = list(tokens[:-1])
        if not self.stop_state.done:
            self.tokens.append(tokens[-1])
            self.stop_state = StopMachine.feed(self.stop_state, tokens[-1])
            fed.append(tokens[-1])
        self.learn_committed(fed)


class Overshoot(OncePerStep):
    """An accepted path is committed whole though the limit is reached inside it."""

    def sees(self, state: StopState, token: int) -> StopState:
        if state.done:
            return state
        ends = token in state.request.eos
        return replace(state, count=state.count + 1, done=ends, reason="eos" if ends else "")

    def commit(self, op: Op, x: Datum, tree: Tree | None) -> None:
        tokens = [edge_token(t) for t in self.commit_tokens(x, tree)]
        for i, t in enumerate(tokens):
            if t in self.request.eos:
                tokens = tokens[: i + 1]
                break
        super().commit(op, [int(t) for t in tokens] if self.parent is None else x, tree if self.parent is not None else None)

    def commit_tokens(self, x: Datum, tree: Tree | None) -> list[Symbol]:
        whole: list[Symbol] = [t for t in x if isinstance(t, int)] if isinstance(x, list) else []
        return whole if isinstance(x, list) and len(whole) == len(x) else super().commit_tokens(x, tree)


class EndedByDraft(TokenTreeWalk):
    """A drafted end of text ends the text although the target rejects it."""

    def taken(self, t: Tree, node: int, children: list[int], child: int | None) -> int | None:
        for c in children:
            if child is None and edge_token(t.nodes[c].edge) in self.request.eos:
                return c
        return child


def several(f: AlgorithmProfile) -> bool:
    """Whether a program verifies drafts and commits several tokens at a time, and claims something of whole texts: which tokens
    have support says nothing of where a text ends."""
    return f.many and f.lossless


MUTANTS = (
    # Where one-hot draws are sorted nothing that was drawn decides the order; a rule that reads `output` does not mind any.
    Mutant.of(
        Resorted, "siblings-resorted", lambda f: tested(f) and f.ordered and f.width >= 2, "V = 3, two siblings", "ar.md L4"
    ),
    # Without replacement no two are equal.
    Mutant.of(Merged, "siblings-merged", lambda f: tested(f) and f.doubled, "V = 3, two siblings", "M14"),
    Mutant.of(PrunedByProbability, "pruned-by-own-score", tested, "V = 2, one draft", "M34"),
    Mutant.of(Unconditional, "distribution-with-replacement", lambda f: tested(f) and f.emptied, "V = 3, two siblings", "M13"),
    Mutant.of(
        PointsAsDrawn,
        "points-as-drawn",
        lambda f: f.reads_rows and f.points and "distribution" in f.modes,
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
    Mutant.of(AtParent, "evidence-at-parent", lambda f: f.lossless and f.depth >= 1, "V = 2, one draft", "M09, M10"),
    Mutant.of(BonusOfTheRoot, "bonus-of-the-root", lambda f: f.lossless and f.leaf, "V = 2, one draft", "M15"),
    Mutant.of(NextRow, "next-row", lambda f: f.lossless and f.rejected and not f.unwalked, "V = 2, one draft", "M09"),
    # what it adds is behind the tokens that are counted
    Mutant.of(Padded, "padded-slot", lambda f: f.lossless and f.bonus and not f.counted, "V = 2", "M15, M29; ar.md L1, L8"),
    Mutant.of(Zeroed, "zeroed-in-place", lambda f: f.lossless and f.depth >= 1, "V = 2, one draft", "M05"),
    # A rule that reads `output` draws the same token again in the next step: dropping it costs a call and nothing else.
    Mutant.of(Dropped, "replacement-dropped", lambda f: f.lossless and f.reads_rows and f.rejected_deep, "V = 2, two drafts"),
    Mutant.of(OncePerStep, "end-inside-a-path", several, "V = 2, one draft, eos", "M46, M47", worlds=(1, 17)),
    Mutant.of(Overshoot, "limit-overshoot", several, "V = 2, one draft, limit 1 or 2", "M49; ar.md L10", worlds=(15, 7)),
    Mutant.of(EndedByDraft, "ended-by-a-draft", lambda f: f.walks and f.ends, "V = 2, one draft, eos", "M48", worlds=(1, 17)),
)
