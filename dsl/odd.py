"""Characters that have no place in a program, and what was probably meant."""

from __future__ import annotations

import unicodedata

from decgraph.dsl.diagnostics import Diagnostic
from decgraph.dsl.source import Source

BIDI = "\u202a-\u202e\u2066-\u2069\u200e\u200f"
"""Characters that change the order in which text is shown: a program with them is not the program one reads.
"""

_MEANT = {
    "≤": "<=", "≥": ">=", "≠": "!=", "→": "->", "←": "=", "×": "*", "·": "*", "÷": "/", "−": "-",
    "–": "-", "—": "-", "“": '"', "”": '"', "„": '"', "«": '"', "»": '"', "‘": '"', "’": '"', "…": "..",
    "∼": "~", "～": "~", "∧": "and", "∨": "or", "¬": "not ", "∈": "in", "∞": "inf", "（": "(",
    "）": ")", "［": "[", "］": "]", "：": ":", "，": ",", "\u00a0": " ", "\u3000": " ", "\u2003": " ",
    "\u2009": " ", "\u202f": " ", "\u200b": "", "\u200d": "", "\ufeff": "",
}  # fmt: skip

_ADVICE = {
    "'": 'strings stand in double quotes: "text"',
    "`": 'strings stand in double quotes: "text"',
    ";": "one statement a line; start a new line instead",
    "{": "blocks are written with `:` and indentation, sets and tables by functions",
    "}": "blocks are written with `:` and indentation, sets and tables by functions",
    "!": "write `not x`, or `!=` for a comparison",
    "&": "write `and`",
    "|": "write `or`",
    "\\": "a statement goes on over several lines inside brackets; put `(` and `)` around it",
    "@": "decorators belong to the Python form; a file of algorithms needs none",
    "$": "names start with a letter or `_`",
    '"': "close the string on its line",
}


def odd_character(source: Source, offset: int) -> Diagnostic:
    """The diagnostic for a character that no token starts with, or that no comment or string may hold."""
    character = source.text[offset]
    span = source.span(offset, offset + 1)
    name = unicodedata.name(character, "")
    code = f"U+{ord(character):04X}"
    if character in _ADVICE:
        return Diagnostic("E002", f"`{character}` has no meaning here", span, help=_ADVICE[character])
    if character in _MEANT:
        meant = _MEANT[character]
        what = f"`{meant.strip()}`" if meant.strip() else "an ordinary space" if meant else "nothing; delete it"
        return Diagnostic("E002", f"{code} {name} is not part of the language", span, help=f"write {what}")
    if character.isalpha():
        return Diagnostic(
            "E002",
            f"`{character}` ({code} {name}) cannot be part of a name",
            span,
            help="names consist of a to z, digits and `_`; other letters may stand in strings and comments",
        )
    category = unicodedata.category(character)
    if category in ("Cf", "Cc", "Cs", "Co", "Cn"):
        kind = {"Cf": "an invisible character", "Cc": "a control character", "Cs": "half of a character"}.get(
            category, "not a character that everyone can read"
        )
        return Diagnostic("E002", f"{code} {name or 'here'} is {kind}".replace("here is", "is"), span, help="delete it")
    return Diagnostic("E002", f"`{character}` ({code} {name}) has no meaning in a program", span)
