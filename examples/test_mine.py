"""Your own algorithm in your own tests: pytest examples/test_mine.py

The function below is read, not called. `assert_claims` derives what it claims, or compares it in small worlds, and fails with
the smallest counterexample found.
"""

import decgraph
from decgraph.dsl.prelude import (
    Causal,
    autoregressive,
    commit,
    done,
    draft,
    refines,
    rejection,
    root,
    sample,
    verify,
)
from decgraph.testing import assert_claims


@decgraph.algorithm
def two_drafts(target: Causal, drafter: Causal) -> None:
    """Two guesses side by side, each drawn on its own."""
    refines(autoregressive(target), in_="distribution")
    while not done():
        with draft() as t:
            x = sample(drafter(root))
            t.grow(x)
            y = sample(drafter(root))
            t.grow(y)
        verify(t, by=rejection, against=target(t))
        commit(t.accepted)


def test_two_drafts_are_lossless() -> None:
    assert assert_claims(two_drafts).verdict == "proved"
