"""Lowerings of ir/ops/parts.py, but for those that no model adapter supports."""

from __future__ import annotations

from decgraph.backends.torch.lowering import on_host

on_host("maxpool", why="it is over one number a token")
on_host("hidden.map", why="embeddings are coordinates, on the host like the weights that they are made of")
