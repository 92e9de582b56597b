"""From a run's events to its steps, and from steps to what other settings would have accepted.

A step is what was drafted for one verification, and how far that went. For chains the steps of one run with long chains say
what every shorter one accepts; for trees, how often a child of each rank at each depth is the one that verification goes on
to says it for every shape. Both take the contexts of the run they were seen in for typical.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from decgraph.runtime.trace import Accepted, Committed, Drafted, Event, Pruned


@dataclass
class Step:
    """drafts: (node, parent) in drawing order. accepted: nodes, the children of the root first. tokens: committed by it."""

    drafts: list[tuple[int, int]] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    tokens: int = 0

    @property
    def is_chain(self) -> bool:
        """Whether no node has two children and all hang together."""
        return all(parent == before for (_, parent), (before, _) in zip(self.drafts[1:], self.drafts, strict=False))


def steps_of(events: Iterable[Event]) -> list[Step]:
    """A run's steps, in order; the last one is left out where it was cut (the limit came before its end)."""
    out: list[Step] = []
    now = Step()
    for event in events:
        match event:
            case Drafted():
                now.drafts.append((event.node, event.parent))
            case Pruned():
                place = {old: new for new, old in enumerate(event.kept)}
                now.drafts = [(place[node], place[parent]) for node, parent in now.drafts if node in place]
            case Accepted():
                now.accepted.append(event.node)
            case Committed():
                now.tokens = len(event.tokens)
                out.append(now)
                now = Step()
    if out and out[-1].tokens <= len(out[-1].accepted):
        out.pop()
    return out


def chain(steps: Sequence[Step], length: int) -> tuple[float, float]:
    """(drafts, tokens) of a step on average if chains are `length` long at most."""
    if not steps:
        return 0.0, 1.0
    drafts = sum(min(len(s.drafts), length) for s in steps)
    tokens = sum(min(len(s.accepted), length) + s.tokens - len(s.accepted) for s in steps)
    return drafts / len(steps), tokens / len(steps)


@dataclass
class Ranks:
    """visits[d][r]: how often verification came to a node at depth d that had a child of rank r; taken[d][r]: how often it
    went on to that child."""

    visits: dict[tuple[int, int], int] = field(default_factory=dict)
    taken: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Count one step."""
        children: dict[int, list[int]] = {}
        tops = {node for node, _ in step.drafts}
        for node, parent in step.drafts:
            children.setdefault(parent if parent in tops else 0, []).append(node)
        at = 0
        for depth, following in enumerate([*step.accepted, None]):
            for rank, child in enumerate(children.get(at, [])):
                self.visits[depth, rank] = self.visits.get((depth, rank), 0) + 1
                if child == following:
                    self.taken[depth, rank] = self.taken.get((depth, rank), 0) + 1
            if following is None:
                break
            at = following

    def table(self, *, prior: float = 6.0, least: int = 3) -> list[list[float]]:
        """p[d][r] for `trees.best`: of each depth, drawn towards all depths together where little was seen there. Only as
        deep and as wide as verification has come at least `least` times: of the rest nothing is known."""
        depths = 1 + max((d for (d, _), n in self.visits.items() if n >= least), default=-1)
        out = []
        for d in range(depths):
            row: list[float] = []
            while self.visits.get((d, len(row)), 0) >= least:
                r = len(row)
                everywhere = self._all(self.taken, r) / self._all(self.visits, r)
                row.append((self.taken.get((d, r), 0) + prior * everywhere) / (self.visits[d, r] + prior))
            out.append(row)
        return out

    @staticmethod
    def _all(counts: dict[tuple[int, int], int], rank: int) -> int:
        return sum(n for (_, r), n in counts.items() if r == rank)


def ranks(steps: Iterable[Step]) -> Ranks:
    """The counts of many steps."""
    out = Ranks()
    for step in steps:
        out.add(step)
    return out
