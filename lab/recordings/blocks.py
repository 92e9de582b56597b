"""Decoders of SGLang's for models that fill blocks of masks, and read them from left to right."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Optional, Union
from unittest.mock import MagicMock

import numpy as np
import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case, Recording, tabled
from lab.recordings.canvases import MaskedLM, canvas, races
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream


class Runner(MaskedLM):
    """SGLang's model runner, of one request: a forward is about a block behind the text. target: what reads it from left to
    right, where the batch asks for that; its scores, and these alone, have a column for the mask."""

    def __init__(self, table: TableModel, text: list[int], target: TableLM | None = None) -> None:
        super().__init__(table, 0)
        self.text, self.target = text, target
        self.model_config = SimpleNamespace(hf_config=SimpleNamespace(eos_token_id=None))

    def forward(self, batch: Any, pp_proxy_tensors: Any = None) -> Any:
        """full_logits: float32[block, V]."""
        block, mask = batch.input_ids.tolist(), self.table.vocab.size
        states = getattr(batch, "model_specific_states", None) or {}
        shifted = "attention_mask" in states  # a row predicts the next cell
        if self.target is not None and (batch.dllm_causal_kv_update or states.get("attention_mask") is not None):
            whole = block[: block.index(mask)] if mask in block else block  # no text goes on behind a mask
            read = [self.target.row([*self.text, *whole[: i + 1]]) for i in range(len(whole))]
            rows = torch.stack([*read, *[torch.zeros(mask)] * (len(block) - len(whole))])
        else:
            seen = dict(enumerate([*self.text, *block]))
            self.length = len(seen)
            at = list(range(len(self.text), self.length))
            rows = self.rows(seen, at)[0].roll(-int(shifted), 0)
            if mask in block:  # a call of a full block is for its keys and values
                self.canvases.append([-1 if token == mask else token for token in seen.values()])
                self.computed.append(at)
        if self.target is not None and not shifted:
            rows = torch.cat([rows, torch.zeros(len(block), 1)], dim=1)
        scores = SimpleNamespace(full_logits=rows, next_token_logits=None)
        return SimpleNamespace(logits_output=scores, can_run_graph=False)


def sglang(upstream: Upstream, file: str, name: str, case: Case, *more: str, **settings: Any) -> Any:
    """An algorithm of SGLang's for masked models."""

    class DllmAlgorithm:
        def __init__(self, config: Any) -> None:
            self.block_size, self.max_steps, self.mask_id = case["block"], case["block"], case["size"]

    unread = dict.fromkeys(("DllmConfig", "ModelRunner", "ForwardBatch", "LogitsProcessorOutput"), object)
    typed = {"Dict": dict, "List": list, "Tuple": tuple, "Optional": Optional, "Union": Union}
    given = {"torch": torch, "np": np, "F": torch.nn.functional, "logger": MagicMock(), "DllmAlgorithm": DllmAlgorithm}
    made = upstream.names(file, name, *more, **unread, **typed, **given)[name]
    return made(SimpleNamespace(causal_context=True, pad_id=None, algorithm_config=settings))


def fast_diffuser(upstream: Upstream, case: Case) -> dict[str, Any]:
    settings = {"temperature": case["temperature"], "threshold": case["tau"]}
    algorithm = sglang(upstream, "fastdiffuser.py", "FastDiffuser", case, "add_gumbel_noise", **settings)
    text, size = [*case["prompt"]], case["size"]
    runner = Runner(canvas(size, case["seed"]), text)
    with races(runner, case["seed"]):
        for _ in range(case["blocks"]):
            behind = len(text) % case["block"]
            block = torch.tensor([*text[len(text) - behind :], *[size] * (case["block"] - behind)])
            runner.text = text[: len(text) - behind]
            batch = SimpleNamespace(input_ids=block, dllm_causal_kv_update=False)
            text = [*runner.text, *text[len(text) - behind :], *algorithm.run(runner, batch)[1].tolist()]
    return {"output": text, "canvases": runner.canvases}


def linear_spec(upstream: Upstream, case: Case) -> dict[str, Any]:
    algorithm = sglang(upstream, "linear_spec.py", "LinearSpec", case)
    target = TableLM(untied(case["size"], case["seed"], window=None))
    runner = Runner(canvas(case["size"], case["seed"]), [*case["prompt"][:-1]], target)
    algorithm._seed_tokens["r"] = case["prompt"][-1]
    drafted, committed = [], []
    for _ in range(case["calls"]):
        block = torch.full((case["block"],), case["size"])
        batch = SimpleNamespace(input_ids=block, batch_size=1, rids=["r"], dllm_causal_kv_update=False)
        ((out,), _) = algorithm.run(runner, batch)[1], None
        drafted.append(block.tolist()[1:])
        committed.append([*out.tolist()[1:], algorithm._seed_tokens["r"]])
        runner.text += out.tolist()
    return {"drafted": drafted, "committed": committed}


