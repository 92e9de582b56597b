"""Decoders that write a piece, judge it, and write it again or keep it."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import Generates, TableLM, untied
from lab.recordings.upstream import Upstream


def models(case: Case) -> dict[str, TableModel]:
    """A target, a drafter that agrees with it on most tokens, and a reader."""
    seed, made = case["seed"], partial(untied, case["size"], window=None)
    drafter, reader = made(seed, name="drafter", blend=(seed + 1, case.get("blend", 0.8))), made(seed + 2, name="reader")
    return {"target": made(seed), "drafter": drafter, "reader": reader, "judge": reader}


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


def monitoring(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("decoding.py", absent=("rouge_score", "utils.tokenize"))
    made = models(case)
    base, expert = (Generates(made[name], *case["eos"]) for name in ("drafter", "target"))
    seen: list[list[int]] = []
    tokenizer = SimpleNamespace(
        eos_token_id=case["eos"][0] if case["eos"] else -1,
        encode=lambda text: [-1, -1, -1],
        batch_decode=lambda rows, **_: [rows[0].tolist()],
    )
    engine = module._MonitorDecodingEngine(base, expert, tokenizer)
    plain = engine._should_terminate

    def ends(tokens: torch.Tensor, start: int) -> Any:
        seen.append(tokens[0, start:].tolist())
        return plain(tokens, start)

    engine._should_terminate = ends
    settings = module._DecodingConfig(case["depth"], case["width"], case["tau"], case["branch"], case["steps"])
    tokens = engine.decode(torch.tensor([case["prompt"]]), settings)
    cuts = [0, *map(len, seen)]
    return {"tokens": tokens, "committed": [tokens[a:b] for a, b in pairwise(cuts)]}


RECORDINGS = {
    "adadec": adadec,
    "monitoring": monitoring,
}
