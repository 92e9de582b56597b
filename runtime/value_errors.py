"""Messages for errors in a program's values at run time: an index out of range, lengths that do not agree.

Operations raise most of them themselves (an `OpError` with its hint). This file translates those that NumPy and torch raise for
values of dynamic lengths; the original exception stays the cause.
"""

from __future__ import annotations

import re

_OUTSIDE = re.compile(
    r"index (-?\d+) is out of bounds for (?:axis \d+|dimension \d+) with size (\d+)|"
    r"index out of range|index out of bounds|out of range"
)
_LENGTHS = re.compile(r"broadcast|same shape|must match|shape mismatch|sizes of tensors|inhomogeneous|stack expects", re.I)
_ROW = re.compile(r"row (-?\d+) is outside the part that was computed")
_ASKED = "ask for them: model(c, at = b); where a cache policy says what is recomputed, only its cells have scores"
_EMPTY = re.compile(r"empty sequence|zero-size|empty array|of empty|no identity|non-zero size", re.I)


def reworded(error: BaseException) -> tuple[str, str] | None:
    """The message and the hint for an error; None if it does not concern a program's values."""
    text = str(error).strip()
    hit = _OUTSIDE.search(text)
    if isinstance(error, LookupError) and hit is not None:
        where = "an index is outside of what it indexes" if hit[1] is None else f"there is no element {hit[1]} among {hit[2]}"
        return where, "look before: if len(xs) > i"
    if isinstance(error, LookupError) and (computed := _ROW.search(text)) is not None:
        return f"there are no scores at place {computed[1]}: the call computed other places", _ASKED
    if isinstance(error, ValueError | RuntimeError | IndexError) and _LENGTHS.search(text):
        sizes = ", ".join(dict.fromkeys(re.findall(r"\([\d, ]*\)|size of tensor \w \(\d+\)", text)))
        return "these have different lengths" + (f": {sizes}" if sizes else ""), "cut them to one length: xs[:n], or index one"
    if isinstance(error, ValueError | RuntimeError | IndexError) and _EMPTY.search(text):
        return "there is nothing here: the vector is empty", "look before: if len(xs) > 0"
    if isinstance(error, ValueError) and "mass" in text:
        return "a draw from a distribution without mass", "normalize what has mass, or draw from another law where sum(q) is 0"
    if isinstance(error, OverflowError | ValueError) and "convert float" in text:
        return "an infinity, or what is no number, cannot be a whole number", "look before: if n < inf"
    return None


__all__ = ["reworded"]
