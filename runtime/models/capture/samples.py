"""The inputs that a module is recorded and judged on: what a decoder would call it with.

Three sequences are read from their start into empty caches, two of them go on with several tokens, one with a single one:
keys and values are the module's own, never random ones, whose sizes no model is made for (trained layers may amplify rounding
a hundredfold on those). Rows of the caches are in no order, a row of left padding and rows not yet written are masked
out, and hold noise, so that reading one shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from decgraph.runtime.models.capture.recorder import Sample

# Sizes (B, T, S) of the recordings: a prompt, several tokens, and one of one sequence, because that is where code branches.
# No two of B, T, S and B T agree in all three.
SIZES = ((3, 5, 17), (2, 3, 11), (1, 1, 7))
_SEQUENCES = ((0, 1, 2), (0, 1), (2,))  # which of the first sample's sequences the others go on with
_PADDED = 1  # the sequence whose first token is left padding
_WINDOW = 3  # of sliding masks: shorter than the text, whatever the model's own


def samples(base: Any, shapes: list[tuple[int, int, int]], reach: int) -> Iterator[Sample]:
    """Samples in the order of `SIZES`. The caller runs the module on each and puts the caches that it wrote into the sample's
    `keys` and `values` before it asks for the next. shapes: heads and sizes of keys and values by layer."""
    made = torch.Generator().manual_seed(0)
    first = next(base.parameters())
    device, dtype = first.device, first.dtype
    vocabulary = int(base.config.get_text_config().vocab_size)
    count, cells, rows = SIZES[0]
    # Sequence 2 begins further on: tables and learned positions are read elsewhere too.
    start = torch.tensor([0, -1, min(reach // 4, 200) if reach else 40])[:, None]
    order = torch.stack([torch.randperm(cells + 1, generator=made) for _ in range(count)])[:, :cells]
    places = torch.arange(cells).expand(count, -1)
    shown = torch.ones(count, cells, dtype=torch.bool)
    shown[_PADDED, 0] = False
    keys = [torch.randn(count, h, rows, k, generator=made).to(device, dtype) for h, k, _ in shapes]
    values = [torch.randn(count, h, rows, v, generator=made).to(device, dtype) for h, _, v in shapes]

    def sample(which: tuple[int, ...], at: Tensor, new: Tensor, old: Tensor | None) -> Sample:
        """New tokens at places `at` [B, T], in rows `new`, after those in the rows `old`."""
        pick = torch.tensor(which)
        size = (len(which), at.shape[1], SIZES[len(SIZES) - 1 if len(which) == 1 else 3 - len(which)][2])
        seen = _seen(at, new, None if old is None else (places[pick], old, shown[pick]), shown[pick], size)
        ids = torch.randint(vocabulary, size[:2], generator=made)
        positions = (start[pick] + at).clamp_min(0)
        return Sample(
            ids.to(device), positions.to(device), new.to(device), keys, values, {k: m.to(device) for k, m in seen.items()}
        )

    prompt = sample((0, 1, 2), places, order, None)
    yield prompt
    held = prompt.keys, prompt.values
    for which, (_, more, rows) in zip(_SEQUENCES[1:], SIZES[1:], strict=True):
        pick = torch.tensor(which)
        keys, values = ([c[pick, :, :rows].clone() for c in caches] for caches in held)
        at = torch.arange(cells, cells + more).expand(len(which), -1)
        free = [[r for r in torch.randperm(rows, generator=made).tolist() if r not in order[b].tolist()] for b in which]
        yield sample(which, at, torch.tensor([rest[:more] for rest in free]), order[pick])


def _seen(
    at: Tensor, new: Tensor, old: tuple[Tensor, Tensor, Tensor] | None, shown: Tensor, size: tuple[int, int, int]
) -> dict[str, Tensor]:
    """bool[B, 1, T, S] by kind: the rows of earlier tokens and of itself, of all or of the last few places."""
    full, near = (torch.zeros(size, dtype=torch.bool) for _ in range(2))
    for b in range(size[0]):
        for t in range(size[1]):
            here = int(at[b, t])
            known = list(zip(at[b].tolist(), new[b].tolist(), shown[b].tolist() if old is None else [True] * size[1]))
            if old is not None:
                known += list(zip(*(x[b].tolist() for x in old)))
            for place, row, real in known:
                if place == here or (place < here and real):
                    full[b, t, row] = True
                    near[b, t, row] = here - place < _WINDOW
    return {"full_attention": full[:, None], "sliding_attention": near[:, None]}
