"""Decoders that write a text's parts out of order."""

from __future__ import annotations

import re
import time
from types import SimpleNamespace
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList

from decgraph.runtime.models.interface import Scores
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
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


class Branching(Generates):
    """With the two loops of the authors' class, and the model that they ask: a branch sees the text before the fork, and
    itself."""

    def __init__(self, case: Case, code: Any) -> None:
        super().__init__(untied(case["size"], case["seed"], window=None))
        self.code, self.branches = code, list[list[int]]()
        self.text: list[int] = []

    def generate(self, input_ids: torch.Tensor, **how: Any) -> Any:
        """As transformers returns it, with keys and values that nobody reads."""
        self.config.eos_token_id = how["eos_token_id"]
        settings = {n: how[n] for n in ("max_new_tokens", "temperature", "logits_processor") if n in how}
        text = super().generate(input_ids, **settings)
        self.text = text[0].tolist()
        empty = torch.zeros(1, 1, len(self.text), 1)
        return SimpleNamespace(sequences=text, past_key_values=[(empty, empty)])

    def forward(self, input_ids: torch.Tensor, para_begin_position: int = 0, **_: Any) -> Any:  # type: ignore[override]
        """The scores behind the last token of each branch."""
        last = input_ids[0].tolist()
        self.branches = [[*b, x] for b, x in zip(self.branches or [[] for _x in last], last, strict=True)]
        rows = torch.stack([self.row([*self.text[:para_begin_position], *b]) for b in self.branches])
        return SimpleNamespace(logits=rows[None], past_key_values=None)

    def generate_parallel(self, **how: Any) -> Any:
        """Theirs."""
        return self.code["generate_parallel"](self, **how)


def parallel_branches(upstream: Upstream, case: Case) -> dict[str, Any]:
    rules = ("CustomLogitsProcessor", "split_list", "get_next_token_from_logits")
    sees = {"torch": torch, "LogitsProcessor": LogitsProcessor, "LogitsProcessorList": LogitsProcessorList}
    cache = SimpleNamespace(from_legacy_cache=lambda x: x)
    made = upstream.names("modeling_qwen2.py", *rules, **sees)
    sees |= {name: made[name] for name in rules} | {"time": time, "DynamicCache": cache}
    loops = ("generate_with_parallel", "generate_parallel")
    code = upstream.names("modeling_qwen2.py", *loops, of="Qwen2ForParaCausalLM", **sees)
    model, dots = Branching(case, code), case["dots"]
    with draws_of(Stream(case["seed"])):
        text = code["generate_with_parallel"](
            model, torch.tensor([case["prompt"]]), para_begin_token_id=case["fork"], para_end_token_id=case["join"],
            ellipsis_token_id=dots[0], half_ellipsis_token_id=dots[1], colon_token_id=case["colon"], colon_new_line_token_id=-1,
            line_break_token_id=case["line"][0], stage1_max_new_tokens=200, stage2_max_new_tokens=case["rest"],
            parallel_decoding_max_length=case["reach"], temperature=case["temperature"],
        )  # fmt: skip
    return {"tokens": text[0].tolist()}


RECORDINGS = {
    "self_infilling": self_infilling,
    "parallel_branches": parallel_branches,
}
