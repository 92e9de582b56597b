"""Logits processors, stopping criteria and streamers as users write them for transformers' generate."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LogitsProcessor, StoppingCriteria
from transformers.generation.streamers import BaseStreamer

from lib.models.hf_models import V


class Even(LogitsProcessor):
    """Prefers even tokens the more, the longer the text is; a pure function that transformers does not know."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        even = torch.arange(scores.shape[-1]) % 2 == 0
        return torch.where(even, scores + 0.05 * input_ids.shape[1], scores)


class At(StoppingCriteria):
    """True after one of these tokens."""

    def __init__(self, *tokens: int) -> None:
        self.tokens = tokens

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
        assert scores is None
        return torch.tensor([int(row[-1]) in self.tokens for row in input_ids])


class Sinking(LogitsProcessor):
    """Applied twice it is another function: every call flattens the scores and lowers some of them."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return 0.6 * scores - 0.8 * (torch.arange(scores.shape[-1]) % 3 == 0)


class Counts(LogitsProcessor):
    """Bans a token after so many calls: right only if it is called once for every token."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return scores.index_fill(1, torch.tensor([5]), -float("inf")) if self.calls > 100 else scores


class Remembers(LogitsProcessor):
    """Holds a list inside an object."""

    def __init__(self) -> None:
        self.memory = {"seen": [0]}

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.memory["seen"].append(int(input_ids[0, -1]))
        return scores


class Accumulates(LogitsProcessor):
    """Changes a tensor in place."""

    def __init__(self) -> None:
        self.mean = torch.zeros(V)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(scores[0], alpha=0.1)
        return scores


class Rolls(LogitsProcessor):
    """Draws from a generator of its own."""

    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(1)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores + torch.rand(scores.shape, generator=self.generator)


class Late(LogitsProcessor):
    """Begins to remember when the text is long: seen after the run, and then there is no text."""

    def __init__(self) -> None:
        self.longest = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] > 9:
            self.longest = int(input_ids.shape[1])
        return scores


class Prepares(LogitsProcessor):
    """Makes a table at its first call: that is no state, since every call gives what the first gave."""

    table: torch.Tensor | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = torch.linspace(0, 3, scores.shape[-1])
        return scores + self.table


class Confident(StoppingCriteria):
    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> Any:
        return scores[-1].softmax(-1).max() > 0.5


class Sink(BaseStreamer):
    ended = False

    def put(self, value: torch.Tensor) -> None:
        pass

    def end(self) -> None:
        self.ended = True


class Log(BaseStreamer):
    """What was put, in order."""

    def __init__(self) -> None:
        self.put_: list[list[int]] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        assert value.device.type == "cpu"
        self.put_.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended += 1
