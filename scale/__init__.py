"""Many prompts and many machines: rows of prompts to rows of results (`decgraph map`), with Ray Data, and behind Ray Serve.

    ds.map_batches(decgraph.scale.Decoder, fn_constructor_kwargs={"algorithm": "speculative"}, batch_size=32, concurrency=2)

Importing this loads neither torch nor Ray. docs/scale.md is its page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decgraph.scale.decoder import Decoder
    from decgraph.scale.deployment import deployed

__all__ = ["Decoder", "deployed"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from importlib import import_module

        modules = {"Decoder": "decoder", "deployed": "deployment"}
        if name not in modules:
            raise AttributeError(f"module 'decgraph.scale' has no attribute {name!r}")
        return getattr(import_module(f"decgraph.scale.{modules[name]}"), name)
