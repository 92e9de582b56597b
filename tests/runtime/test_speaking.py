"""A model in another model's vocabulary: what it reads, what its rows are, and the same on the engine as alone."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from fidelity import models as recorded

from decgraph.errors import DecError
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.spelling import Spelling, numbered, shared, spelled
from decgraph.runtime.models.table import TableModel

TARGET = ["a", "b", "c", "ab", "d"]
DRAFTER = ["b", "bc", "a", "x", "c", "b"]


class Watched(TableModel):
    """A table that remembers what it was asked."""

    def eval(self, paths: Sequence[tuple[int, ...]], memory: Any = None) -> list[Scores]:
        self.asked = [tuple(p) for p in paths]
        return super().eval(paths, memory)


def pair(drafter: Sequence[str] = DRAFTER) -> tuple[TableModel, Watched]:
    target, small = TableModel(len(TARGET), 1, name="target"), Watched(len(drafter), 2, name="small", vocab="other")
    target.spelling, small.spelling = spelled(TARGET), spelled(drafter)
    return target, small


@pytest.mark.parametrize(
    ("path", "read"),
    [((0, 1, 2), (2, 1)), ((3, 2), (2, 1)), ((3, 0, 3), (2, 0, 2, 2, 0)), ((4, 1), (0,)), ((1, 4, 2), (0, 4)), ((4,), (0,))],
)
def test_it_reads_the_text_in_its_own_tokens(path: tuple[int, ...], read: tuple[int, ...]) -> None:
    """The longest token that fits; a letter that it has not, `d`, is left out, and an empty text is its first token."""
    target, small = pair()
    derive(small, "speaking", target).eval([path])
    assert small.asked == [read]


def test_its_rows_are_of_the_tokens_that_both_have() -> None:
    target, small = pair()
    made = derive(small, "speaking", target)
    assert made.vocab == target.vocab
    (row,) = made.eval([(0, 1)])
    (own,) = small.eval([(2, 0)])
    assert row.weights is not None
    assert own.weights is not None
    a, b, c = own.weights[2], own.weights[0], own.weights[4]
    assert row.weights == (a / (a + b + c), b / (a + b + c), c / (a + b + c), 0, 0)


def test_without_any_of_them_they_are_equally_likely() -> None:
    target, small = pair()
    certain = TableModel(6, table={(2,): (0, 0, 0, 1, 0, 0)}, name="certain", vocab="other")
    certain.spelling = small.spelling
    (row,) = derive(certain, "speaking", target).eval([(0,)])
    assert row.weights == (*[Fraction(1, 3)] * 3, 0, 0)


def test_no_token_in_common_is_an_error() -> None:
    target, small = pair(["x", "y"])
    with pytest.raises(DecError, match="have no token in common"):
        derive(small, "speaking", target)


def test_special_tokens_are_shared_by_name() -> None:
    def made(pieces: list[bytes], names: dict[str, int]) -> Spelling:
        return Spelling(pieces, lambda text: [], names)

    a, b = made([b"", b"x", b""], {"<e>": 0, "<p>": 2}), made([b"x", b"", b"y"], {"<e>": 1})
    assert shared(a, b) == ((0, 1), (1, 0))
    assert shared(numbered(3), numbered(5)) == ((0, 0), (1, 1), (2, 2))


def test_the_engine_computes_what_the_model_does() -> None:
    """Chains that grow, one that is read anew, trees, and texts whose first token differs: the drafter's own engine caches what
    the texts have in common."""
    letters = [*"pqrs", *"abcdefghijklmnopqrstuvwxyz"]
    target, small = recorded.causal("target"), recorded.causal("drafter")
    target.spelling, small.spelling = spelled([*letters, "jp", "ls"]), spelled([*reversed(letters), "ab", "cd"])
    made = derive(small, "speaking", target)
    engine = engine_of(made)
    context = [8, 21, 4, 22, 13, 30, 25]

    def same(*calls: ForwardCall) -> None:
        for call, rows in zip(calls, engine.compute(list(calls)), strict=True):
            wanted = np.stack([s.logits for s in made.eval(call.paths())])
            got = rows.double().numpy()
            assert ((got > -np.inf) == (wanted > -np.inf)).all()
            assert np.allclose(np.where(got > -np.inf, got, 0), np.where(wanted > -np.inf, wanted, 0), atol=1e-4)

    try:
        same(ForwardCall("r", context))
        before = engine.counted.computed
        same(ForwardCall("r", [*context, 5]))  # after 25 = `v`: one token more
        assert engine.counted.computed - before == 1
        same(ForwardCall("r", [*context, 4]), ForwardCall("other", [4]))
        same(ForwardCall("r", [*context, 4, 5]))  # `ab` is one token of the drafter's
        same(ForwardCall("r", context, (), [4, 5, 31], [-1, 0, -1], [-1, -1, -1], [-1, 0, 1, 2]))
        same(ForwardCall("other", [4], (), [5, 6], [-1, -1], [-1, -1], [0, 1, -1]))  # `ab`, `ac`, `a`
    finally:
        engine.close("r")
        engine.close("other")
        target.spelling = small.spelling = None
