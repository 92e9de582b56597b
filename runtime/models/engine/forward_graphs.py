"""Forwards as CUDA graphs: an engine's forward of few tokens is captured for each shape that comes again, and replayed.

The driver of a program without a whole step asks for forwards of any shape. How many tokens there are and how many cached rows
they look at are rounded up to few numbers, so that few graphs serve a text; what is read besides weights and caches (tokens,
positions, rows, masks) is copied into tensors of the capture. Keys and values are not copied: a graph has their addresses.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from decgraph.runtime.models.decoder.decoder import TransformerDecoder
from decgraph.runtime.models.engine.slots import Layout
from decgraph.runtime.models.engine.step import ForwardStep, Tapped

_LOG = logging.getLogger("decgraph.engine")
Recorder = Callable[[Callable[[], object], torch.device], Callable[[], None]]
"""Gives a function that replays one that reads and writes tensors of before."""

recorder: Recorder | None = None
"""That of CUDA devices, which the triton backend sets: without it forwards are launched operation by operation."""

WIDE = 64
"""Tokens of a sequence in a forward that is captured, at most. Prompts take more, and their products are no launches' time."""
MOST = 32
"""Graphs of an engine: those that were not replayed for longest go."""
_ROWS = 256  # lengths are powers of two from here on to _STEP, and multiples of that
_STEP = 1024


def graphs_of(step: ForwardStep, layout: Layout) -> ForwardGraphs | None:
    """The graphs of an engine's step, to be captured; None where it is not captured: elsewhere than on CUDA, and of a module of
    transformers, whose code may read values on the host."""
    if recorder is None or layout.device.type != "cuda":
        return None
    return ForwardGraphs(step, recorder, layout.device) if decoder_in(step) is not None else None


def decoder_in(step: ForwardStep) -> TransformerDecoder | None:
    """The decoder that a step is, with taps or without."""
    inner = step.inner if isinstance(step, Tapped) else step
    return inner if isinstance(inner, TransformerDecoder) and not inner.recurrent else None


@dataclass
class _Graph:
    """A captured forward. inputs: the tensors that it reads. out: its last states [B, T, width]."""

    inputs: list[Tensor]
    replay: Callable[[], None]
    out: Tensor


class ForwardGraphs:
    """The captured forwards of one step."""

    def __init__(self, step: ForwardStep, record: Recorder, device: torch.device) -> None:
        self.step, self.record, self.device = step, record, device
        self.known: OrderedDict[Hashable, _Graph | None] = OrderedDict()
        self._seen: set[Hashable] = set()
        decoder = decoder_in(step)
        for product in decoder.products.values() if decoder is not None else ():
            product.side_by_side()  # before a graph has the addresses of its weights

    @property
    def used(self) -> bool:
        """Whether some forward was captured."""
        return any(graph is not None for graph in self.known.values())

    def rounded(self, width: int, rows: int, most: int) -> tuple[int, int]:
        """To which numbers of tokens and of cached rows, of `most`, those of a forward are filled up."""
        if width > WIDE:
            return width, rows
        length = max(_ROWS, 1 << (rows - 1).bit_length()) if rows <= _STEP else -(-rows // _STEP) * _STEP
        return 1 << (width - 1).bit_length(), min(length, most)

    def __call__(
        self, inputs: Tensor, positions: Tensor, write: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor],
        masks: Mapping[str | int, Tensor],
    ) -> Tensor:  # fmt: skip
        """The step's last states [B, T, width], until the next call. inputs: int64[B, T], or states [B, T, ...]; see
        `TransformerDecoder` for the others."""
        given = [inputs, positions, write, *masks.values()]
        caches = tuple(t.data_ptr() for each in (keys, values) for t in each)
        key = (caches, keys[0].shape, keys[0].stride(), tuple(masks), tuple((t.shape, t.dtype) for t in given))
        graph = self.known.get(key)
        if graph is not None:
            self.known.move_to_end(key)
            for mine, now in zip(graph.inputs, given, strict=True):
                mine.copy_(now)
            graph.replay()
            return graph.out
        made = cast(Tensor, self.step(inputs, positions, write, keys, values, masks))
        if positions.shape[1] <= WIDE and key not in self.known and self._again(key):
            self.known[key] = self._recorded(made, given, keys, values, masks)
            if len(self.known) > MOST:
                self.known.popitem(last=False)
        return made

    def _again(self, key: Hashable) -> bool:
        """Whether a shape comes for the second time: most come once or very often."""
        if key in self._seen:
            return True
        if len(self._seen) >= 4 * MOST:
            self._seen.clear()
        self._seen.add(key)
        return False

    def _recorded(
        self, out_like: Tensor, read: Sequence[Tensor], keys: Sequence[Tensor], values: Sequence[Tensor],
        masks: Mapping[str | int, Tensor],
    ) -> _Graph | None:  # fmt: skip
        """The forward that gave `out_like`, captured; None where that fails, and it is launched as ever."""
        inputs = [t.clone() for t in read]
        tokens, positions, write, *shown = inputs
        out = torch.empty_like(out_like, memory_format=torch.contiguous_format)

        def run() -> None:  # it writes the rows of these tokens again, with the same values
            out.copy_(cast(Tensor, self.step(tokens, positions, write, keys, values, dict(zip(masks, shown, strict=True)))))

        try:
            return _Graph(inputs, self.record(run, self.device), out)
        except Exception as error:  # the device's, of memory or of the driver
            _LOG.warning("a forward is not captured: %s: %s", type(error).__name__, error)
            return None
