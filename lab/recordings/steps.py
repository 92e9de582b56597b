"""Decoders that write a piece, judge it, and write it again or keep it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from lab.recordings import Case, Recording, tabled
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream


class Blanks:
    """A tokenizer of transformers' interface; every token's text is a blank, so that no rule of lines of code ends a text."""

    def __init__(self, prompt: list[int], eos: int | None = None) -> None:
        self.prompt, self.eos_token_id, self.pad_token_id = prompt, eos, -1

    def __call__(self, text: Any, **_: Any) -> Any:
        return SimpleNamespace(input_ids=torch.tensor([self.prompt]))

    def decode(self, tokens: Any, **_: Any) -> str:
        """A text of as many blanks; the tokens of the last one are noted."""
        self.last = [int(t) for t in tokens]
        return " " * len(self.last)

    def batch_decode(self, rows: Any, **_: Any) -> list[str]:
        """As many texts of blanks."""
        return [" " * len(row) for row in rows]


def adadec(upstream: Upstream, case: Case) -> dict[str, Any]:
    generator = upstream.module("llm/generator.py").Generator
    model, tokenizer = TableLM(untied(case["size"], case["seed"], window=None)), Blanks([*case["prompt"]], *case["eos"])
    decoder = generator(model, tokenizer, "", 1, "AdaFixL", case["tau"])
    decoder.generate("", max_new_tokens=case["limit"], lookahead_length=case["length"], lookahead_beam_size=case["k"])
    return {"tokens": tokenizer.last, "lookaheads": decoder.lookahead_times}


RECORDINGS = [
    Recording(
        "adadec",
        "SYSUSELab/AdaDec",
        "d3c3be1f18e08c042d3b28f65400646776f67d00",
        "llm/generator.py, Generator.generate",
        adadec,
        tabled(
            "{seed} {tau}",
            "seed size k length tau limit eos",
            (
                (1, 8, 3, 5, 1.0, 16, ()),
                (2, 8, 2, 3, 1.4, 24, ()),
                (3, 8, 5, 1, 0.0, 9, ()),
                (4, 12, 3, 5, 1.6, 40, ()),
                (5, 8, 4, 2, 1.2, 24, (3,)),
                (6, 12, 3, 5, 1.8, 24, (5,)),
            ),
            prompt=(1, 2),
        ),
        "greedy",
        "beam_size 1 and lambda_value 1, as in its script; k: lookahead_beam_size, length: lookahead_length, tau: "
        "entropy_threshold; every token is a blank, so that no rule of code ends a text",
    ),
]
