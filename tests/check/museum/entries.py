"""The museum: correctness bugs that decoding engines shipped, and what becomes of each when it is written for decgraph.

The numbers are those of a survey of engines; `source` names where the bug was. tests/check/test_museum.py decides every
program here and looks up every test; page.py writes docs/museum.md from this table.
"""

from __future__ import annotations

from engine_entries import BATCHES, CACHES, POSITIONS, REQUESTS, STOPS
from entry import Entry
from verification_entries import BONUS, RESIDUALS, RULES

GROUPS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    ("Acceptance and residuals", RESIDUALS),
    ("The bonus token", BONUS),
    ("Caches", CACHES),
    ("Positions and masks", POSITIONS),
    ("Many at a time", BATCHES),
    ("Where texts end", STOPS),
    ("Penalties, grammars, vocabularies", REQUESTS),
    ("Other rules of verification", RULES),
)
ENTRIES = tuple(e for _, group in GROUPS for e in group)
