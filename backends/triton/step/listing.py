"""Lists the launches of one decoding step, in order: for `decgraph compile --emit triton`.

A step on the device has no text: `DeviceStep` runs the ops of the IR once while a CUDA graph records their launches. So the
listing runs a step over shapes alone (why.py) and records every kernel, every forward of a model, every move of cached keys and
values and every commit, with the source line that it is for.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from decgraph.backends.triton.rows import functions
from decgraph.backends.triton.rules.device import Given, Walked
from decgraph.backends.triton.source import HEARD
from decgraph.backends.triton.step import kernels
from decgraph.backends.triton.step.distributions import DistributionKernels, Shape
from decgraph.backends.triton.step.keys import key_words
from decgraph.backends.triton.step.machine import Frame
from decgraph.backends.triton.step.values import DeviceNoise
from decgraph.backends.triton.step.why import META, Probe, Shapes, needs_of
from decgraph.ir.values import Module, Op

VOCABULARY = 32_000
"""The vocabulary size assumed in a listing; sizes of kernels depend on it."""
SAYS = {
    "new_cells": "tokens, positions and ancestor masks for the next forward",
    "key_words": "Philox key words of the draws",
    "accepted_path": "the accepted path and the token after it",
    "commit_tokens": "append to the sequences, test for the end",
    "compact_cache": "which computed slots stay cached",
}


class Listing(Probe):
    """A step that records its launches. launches: (source line, what, about); sources: the text of each kernel."""

    def __init__(self, *given: Any) -> None:
        self.launches: list[tuple[str, str, str]] = []
        self.sources: dict[str, str] = {}
        self.at = ""
        super().__init__(*given)

    def op(self, op: Op) -> None:
        """Run an op under its source line."""
        before, self.at = self.at, f"{op.loc.path.rpartition('/')[2]}:{op.loc.line}" if op.loc.line else self.at
        super().op(op)
        self.at = before

    def hear(self, name: str, text: str) -> None:
        """Record the launch of a kernel. text: its source, "" for one of kernels.py."""
        self.launches.append((self.at, name, SAYS.get(name) or first_words(getattr(functions, name, None))))
        if name not in self.sources:
            self.sources[name] = text or source_of(getattr(kernels, name))

    def make_kernels(self, model: Any) -> DistributionKernels:
        return DistributionKernels(Shape(), model.vocab_size, META, wide=False)

    def key_words(self, noise: DeviceNoise, rows: int, positions: Tensor | None, lanes: Any = None) -> Tensor:
        self.launches.append((self.at, "key_words", SAYS["key_words"]))
        self.sources.setdefault("key_words", source_of(key_words))
        return super().key_words(noise, rows, positions, lanes)

    def walked(self, rule: Any, given: Given, depth: int) -> Walked:
        for name in rule.kernels:
            every = (
                "features of every node that the rule reads"
                if name.endswith("_rows")
                else f"down the tree, at most {depth} tokens"
            )
            self.launches.append((self.at, name, every))
        self.sources.setdefault(rule.name, rule.source)
        return super().walked(rule, given, depth)


class Listed(Shapes):
    """A model whose calls are recorded."""

    listing: Listing

    def __init__(self, model: Any, name: str) -> None:
        super().__init__(model)
        self.called, self.vocab_size, self.exact = name, VOCABULARY, False

    def forward(self, tokens: Tensor, *more: Any, **given: Any) -> Tensor:
        out = super().forward(tokens, *more, **given)
        about = f"tokens [B, {tokens.shape[1]}] -> logits [B, {out.shape[1]}, V]"
        self.listing.launches.append((self.listing.at, f"{self.called}.forward", about))
        return out

    def heads(self, slots: Tensor) -> Tensor:
        out = super().heads(slots)
        self.listing.launches.append((self.listing.at, f"{self.called}.heads", f"logits [B, {out.shape[1]}, V]"))
        return out

    def move(self, cached: Tensor, source: Tensor, count: Tensor) -> None:
        self.listing.launches.append((self.listing.at, f"{self.called}.move", "cached keys and values of the accepted nodes"))


def source_of(kernel: Any) -> str:
    """The text of a kernel that is not generated."""
    return inspect.getsource(kernel.fn)


def listing_of(module: Module, function: str, models: Mapping[str, Any], params: Mapping[str, Any]) -> Listing:
    """A step of a program, listed. Raises NotCapturable where it cannot run on the device as a whole."""
    needs = needs_of(module, function, models, params, Shape())
    listed = {name: Listed(model, name) for name, model in models.items()}
    listing = Listing(module, function, listed, params, Frame(1, 64, Shape(), META))
    for model in listed.values():
        model.listing = listing
    listing.start_states()
    HEARD.append(listing.hear)
    try:
        listing.prologue()
        listing.most_uncached = dict(needs.uncached)
        listing.launches.clear()
        listing.sources.clear()
        listing.body()
    finally:
        HEARD.remove(listing.hear)
    return listing


def first_words(function: Any) -> str:
    """The first words of the docstring of a function of rows/functions.py."""
    words = " ".join((inspect.getdoc(function) or "").split()) if function is not None else ""
    return textwrap.shorten(re.split(r"[.:;]( |$)", words)[0], 80, placeholder=" ...")


def lines_of(listing: Listing) -> list[str]:
    """The launches as a table of comments: each source line once, repeated groups of launches once."""
    rows = listing.launches
    wide = max((len(at) for at, _, _ in rows), default=0)
    names = max((len(name) for _, name, _ in rows), default=0)
    out, last, n = [], "", 0
    while n < len(rows):
        size, times = repeated(rows, n)
        for at, name, about in rows[n : n + size]:
            out.append(f"#   {at if at != last else '':{wide}}  {name:{names}}  {about}".rstrip())
            last = at
        if times > 1:
            what = "this" if size == 1 else f"these {size}"
            out.append(f"#   {'':{wide}}  ({what}, {times} times in all)")
        n += size * times
    return out


def repeated(rows: Sequence[Any], n: int) -> tuple[int, int]:
    """(launches, times) of the group at index n whose repetitions there cover most launches."""
    best = (1, 1)
    for size in range(1, 9 if rows[n][1] == "new_cells" else 2):  # a group begins with a forward
        group, times = rows[n : n + size], 1
        while rows[n + size * times : n + size * (times + 1)] == group:
            times += 1
        if times > 1 and size * times > best[0] * best[1]:
            best = (size, times)
    return best
