"""Masked language models of transformers: canvases, by layers with a memory by layer and position, or called as they are."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.net import Net
from decgraph.runtime.models.interface import (
    Cell,
    Memory,
    Model,
    Scores,
    SoftCell,
    Visibility,
    Vocab,
    check_cells,
    check_family,
    check_scores,
    sees,
)
from decgraph.runtime.models.masked_settings import LEGAL, ResolvedSettings
from decgraph.runtime.models.rotary import bounded
from decgraph.runtime.models.soft_inputs import inputs
from decgraph.runtime.models.tape import Tape, held_of, memory_of

if TYPE_CHECKING:
    from torch import nn
    from transformers import PretrainedConfig

_Call = tuple[Tape, Tensor, list[int]]  # a forward's tape, last hidden states and positions


class _Masked(Model):
    """The common part of masked models: their settings, and the scores of a position."""

    mask: int | None
    engine_module = "masked"

    def _read(self, name: str, vocab: Vocab, context: int | None, family: str, config: PretrainedConfig | None) -> None:
        self.kind, self.name, self.vocab, self.family, self.prompt = "masked", name, vocab, family, 0
        self.context, self.bounded = bounded(context, config, name)

    def after(self, prompt: int) -> Self:
        """See `Model.after`."""
        if self.prompt == prompt or self.visibility in ("full", "causal") or self.visibility[0] != "prompt+block":
            return self
        made = copy.copy(self)
        made.prompt = prompt
        return made

    def _row(self, logits: np.ndarray, position: int) -> Scores:
        row = logits[: self.vocab.size].copy()
        if self.mask is not None and self.mask < len(row):
            row[self.mask] = -np.inf
        check_scores(self, position, row)
        return Scores(logits=row)


class HFMasked(_Masked):
    """A masked language model in float32, its logits in float64. The mask itself is never predicted: its
    logit is -inf. Every call is a forward of its own, and nothing is remembered.

    shift: the scores of position i are read from the last hidden state of position i - 1, those of position 0 from its own
    (Ye et al., Dream, 2025). A call on a memory reads a state that it does not compute from the memory.
    """

    def __init__(
        self,
        net: Net,
        *,
        name: str,
        vocab: Vocab,
        context: int | None,
        family: str,
        mask: int,
        visibility: Visibility = "full",
        shift: bool = False,
    ) -> None:
        self._read(name, vocab, context, family, getattr(net.base, "config", None))
        self.mask, self.visibility, self.shift = mask, visibility, shift
        self.layers, self.net = len(net.layers), net

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], memory: Memory | None = None) -> list[Scores]:
        _, last, fresh = self._run(cells, at, memory)
        row_of = {i: n for n, i in enumerate(fresh)}
        if not len(at):
            return []
        states = torch.stack([self._state(source_of(self, i), i, last, row_of, memory) for i in at])
        return [self._row(row, i) for row, i in zip(self.net.logits(states).cpu().numpy(), at, strict=True)]

    def canvas_states(self, cells: tuple[Cell, ...], at: Sequence[int]) -> list[Tensor]:
        _, last, fresh = self._run(cells, range(len(cells)), None)
        row_of = {i: n for n, i in enumerate(fresh)}
        return [self._state(source_of(self, i), i, last, row_of, None) for i in at]

    def read_state(self, state: np.ndarray) -> Scores:
        rows = torch.from_numpy(state).to(self.net.decoder.embedding)[None]
        return self._row(self.net.logits(rows)[0].double().cpu().numpy(), 0)

    def _state(self, source: int, i: int, last: Tensor, row_of: dict[int, int], memory: Memory | None) -> Tensor:
        """The last hidden state [width] that position i is predicted from: of this call, or else of the memory."""
        if source in row_of:
            return last[row_of[source]]
        if memory is None or source not in memory.features:
            raise no_state(self.name, i)
        state: Tensor = memory.features[source]
        return state

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, memory: Memory | None = None) -> Memory:
        cells = tuple(cells)
        tape, last, fresh = self._run(cells, range(len(cells)) if at is None else at, memory)
        at_rows = {i: n for n, i in enumerate(fresh)}
        made = memory_of(tape, last, self.family, self.layers, cells, at_rows)
        return made if memory is None else memory.join(made)

    def attention_logits(self, cells: Sequence[Cell], queries: Sequence[int]) -> list[list[float]]:
        """See `Model.attention_logits`: another forward over the whole canvas."""
        cells = check_cells(self, tuple(cells))
        every = range(len(cells))
        tape = Tape(torch.arange(len(cells), device=self.net.decoder.device), self._visible(every, every, len(cells)))
        self.net.run(self._inputs(cells), tape)
        out: list[list[float]] = []
        for layer, keys in sorted(tape.keys.items()):
            query = tape.queries[layer][list(queries)].mean(0)
            keys = keys.repeat_interleave(len(query) // keys.shape[1], dim=1)
            out.append((keys * query).sum(-1).mean(-1).tolist())
        return out

    def _run(self, cells: tuple[Cell, ...], at: Iterable[int], memory: Memory | None) -> _Call:
        """One forward over `at`, or over all without a memory: its tape, last states and positions."""
        cells = check_cells(self, cells)
        check_family(self, memory)
        at = list(at)
        if any(not 0 <= i < len(cells) for i in at):
            raise DecError(f"{self.name!r} was asked for a position outside 0..{len(cells) - 1}")
        fresh = sorted(set(at)) if memory is not None else list(range(len(cells)))
        positions = torch.tensor(fresh, dtype=torch.long, device=self.net.decoder.device)
        visible = self._visible(fresh, fresh, len(cells))
        held = {} if memory is None else held_of(memory, positions, fresh)
        for layer, rows in held.items():
            held[layer] = replace(rows, visible=self._visible(fresh, rows.positions.tolist(), len(cells)))
        tape = Tape(positions, visible, held)
        return tape, self.net.run(self._inputs([cells[i] for i in fresh]), tape), fresh

    def _visible(self, queries: Sequence[int], keys: Sequence[int], length: int) -> Tensor:
        return _visible(self.visibility, queries, keys, length, self.prompt).to(self.net.decoder.device)

    def _inputs(self, cells: Sequence[Cell]) -> Tensor:
        """Token ids, or embeddings where a cell is soft."""
        assert self.mask is not None
        return inputs(self.embedding.__getitem__, cells, self.net.decoder.device, self.mask)

    @property
    def embedding(self) -> Tensor:
        """The input embeddings [vocabulary, width]."""
        return self.net.decoder.embedding


def source_of(model: Model, position: int) -> int:
    """The position from whose output the scores of a position are read."""
    return max(0, position - 1) if model.shift else position


def no_state(name: str, position: int | str) -> DecError:
    """Refuses the scores of a position of a model with a shift, of which neither the call nor its memory has the state
    before."""
    where = f"position {position}" if isinstance(position, int) else position
    return DecError(
        f"{name!r} predicts a position from the one before it, which neither the call nor its memory has: {where}",
        hint="compute the position before it in this call, or keep it in the memory: m.without(b) keeps what lies before b",
    )


def _visible(visibility: Visibility, queries: Iterable[int], keys: Sequence[int], length: int, prompt: int) -> Tensor:
    """bool[queries, keys]: the attention mask of a canvas of some length that begins at `prompt`."""
    rows = [sees(visibility, i, length, prompt) for i in queries]
    return torch.tensor([[j in seen for j in keys] for seen in rows], dtype=torch.bool)


# Masked models that are called as they are: ids in, logits out. Every call computes a whole canvas. This is how a class that
# decgraph does not know inside runs (LLaDA's and Dream's own code, DeBERTa). Who attends to whom is then the module's affair:
# it is asked in the ways that published classes understand (nothing, `attention_bias`, a 4-D `attention_mask`), and the first
# way in which its scores depend on the right positions is taken.

_TOKENS = 3  # tokens tried in a perturbed position

Way = Callable[[Tensor], dict[str, Tensor]]
"""The arguments that say who attends to whom, of bool[length, length]."""


class CalledMasked(_Masked):
    """A module whose call gives logits [batch, length, vocabulary]. Rows are float64 of what it computes in its own dtype.

    why: the reason that it is called whole, for messages; it keeps no keys and values. Raises DecError for a module whose
    scores depend on other positions than its visibility says.
    """

    def __init__(
        self,
        module: nn.Module,
        reading: ResolvedSettings,
        *,
        name: str,
        vocab: Vocab,
        context: int | None,
        family: str,
        why: str,
    ) -> None:
        self._read(name, vocab, context, family, getattr(module, "config", None))
        self.mask, self.shift, self.visibility = reading.mask, reading.shift, reading.visibility
        self.module, self.why = module.eval(), why
        self.device = next(module.parameters()).device
        self._way: Way = _nothing
        self._way = self._attending()

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], memory: Memory | None = None) -> list[Scores]:
        if memory is not None:
            raise self.no_memory()
        cells = check_cells(self, cells)
        rows = self._scored(cells)
        return [self._row(rows[source_of(self, i)].numpy(), i) for i in at]

    def _scored(self, cells: tuple[Cell, ...]) -> Tensor:
        """float64[length, at least vocabulary]."""
        assert self.mask is not None
        if any(isinstance(c, SoftCell) for c in cells):
            self.check_mixes()
        read = inputs(self.embedding.__getitem__, cells, self.device, self.mask)[None]
        ids = torch.tensor([[c if isinstance(c, int) else self.mask for c in cells]], device=self.device)
        return self.logits(ids, self.prompt, read if read.is_floating_point() else None)[0].double().cpu()

    def memory(self, cells: Sequence[Cell], at: Sequence[int] | None = None, memory: Memory | None = None) -> Memory:
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
        module: Any = self.module  # of any class
        weight: Tensor = module.get_input_embeddings().weight
        return weight

    def check_mixes(self) -> None:
        """Raises DecError for a module that takes no embeddings."""
        if "inputs_embeds" not in _parameters(self.module):
            raise DecError(f"{self.name!r} takes no inputs_embeds, so a position cannot hold a mixture of tokens")

    # -- who attends to whom

    def _visible(self, length: int, prompt: int) -> Tensor:
        return _visible(self.visibility, range(length), range(length), length, prompt).to(self.device)

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
        """The first position that depends on one that it may not attend to, or does not depend on one that it attends to, in
        words; None where all are right."""
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


def _parameters(module: nn.Module) -> frozenset[str]:
    """The names of a module's arguments."""
    return frozenset(inspect.signature(module.forward).parameters)


def _text(visibility: Visibility) -> str:
    return visibility if isinstance(visibility, str) else f"{visibility[0]}:{visibility[1]}"