def pangu_block(upstream: Upstream, case: Case) -> dict[str, Any]:
    settings = {
        "threshold": case["tau"],
        "num_small_blocks": case["block"] // case["small"],
        "alg": "entropy" if case["entropies"] else "confidence_threshold",
        "eos_token_id": case["eos"],
    }
    algorithm = sglang(upstream, "shift_confidence.py", "ShiftConfidence", case, "sample_tokens", **settings)
    text, target = [*case["prompt"]], TableLM(untied(case["size"], case["seed"], window=None))
    runner = Runner(canvas(case["size"], case["seed"]), [], target)

    def call(block: list[int]) -> Any:
        batch = SimpleNamespace(
            input_ids=torch.tensor(block), positions=[len(runner.text)], seq_lens=[len(runner.text) + len(block)],
            model_specific_states=None, dllm_causal_kv_update=False,
        )  # fmt: skip
        return algorithm.run(runner, batch)[1]

    algorithm.pad_id, algorithm.fia_length = -1, 256
    call(text)
    for _ in range(case["blocks"]):
        runner.text = [*text]
        (out,) = call([case["size"]] * case["block"])
        text += out.tolist()
        if case["eos"] in text[-case["block"] :]:
            text = text[: len(text) - case["block"] + text[-case["block"] :].index(case["eos"]) + 1]
            break
    return {"output": text, "canvases": runner.canvases}


RECORDINGS = [
    Recording(
        "fast_diffuser",
        "sgl-project/sglang",
        "1db454da3af95e0d7668e269af32f39530cb82eb",
        "python/sglang/srt/dllm/algorithm/fastdiffuser.py, FastDiffuser.run",
        fast_diffuser,
        tabled(
            "{seed} {block} {tau} {temperature}",
            "seed size block tau temperature blocks prompt",
            (
                (1, 6, 6, 0.9, 0.0, 2, (1, 2)),
                (2, 4, 8, 0.6, 0.0, 2, (1, 2, 3)),
                (3, 3, 4, 0.7, 0.0, 3, (1, 2, 0, 1, 2)),
                (4, 4, 8, 0.6, 0.7, 2, (1, 2, 3)),
                (5, 3, 6, 0.5, 1.0, 2, (1, 2)),
                (6, 6, 4, 0.9, 1.3, 3, (1, 2, 3, 4, 5, 0)),
            ),
        ),
        "greedy, sampled",
        "tau: threshold; as many steps as a block has cells; a stored version of a pull request's file (25803); the call of a "
        "full block, for its keys and values, is left out",
    ),
    Recording(
        "pangu_block",
        "sgl-project/sglang",
        "23f87512379c175c081e8260586d715b44a94318",
        "python/sglang/srt/dllm/algorithm/shift_confidence.py, ShiftConfidence.run",
        pangu_block,
        tabled(
            "{seed} {block} {small} {tau} {entropies} {eos}",
            "seed size block small tau entropies eos blocks",
            (
                (1, 6, 8, 4, 0.9, False, None, 2),
                (2, 4, 8, 2, 0.6, False, None, 2),
                (3, 3, 6, 6, 0.5, False, None, 3),
                (4, 5, 8, 4, 0.9, True, None, 2),
                (5, 5, 8, 2, 0.7, False, 4, 4),
                (6, 6, 6, 3, 0.4, False, 5, 4),
            ),
            prompt=(1, 2, 0),
        ),
        "greedy",
        "small: block_size over num_small_blocks; tau: threshold; entropies: alg entropy; a stored version of a pull request's "
        "file (18828); no padding; a text is cut after its end token, as its scheduler does",
    ),
    Recording(
        "linear_spec",
        "sgl-project/sglang",
        "4476e1dabd5368653e1761b6e92a2fce9104ccb7",
        "python/sglang/srt/dllm/algorithm/linear_spec.py, LinearSpec.run",
        linear_spec,
        tabled(
            "{seed} {block}",
            "seed size block",
            ((1, 4, 4), (2, 3, 6), (3, 2, 8), (4, 2, 2), (5, 3, 16)),
            prompt=(1, 0, 1),
            calls=12,
        ),
        "greedy",
        "a stored version of a pull request's file (25802), without its statistics; the prompt's last token is the first seed; "
        "a block begins where the text ends",
    ),
]
