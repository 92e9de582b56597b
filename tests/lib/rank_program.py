"""What one of two ranks does (tests/scale/test_ranks.py starts it): decodes with a model that is cut over both, and with the
whole one, and prints what differed as JSON.

    python tests/lib/rank_program.py FOLDER STORE RANK
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from typing import Any

ALGORITHMS: dict[str, dict[str, Any]] = {
    "autoregressive": {},
    "speculative": {"gamma": 3},
    "prompt_lookup": {},
    "jacobi": {},
    "lookahead": {},
}
PROMPT = [3, 5, 7, 9, 11, 3, 5, 7]


def main(folder: str, store: str, rank: int) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    import torch
    import torch.distributed as dist
    from transformers import AutoModelForCausalLM

    import decgraph
    from decgraph.runtime.models.forwards import forwards_of
    from decgraph.runtime.models.modules import _kept

    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    # A model per rank and none of CUDA: `tp_plan` takes the process group that is there.
    cut = AutoModelForCausalLM.from_pretrained(folder, tp_plan="auto", dtype=torch.float32).eval()
    whole = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    drafter = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    noise = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in drafter.parameters():
            p.add_(0.02 * torch.randn(p.shape, generator=noise))
    ids = torch.tensor([PROMPT])
    tokens: dict[str, list[Any]] = {}
    for name, given in ALGORITHMS.items():
        models = {"drafter": drafter} if name == "speculative" else {}
        for temperature in (0.0, 0.8):
            asked: dict[str, Any] = {"max_new_tokens": 16, "pad_token_id": 0, "do_sample": temperature > 0}
            if temperature:
                asked["temperature"] = temperature
            made = []
            for module in (whole, cut):
                door = decgraph.hf(name, seed=5, **given, **models)
                made.append(module.generate(ids, custom_generate=door, **asked)[0, len(PROMPT) :].tolist())
            tokens[f"{name} {temperature}"] = made
    (model,) = _kept(cut).models.values()
    refused = ""
    try:
        cut.generate(ids, custom_generate=decgraph.hf("draft_and_verify"), max_new_tokens=4, pad_token_id=0)
    except decgraph.DecError as error:
        refused = str(error)
    said = {
        "tokens": tokens,
        "forward": forwards_of({"target": model})["target"].to_json(),
        "shards": sum(p.numel() for p in model.module.parameters()),  # type: ignore[attr-defined]
        "whole": sum(p.numel() for p in whole.parameters()),
        "refused": refused,
    }
    dist.barrier()
    dist.destroy_process_group()
    return said


if __name__ == "__main__":
    print("said " + json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
