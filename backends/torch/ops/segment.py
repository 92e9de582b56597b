"""Lowering of ir/ops/segment.py: program.py calls what its region was compiled to."""

from __future__ import annotations

from decgraph.backends.torch.lowering import written

written("segment")
