"""Values in notebooks: what `_repr_html_` of algorithms, cost reports, checks, results and explanations calls.

The rooms below know nothing of HTML; `decgraph.editor.fragments` writes it, and is found by its name when a notebook asks.
"""

from __future__ import annotations

from importlib import import_module


def fragment(value: object) -> str:
    """A piece of HTML without scripts that shows a value. Raises TypeError for what has none."""
    return str(import_module("decgraph.editor.fragments").fragment(value))


PAGES = {"Trace": "decgraph.views.page", "Counterexample": "decgraph.views.counterexample"}


def frame(value: object) -> str:
    """The page of a run (a `Trace`) or of a counterexample, in a frame of its own. Raises KeyError for what has no page."""
    return str(import_module(PAGES[type(value).__name__]).framed(value))
