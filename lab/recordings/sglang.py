"""SGLang's decoders of diffusion language models, which fill one block of a text after the other. Its scheduler and its models
are stand-ins."""

from __future__ import annotations

import typing
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from decgraph.runtime.models.interface import MASK as MASKED
from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.grids import MASK, Entries
from lab.recordings.upstream import Upstream

FOLDER = "python/sglang/srt/dllm/algorithm"


def blocks_of(case: Case, *, whole: bool = True) -> TableModel:
    """A masked table. whole: every cell sees all of the text, else its own block and those before it."""
    how: dict[str, Any] = {} if whole else {"visibility": ("block", case["block"])}
    made = TableModel(case["size"], case["seed"], kind="masked", vocab="t", name="model", **how)
    made._table = Entries(case["seed"], case["size"])  # type: ignore[assignment]
    return made


class Algorithm:
    """What their algorithms inherit: a block's size, and the mask, which is behind the table's tokens."""

    def __init__(self, config: Any) -> None:
        self.block_size, self.mask_id = config.block_size, config.mask_id


def said(model: TableModel, text: list[int], at: range) -> torch.Tensor:
    """float32[n, V]: the scores at these positions of a text."""
    cells = tuple(MASKED if x == model.vocab.size else x for x in text)
    found = model.eval_canvas(cells, list(at))
    return torch.tensor([[float(w) for w in row.weights or ()] for row in found], dtype=torch.float64).log().float()


def shown(case: Case, text: list[int]) -> list[int]:
    """As columns have it."""
    return [MASK if x == case["size"] else x for x in text]


def loaded(upstream: Upstream, name: str, kind: str, case: Case, settings: dict[str, Any], **more: Any) -> Any:
    """An algorithm of theirs."""
    hints: dict[str, Any] = dict.fromkeys(("DllmConfig", "ForwardBatch", "ModelRunner", "LogitsProcessorOutput"), object)
    sees = {n: getattr(typing, n) for n in ("Any", "List", "Optional", "Tuple", "Union")}
    sees |= {"torch": torch, "np": np, "F": torch.nn.functional, "DllmAlgorithm": Algorithm}
    code = upstream.names(f"{FOLDER}/{name}.py", kind, **hints, **sees)
    return code[kind](SimpleNamespace(block_size=case["block"], mask_id=case["size"], algorithm_config=settings, **more))


def joint_threshold_indel(upstream: Upstream, case: Case) -> dict[str, Any]:
    settings = {"threshold": case["tau"], "edit_threshold": case["edit"], "max_post_edit_steps": case["rounds"]}
    ends = {"delete_token_id": case["delete"], "split_token_id": case["split"]}
    algorithm = loaded(upstream, "joint_threshold_indel", "JointThresholdInDel", case, settings, **ends)
    model, block, text, asked = blocks_of(case), case["block"], list(case["prompt"]), list[list[int]]()
    end = len(text) + case["limit"]
    while len(text) < end:
        begin = len(text) // block * block
        ids = torch.tensor([*text[begin:], *[case["size"]] * (begin + block - len(text))])
        batch = SimpleNamespace(input_ids=ids, batch_size=1)
        state = algorithm.init_step_state(batch)
        for _ in range(algorithm.max_steps(block)):
            now = [*text[:begin], *batch.input_ids.tolist()]
            asked.append(shown(case, now))
            if all(algorithm.step(batch, said(model, now, range(begin, begin + block)), state)):
                break
        text = [*text[:begin], *batch.input_ids.tolist()]
    return {"output": text[:end], "asked": asked}


def fast_dllm_v2(upstream: Upstream, case: Case) -> dict[str, Any]:
    settings = {"threshold": case["tau"], "sub_block_size": case["small"]}
    algorithm = loaded(upstream, "hierarchy_block", "HierarchyBlock", case, settings)
    model, block, text, asked = blocks_of(case, whole=False), case["block"], list(case["prompt"]), list[list[int]]()
    end = len(text) + case["limit"]

    def forward(batch: Any, **_: Any) -> Any:
        """The scores of a cell are those behind the one before it; the last ones are of the next block's first cell."""
        begin = batch.positions[0]
        now = [*text[:begin], *batch.input_ids.tolist()]
        if case["size"] in now:
            asked.append(shown(case, now))
        rows = said(model, [*now, case["size"]], range(begin + 1, begin + block + 1))
        return SimpleNamespace(logits_output=SimpleNamespace(full_logits=rows), can_run_graph=False)

    while len(text) < end:
        begin = len(text) // block * block
        ids = torch.tensor([*text[begin:], *[case["size"]] * (begin + block - len(text))])
        batch = SimpleNamespace(input_ids=ids, positions=list(range(begin, begin + block)))
        algorithm.run(SimpleNamespace(forward=forward), batch)
        text = [*text[:begin], *batch.input_ids.tolist()]
    return {"output": text[:end], "canvases": asked}


RECORDINGS = {
    "joint_threshold_indel": joint_threshold_indel,
    "sglang_hierarchy": fast_dllm_v2,
}
