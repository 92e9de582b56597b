"""Folders as people have them: a small random Llama with a tokenizer, which a test then spoils."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

SPECIAL = ("<pad>", "<s>", "</s>", "<|im_end|>", "<|im_start|>")
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@lru_cache(maxsize=1)
def tokenizer() -> str:
    """A byte-level tokenizer.json with special tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        show_progress=False,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(["Hello, world! The quick brown fox."] * 5, trainer)
    return str(made.to_str())


def model(**more: Any) -> Any:
    """A Llama over the tokenizer's tokens."""
    import torch
    import transformers

    torch.manual_seed(1)
    size = json.loads(tokenizer())
    count = len(size["model"]["vocab"])
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=count, **{**SIZES, **more})).eval()


def folder(at: Path, *, words: bool = True, **more: Any) -> Path:
    """The model's folder, new; with a tokenizer, or without."""
    made = at / f"model{len(list(at.iterdir()))}"
    model(**more).save_pretrained(made)
    if words:
        (made / "tokenizer.json").write_text(tokenizer(), encoding="utf-8")
        settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "pad_token": "<pad>"}
        (made / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return made
