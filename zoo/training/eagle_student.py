"""EAGLE-3 as a student: its draft vocabulary, its batches, and the folder in the authors' layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from decgraph.errors import DecError
from decgraph.zoo.training import eagle
from decgraph.zoo.training.store import StoredRow
from decgraph.zoo.training.students import FALLING, PaddedRows, Student

# How many times the head is unrolled on its own outputs.
UNROLLED = 4
# The loss distinguishes the tokens of its batch and this many of the most frequent ones. The head's outputs are in the space of
# the target's own output matrix, so what it learns carries over to the tokens that are left out, at a tenth of the price.
NEGATIVES = 4096
# Of the places of the text, one in so many is looked at for the draft vocabulary.
EVERY = 3
# The share of the label on the target's first choice: it is what a greedy request accepts.
HARD = 0.5


class Eagle(Student):
    """An EAGLE-3 head over a draft vocabulary of `vocabulary` tokens, the most frequent of `texts`. output_matrix: whether its
    folder holds `lm_head.weight` too, which is the target's."""

    kind = "eagle"

    @classmethod
    def layers_for(cls, target: Any, **_: Any) -> tuple[int, ...]:
        """Three layers and the end; as in `Student`. Raises DecError for a target with too few layers."""
        count = target.config.get_text_config().num_hidden_layers
        layers = eagle.feature_layers(count)
        if len(set(layers)) < 3 or min(layers) < 1:
            raise DecError(
                f"EAGLE-3 reads the inputs of layers 2, L/2 and L-3, and with {count} layers these are not three",
                hint="train a drafter, medusa or exit instead",
            )
        return (*layers, count)

    def __init__(
        self,
        target: Any,
        *,
        texts: list[StoredRow] | None = None,
        vocabulary: int = 16384,
        ids: torch.Tensor | None = None,
        output_matrix: bool = False,
        **_: Any,
    ) -> None:
        super().__init__(target)
        self.writes_output = output_matrix
        self.layers = self.layers_for(target)
        size = self.output.shape[0]
        order = by_frequency(texts or [], self.output)
        chosen = ids if ids is not None else order[: min(vocabulary, size)].sort().values
        self.common = order[:NEGATIVES]
        self.module = eagle.new_head(target, chosen.cpu())
        self.embedding = target.get_input_embeddings().weight

    def loss(self, batch: PaddedRows) -> torch.Tensor:
        """Cross entropy against the target's distribution over some tokens, all unrolled steps, a scalar."""
        with torch.no_grad():
            rows = self.output[torch.cat((self.common, batch.ids.flatten())).unique()]
            said = self.state(batch.states, -1) @ rows.to(batch.states.dtype).T
            embedded = self.embedding[batch.ids].to(batch.states.dtype)
        return eagle.loss(
            self.module,
            batch.states[..., : -self.width],
            embedded,
            said,
            batch.counts,
            output=rows,
            steps=UNROLLED,
            hard=HARD,
            falling=FALLING,
        )

    def guesses(self, text: StoredRow) -> list[torch.Tensor]:
        """int64[places] for each depth, as in `Student`; the newest pair is (state of p - 1, token p)."""
        text = text.to(self.target.device)
        states = text.states[None, :-1, : -self.width].float()
        outs = self.module.unroll(states, self.embedding[text.ids[1:]][None].to(states.dtype), self.gamma)
        first = torch.zeros_like(text.ids[:1])
        return [torch.cat((first, self.module.ids[self.module.logits(out[0]).argmax(-1)])) for out in outs]

    def save(self, folder: Path, weights: dict[str, torch.Tensor], tokenizer: Any) -> None:
        """Write `weights`, of the module's shapes, and config.json as SafeAILab's code reads them. The output matrix is the
        target's and half of the head's numbers, so it is written only on request."""
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        kept = {name: value.bfloat16() if value.is_floating_point() else value for name, value in weights.items()}
        if not self.writes_output:
            del kept["lm_head.weight"]
        save_file({name: value.contiguous() for name, value in kept.items()}, folder / "model.safetensors", {"format": "pt"})
        text = json.dumps(self.module.config, indent=2) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")


def by_frequency(texts: list[StoredRow], output: torch.Tensor) -> torch.Tensor:
    """All tokens, those that the target writes most first, int64[vocabulary]; `output` [vocabulary, width] is its matrix.

    A token counts as often as it stands in the texts, and as often as the target's distributions there let one expect:
    the words that it might have written as well are those that it writes elsewhere. Every third place is looked at.
    """
    seen = torch.zeros(len(output), device=output.device)
    narrow = output.bfloat16()
    with torch.inference_mode():
        for text in (one.to(output.device) for one in texts):
            seen += torch.bincount(text.ids, minlength=len(output))
            states = text.states[:-1:EVERY, -output.shape[1] :]
            seen += EVERY * (states @ narrow.T).float().softmax(-1).sum(0)
    return seen.argsort(descending=True, stable=True)
