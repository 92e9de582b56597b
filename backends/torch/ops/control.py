"""Lowerings of ir/ops/control.py: Python's own statements, as writer.py writes them."""

from __future__ import annotations

from decgraph.backends.torch.lowering import written

written("for", "while", "if", "break", "verdict", "each", "run", "const", "unfailing")
