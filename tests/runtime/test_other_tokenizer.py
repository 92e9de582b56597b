"""A drafter with a tokenizer of its own beside the shipped target: which tokens both have, as transformers finds them, and the
same tokens as without a drafter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import decgraph
from decgraph import zoo
from decgraph.runtime.models import hf
from decgraph.runtime.models.speaking import spelling_of
from decgraph.runtime.models.spelling import shared

TEXT = ["def mean(values):\n    return sum(values) / len(values)\nimport os\nimport sys\n"] * 3
PROMPT = "import os\nimport"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """A small Llama with random weights, and byte-level BPE of its own text."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    at: Path = tmp_path_factory.mktemp("other")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=["<s>", "<|endoftext|>"], initial_alphabet=letters)
    tokenizer.train_from_iterator(TEXT, trainer)
    tokenizer.save(str(at / "tokenizer.json"))
    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(3)
    config = transformers.LlamaConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=128, **small)
    transformers.LlamaForCausalLM(config).save_pretrained(at)
    return at


def test_the_shared_tokens_are_those_that_transformers_finds(folder: Path) -> None:
    from transformers import PreTrainedTokenizerFast
    from transformers.generation.candidate_generator import AssistantToTargetTranslator

    target, drafter = hf.load_causal(zoo.path("target")), hf.load_causal(folder)
    files = (zoo.path("target") / "tokenizer.json", folder / "tokenizer.json")
    theirs, own = (PreTrainedTokenizerFast(tokenizer_file=str(f)) for f in files)
    found = AssistantToTargetTranslator(theirs, own, target.vocab.size).target_to_assistant_input_ids
    ours = {other: mine for mine, other in shared(spelling_of(drafter), spelling_of(target))}
    assert ours == found
    assert 256 < len(ours) < drafter.vocab.size


@pytest.mark.parametrize("name", ["heterogeneous_vocab", "universal_assisted"])
def test_the_texts_are_the_targets(folder: Path, name: str) -> None:
    """Greedily the target's own tokens, and drawn ones are equal on both backends. The target may be left out: the drafter
    reads and writes text, so it goes with any."""
    plain = decgraph.run("autoregressive", PROMPT, max_tokens=10, temperature=0)
    drawn = []
    for backend in ("torch", "reference"):
        session = decgraph.load(name).session({"drafter": str(folder)}, backend=backend, gamma=3)
        assert session.tokenizer is not None
        prompt = session.tokenizer.encode(PROMPT)
        done = [session.run(decgraph.Request(prompt, max_tokens=n, temperature=t, seed=4)) for n, t in ((10, 0), (6, 1))]
        assert [r.error for r in done] == [None, None]
        assert done[0].tokens == plain.tokens
        drawn.append(done[1].tokens)
    assert drawn[0] == drawn[1]
