"""Superposed decoding: drafts of one text side by side, in one call that reads a mixture of their last tokens."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from decgraph.runtime.models.interface import Scores, SoftCell, mixture
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.searches import row, table
from lab.recordings.upstream import Upstream


class Mixing(TableModel):
    """A table that reads mixtures of tokens: of the last one the logits are mixed, the others read as their likeliest token."""

    def eval(self, paths: Sequence[Any], memory: Any = None) -> list[Scores]:
        """See Model."""
        return [self._mixed(path) for path in paths]

    def _mixed(self, path: Sequence[Any]) -> Scores:
        hard = tuple(int(np.argmax([float(w) for w in c.weights])) if isinstance(c, SoftCell) else c for c in path)
        if not isinstance(path[-1], SoftCell):
            return super().eval([hard])[0]
        weights = [float(w) for w in path[-1].weights]
        logits = sum(w * np.log(row(self.plain, (*hard[:-1], v))) for v, w in enumerate(weights) if w > 0)
        return Scores(logits=np.asarray(logits))

    plain: TableModel


def mixing(case: Case) -> Mixing:
    """A target that reads mixtures."""
    made = Mixing(case["size"], case["seed"], window=None, vocab="t", name="target")
    made.plain = table(case)
    made._table, made.exact = made.plain._table, False
    return made


class Longest:
    """n-grams of the prompt: of the orders that know the context the highest one speaks, of none the tokens' frequencies. As
    models of their interface, one for each order, asked from the highest to the lowest."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self.prompt, self.found = tuple(prompt), False

    def followed(self, key: tuple[int, ...]) -> Counter[int]:
        """What followed a context."""
        n = len(key)
        return Counter(self.prompt[i + n] for i in range(len(self.prompt) - n) if self.prompt[i : i + n] == key)

    def prob(self, key: tuple[int, ...], token: int) -> float:
        """Of a token behind a context, as of one order; what speaks speaks alone."""
        self.found = self.found and len(key) < 5
        seen = self.followed(key)
        if len(key) == 1 and not seen:
            seen = Counter(self.prompt)
        if self.found or not seen:
            return -1
        self.found = True
        return seen[token] / seen.total()


VOCABULARY = 32000
"""Tokens of the model that their code is written for; those that the table has not have no mass."""


def superposed(upstream: Upstream, case: Case) -> dict[str, Any]:
    absent = ("fairscale", "superposed.llama.model", "superposed.llama.superposed_model", "superposed.llama.tokenizer")
    with upstream.importable(absent=absent):
        from superposed.llama import superposed_generation as module  # type: ignore[import-not-found]
    model, size, read, made = mixing(case), case["size"], list[Any](), list[Any]()

    class Reader(torch.nn.Module):
        """What it asks of a model: tokens, or the mixture of the last ones."""

        params, vocab_size = SimpleNamespace(max_batch_size=1, max_seq_len=512, vocab_size=VOCABULARY), VOCABULARY

        def forward(self, tokens: torch.Tensor, start_pos: int, token_weights: Any, verbose: bool) -> torch.Tensor:
            if token_weights is None:
                read.extend(tokens[0].tolist())
            else:
                read.append(mixture((*token_weights[0, :size].double().tolist(), 0)))
            scores = model.eval([tuple(read)])[0].to_float().logits
            return torch.cat([torch.from_numpy(scores).float(), torch.full((VOCABULARY - size,), -math.inf)])[None, None]

    class Watched(module.Superpose):
        """Its drafts, to be looked at in the end."""

        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            made.append(self)

    module.Superpose = Watched
    ends = SimpleNamespace(pad_id=-1, eos_id=case["eos"][0])
    grams = [Longest(case["prompt"])] * 5
    with redirect_stdout(StringIO()):
        module.SuperposedLlama(Reader(), ends, "cpu").sup_generate(
            [list(case["prompt"])], "geom", case["limit"], case["pool"], case["alpha"], case["heat"], case["k"],
            i_weights=[1.0] * 5, i_length=[5, 4, 3, 2, 1], ngrams=grams, penalty=case["penalty"],
        )  # fmt: skip
    (drafts,) = made
    alive = zip(drafts.alive_log_probs[0].tolist(), drafts.alive_seq[0].tolist(), strict=True)
    over = zip(drafts.fin_log_probs[0].tolist(), drafts.fin_seq[0].tolist(), strict=True)
    n = len(case["prompt"])
    texts = [(like, [x for x in text[n:] if x >= 0]) for like, text in (*over, *alive) if like > -1e6]
    texts.sort(key=lambda t: -t[0])
    return {"texts": [text for _, text in texts[: case["k"]]]}


RECORDINGS = {
    "superposed": superposed,
}
