"""Certificates: a derivation as data, and a checker of its own.

`verify(module, data)` says of each certificate of a file whether it shows its claim. The checker shares with the prover the IR
and its reader, and nothing else (tests/check/certificate/test_imports.py): it walks the program once, from top to bottom, and
asks of each claimed fact whether it follows by a rule from those of the operands. It searches for nothing. docs/proof.md says
what a certificate holds, and what has to be trusted.
"""

from decgraph.check.certificate.claims import check, verify
from decgraph.check.certificate.data import Refused, digest

__all__ = ["Refused", "check", "digest", "verify"]
