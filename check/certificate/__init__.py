"""Certificates: a derivation as data, and a checker of its own.

`check(module, data)` raises `Refused` unless a certificate shows its claim for a program. The checker shares with the prover
the IR and its reader, and nothing else (tests/check/certificate/test_imports.py): it walks the program once, from top to bottom,
and asks of each claimed fact whether it follows by a rule from those of the operands. It searches for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from decgraph.check.certificate.claims import check
from decgraph.check.certificate.data import Refused, digest

__all__ = ["Refused", "check", "digest"]
