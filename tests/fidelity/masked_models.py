"""The recordings' masked models: as they are, with Dream's shift, and with LLaDA's guidance."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import transformers
from fidelity.entry import GOLDEN

from decgraph.runtime.models.hf_masked import HFMasked
from decgraph.runtime.models.hf_net import ATTENTION, Net
from decgraph.runtime.models.interface import MASK as MASKED
from decgraph.runtime.models.interface import Cell, Memory, Model, Scores, Vocab

MASK = 127


@cache
def unshifted(name: str) -> HFMasked:
    """A recorded model that reads the token of a cell at the cell."""
    folder = GOLDEN / "dllm/models" / name
    net = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation=ATTENTION).eval().requires_grad_(False)
    return HFMasked(Net(net), name=name, vocab=Vocab(name, 128), context=512, family=name, mask=MASK)


class Wrapped(Model):
    """A model that asks another one. Whole canvases only."""

    def __init__(self, inner: HFMasked) -> None:
        self.kind, self.name, self.vocab, self.context = "masked", inner.name, inner.vocab, inner.context
        self.family, self.mask, self.visibility, self.layers = inner.family, inner.mask, "full", inner.layers
        self.inner = inner


class Shifted(Wrapped):
    """Dream's convention: the scores of a cell stand at the cell before it."""

    def eval_canvas(self, cells: tuple[Cell, ...], at: Sequence[int], given: Memory | None = None) -> list[Scores]:
        """The scores one place to the left."""
        assert given is None, "no recording replayed here has a cache and a shift"
        wanted = [max(0, i - 1) for i in at]
        order = sorted(set(wanted))
        found = dict(zip(order, self.inner.eval_canvas(cells, order), strict=True))
        return [found[i] for i in wanted]


class Guided(Wrapped):
    """LLaDA's classifier-free guidance: a second row, in which the prompt is masked, from which the first is led away. A
    program cannot ask for such a row, so it is the model's."""

    def __init__(self, inner: HFMasked, prompt: int, scale: float) -> None:
        super().__init__(inner)
        self.prompt, self.scale = prompt, scale

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


@cache
def model(name: str) -> Model:
    """A recorded masked model."""
    inner = unshifted(name)
    return Shifted(inner) if name.endswith("_shift") else inner
