"""Decoders that write a text's parts out of order."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import torch

from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case, Recording, tabled
from lab.recordings.tables import Generates, Stream, Untied, draws_of, untied
from lab.recordings.upstream import Upstream

MARKS = ("<|endoftext|>", "<fim_prefix>", "<fim_suffix>", "<fim_middle>")


def marked(size: int, seed: int) -> TableModel:
    """A table that hardly ever says the prefix mark: behind it, the authors' last pass would be infilling too."""
    made = untied(size, seed, window=None)
    made._table = _Rare(size, seed, 1.0, None)  # type: ignore[assignment]
    return made


class _Rare(Untied):
    def __call__(self, key: Any, name: str) -> Scores:
        fresh = key not in self.touched
        scores = super().__call__(key, name)
        if fresh and scores.weights is not None:
            rare = self.size - 3
            weights = [w / 10**6 if i == rare else w for i, w in enumerate(scores.weights)]
            self.touched[key] = Scores(weights=tuple(w / sum(weights) for w in weights))
        return self.touched[key]


class Marked:
    """A tokenizer of transformers' interface for StarCoder: a letter for each token, and its marks for the last four."""

    name_or_path = "bigcode/starcoder"

    def __init__(self, size: int) -> None:
        self.pieces = [*(chr(97 + i) for i in range(size - len(MARKS))), *MARKS]
        self.eos_token_id = self.pieces.index(MARKS[0])
        names = dict.fromkeys(("bos_token", "eos_token", "unk_token", "pad_token"), MARKS[0])
        self.special_tokens_map = {**names, "additional_special_tokens": list(MARKS)}

    def convert_tokens_to_ids(self, piece: str) -> int:
        """The token of a piece."""
        return self.pieces.index(piece)

    def __call__(self, text: Any, return_tensors: str = "", **_: Any) -> Any:
        """The tokens of a text, or of several as tensors."""
        if not return_tensors:
            found = re.findall("|".join(map(re.escape, self.pieces)), text)
            return SimpleNamespace(input_ids=[self.pieces.index(x) for x in found])
        ids = torch.tensor([self(one).input_ids for one in text])
        made = SimpleNamespace(input_ids=ids, attention_mask=torch.ones_like(ids))
        made.to = lambda device: made
        return made

    def batch_decode(self, rows: Any, skip_special_tokens: bool = False, **_: Any) -> list[str]:
        """Their texts."""
        said = [[self.pieces[int(x)] for x in row] for row in rows]
        return ["".join(p for p in one if not (skip_special_tokens and p in MARKS)) for one in said]


def self_infilling(upstream: Upstream, case: Case) -> dict[str, Any]:
    module = upstream.module("lm_eval/generation_pipelines/self_infill_utils.py", root=".")
    tokenizer = Marked(case["size"])
    model = Generates(marked(case["size"], case["seed"]))
    text = lambda tokens: tokenizer.batch_decode([tokens])[0]
    prompt, opening, stops = text(case["prompt"]), text(case["opening"]), [MARKS[0]]
    settings = {
        "logits_processor": [
            module.SelfInfillingLogitsProcessor(0, stops, tokenizer, tau=case["tau"], suffix_prompt=opening)
        ],
        "stopping_criteria": [module.SelfInfillEndOfFunctionCriteria(0, stops, tokenizer)],
        "max_new_tokens": case["length"], "temperature": case["temperature"],
    }  # fmt: skip
    task = SimpleNamespace(postprocess_generation=lambda said, _: prompt + said[len(prompt) :].split(MARKS[0])[0])
    with draws_of(Stream(case["seed"])):
        (said,) = module.self_infill_completion(
            {"prompt": prompt, "task_id": 0}, model, tokenizer, task, "cpu", 1, settings, {}, opening, int(case["again"])
        )
    return {"tokens": tokenizer(said).input_ids}


RECORDINGS = [
    Recording(
        "self_infilling",
        "LZhengisme/self-infilling",
        "c7864c714105bcd0c67dfb6115a33e255580dcb0",
        "lm_eval/generation_pipelines/self_infill_utils.py, self_infill_completion, SelfInfillingLogitsProcessor and "
        "SelfInfillEndOfFunctionCriteria",
        self_infilling,
        tabled(
            "{seed} {tau} {temperature} {again}",
            "seed tau prompt opening length temperature again",
            [
                (seed, tau, (1, 2, 0)[: 1 + seed % 3], (3, 1)[: 1 + seed % 2], length, temperature, again)
                for tau, length, temperature, again in (
                    (0.25, 24, 0, True),
                    (0.45, 24, 0, True),
                    (0.45, 16, 0, False),
                    (0, 24, 0, True),
                    (0.25, 24, 0.2, True),
                    (0.5, 12, 1.0, True),
                    (0.5, 7, 0.8, False),
                )
                for seed in range(1, 9)
            ],
            size=9,
        ),
        "greedy, sampled",
        "letters, then StarCoder's end and infilling marks; the stop string is the end; length: max_new_tokens of each "
        "call of generate; again: max_iters is 1, else 0; transformers' generate is a stand-in: processors, then temperature",
    ),
]
