"""Transformers' assisted generation, whole, with tables in the place of models: a drafter with another vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig

from lab.recordings import Case
from lab.recordings.tables import Stream, TableLM, chains, draws_of, untied
from lab.recordings.upstream import Upstream


def models(case: Case) -> dict[str, Any]:
    """A target, and a drafter with more tokens that agrees with it on most; equal ids have equal texts."""
    size, seed = case["size"], case["seed"]
    drafter = untied(case["other"], seed, window=None, name="drafter", vocab="d", blend=(seed + 1, case["blend"]))
    return {"target": untied(size, seed, window=None), "drafter": drafter}


class Spelled:
    """A tokenizer of transformers' interface: a token's text is its id in brackets."""

    all_special_ids: tuple[int, ...] = ()

    def __init__(self, size: int) -> None:
        self.size = size

    def get_vocab(self) -> dict[str, int]:
        """Ids by text."""
        return {f"<{i}>": i for i in range(self.size)}

    def __call__(self, text: str, return_tensors: str = "", **_: Any) -> Any:
        ids = [int(x) for x in re.findall(r"<(\d+)>", text)]
        return {"input_ids": torch.tensor([ids]) if return_tensors else ids}

    def decode(self, tokens: torch.Tensor, **_: Any) -> str:
        """A text."""
        return "".join(f"<{int(i)}>" for i in tokens.reshape(-1))


class Table(TableLM, GenerationMixin):
    """A table that transformers generates with."""

    main_input_name, _is_stateful = "input_ids", False

    def __init__(self, table: Any, eos: Any) -> None:
        super().__init__(table)
        self.config = PreTrainedConfig(vocab_size=table.vocab.size, num_hidden_layers=1, hidden_size=1, num_attention_heads=1)
        self.generation_config = GenerationConfig(eos_token_id=eos, pad_token_id=table.vocab.size, top_k=0)
        self.generate = lambda *args, **how: GenerationMixin.generate(self, *args, **how)
        size = table.vocab.size
        self.inputs, self.outputs = torch.nn.Embedding(size, 1), torch.nn.Linear(size, size, bias=False)
        self.inputs.weight.data, self.outputs.weight.data = torch.arange(float(size))[:, None], torch.eye(size)

    def forward(  # type: ignore[override]
        self, input_ids: Any, attention_mask: Any = None, position_ids: Any = None, past_key_values: Any = None, **_: Any
    ) -> Any:
        """Tokens are their own embeddings and scores the last states, so that a pruned head is one of fewer rows."""
        tokens = self.inputs(input_ids)[..., 0].round().long()
        out = super().forward(tokens, attention_mask, position_ids, past_key_values)
        out.logits = self.outputs(out.logits)
        return out

    def get_input_embeddings(self) -> Any:
        """As of transformers' models."""
        return self.inputs

    def get_output_embeddings(self) -> Any:
        """As of transformers' models."""
        return self.outputs

    def set_input_embeddings(self, inputs: Any) -> None:
        """As of transformers' models."""
        self.inputs = inputs

    def set_output_embeddings(self, outputs: Any) -> None:
        """As of transformers' models."""
        self.outputs = outputs

    def can_generate(self) -> bool:
        """It can."""
        return True

    def is_remote_code(self) -> bool:
        """It is not."""
        return False

    def get_experts_implementation(self) -> str:
        """It has none, as it takes no others."""
        return "eager"

    def set_experts_implementation(self, name: Any) -> None:
        """It has none."""

    def get_text_config(self, **_: Any) -> Any:
        """Its configuration."""
        return self.config


class Coins:
    """A uniform for each of several odds, of which those up to the first no are read; `flip` says whether a coin says yes."""

    def __init__(self, flip: Callable[[float], bool]) -> None:
        self.flip = flip

    def __le__(self, odds: torch.Tensor) -> torch.Tensor:
        yes = [True]
        for p in odds.tolist():
            yes.append(yes[-1] and self.flip(p))
        return torch.tensor(yes[1:])


def heterogeneous_vocab(upstream: Upstream, case: Case) -> dict[str, Any]:
    eos = [*case["eos"]] or None
    target, drafter = (Table(table, eos) for table in models(case).values())
    drafter.generation_config.update(
        num_assistant_tokens=case["gamma"],
        num_assistant_tokens_schedule="constant",
        assistant_confidence_threshold=case["least"],
    )
    stream = Stream(case["seed"])
    with draws_of(stream), mock.patch.object(torch, "rand_like", lambda _: Coins(stream.flip)):
        text = target.generate(
            torch.tensor([case["prompt"]]),
            do_sample=True,
            temperature=case["temperature"],
            max_new_tokens=case["limit"] + 40,
            assistant_model=drafter,
            tokenizer=Spelled(case["size"]),
            assistant_tokenizer=Spelled(case["other"]),
        )[0].tolist()
    return chains(target.calls, text, case["prompt"], case["limit"], case["eos"])


RECORDINGS = {
    "heterogeneous_vocab": heterogeneous_vocab,
}
