"""What a text leaves out and the compiler knows: the types of names that are given values, and what became of claims."""

from __future__ import annotations

from typing import NamedTuple

from decgraph.dsl import syntax as S
from decgraph.dsl.lower.state import show
from decgraph.editor.analysis import Analysis
from decgraph.editor.hover import type_elsewhere

TYPED = ("variable", "model")


class Hint(NamedTuple):
    """A text to show after an offset, whether it is a type, and what to say of it in full."""

    offset: int
    text: str
    is_type: bool
    more: str = ""


def hints(analysis: Analysis, low: int, high: int, verdicts: dict[str, str]) -> list[Hint]:
    """The hints between two offsets, in order. `verdicts`: the last verdict on an algorithm of this very text."""
    found, seen = [], set()
    for o in analysis.index.occurrences:
        if not o.defines or o.symbol in seen or analysis.index.kinds.get(o.symbol) not in TYPED:
            continue
        seen.add(o.symbol)
        if low <= o.span.end <= high and (known := type_elsewhere(analysis, o)) is not None and known.elem != "any":
            found.append(Hint(o.span.end, f": {show(known)}", True))
    for item in analysis.file.items:
        if isinstance(item, S.Algorithm) and (said := verdicts.get(item.name)):
            for claim in item.body:
                if isinstance(claim, S.Claim) and low <= claim.span.end <= high:
                    found.append(Hint(claim.span.end, said.split()[0].rstrip(":"), False, said))
    return sorted(found)
