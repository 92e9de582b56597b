"""What traces call what they show: pages, the terminal, plots, notebooks and the gallery's pictures have these words."""

from __future__ import annotations

import re

BLANKS = re.compile(r"^ +| +$| {2,}|(?<=[⏎⇥]) +| +(?=[⏎⇥])")
WORDS = {
    "accepted": "accepted draft",
    "rejected": "rejected draft",
    "drafted": "draft that was not reached",
    "pruned": "pruned before verification",
    "bonus": "bonus token: after the last accepted draft",
    "residual": "residual: drawn from what rejected drafts left",
    "own": "the target's own token: in place of rejected drafts",
    "plain": "no verified draft: none was drafted, or the program itself chose",
    "committed": "committed: on the path that the program chose",
    "grown": "grown further",
    "left": "not grown further",
    "fresh": "new in this step",
    "canvas": "decided on the canvas",
    "decided": "decided in this step",
    "replaced": "replaced",
    "again": "masked again",
    "twice": "changed twice or more: from left to right what it was",
    "kept": "decided before",
    "masked": "masked",
}
"""By the kind of a token, the state of a node or a cell: a few words, and after a colon what they mean."""
SIGNS = {"accepted": "✓ ", "rejected": "✗ ", "emitted": "+ ", "committed": "● "}
"""What stands before a node's token, by its state."""


def word(kind: str) -> str:
    """The few words alone."""
    return WORDS[kind].split(":")[0]


def marked(text: str) -> str:
    """A token's part of a text: as `visible`, but for the one blank before a word, and lines end."""
    return re.sub(r"^·(?![·⏎⇥]|$)", " ", visible(text)).replace("⏎", "⏎\n") if text else ""


def visible(text: str, most: int = 0) -> str:
    """A token's text with what cannot be seen: ⏎, ⇥, and · for blanks at an edge and in a row. most: of so many characters; 0:
    all."""
    shown = text.replace("\n", "⏎").replace("\t", "⇥")
    shown = BLANKS.sub(lambda blanks: "·" * len(blanks[0]), shown)
    shown = "".join(c if c.isprintable() else "�" for c in shown)
    return (shown[: most - 1] + "…" if 0 < most < len(shown) else shown) or "∅"
