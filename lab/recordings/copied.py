"""Decoders whose drafts are copied from the prompt, or from an input that is the prompt here."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, Optional
from unittest.mock import MagicMock

import numpy as np
import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case
from lab.recordings.tables import OnCPU, TableLM, chains, untied
from lab.recordings.upstream import Upstream


def target(case: Case) -> TableModel:
    """The model of a case."""
    return untied(case["size"], case["seed"], window=case["window"])


def words(seed: int, length: int, size: int = 4) -> tuple[int, ...]:
    """A prompt."""
    return tuple(int(x) for x in np.random.default_rng(seed).integers(0, size, length))


class Packed:
    """A model of FasterTransformer's interface: the tokens that it is given are its embeddings, its scores its states, and a
    decoder's call takes the new tokens of all sequences, one sequence behind the other. calls: by sequence, what each call
    that has tokens of it reads."""

    weight, device, dtype, position_encoding, pre_decoder_layernorm, post_decoder_layernorm = (
        "",
        "cpu",
        torch.float32,
        *[None] * 3,
    )
    shared_contexts_ratio, use_fp32_to_compute_logit = 0.0, False

    def __init__(self, table: TableModel) -> None:
        self.model = TableLM(table)
        self.context_decoder, self.decoder = SimpleNamespace(forward=self.prompts), SimpleNamespace(forward=self.step)
        self.word_embedding = self.lm_head = lambda x: x

    def generate_pad_mask(self, lengths: Any, memory: int) -> torch.Tensor:
        """Nothing is masked: a sequence has its own cache."""
        return torch.zeros(len(lengths), memory, dtype=torch.bool)

    def prompts(self, input_embeds: torch.Tensor, input_lengths: torch.Tensor, **_: Any) -> tuple[Any, ...]:
        """Read the prompts."""
        self.texts = [row[:n].tolist() for row, n in zip(input_embeds, input_lengths.tolist(), strict=True)]
        self.calls: list[list[Any]] = [[[[tuple(text)]]] for text in self.texts]
        return None, None, None, torch.stack([self.model.row(text) for text in self.texts])

    def step(self, input_embeds: torch.Tensor, sequence_lengths: torch.Tensor, **more: Any) -> torch.Tensor:
        """Read new tokens, from these places on."""
        tokens, out = input_embeds.tolist(), []
        for i, (start, many) in enumerate(zip(sequence_lengths.tolist(), more["token_nums_per_sample"].tolist(), strict=True)):
            new, tokens = tokens[:many], tokens[many:]
            self.texts[i][start:] = new
            rows = [tuple(self.texts[i][: start + j + 1]) for j in range(many)]
            self.calls[i] += [[rows]] if many else []
            out += [self.model.row(row) for row in rows]
        return torch.stack(out)


def ems_sd(upstream: Upstream, case: Case) -> dict[str, Any]:
    path = "examples/pytorch/gpt/utils/gpt_LLMA_EMS.py"
    seen = {"torch": torch, "time": time, "np": np, "Optional": Optional, "comm": MagicMock(), "profiler": MagicMock()}
    model, prompts = Packed(target(case)), [torch.tensor(p) for p in case["prompts"]]
    with OnCPU():
        done = upstream.names(path, "gpt_LLMA", **seen)["gpt_LLMA"](
            model, case["reach"], case["k"], case["size"], torch.nn.utils.rnn.pad_sequence(prompts, batch_first=True),
            torch.tensor([len(p) for p in prompts]), case["limit"], (*case["eos"], -1)[0], return_output_length=True,
        )  # fmt: skip
    texts = [row[0, :n].tolist() for row, n in zip(done["output_token_ids"], done["output_lengths"].tolist(), strict=True)]
    each = zip(model.calls, texts, case["prompts"], strict=True)
    return {"sequences": [chains(calls, text, prompt, case["limit"], case["eos"]) for calls, text, prompt in each]}


class Translator:
    """A model of fairseq's interface whose encoder gives the input back, and whose decoder continues this input: its cache is
    a state that holds the output's tokens."""

    def __init__(self, table: TableModel) -> None:
        self.model, self.calls = TableLM(table), list[list[list[tuple[int, ...]]]]()
        layer = SimpleNamespace(encoder_attn=SimpleNamespace(_incremental_state_id="encoder"))
        self.encoder = SimpleNamespace(forward_torchscript=lambda net: net["src_tokens"][0, :-1].tolist())
        self.decoder = SimpleNamespace(layers=[layer], forward=self.forward)

    def forward(self, tokens: torch.Tensor, encoder_out: list[int], incremental_state: Any, **more: Any) -> Any:
        """The scores behind the tokens from a place on, or behind the last."""
        start = more["parallel_forward_start_pos"]
        state = incremental_state.setdefault("self.state", {"keys": torch.zeros(1, 1, 0, 1)})
        new = tokens[0, -1:] if start is None else tokens[0, start:]
        before = state["keys"].shape[2]
        state["keys"] = torch.cat([state["keys"], new[None, None, :, None].float()], 2)
        text = (*encoder_out, *(int(x) for x in state["keys"][0, 0, 1:, 0]))
        rows = [text[: len(encoder_out) + before + i] for i in range(len(new))]
        self.calls.append([rows])
        return torch.stack([self.model.row(row) for row in rows])[None], None

    def get_normalized_probs(self, out: Any, log_probs: bool, sample: Any) -> torch.Tensor:
        """Logarithms."""
        return torch.log_softmax(out[0], -1)


def input_guided(upstream: Upstream, case: Case) -> dict[str, Any]:
    module: Any = upstream.module("decoding/IAD/inference.py", absent=("fairseq", "omegaconf", "tqdm"))
    module.tqdm = lambda x: x
    eos = (*case["eos"], case["size"])[0]
    words = SimpleNamespace(
        encode_line=lambda line, **_: torch.tensor([*line, eos]), eos=lambda: eos, string=lambda tokens: str([*tokens])[1:-1]
    )
    model = Translator(target(case))
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    (written,), _ = module.paper_aggressive_generate([case["prompt"]], model, task, "cpu", max_len=case["limit"])
    output = [int(x) for x in written.split(", ") if x]
    if len(output) < case["limit"]:  # its end token is left out
        output.append(eos)
    return chains(model.calls, [*case["prompt"], *output], case["prompt"], case["limit"], case["eos"])


RECORDINGS = {
    "ems_sd": ems_sd,
    "input_guided_aggressive": input_guided,
}
