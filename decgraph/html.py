"""Values in notebooks: what `_repr_html_` of algorithms, cost reports, checks, counterexamples, results and explanations calls.

The rooms below know nothing of HTML; `decgraph.editor.fragments` writes it, and is found by its name when a notebook asks.
"""

from __future__ import annotations

from importlib import import_module


def fragment(value: object) -> str:
    """A piece of HTML without scripts that shows a value. Raises TypeError for what has none."""
    return str(import_module("decgraph.editor.fragments").fragment(value))


def frame(run: object) -> str:
    """The page of a run (a `Trace` of decgraph.views) in a frame of its own."""
    return str(import_module("decgraph.views.page").framed(run))
