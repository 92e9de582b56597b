"""SDLM: a window of masks behind the text, of which the longest sure beginning becomes text: with and without a cache,
and verified by itself."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fidelity.canvases import run, steps
from fidelity.entry import Case, Entry, Outcome
from fidelity.masked_models import GOLDEN, MASK

import decgraph
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import Cell, Memory, Model, Scores


class Window(Model):
    """The recorded model with the last token and n - 1 masks as its window. The n predictions are read there, so a canvas's
    last mask is only predicted and never read."""

    def __init__(self, n: int) -> None:
        made = decgraph.masked(GOLDEN / "dllm/models/qwen2_bidir_shift", shift=False, visibility=("window", n))
        assert isinstance(made, HFMasked) and made.mask == MASK
        self.inner, self.kind, self.name, self.vocab, self.context = made, "masked", made.name, made.vocab, made.context
        self.family, self.mask, self.visibility, self.layers = made.family, made.mask, "full", made.layers

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], memory: Memory | None = None) -> list[Scores]:
        """The scores of a position are read one before it."""
        assert memory is None
        return self.inner.eval_canvas(cells[:-1], [i - 1 for i in at])


window = cache(Window)


def sdlm(case: Case, backend: str) -> Outcome:
    """Calls are compared by what they decided. Ours has room for a window behind the recorded end, and is read up to it."""
    p = case["parameters"]
    (prompt,), (output,) = case["prompt"], case["output"]
    d, calls = p["n_future_tokens"], case["forwards"]
    length = len(output) - len(prompt) + 2 * d
    done = run(
        "sdlm", window(d), prompt, length, backend, d=d, tau=p.get("threshold", 1.0), entropies=p["alg"] == "entropy_conf"
    )
    decided = [sorted(s) for s in steps(done)[:calls]]
    return Outcome(
        {
            "output": tuple(output),
            "forwards": calls,
            "decided": [sorted((i, t) for _, i, t in c["decided"]) for c in case["calls"]],
        },
        {"output": done.output[: len(output)], "forwards": reached(decided, len(prompt), len(output)), "decided": decided},
    )


def reached(decided: Sequence[Sequence[tuple[int, int]]], begin: int, end: int) -> int:
    """How many calls it took to write the text from `begin` to `end`."""
    at = begin
    for n, found in enumerate(decided):
        at += len(found)
        if at >= end:
            return n + 1
    return len(decided) + 1


COUNTED = "what a call computes is not compared: a window's last cell is predicted by the mask before it and not computed"
KEPT = f"{COUNTED}; upstream's cache changes no result"
ENTRIES = [
    Entry("dllm/sdlm_nocache", "sdlm", sdlm, "masked", note=COUNTED),
    Entry("dllm/sdlm_cache", "sdlm", sdlm, "masked", note=KEPT),
]
