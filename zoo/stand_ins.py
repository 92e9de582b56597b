"""Stand-ins for the functions that algorithms of the standard library call: `--extern demo:reward` tries a program before there
is a reward model. Each is a plain rule of text or numbers, fit to see a program work and for nothing else."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

__all__ = ["accepted", "alike", "asked", "difficulty", "final", "frequency", "green", "hard", "kept", "milliseconds", "named",
           "needs", "ones", "prefix_score", "reward", "same_answer", "step_ends", "utility", "valid", "worth"]  # fmt: skip

LISTED = 256
"""Tokens that lists of tokens here choose among: every vocabulary has as many."""


def _words(text: str) -> list[str]:
    return text.lower().split()


def _last_word(text: str) -> str:
    return (_words(text) or [""])[-1].strip(".,;:!?()")


def reward(text: str) -> float:
    """Higher for a text of many different words."""
    words = _words(text)
    return len(set(words)) - 0.5 * (len(words) - len(set(words)))


def worth(text: str) -> float:
    """The share of a text's words that are different, between 0 and 1."""
    words = _words(text)
    return len(set(words)) / len(words) if words else 0.5


def prefix_score(text: str) -> float:
    """The `reward` of the text so far."""
    return reward(text)


def utility(hypothesis: str, reference: str) -> float:
    """How many words two texts share, over all words of both."""
    one, other = set(_words(hypothesis)), set(_words(reference))
    return len(one & other) / max(1, len(one | other))


def step_ends(text: str) -> bool:
    """Whether a step of reasoning ends here: at a line break."""
    return text.endswith("\n")


def same_answer(one: str, other: str) -> bool:
    """Whether two texts end in the same word."""
    return _last_word(one) == _last_word(other)


def alike(one: str, other: str) -> bool:
    """Whether two steps say the same: at least half of their words are common to both."""
    return utility(one, other) >= 0.5


def valid(text: str) -> bool:
    """A constraint: no digit in the text."""
    return not any(c.isdigit() for c in text)


def difficulty(text: str) -> float:
    """How hard a prompt is, between 0 and 1: the longer the harder."""
    return min(0.9, len(text) / 400)


def hard(text: str) -> bool:
    """Whether a point is hard: a long line."""
    return len(text) > 60


def needs(text: str, point: int) -> bool:
    """Whether a point needs another one: by its number."""
    return str(point) in text


def named(text: str, candidates: Sequence[int]) -> int:
    """The place of the candidate that a text names: here one that its length chooses."""
    return len(text) % max(1, len(candidates))


def asked(candidates: Sequence[int]) -> tuple[int, ...]:
    """The question which of the candidates is the worst, in tokens: here the candidates themselves."""
    return tuple(int(token) for token in candidates)


def milliseconds(sequences: int, rows: int) -> float:
    """What a call of so many rows takes."""
    return 10 + 0.1 * rows


def kept(start: int, position: int) -> bool:
    """Whether a block's calls see a masked position behind it: those near it, and every fourth."""
    return position - start < 32 or position % 4 == 0


def green(token: int) -> tuple[int, ...]:
    """The half of the listed tokens that a token chooses."""
    return tuple(i for i in range(LISTED) if zlib.crc32(b"%d %d" % (token, i)) & 1)


def ones(tokens: Sequence[int], layer: int) -> tuple[int, ...]:
    """The half of the listed tokens that the last tokens and a layer's key choose."""
    key = zlib.crc32(repr([*map(int, tokens), int(layer)]).encode())
    return tuple(i for i in range(LISTED) if zlib.crc32(b"%d %d" % (key, i)) & 1)


def frequency(token: int) -> float:
    """How frequent a token is, by Zipf's law of its id."""
    return 1 / (2 + token)


def final(place: int, confidences: Sequence[float]) -> float:
    """How likely a cell's likeliest token is the final one: its confidence."""
    return min(1.0, max(0.0, float(confidences[place]))) if 0 <= place < len(confidences) else 0.0


def accepted(entropy: float, high: float, confidence: float, low: float, level: int, gamma: int) -> float:
    """How likely drafts are accepted: less for more of them, and the more the surer the drafter is."""
    return min(1.0, max(0.0, confidence)) ** (1 + gamma / 8)
