"""A TextMate grammar of plain matches and one docstring, read as an editor reads it: line by line, the leftmost match first."""

from __future__ import annotations

import re

from decgraph.editor.textmate import rules

RULES = [(name, scope, re.compile(match, re.M), groups) for name, scope, match, groups in rules()]
QUOTES = re.compile(r'"""')


def scopes(text: str) -> dict[int, str]:
    """The offset of each piece that has a scope, and the scope."""
    found: dict[int, str] = {}
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        at = max(_line(text, at, end, found), end) + 1 if _line_fits(text, at, end) else _over_lines(text, at, end, found)
    return found


def _line_fits(text: str, at: int, end: int) -> bool:
    return text.count('"""', at, end) % 2 == 0


def _over_lines(text: str, at: int, end: int, found: dict[int, str]) -> int:
    """A line on which a docstring starts that ends on a later one: that line's rest is read like a line."""
    stop = _line(text, at, end, found)
    end = text.find("\n", stop)
    end = len(text) if end < 0 else end
    return max(_line(text, stop, end, found), end) + 1


def _line(text: str, pos: int, end: int, found: dict[int, str]) -> int:
    while pos < end:
        best = None
        for name, scope, pattern, groups in RULES:
            hit = (QUOTES if name == "doc" else pattern).search(text, pos, end)
            if hit is not None and hit.end() > hit.start() and (best is None or hit.start() < best[0].start()):
                best = (hit, name, scope, groups)
        if best is None:
            return end
        hit, name, scope, groups = best
        if name == "doc":
            close = text.find('"""', hit.end())
            found[hit.start()] = "string.quoted.triple.dec"
            return _line(text, close + 3, end, found) if 0 <= close < end else (len(text) if close < 0 else close + 3)
        found.update((hit.start(int(number)), inner) for number, inner in groups.items())
        if scope:
            found[hit.start()] = scope
        pos = hit.end()
    return end
