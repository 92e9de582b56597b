"""The recordings' masked models, through `decgraph.masked`: LLaDA's, Dream's with its shift; and with LLaDA's guidance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from fidelity.entry import GOLDEN

import decgraph
from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.interface import MASK as MASKED
from decgraph.runtime.models.interface import Cell, Memory, Model, Scores, Visibility

MASK = 127


@cache
def model(name: str, visibility: Visibility = "full") -> HFMasked:
    """A recorded masked model, read from its folder."""
    made = decgraph.masked(GOLDEN / "dllm/models" / name, shift=name.endswith("_shift"), visibility=visibility)
    assert isinstance(made, HFMasked) and made.mask == MASK
    return made


class Guided(Model):
    """LLaDA's classifier-free guidance: a second row, in which the prompt is masked, from which the first is led away. A
    program cannot ask for such a row, so it is the model's."""

    def __init__(self, inner: HFMasked, prompt: int, scale: float) -> None:
        self.kind, self.name, self.vocab, self.context = "masked", inner.name, inner.vocab, inner.context
        self.family, self.mask, self.visibility, self.layers = inner.family, inner.mask, "full", inner.layers
        self.inner, self.prompt, self.scale = inner, prompt, scale

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], given: Memory | None = None) -> list[Scores]:
        """un + (scale + 1) (cond - un)."""
        assert given is None, "the published loop has no cache"
        free = (*[MASKED] * self.prompt, *cells[self.prompt :])
        both = zip(self.inner.eval_canvas(cells, at), self.inner.eval_canvas(free, at), strict=True)
        return [self.led(c.to_float(), u.to_float()) for c, u in both]

    def led(self, told: Scores, untold: Scores) -> Scores:
        """One row, in which the mask keeps no mass."""
        assert told.logits is not None and untold.logits is not None
        made = untold.logits.copy()
        on = [v for v in range(len(made)) if v != self.mask]
        made[on] += (self.scale + 1) * (told.logits[on] - untold.logits[on])
        return Scores(logits=made)
