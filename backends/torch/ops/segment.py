"""Lowering of ir/ops/segment.py: the driver has its ops inline, or calls a backend's kernel."""

from __future__ import annotations

from decgraph.backends.torch.lowering import written

written("segment")
