"""Rankings that a model makes by excluding one candidate after the other."""

from __future__ import annotations

import ast
import html
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from lab.recordings import Case
from lab.recordings.tables import Generates, Letters, untied
from lab.recordings.upstream import Upstream

NAMES = ("red fox", "red owl", "old fox", "elk", "gnu", "yak", "old elk", " ", "\n")
"""Tokens: candidates, a blank, a line end, which no answer is read behind."""


def asked(left: Sequence[Any]) -> list[int]:
    """What stands behind the prompt: the candidates, and how many they are."""
    return [int(x) for x in left] + [len(left) % len(NAMES)]


def common(a: str, b: str) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for x in a:
        row = [0, *row[1:]]
        last = [*row]
        for j, y in enumerate(b):
            row[j + 1] = last[j] + 1 if x == y else max(last[j + 1], row[j])
    return row[-1]


def most_words(response: str, candidates: list[str]) -> str:
    """In the place of scikit-learn's measure, which is not installed: the candidate with the most words of the response."""
    return max(candidates, key=lambda name: len({*name.split()} & {*response.split()}))


def iterative_elimination(upstream: Upstream, case: Case) -> dict[str, Any]:
    asks = ("CONFIG", "make_prefix", "construct_prompt", "get_prompt")
    reads = ("extract_solution", "match_and_order_lists", "process_batch")
    code = upstream.names(
        "eval/eval_rec.py", *asks, *reads, re=re, html=html, List=list, Dict=dict,
        Any=Any, LLM=Any, SamplingParams=Any, print=lambda *_: None,
        pylcs=SimpleNamespace(lcs_sequence_length=common), find_most_similar=most_words,
    )  # fmt: skip
    table, letters, calls = untied(len(NAMES), case["seed"], window=None), Letters(NAMES), list[list[int]]()
    named = list[Any]()

    def generate(prompts: list[str], _: Any) -> list[Any]:
        left = ast.literal_eval(re.findall(r"candidate movies that I might watch next:\n(.*?)\n\n", prompts[0])[0])
        question = [*case["prompt"], *asked([NAMES.index(x) for x in left])]
        text = Generates(table, case["eos"][0]).generate(torch.tensor([question]), max_new_tokens=case["reach"])[0].tolist()
        calls.extend(text[:n] for n in range(len(question), len(text)))
        said = letters.decode(text[len(question) :])
        named.append([said, [NAMES.index(x) for x in left]])
        return [SimpleNamespace(outputs=[SimpleNamespace(text=said)])]

    problem = "in order:\nNow there are"
    sample = {"problem": problem, "gt": "", "candidates": [NAMES[i] for i in case["items"]]}
    (found,) = code["process_batch"]([sample], SimpleNamespace(generate=generate), None, "Rec-Movie")
    removed = [NAMES.index(x) for x in found["removed_items"]]
    ranking = [NAMES.index(x) for x in found["final_candidates"]] + removed[::-1]
    answers = [[*answer, answer[1].index(gone)] for answer, gone in zip(named, removed, strict=True)]
    return {"ranking": ranking, "calls": calls, "named": answers}


RECORDINGS = {
    "iterative_elimination": iterative_elimination,
}
