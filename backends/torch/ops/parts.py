"""Lowerings of ir/ops/parts.py: no model adapter lets layers of its memory and attention scores be read."""

from __future__ import annotations

from decgraph.backends.torch.lowering import on_host, refused

refused("memory.layer", "memory.put", why="no model adapter gives the layers of its KV cache")
refused("memory.scores", why="no model adapter gives its attention scores")
on_host("maxpool", why="it is over one number a token")
on_host("hidden.map", why="embeddings come from what is refused")
