"""The reference backend: runs an IR function op by op, in NumPy float64. Slow, obvious, and the meaning.

The exact checker runs the same machine over rationals, with another source of choices (backends/exact).
"""

from __future__ import annotations

from decgraph.backends.reference.stores import Stores
from decgraph.backends.reference.walk import Walk


class ReferenceMachine(Walk, Stores):
    """One request running one function of a module; its arguments are `Backend`'s."""
