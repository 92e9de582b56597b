"""Drafters that learn while they serve."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from lab.recordings import Case
from lab.recordings.chains import models
from lab.recordings.tables import Legacy, OnCPU, Stream, TableLM, draws_of
from lab.recordings.upstream import Upstream


class Serving(TableLM):
    """A table whose caches are those of transformers 4.3x."""

    cache = Legacy


class Learning(Serving):
    """A table with a bias on its scores, which is all that it can learn."""

    def __init__(self, table: Any) -> None:
        super().__init__(table)
        self.bias = torch.nn.Parameter(torch.zeros(table.vocab.size))

    def forward(self, input_ids: torch.Tensor, *args: Any, **more: Any) -> Any:
        found = super().forward(input_ids, *args, **more)
        found.logits = found.logits + self.bias
        return found


def online_sd(upstream: Upstream, case: Case) -> dict[str, Any]:
    """Requests one after the other; a step of plain descent where the trainer gives a loss."""
    both = models(case)
    target, drafter, tokenizer = (
        Serving(both["target"]),
        Learning(both["drafter"]),
        SimpleNamespace(eos_token_id=-1, pad_token_id=0, batch_decode=lambda *_, **__: []),
    )
    generator = upstream.module("distill/specInfer/generator.py", "distill").Generator
    common = upstream.module("distill/specInfer/common.py", "distill")
    seen = {"torch": torch, "Trainer": object, "pad_to_2d": common.pad_to_2d}
    kind = upstream.names("distill/distill_trainer.py", "DistillTrainer", **seen)["DistillTrainer"]
    trainer = kind.__new__(kind)
    vars(trainer).update(
        model=drafter, teacher_model=target, tokenizer=tokenizer, train_step_cnt=1, online_eval_interval=10**9,
        online_update_interval=case["every"], buffer=[], alphas=[], sample_steps=[],
        args=SimpleNamespace(gradient_accumulation_steps=1),
        generator=generator(drafter, target, tokenizer, case["gamma"], False),
    )  # fmt: skip
    out: dict[str, Any] = {"tokens": [], "bias": []}
    generate = trainer.generator.generate

    def noted(ids: Any, *args: Any, **more: Any) -> Any:
        found = generate(ids, *args, temperature=1e-6, **more)
        out["tokens"].append([*ids[0].tolist(), *found.generated_ids[0].tolist()])
        return found

    trainer.generator.generate = noted
    with OnCPU(), draws_of(Stream(case["seed"])):
        for request in range(case["requests"]):
            ids = torch.tensor([[*case["prompt"], request % case["size"]]])
            trainer.online_training_step(drafter, {"input_ids": ids, "attention_mask": torch.ones_like(ids).bool()})
            assert len(out["tokens"][-1]) == ids.shape[1] + LIMIT, "a last step that reaches beyond the limit"
            if drafter.bias.grad is not None:
                with torch.no_grad():
                    drafter.bias -= case["rate"] * drafter.bias.grad
                drafter.bias.grad = None
            out["bias"].append([round(x, 3) + 0.0 for x in drafter.bias.tolist()])
    return out


LIMIT = 128
"""Of the trainer, for every request."""
RECORDINGS = {
    "online_sd": online_sd,
}
