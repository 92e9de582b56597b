"""Stopping criteria that mark the rows of a batch in a list of their own, as lm_eval's do: each row is asked alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import decgraph


class Ends:
    """Met when every row has had one of the tokens after its prompt; the rows that have are marked, for good."""

    def __init__(self, tokens: tuple[int, ...], length: int, rows: int, *, tensor: bool = False) -> None:
        self.tokens, self.length = tokens, length
        self.ended: Any = torch.zeros(rows, dtype=torch.bool) if tensor else [False] * rows
        self.asked = [0]

    def __call__(self, input_ids: Any, scores: Any) -> bool:
        self.asked[0] += 1
        for row in range(len(self.ended)):
            if not self.ended[row]:
                self.ended[row] = bool(torch.isin(input_ids[row, self.length :], torch.tensor(self.tokens)).any())
        return all(self.ended)


def cut(row: list[int], tokens: tuple[int, ...]) -> list[int]:
    """A row up to the first of some tokens."""
    first = next((i for i, token in enumerate(row) if token in tokens), len(row))
    return row[: first + 1]


@pytest.mark.parametrize("tensor", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("name", ["speculative", "autoregressive"])
def test_each_row_ends_by_itself(name: str, rows: int, tensor: bool, target: Any, drafter: Any) -> None:
    """The drafter disagrees with the target now and then: a mark that a rejected draft has made would end the text early."""
    prompts = torch.tensor([[5, 9, 11, 7], [1, 2, 3, 4], [40, 3, 22, 8], [6, 6, 17, 30]])[:rows]
    settings = {"max_new_tokens": 20, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    plain = target.generate(prompts, **settings)[:, 4:].tolist()
    tokens = tuple({row[3 + 3 * i] for i, row in enumerate(plain)})
    models = {"drafter": drafter} if name == "speculative" else {}
    custom = decgraph.hf(name, **models)
    ends = Ends(tokens, 4, rows, tensor=tensor)
    target.generate(prompts, custom_generate=custom, stopping_criteria=[ends], **settings)
    assert [list(result.tokens) for result in custom.last] == [cut(row, tokens) for row in plain]
    assert ends.asked[0] > 0


def test_a_list_that_marks_no_rows_is_left_as_it_is(target: Any) -> None:
    """Two rows, and a criterion with two tokens: a list of settings."""

    class One:
        def __init__(self) -> None:
            self.tokens, self.seen = [1, 2], [0]

        def __call__(self, input_ids: Any, scores: Any) -> bool:
            assert self.tokens == [1, 2]
            self.seen[0] += 1
            return False

    one = One()
    ids = torch.tensor([[5, 9], [1, 2]])
    target.generate(
        ids, custom_generate=decgraph.hf("autoregressive"), stopping_criteria=[one], max_new_tokens=3, do_sample=False
    )
    assert one.seen[0] >= 4
