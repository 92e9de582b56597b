"""The result of a sub-run: its tokens as draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from decgraph.backends.torch.rows import Rows
from decgraph.backends.torch.transfer import number
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request


class LaterDraw:
    """A token of a sub-run as a draw: its raw probability under the model that drew it is computed when read."""

    def __init__(self, request: Request, model: Model, path: tuple[int, ...], token: int) -> None:
        self.request, self.model, self.path, self.token = request, model, path, token

    def prob(self) -> float:
        """The probability of the token after its path. The model is called once for it."""
        scores = torch.from_numpy(np.asarray(self.model.eval([self.path], None)[0].to_float().logits))[None]
        rows = Rows(scores, self.request, path=lambda i: self.path)
        return number(rows.face("raw")[0, self.token])


def drawn_later(
    request: Request, model: Model | None, base: tuple[int, ...], tokens: Sequence[int]
) -> tuple[LaterDraw | None, ...]:
    """The tokens that a sub-run of `model` appended to `base`."""
    if model is None:
        return (None,) * len(tokens)
    return tuple(LaterDraw(request, model, (*base, *tokens[:i]), t) for i, t in enumerate(tokens))
