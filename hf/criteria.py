"""Stopping criteria as transformers lists them: a limit, the ids that end a text, and criteria evaluated token by token.

`generate` evaluates every criterion after every token. Here an algorithm commits several at once, and the stop machine
(`runtime/stop.py`) feeds them one by one: a criterion sees each prefix in order, and the run is cut where it is first met.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError
from decgraph.runtime.processors import PaddedPrompt, name_of

if TYPE_CHECKING:
    import torch
    from typing_extensions import TypeIs

_REMEMBERED = 256  # answers of one rule: as many as an algorithm looks ahead, and more
Criterion = Any  # a StoppingCriteria, or any callable (input_ids, scores) -> bool or bool[1]


@dataclass(frozen=True)
class Stops:
    """The stop conditions of a batch. limit: most new tokens, or None. eos: the ids. asked: the criteria to evaluate."""

    limit: int | None
    eos: frozenset[int]
    asked: tuple[Criterion, ...]


def stops_of(criteria: Iterable[Criterion], length: int, size: int) -> Stops:
    """Reads the criteria that `generate` prepared for a batch of this length (padding included) and vocabulary.

    Raises DecError for a criterion that reads scores.
    """
    limit: int | None = None
    eos: set[int] = set()
    asked: list[Criterion] = []
    for criterion in criteria:
        kind = type(criterion).__name__ if type(criterion).__module__.startswith("transformers.") else ""
        if kind == "MaxLengthCriteria":
            here = int(criterion.max_length) - length
            limit = here if limit is None else min(limit, here)
        elif kind == "EosTokenCriteria":
            ids = criterion.eos_token_id
            eos |= {int(t) for t in (ids.flatten().tolist() if hasattr(ids, "flatten") else ids)}
        elif kind == "ConfidenceCriteria":
            raise DecError(
                "the stopping criterion ConfidenceCriteria is not supported: it reads scores",
                hint="leave assistant_confidence_threshold out",
            )
        else:
            asked.append(criterion)
    return Stops(limit, frozenset(t for t in eos if 0 <= t < size), tuple(asked))


class RowCriterion:
    """One criterion for one row, as a function of the path: one of a Request's `until`.

    It is evaluated once per path and remembered, so that a criterion does not see the same tokens twice if an algorithm
    looks ahead (`ended`).
    """

    def __init__(self, criterion: Criterion, row: PaddedPrompt, device: torch.device, rows: int = 1) -> None:
        self.criterion, self.pads, self.device = criterion, row.pads, device
        self.marks = _marks(criterion, row.index, rows)
        self.said: dict[tuple[int, ...], bool] = {}
        # Stop strings depend on the end of the text alone, so a long text is not decoded as a whole.
        self.tail = int(getattr(criterion, "maximum_token_len", 0)) if type(criterion).__name__ == "StopStringCriteria" else 0

    def __call__(self, path: tuple[int, ...]) -> bool:
        if path not in self.said:
            if len(self.said) >= _REMEMBERED:
                self.said.clear()
            self.said[path] = self._ask((*self.pads, *path))
        return self.said[path]

    def _ask(self, ids: Sequence[int]) -> bool:
        import torch

        shown = torch.tensor([ids[-self.tail :] if self.tail else ids], dtype=torch.long, device=self.device)
        try:
            criterion = self.criterion
            if self.marks:
                criterion = copy.copy(criterion)
                for name, marks in self.marks.items():
                    setattr(criterion, name, [False] if isinstance(marks, list) else marks.clone())
            made = criterion(shown, None)
            return bool(torch.as_tensor(made).any())
        except DecError:
            raise
        except Exception as error:  # the caller's code: whatever it raises is the caller's to read
            raise DecError(
                f"the stopping criterion {name_of(self.criterion)} raised {type(error).__name__}: {error}",
                hint="it is called with one sequence, input_ids [1, length], and scores None",
            ) from error

    def __repr__(self) -> str:
        return f"the stopping criterion {name_of(self.criterion)}"


def _marks(criterion: Criterion, row: int, rows: int) -> dict[str, list[bool] | torch.Tensor]:
    """What a criterion marks the rows in that have ended, for one row that has not: attributes that are lists of `rows` times
    False, or bool tensors [rows] of them.

    lm_eval's MultiTokenEOSCriteria has such a list. It indexes its decoded rows by it, so a row alone is too few; and a mark
    stays, so a draft that ends the text and is rejected would end it all the same.
    """
    marks: dict[str, list[bool] | torch.Tensor] = {}
    for name, value in getattr(criterion, "__dict__", {}).items():
        if isinstance(value, list) and len(value) == rows and all(v is False for v in value):
            marks[name] = value[row : row + 1]
        elif _is_bools(value) and tuple(value.shape) == (rows,) and not bool(value.any()):
            marks[name] = value[row : row + 1].clone()
    return marks


def _is_bools(value: object) -> TypeIs[torch.Tensor]:
    """Whether a value is a torch tensor of booleans, told without importing torch."""
    return type(value).__module__ == "torch" and hasattr(value, "shape") and str(getattr(value, "dtype", "")) == "torch.bool"
