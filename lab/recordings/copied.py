"""Decoders whose drafts are copied from the prompt, or from an input that is the prompt here."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Optional
from unittest.mock import MagicMock

import numpy as np
import torch

from decgraph.runtime.models.table import TableModel
from lab.recordings import Case, Recording, tabled
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


def repeating(seed: int, length: int, limit: int, **more: Any) -> Mapping[str, Any]:
    """A case whose prompt holds, between other words, some of what the model writes after its end."""
    case = {"seed": seed, "limit": limit, "window": 2, "eos": (), **more}
    start = words(seed, length, more["size"])
    written = list(start)
    for _ in range(limit):
        written.append(int(TableLM(target(case)).row(written).argmax()))
    return {**case, "prompt": (*written, *start)}


def alike(*rows: tuple[int, ...], k: int, **more: Any) -> Mapping[str, Any]:
    """A case of several prompts, of these seeds and lengths."""
    return {"k": k, "window": None, "eos": (), "prompts": [words(seed, n, more["size"]) for seed, n in rows], **more}


RECORDINGS = [
    Recording(
        "ems_sd",
        "niyunsheng/EMS-SD",
        "51b8603e62cb9eb377a8ac45be6c9484142115f0",
        "examples/pytorch/gpt/utils/gpt_LLMA_EMS.py, gpt_LLMA",
        ems_sd,
        {
            "as published": alike((1, 60), k=7, reach=2, size=4, seed=1, limit=40),
            "a batch": alike((1, 60), (2, 5), (3, 31), (4, 44), k=5, reach=2, size=3, seed=2, limit=30),
            "ends": alike((5, 40), (6, 50), (7, 30), k=4, reach=2, size=5, seed=3, limit=40, eos=(2,)),
            "one token": alike((8, 30), (9, 40), k=3, reach=1, size=4, seed=4, limit=40),
            "three tokens": alike((8, 60), (9, 80), k=5, reach=3, size=3, seed=5, limit=40),
            "a prompt that is too short": alike((3, 8), (4, 9), k=7, reach=2, size=3, seed=6, limit=20),
            "a window": alike((1, 60), (2, 80), k=7, reach=2, size=4, seed=7, limit=40, window=2),
        },
        "greedy",
        "check_length: reach, copy_length: k; FasterTransformer's kernels are a table that reads packed tokens",
    ),
    Recording(
        "input_guided_aggressive",
        "microsoft/unilm",
        "768a3c873f598bb9b4d4dfb9267b099e35f8fe56",
        "decoding/IAD/inference.py, paper_aggressive_generate",
        input_guided,
        {
            **tabled(
                "{seed} {size}",
                "seed size prompt limit eos",
                (
                    (1, 4, words(1, 12, 4), 20, ()),
                    (2, 6, words(2, 30, 6), 40, ()),
                    (3, 8, words(3, 40, 8), 40, ()),
                    (7, 6, (0, 1, 2, 3, 4, 2, 2, 1, 0, 4), 60, (5,)),
                    (5, 4, (0, 1, 0, 2, 1, 1, 2), 60, (3,)),
                ),
                window=None,
            ),
            "copies": repeating(1, 3, 12, size=40),
            "copies of fewer words": repeating(2, 6, 30, size=20),
        },
        "greedy",
        "the input is the prompt, which the decoder continues; three tokens at most, as in the code",
    ),
]
