"""Ranges are known of every program of the standard library: no value is asked for before it was followed."""

from __future__ import annotations

from decgraph.backends.exact.coverage import outcomes
from decgraph.errors import DecError
from decgraph.ir.ranges import impossible
from decgraph.stdlib import names


def test_what_cannot_happen_is_said_of_every_program() -> None:
    import decgraph

    found = 0
    for name in names():
        try:
            function = decgraph.load(name).function
        except DecError:  # a helper is no algorithm
            continue
        found += len(impossible(function, outcomes)) >= 0
    assert found > 200
