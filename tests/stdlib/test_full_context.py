"""Every program of stdlib/ on models of nine positions, some of which end before the others: a text ends there with what is
committed, and never in an error. A drafter, a head, a canvas or a second
context may be full before the text is."""

from __future__ import annotations

import pytest
from lib.stdlib.sessions import session_of

import decgraph
from decgraph import stdlib
from decgraph.check.worlds import models_for, params_for
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result

from .test_last_place import V

C, MORE = 9, 40
NOTHING_YET = {
    "iterative_agent": "its rounds read the answers of earlier ones, and the first answer filled the context",
    "self_infilling": "the text is written whole, in contexts that hold its marks as well",
}
"""Programs that may ask for more than a context before they commit anything: their request does not fit, which is an error."""


def result(name: str, full: str, backend: str) -> Result | None:
    """full: which models have few positions, "all", "first" (the others have more) or "others". None with one model."""
    algorithm = decgraph.load(name)
    f = algorithm.function
    models = models_for(f, V, 1, free=True, context=C if full == "all" else None)
    windows = [m for m in models.values() if m.kind in ("causal", "masked")]
    if full != "all":
        if len(windows) < 2:
            return None
        for i, model in enumerate(windows):
            model.context = C if (i == 0) == (full == "first") else MORE
    return session_of(algorithm, models, params_for(f, 1), backend).run(Request(prompt=(1, 2), max_tokens=30, temperature=0))


@pytest.mark.quick(("monitoring", "reference"), ("apd", "torch"), ("universal_assisted", "torch"), ("transfer_q", "reference"))
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("name", stdlib.names())
def test_a_full_context_ends_the_text(name: str, backend: str) -> None:
    for full in ("all", "first", "others"):
        got = result(name, full, backend)
        if got is None:
            continue
        if name in NOTHING_YET and not got.tokens:
            assert got.error is not None and "past the context length" in str(got.error), (full, got.error)
            continue
        assert got.error is None, (full, str(got.error))
        assert got.tokens or got.reason == "end", full  # a program may have nothing to say
        assert len(got.tokens) <= MORE - 1
        assert got.reason in ("context", "end", "limit", "eos", "until", "stop"), (full, got.reason)
