"""Masked models that are called as they are: ids in, logits out. Every call computes a whole canvas.

This is how a class that decgraph does not know inside runs (LLaDA's and Dream's own code, DeBERTa). Who attends to whom is then
the module's affair: it is asked in the ways that published classes understand (nothing, `attention_bias`, a 4-D
`attention_mask`), and the first way in which its scores depend on the right positions is taken.
"""

from __future__ import annotations

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.hf_masked import inputs_of, source_of
from decgraph.runtime.models.interface import (
    Cell,
    Memory,
    Model,
    Scores,
    Soft,
    Visibility,
    Vocab,
    check_cells,
    check_scores,
    sees,
)
from decgraph.runtime.models.masked_settings import LEGAL, Reading
from decgraph.runtime.models.rotary import bounded

_REMEMBERED = 4
_TOKENS = 3  # tokens tried in a perturbed position

Way = Callable[[Tensor], dict[str, Tensor]]
"""The arguments that say who attends to whom, of bool[length, length]."""


class CalledMasked(Model):
    """A module whose call gives logits [batch, length, vocabulary]. Rows are float64 of what it computes in its own dtype.

    why: the reason that it is called whole, for messages; it keeps no keys and values. Raises DecError for a module whose
    scores depend on other positions than its visibility says.
    """

    def __init__(
        self, module: Any, reading: Reading, *, name: str, vocab: Vocab, context: int | None, family: str, why: str
    ) -> None:
        self.kind = "masked"
        self.name, self.vocab, self.family = name, vocab, family
        self.context, self.bounded = bounded(context, getattr(module, "config", None), name)
        self.mask, self.shift, self.visibility = reading.mask, reading.shift, reading.visibility
        self.module, self.why, self.prompt = module.eval(), why, 0
        self.device = next(module.parameters()).device
        self._calls: OrderedDict[tuple[tuple[Cell, ...], int], Tensor] = OrderedDict()
        self._way: Way = _nothing
        self._way = self._attending()

    def after(self, prompt: int) -> CalledMasked:
        """See `Model.after`."""
        if self.prompt == prompt or self.visibility[0] != "prompt+block":
            return self
        made = copy.copy(self)
        made.prompt = prompt
        return made

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], given: Memory | None = None) -> list[Scores]:
        if given is not None:
            raise self.no_memory()
        cells = check_cells(self, cells)
        key = (cells, self.prompt)
        if key not in self._calls:
            ids = torch.tensor([[c if isinstance(c, int) else self.mask for c in cells]], device=self.device)
            mixed = None
            if any(isinstance(c, Soft) for c in cells):
                self.check_mixes()
                mixed = inputs_of(self.embedding, cells, self.mask)[None]
            self._calls[key] = self.logits(ids, self.prompt, mixed)[0].double().cpu()
        self._calls.move_to_end(key)
        while len(self._calls) > _REMEMBERED:
            self._calls.popitem(last=False)
        rows = self._calls[key]
        return [self._row(rows[source_of(self, i)].numpy(), i) for i in at]

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, given: Memory | None = None) -> Memory:
        raise self.no_memory()

    def no_memory(self) -> DecError:
        """Refuses a call that keeps or reads keys and values."""
        return DecError(
            f"{self.name!r} keeps no keys and values, which this algorithm's cache policy needs: {self.why}",
            hint="run it without a cache: --cache none, or fast_dllm_uncached for fast_dllm",
        )

    @torch.no_grad()
    def logits(self, ids: Tensor, prompt: int, embeddings: Tensor | None = None) -> Tensor:
        """The module's scores [batch, length, at least vocabulary] of canvases int64[batch, length] that begin at `prompt`,
        or of their embeddings [batch, length, width]. Raises DecError where the call fails, and for logits of another shape."""
        given = {"input_ids": ids} if embeddings is None else {"inputs_embeds": embeddings}
        extra = self._way(self._visible(ids.shape[1], prompt))
        try:
            out = self.module(**given, **extra)
        except DecError:
            raise
        except Exception as error:  # the module's own code: whatever it raises is about this call
            raise DecError(f"{self.name!r} cannot be called: {type(error).__name__}: {error}") from error
        scores = getattr(out, "logits", out[0] if isinstance(out, tuple) else out)
        if not isinstance(scores, Tensor) or scores.shape[:-1] != ids.shape or scores.shape[-1] < self.vocab.size:
            found = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            wanted = [*ids.shape, self.vocab.size]
            raise DecError(f"{self.name!r} gave {found} for logits of {wanted}", hint="a masked model's call returns .logits")
        return scores

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [vocabulary, width]."""
        weight: Tensor = self.module.get_input_embeddings().weight
        return weight

    def check_mixes(self) -> None:
        """Raises DecError for a module that takes no embeddings."""
        if "inputs_embeds" not in _parameters(self.module):
            raise DecError(f"{self.name!r} takes no inputs_embeds, so a position cannot hold a mixture of tokens")

    def _row(self, logits: np.ndarray, position: int) -> Scores:
        row = logits[: self.vocab.size].copy()
        if self.mask is not None and self.mask < len(row):
            row[self.mask] = -np.inf
        check_scores(self, position, row)
        return Scores(logits=row)

    # -- who attends to whom

    def _visible(self, length: int, prompt: int) -> Tensor:
        seen = [sees(self.visibility, i, length, prompt) for i in range(length)]
        return torch.tensor([[j in row for j in range(length)] for row in seen], device=self.device)

    def _attending(self) -> Way:
        """The first way to call the module in which its scores depend on the positions that they may depend on."""
        names = _parameters(self.module)
        ways: list[Way] = [_nothing]
        if "attention_bias" in names:
            ways.append(lambda seen: {"attention_bias": _additive(seen)})
        if "attention_mask" in names:
            dtype = next(self.module.parameters()).dtype
            ways.append(lambda seen: {"attention_mask": _additive(seen).to(dtype)})
        wrong: list[str] = []
        for way in ways:
            self._way = way
            try:
                found = self._misattends()
            except DecError:
                if way is _nothing:
                    raise
                continue  # it does not take such a mask
            if found is None:
                return way
            wrong.append(found)
        raise DecError(
            f"{self.name!r} does not attend as visibility {_text(self.visibility)} says: {wrong[0]}",
            hint=f"set visibility to what it was trained with: {LEGAL}; or load it with bidirectional attention",
        )

    def _misattends(self) -> str | None:
        """What depends on a position that it may not see, or does not on one that it sees; None: all is right."""
        prompt, length, changed = _probe(self.visibility)
        if self.context is not None and length > self.context:
            return None  # a block longer than the context: all that fits is one block
        ids = (torch.arange(length, device=self.device) * 5 + 3)[None] % self.vocab.size
        before = self.logits(ids, prompt)[0].float()
        least = 16 * torch.finfo(next(self.module.parameters()).dtype).eps * float(before.abs().max())
        for j in changed:
            moved = torch.zeros(length, device=self.device)
            for step in range(1, _TOKENS + 1):
                other = ids.clone()
                other[0, j] = (ids[0, j] + 11 * step) % self.vocab.size
                moved = moved.maximum((self.logits(other, prompt)[0].float() - before).abs().amax(-1))
            sees_j = [j in sees(self.visibility, i, length, prompt) for i in range(length)]
            for i, may in enumerate(sees_j):
                if not may and float(moved[i]) > least:
                    return f"the token at {j} changes the scores at {i}, which does not attend to it"
            if any(may and i != j for i, may in enumerate(sees_j)) and not any(
                may and i != j and float(moved[i]) > least for i, may in enumerate(sees_j)
            ):
                return f"the token at {j} changes no scores but its own"
        return None


def _probe(visibility: Visibility) -> tuple[int, int, list[int]]:
    """(where the canvas begins, its length with the prompt, positions to change) of a canvas that shows a visibility."""
    if isinstance(visibility, str):
        return 0, 6, [5, 2]
    kind, n = visibility
    prompt = 3 if kind == "prompt+block" else 0
    return prompt, prompt + n + 2, [prompt + n + 1, max(prompt + n - 1, 0), max(prompt - 1, 0)]


def _nothing(seen: Tensor) -> dict[str, Tensor]:
    return {}


def _additive(seen: Tensor) -> Tensor:
    """float32[1, 1, length, length]: 0 where a position attends, the least number where it does not."""
    least = torch.finfo(torch.float32).min / 2
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, least)[None, None]


def _parameters(module: Any) -> frozenset[str]:
    """The names of a module's arguments."""
    return frozenset(inspect.signature(module.forward).parameters)


def _text(visibility: Visibility) -> str:
    return visibility if isinstance(visibility, str) else f"{visibility[0]}:{visibility[1]}"
