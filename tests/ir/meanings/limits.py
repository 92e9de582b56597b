"""Limits: what is as small as it must be goes through, and what is larger ends the run."""

from __future__ import annotations

from hypothesis import strategies as st
from meanings.registry import Draw, Raises, Sample, says
from meanings.values import REALS, lists, reals


@says("within")
def numbers(draw: Draw) -> Sample:
    most, x = draw(st.integers(0, 20)), draw(st.integers(-25, 25))
    return Sample(
        f'%z = within(%x, most = {most}, what = "n")', {"x": ("int", x)}, (x,) if -most <= x <= most else Raises("n is")
    )


@says("within")
def vectors(draw: Draw) -> Sample:
    """At most as many elements as its capacity says."""
    xs, k = draw(lists(REALS)), draw(st.integers(0, 6))
    return Sample(
        '%z = within(%x, %k, what = "xs")', {"x": reals(xs), "k": ("int", k)}, (xs,) if len(xs) <= k else Raises("xs")
    )


__all__ = ["numbers", "vectors"]
