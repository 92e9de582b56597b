"""Tensor parallelism: a model cut over two ranks commits what the whole one does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from lib import rank_program
from lib.waiting import SECONDS, started

SETTINGS = {
    "plain": {"attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    "with biases, tied": {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
}


def saved(folder: Path, **settings: Any) -> None:
    """A small random Llama with biases that are not zero."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    more = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.3}
    module = LlamaForCausalLM(LlamaConfig(**sizes, **more, bos_token_id=None, eos_token_id=None, **settings))
    with torch.no_grad():
        for name, p in module.named_parameters():
            if name.endswith("bias"):
                p.normal_(std=0.3)
    module.save_pretrained(folder)


def command(folder: Path, rank: int) -> list[str]:
    return [sys.executable, rank_program.__file__, str(folder), str(folder / "store"), str(rank)]


@pytest.mark.slow
@pytest.mark.budget(14)
@pytest.mark.parametrize("how", SETTINGS)
def test_two_ranks_commit_what_one_does(how: str, tmp_path: Path) -> None:
    """Five algorithms, greedy and sampled: tokens of the cut model and of the whole one, on both ranks."""
    saved(tmp_path, **SETTINGS[how])
    with started(command(tmp_path, 0)) as first, started(command(tmp_path, 1)) as second:
        ranks = [first, second]
        texts = [rank.communicate(timeout=SECONDS) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], texts[0][1] + texts[1][1]
    said = [json.loads(next(line for line in out.splitlines() if line.startswith("said "))[5:]) for out, _ in texts]
    for one in said:
        assert len(one["tokens"]) == 10
        assert {name: cut for name, (_, cut) in one["tokens"].items()} == {
            name: whole for name, (whole, _) in one["tokens"].items()
        }
        assert one["forward"]["way"] == "module" and "Shard is no class of transformers' models" in one["forward"]["reason"]
        assert one["shards"] < 0.6 * one["whole"]
        assert "cut over ranks" in one["refused"]
    assert said[0]["tokens"] == said[1]["tokens"]
    assert len({tuple(cut) for _, cut in said[0]["tokens"].values()}) >= 3, "sampled texts are others than the greedy one"
