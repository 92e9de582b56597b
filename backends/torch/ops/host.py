"""Lowerings of ir/ops/host.py: the program's own Python functions and the step barrier."""

from __future__ import annotations

from decgraph.backends.torch.lowering import on_host, written

on_host("extern", why="it is a Python function of the user's")
written("batch.top", "batch.fold")
