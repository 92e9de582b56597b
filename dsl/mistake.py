"""What the entries of the mistake tables are (`mistakes_in_blocks.py`, `mistakes_in_lines.py`)."""

from __future__ import annotations

from dataclasses import dataclass

BODY = "algorithm f(target: causal):\n    "
"""How the examples of mistakes in a body start."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """One way to write something wrong.

    It is this mistake if the token that does not fit is of one of `kinds` (any if empty), all of `wanted`
    would have fitted, the line before the token ends in the pattern `before`, and the line from the token on
    starts with `after`. `back` tokens before it are underlined too.
    """

    name: str
    code: str
    message: str
    help: str
    example: str
    kinds: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    before: str = ""
    after: str = ""
    label: str = ""
    back: int = 0
