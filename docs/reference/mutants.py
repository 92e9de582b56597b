"""Which size of world shows which mutant: `python docs/reference/mutants.py` writes the page beside it, in some minutes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from decgraph.backends.exact.run import ExactMachine
from decgraph.check.algorithm import find
from decgraph.check.claims import Case
from decgraph.check.mutant import Mutant, applicable, judge
from decgraph.check.mutants import MUTANTS
from decgraph.check.planting import Planting
from decgraph.check.profile import profile
from decgraph.check.report import cases
from decgraph.check.worlds import narrow
from decgraph.errors import DecError

# A mutant is planted in the first of these that it applies to. The texts are what stdlib has no small example of.
HOSTS = (
    "speculative",
    "sequoia",
    "siblings",
    "points",
    "eagle2",
    "medusa",
    "jacobi",
    "freedave",
    "block_verification",
    "inner",
    "cfg",
    "klass",
)
TEXTS = {
    "siblings": """algorithm siblings(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            grow sample(drafter(root), 2) at root
        verify t by rejection against target(t)
        commit t.accepted
""",
    "points": """algorithm points(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            grow topk(drafter(root).raw, 2) at root
        verify t by rejection against target(t)
        commit t.accepted
""",
    "inner": """algorithm inner(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
    while not done:
        draft u:
            grow topk(drafter(root).raw, 1)
        q = drafter(u)
        verify u by rejection against q
        draft t:
            grow chain(drawn(u.accepted, q[:len(u.accepted)]))
        verify t by rejection against target(t)
        commit t.accepted
""",
}
VOCABS = (2, 3, 4)
WORLDS = 20
HEAD = """# Mutants, and the worlds that show them

Written by `python docs/reference/mutants.py`. Each bug is planted in the algorithm named, and its claims are decided in 20
worlds of each vocabulary, with parameters of 2 at most: the numbers say in how many of them the bug shows. `sees` is the
smallest world that was expected to show it, `seen in` where engines had it (numbers of the survey of bugs in the wild, or
of the survey of published code).

| mutant | planted in | V = 2 | V = 3 | V = 4 | sees | seen in | what is wrong |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Line:
    """One bug: the algorithm it was planted in, and in how many worlds it shows, by vocabulary."""

    mutant: Mutant
    host: str
    shown: tuple[int | None, ...]

    def __str__(self) -> str:
        m = self.mutant
        shown = " | ".join("refused" if n is None else str(n) for n in self.shown)
        return f"| `{m.name}` | {self.host} | {shown} | {m.sees} | {m.bugs} | {m.why} |"


def lines(vocabs: tuple[int, ...] = VOCABS, worlds: int = WORLDS, only: tuple[str, ...] = ()) -> Iterator[Line]:
    """The table's lines; `only` names the mutants to try."""
    left = {m.name for m in MUTANTS if not only or m.name in only}
    for host in HOSTS:
        module, text = find(TEXTS.get(host, host))
        planting = Planting(text, module.path)
        plain = [c for claim in module.entry.claims for c in cases(module, claim, vocab=3, models=8, params=None)]
        for m, patch in applicable(profile(plain), MUTANTS, planting):
            if m.name not in left:
                continue
            left.discard(m.name)
            try:
                broken = planting.load(patch) if patch is not None else module
            except DecError:
                yield Line(m, host, (None,) * len(vocabs))
                continue
            shown = []
            for v in vocabs:
                made = [
                    cases(broken, claim, vocab=v, models=worlds, params=None, engine=m.engine or ExactMachine)
                    for claim in broken.entry.claims
                ]
                shown.append(sum(any(shows(c, m) for c in world) for world in zip(*made, strict=True)))
            yield Line(m, host, tuple(shown))


def shows(case: Case, m: Mutant) -> bool:
    """Whether a world shows a bug; where there is something to enumerate, with small parameters."""
    return judge(narrow(case) if case.claim.kind == "refines" else case, m.steps) is not None


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"{line}\n" for line in sorted(lines(), key=lambda line: line.mutant.name))


def main() -> None:
    """Write the page."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_suffix(".md")
    path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
