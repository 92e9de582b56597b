"""JSON that stays on one line for every reader.

A line of JSON ends at a line feed, but many clients split texts as `str.splitlines` does, also at U+0085, U+2028 and U+2029,
which JSON allows within strings as they are. The other characters of that kind are control characters, which JSON escapes.
"""

from __future__ import annotations

_ESCAPED = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}


def unbroken(json: str) -> str:
    """A JSON text in which no character but a line feed ends a line."""
    return json.translate(_ESCAPED)
