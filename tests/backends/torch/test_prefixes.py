"""Penalties and constraints of rows whose text is kept up to date, against the reference's, which reads the whole text."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from decgraph.backends.torch import shaping
from decgraph.backends.torch.prefixes import CommittedText, Prefixes
from decgraph.backends.torch.rows import Rows
from decgraph.runtime import shaping as reference
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.models.interface import Scores
from decgraph.runtime.request import Request

SIZE = 9
PARITY = Automaton(((1, 0) * 4 + (0,), (0, -1) * 4 + (1,)), frozenset({0}))
REQUESTS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {"presence_penalty": 0.5},
    {"frequency_penalty": 0.25, "bias": {2: 1.5, 20: 1.0}},
    {"repetition_penalty": 0.8, "presence_penalty": -0.5, "frequency_penalty": 0.125},
    {"min_length": 5, "eos": frozenset({3})},
    {"allow": PARITY},
]


@pytest.mark.parametrize("fields", REQUESTS, ids=lambda f: "+".join(f))
def test_rows_of_a_growing_text_are_shaped_as_the_reference_shapes_their_whole_path(fields: dict[str, Any]) -> None:
    made = np.random.default_rng(0)
    prompt = tuple(made.integers(0, 12, 4).tolist())  # a prompt may hold tokens that a drafter's vocabulary lacks
    request = Request(prompt=prompt, **fields)
    tokens = list(prompt)
    text = CommittedText(tokens, len(prompt))
    kept: list[tuple[Rows, list[tuple[int, ...]]]] = []
    for step in range(40):
        drafts = [tuple(made.integers(0, SIZE, n).tolist()) for n in (0, 1, 3)]
        length = len(tokens) - (step % 3 == 2)
        if length < len(tokens):  # the parent of a context has no draft below it
            drafts = [()]
        scores = torch.from_numpy(made.normal(size=(len(drafts), SIZE)))
        rows = Rows(scores, request, path=Prefixes(text, length, drafts.__getitem__))
        kept.append((rows, [(*tokens[:length], *d) for d in drafts]))
        tokens += made.integers(0, SIZE, 1 + step % 2).tolist()
        if step % 4 == 3:  # rows of this step and of earlier ones, read when the text has grown
            for rows, paths in kept:
                for n, path in enumerate(paths):
                    row = Scores(logits=rows.scores[n].numpy())
                    try:
                        want = reference.shaped_probs(row, path, request)
                    except reference.DecError:
                        assert rows.face("shaped") is not None and rows.dead is not None and rows.dead[n]
                        continue
                    np.testing.assert_array_equal(rows.face("shaped")[n].numpy(), want)
            kept.clear()


def test_a_step_reads_the_new_tokens_only() -> None:
    class Watched(list):
        read = 0

        def __getitem__(self, index: Any) -> Any:
            part = super().__getitem__(index)
            Watched.read += len(part) if isinstance(index, slice) else 1
            return part

    tokens = Watched(range(1000))
    text = CommittedText(tokens, 4)
    request = Request(prompt=(0, 1, 2, 3), repetition_penalty=1.2, frequency_penalty=0.1, min_length=2000, eos=frozenset({5}))
    for step in range(50):
        rows = Rows(torch.zeros(2, 2000), request, path=Prefixes(text, len(tokens), lambda row: (7, 8)[:row]))
        assert rows.face("shaped") is not None
        assert Watched.read <= 1000 + 2 * step
        tokens.append(step)


def test_counts_are_of_what_was_generated() -> None:
    tokens = [5, 5, 1]
    text = CommittedText(tokens, 2)
    for token in np.random.default_rng(1).integers(0, 300, 500).tolist():
        tokens.append(token)
        ids, counts = text.distinct(len(tokens))
        assert set(ids.tolist()) == set(tokens)
        assert {int(i): int(c) for i, c in zip(ids, counts) if c} == Counter(tokens[2:])


def test_a_masked_position_of_a_model_without_a_mask_token_is_no_token() -> None:
    request = Request(prompt=(0,), presence_penalty=1.0, frequency_penalty=1.0, repetition_penalty=2.0)
    row = np.array([0.5, 0.25, 1.0])
    path = (0, -1, -1)
    want = reference.shaped_probs(Scores(logits=row), path, request)
    np.testing.assert_allclose(np.log(want[2] / want[1]), 0.75)
    rows = Rows(torch.from_numpy(row[None]), request, path=lambda _: path)
    np.testing.assert_array_equal(rows.face("shaped")[0].numpy(), want)
    assert shaping.first_argmax(rows.adjusted()).tolist() == [2]
