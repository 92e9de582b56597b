"""The tokens of a program on the shipped models, to be compared with the target's own."""

from __future__ import annotations

from typing import Any

import decgraph
from decgraph.models import request_for

PROMPTS = ("def mean(values):\n    ", "import os\nimport sys\n\nclass Reader:\n    def read(self, path):\n")


def tokens(name: str, backend: str, temperature: float, params: dict[str, Any]) -> list[tuple[int, ...]]:
    session = decgraph.load(name).session(backend=backend, **params)
    results = [session.run(request_for(session, prompt=p, max_tokens=10, seed=5, temperature=temperature)) for p in PROMPTS]
    assert all(r.error is None for r in results), [r.error for r in results]
    return [tuple(r.tokens) for r in results]
