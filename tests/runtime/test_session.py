"""Sessions: parameters and models checked, events as they happen, what was produced kept when a run ends early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.runtime.models.interface import Memory, Scores
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Committed, Drafted, Emitted, Stats, Stopped
from decgraph.stdlib import text

TARGET, DRAFTER = TableModel(4, seed=1, name="target"), TableModel(4, seed=2, name="drafter")


def session(target: Any = TARGET, drafter: Any = DRAFTER, **params: Any) -> Session:
    module = load_text(text("speculative"), "speculative.dec")
    return Session(module, {"target": target, "drafter": drafter}, params, machine=machine("reference"))


class Broken(TableModel):
    """A table that answers with NaN after a path of some length."""

    def __init__(self, after: int) -> None:
        super().__init__(4, seed=1, name="broken")
        self.after = after

    def eval(self, paths: Sequence[tuple[int, ...]], memory: Memory | None = None) -> list[Scores]:
        from decgraph.runtime.models.interface import check_scores

        rows = [row.to_float() for row in super().eval(paths, memory)]
        for path in paths:
            if len(path) >= self.after:
                check_scores(self, len(path), np.full(4, np.nan))
        return rows


@pytest.mark.parametrize("value", [None, 5, ["target"]])
def test_what_is_no_model_is_refused(value: Any) -> None:
    with pytest.raises(DecError, match=r"`target` must be a causal model, .* is no model"):
        session(target=value)


def test_a_stream_is_the_run_as_it_happens() -> None:
    request = Request(prompt=(0, 1), max_tokens=9, seed=5)
    items = list(session().stream(request))
    whole = session().run(request)
    assert isinstance(items[-1], Result) and items[-1].tokens == whole.tokens
    assert items[:-1] == whole.events and Stats.of(items[:-1]) == whole.stats
    assert {type(e) for e in items} >= {Drafted, Emitted, Committed, Stopped}
    assert sum((e.tokens for e in items if isinstance(e, Committed)), ()) == whole.tokens


def test_a_stream_that_is_left_ends_its_run() -> None:
    s = session()
    stream = s.stream(Request(prompt=(0, 1), max_tokens=10_000, seed=5))
    assert isinstance(next(e for e in stream if isinstance(e, Committed)), Committed)
    stream.close()  # type: ignore[attr-defined]
    assert s.run(Request(prompt=(0, 1), max_tokens=3, seed=5)).error is None


def test_nan_logits_end_a_run_and_keep_its_tokens() -> None:
    s = session(target=Broken(after=9))
    result = s.run(Request(prompt=(0, 1), max_tokens=30, seed=5))
    assert result.error is not None and "'broken' gave logits that are not numbers" in str(result.error)
    assert 0 < len(result.tokens) < 30
    sound = session().run(Request(prompt=(0, 1), max_tokens=30, seed=5))
    assert sound.tokens[: len(result.tokens)] == result.tokens
    assert isinstance(list(s.stream(Request(prompt=(0, 1), max_tokens=30, seed=5)))[-1].error, DecError)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"gamma": 0}, "in 1..32"),
        ({"gamma": 33}, "in 1..32"),
        ({"gamma": 2.5}, "whole number"),
        ({"gama": 3}, "did you mean gamma"),
        ({"gamma": "x"}, "whole number"),
    ],
)
def test_parameters_outside_their_range_are_refused(params: dict[str, Any], words: str) -> None:
    with pytest.raises(DecError, match=words):
        session(**params)


def test_models_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DecError, match="must be a causal model"):
        session(drafter=TableModel(4, seed=3, kind="masked"))
    with pytest.raises(DecError, match="different vocabularies"):
        session(drafter=TableModel(5, seed=3))
    with pytest.raises(DecError, match="not in 0|below the vocabulary|vocabulary's size"):
        session().run(Request(prompt=(0, 7), max_tokens=3))


def test_a_prompt_past_the_context_is_refused_and_a_run_stops_at_its_end() -> None:
    small = TableModel(4, seed=1, context=6, name="small")
    with pytest.raises(DecError, match="context length is 6"):
        session(target=small).run(Request(prompt=(0,) * 7, max_tokens=3))
    result = session(target=small).run(Request(prompt=(0, 1), max_tokens=30, seed=5))
    assert result.error is None and result.reason == "context" and len(result.tokens) == 5


def test_a_prompt_over_the_drafters_context_names_the_drafter() -> None:
    with pytest.raises(DecError, match="has 7 tokens, the context length of `drafter` is 6"):
        session(drafter=TableModel(4, seed=1, context=6)).run(Request(prompt=(0,) * 7, max_tokens=3))
