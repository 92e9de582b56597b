"""Decoders that verify one chain of drafts a call."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import torch

from lab.recordings import Case
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


RECORDINGS = {
    "pard": pard,
    "fly": fly,
}
