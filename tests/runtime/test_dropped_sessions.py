"""A session that nobody holds is freed, with its models and everything that its runs computed."""

from __future__ import annotations

import gc
import weakref

import pytest

import decgraph

FAMILIES = ["speculative", "rsd_s", "beam", "lookahead", "cfg", "llada", "kgw_watermark", "cs_drafting"]


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_dropped_session_is_freed(name: str, backend: str) -> None:
    """Values of a run that are in NumPy's arrays refer to the run: the collector does not look there."""
    externs = {"green": lambda tokens, token: token % 2 == 0} if name == "kgw_watermark" else None
    a = decgraph.load(name)
    session = a.session(backend=backend, externs=externs)
    gone = [weakref.ref(session), *(weakref.ref(m) for m in session.models.values())]
    session.generate(["def main():\n", "import"], batch=2, max_tokens=8, temperature=0.9)
    del session
    gc.collect()
    assert [w() for w in gone] == [None] * len(gone)
