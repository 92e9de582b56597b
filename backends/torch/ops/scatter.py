"""Lowering of ir/ops/scatter.py."""

from __future__ import annotations

from decgraph.backends.torch.lowering import on_host

on_host("scatter", why="it writes to a short vector in place")
