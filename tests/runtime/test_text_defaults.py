"""A text that is the default of a vector of tokens is read by the session's tokenizer, as one that is given is."""

from __future__ import annotations

import pytest

import decgraph

TEXT = """
algorithm follows(target: causal, other: token[<= 16] = {}):
    state at: int per sequence = 0
    while not done:
        x ~ target(ctx)
        at = at + 1
        commit other[at - 1] if at <= len(other) else x
"""


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_a_default_is_read_as_a_text_that_is_given(backend: str) -> None:
    default = decgraph.parse(TEXT.format('"import os"')).run("x", max_tokens=3, backend=backend)
    given = decgraph.parse(TEXT.format("[]")).run("x", max_tokens=3, params={"other": "import os"}, backend=backend)
    assert default.tokens == given.tokens and default.text.startswith("import os")
    other = decgraph.parse(TEXT.format('"import os"')).run("x", max_tokens=2, params={"other": [5]}, backend=backend)
    assert other.tokens[0] == 5
