"""Decoders that verify one chain of drafts a call."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import torch

from lab.recordings import Case, Recording, tabled
from lab.recordings.tables import OnCPU, Slots, TableLM, chains, untied
from lab.recordings.upstream import Upstream


def models(case: Case) -> dict[str, Any]:
    """A target, and a drafter that agrees with it on most tokens."""
    size, seed = case["size"], case["seed"]
    drafter = untied(size, seed, window=None, name="drafter", blend=(seed + 1, case["blend"]))
    return {"target": untied(size, seed, window=None), "drafter": drafter}


def pard(upstream: Upstream, case: Case) -> dict[str, Any]:
    kind = upstream.module("pard/pard_infer.py", absent=("loguru",)).PardInfer
    both = {name: TableLM(table) for name, table in models(case).items()}
    for model in both.values():
        model.forward_gen = model.forward
    decoder = kind.__new__(kind)
    decoder.__dict__ |= {"draft_k": case["gamma"], "tokens": case["limit"], "max_cache_len": 512, "para": True, "log": False}
    decoder.__dict__ |= {"pard_token": [*case["eos"], 0][:1] * 32, "model_serie": "qwen"}
    tokenizer = MagicMock(eos_token_id=(*case["eos"], -1)[0])
    tokenizer.return_value.input_ids = torch.tensor([case["prompt"]])
    with OnCPU():
        decoder.generate(["text"], both["target"], both["drafter"], Slots(512), Slots(512), tokenizer)
    written = tokenizer.decode.call_args.args[0].tolist()
    return chains(both["target"].calls, written, case["prompt"], case["limit"], case["eos"])


def fly(upstream: Upstream, case: Case) -> dict[str, Any]:
    both = {name: TableLM(table) for name, table in models(case).items()}
    settings = {"k": case["gamma"], "total_gen_tok": case["limit"], "enable_fly": True, "win_len": case["window"]}
    settings |= {"entropy_thre": case["eta"]}
    tokenizer = MagicMock(eos_token_id=(*case["eos"], -1)[0])
    kind = upstream.module("fly/models/FLy.py").SPDGenerate
    decoder = kind(both["drafter"], both["target"], tokenizer, MagicMock(), settings)
    decoder.reset_counter = MagicMock()
    written = decoder.generate_chunks(torch.tensor([case["prompt"]]), 0)[0].tolist()
    return chains(both["target"].calls[1:], written, case["prompt"], case["limit"], case["eos"], beyond=True)


RECORDINGS = [
    Recording(
        "pard",
        "AMD-AIG-AIMA/PARD",
        "5dfe8090d1fdc9f856234cd3bf606e4eca818d7b",
        "pard/pard_infer.py, PardInfer.generate",
        pard,
        tabled(
            "{seed} {gamma} {limit}",
            "seed size blend gamma prompt limit eos",
            (
                (1, 8, 0.5, 12, (1, 2, 3), 40, ()),
                (2, 8, 0.5, 4, (4,), 17, ()),
                (3, 12, 0.3, 4, (5, 6, 7, 1, 2, 3, 8), 40, ()),
                (4, 8, 0.2, 8, (1, 2), 33, ()),
                (5, 8, 0.3, 1, (3, 1), 12, ()),
                (6, 8, 0.3, 3, (1, 2), 40, (5,)),
                (7, 6, 0.2, 6, (1, 2), 40, (3,)),
            ),
        ),
        "greedy",
        "para, draft_k: gamma; pard_token: the padding token, which is the end token, or 0",
    ),
    Recording(
        "fly",
        "AMD-AGI/FLy",
        "6667ae8477d087732eb71d7bdaa0d1cb94462a60",
        "fly/models/FLy.py, SPDGenerate.generate_chunks",
        fly,
        tabled(
            "{seed} {gamma} {window} {eta}",
            "seed size blend gamma window eta prompt limit eos",
            (
                (1, 8, 0.2, 15, 6, 0.3, (1, 2, 3), 60, ()),
                (2, 12, 0.3, 15, 6, 0.3, (4, 2), 60, ()),
                (3, 8, 0.5, 8, 2, 0.3, (1, 2, 3, 4, 5, 6), 40, ()),
                (4, 6, 0.4, 8, 2, 1.0, (1, 2), 40, ()),
                (5, 8, 0.4, 5, 1, 0.0, (1, 2), 25, ()),
                (6, 8, 0.4, 3, 4, 0.0, (1, 2), 25, ()),
                (7, 8, 0.3, 8, 3, 0.5, (2, 2), 60, (6,)),
                (8, 8, 0.3, 8, 2, 0.9, (2, 2), 60, (1,)),
            ),
        ),
        "greedy",
        "k: gamma, win_len: window, entropy_thre: eta; one drafter, no n-grams, no tree",
    ),
]
