"""Captured graphs are judged anew in every test of this room: tests here plant broken passes and judges.

Elsewhere a worker of pytest judges a graph once, as a user's machine does (`runtime/models/capture/verdicts.py`), which is a
third of a session's start.
"""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_judged_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECGRAPH_VERDICTS", "0")
