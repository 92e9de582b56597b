"""Tokens behind drafts at which the target itself guesses: parallel prompt decoding."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, Optional

import torch

from decgraph.runtime.models.interface import Memory, Path, Scores
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.medusa_heads import Noted
from lab.recordings.states import KeptLM, States, drafted_below, told
from lab.recordings.tables import untied
from lab.recordings.upstream import Upstream


class Unprompted(TableModel):
    """A target that never says a prompt token, the last three ids."""

    def __init__(self, size: int, seed: int) -> None:
        super().__init__(size, seed, vocab="t", name="target")
        self.said = untied(size - 3, seed, window=None)._table

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """See `Model.eval`."""
        rows = [self.said(tuple(p), self.name).weights or () for p in paths]
        return [Scores(weights=(*row, *[Fraction(0)] * 3)) for row in rows]


def models(case: Case) -> dict[str, Any]:
    """The target."""
    return {"target": Unprompted(case["size"], case["seed"])}


def ppd(upstream: Upstream, case: Case) -> dict[str, Any]:
    states = States()
    target = KeptLM(models(case)["target"], states)
    given = {"PeftModel": object, "Optional": Optional, "PromptConfig": None, "torch": torch}
    given["initialize_past_key_values"] = upstream.module("prompt/model/kv_cache.py").initialize_past_key_values
    given["pad_path"] = upstream.names("prompt/utils.py", "pad_path", List=list)["pad_path"]
    of = upstream.names("prompt/model/model.py", "PromptDecoder", "TOPK", **given)["PromptDecoder"]
    own, trees = "dynamic_sparse_trees_105", dict[int, Any]()
    if case["two"] is None:
        trees = upstream.names("prompt/inference/dynamic_sparse_trees_3_vicuna_7b.py", own)[own]
    else:
        for rows, shape, far in ((2, case["two"], case["far_two"]), (3, case["three"], case["far_three"])):
            paths = sorted(json.loads(shape), key=lambda p: (len(p), p))
            trees[rows] = [(p, 0.0, 3 if i in far else 2) for i, p in enumerate(paths, 1)]
    embed = lambda ids: torch.stack([ids.float(), torch.zeros(ids.shape)], -1)

    class Base:
        config, device, dtype, model = target.config, target.device, target.dtype, target.model

        def __call__(self, inputs_embeds: torch.Tensor, **more: Any) -> Any:
            return target(input_ids=inputs_embeds[..., 0].long(), **more)

    class Decoder(of):  # type: ignore[misc,valid-type]
        base_model, device, tokenizer = Base(), target.device, Noted(next(iter(case["eos"]), -1))
        active_peft_config = SimpleNamespace(num_special_tokens=3)
        word_embeddings = staticmethod(embed)
        get_prompt = staticmethod(lambda _: embed(torch.tensor([[case["first"] + i for i in range(3)]])))

        def __init__(self) -> None:
            """Nothing is loaded."""

    decoder = Decoder()
    decoder.generate_dynamic_buffers(trees)
    output = list(case["prompt"])
    for ids in decoder.ppd_generate(torch.tensor([case["prompt"]])):
        output = ids[0].tolist()
        if len(output) >= len(case["prompt"]) + case["limit"]:
            break
    found = told(target.calls, case, output)
    found["drafted"][0] = drafted_below([t for t in target.calls[0] if len(t) > len(case["prompt"])], len(case["prompt"]))
    return found


RECORDINGS = {
    "ppd": ppd,
}
