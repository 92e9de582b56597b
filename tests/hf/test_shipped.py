"""On the shipped models: text, stop strings, streamers, and every kind of part that an algorithm reads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from lib.lazily import processors, transformers
from lib.models.hf_models import llama
from lib.waiting import SECONDS, ended

import decgraph
from decgraph import zoo
from decgraph.errors import DecError

TEXTS = ["def main():\n    return", "import os\n\n", "class A:\n    def __init__(self"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    made = transformers.AutoTokenizer.from_pretrained(zoo.path("target"))
    made.padding_side = "left"
    made.pad_token = made.pad_token or made.eos_token
    return made


@pytest.fixture(scope="module")
def shipped() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(zoo.path("target"), dtype=torch.float32)


@pytest.fixture(scope="module")
def small() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(zoo.path("drafter"), dtype=torch.float32)


def greedy(model: Any, inputs: Any, **more: Any) -> list[list[int]]:
    pad = model.generation_config.eos_token_id
    made = model.generate(**inputs, **{"do_sample": False, "max_new_tokens": 32, "pad_token_id": pad, **more})
    ids: list[list[int]] = made.tolist()
    return ids


def test_a_batch_of_texts(shipped: Any, small: Any, tokenizer: Any, backend: str) -> None:
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    expected = greedy(shipped, inputs)
    for door in (
        decgraph.hf("speculative", drafter=small, gamma=4, backend=backend),
        decgraph.hf("speculative", drafter="drafter", gamma=4, backend=backend),
        decgraph.hf("prompt_lookup", backend=backend),
    ):
        assert greedy(shipped, inputs, custom_generate=door) == expected
        assert sum(r.stats.target_calls for r in door.last) < sum(r.stats.tokens for r in door.last)


@pytest.mark.parametrize(
    ("algorithm", "given"),
    [
        ("eagle2", {"head": "eagle", "depth": 3, "k": 3, "budget": 8}),
        ("medusa_match", {"heads": "medusa", "shape": "2x2"}),
        ("kangaroo", {"adapter": "exit", "exit": 2, "gamma": 3}),
    ],
)
def test_parts_of_a_model(algorithm: str, given: dict[str, Any], shipped: Any, tokenizer: Any, backend: str) -> None:
    """Heads and adapters from folders, and as modules, on the live target."""
    from transformers import AutoModel

    import decgraph.zoo.modeling  # it registers their classes

    inputs = tokenizer(TEXTS[:1], return_tensors="pt", return_token_type_ids=False)
    expected = greedy(shipped, inputs, max_new_tokens=16)
    part = next(name for name in given if name in ("head", "heads", "adapter"))
    live = {**given, part: AutoModel.from_pretrained(zoo.path(given[part]))}
    for parts in (given, live):
        door = decgraph.hf(algorithm, backend=backend, **parts)
        assert greedy(shipped, inputs, max_new_tokens=16, custom_generate=door) == expected
    coarse = transformers.AutoModelForCausalLM.from_pretrained(zoo.path("target"), dtype=torch.bfloat16)
    # In 16 bits tokens may be as likely as each other: what is lossless gives what decgraph decodes alone.
    expected = greedy(coarse, inputs, max_new_tokens=8, custom_generate=decgraph.hf("autoregressive", backend=backend))
    assert (
        greedy(coarse, inputs, max_new_tokens=8, custom_generate=decgraph.hf(algorithm, backend=backend, **given)) == expected
    )
    with pytest.raises(DecError, match="hidden states of size"):
        llama(1).generate(inputs["input_ids"] % 61, custom_generate=decgraph.hf(algorithm, **live), max_new_tokens=4)


@pytest.mark.parametrize("strings", ["\n", ["return", "self.", " = "]])
def test_stop_strings(strings: Any, shipped: Any, small: Any, tokenizer: Any, backend: str) -> None:
    inputs = tokenizer(TEXTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    expected = greedy(shipped, inputs, stop_strings=strings, tokenizer=tokenizer)
    door = decgraph.hf("speculative", drafter=small, backend=backend, stop_strings=strings, tokenizer=tokenizer)
    assert greedy(shipped, inputs, custom_generate=door) == expected
    assert "until" in {r.reason for r in door.last}


def test_a_stop_string_that_began_in_the_prompt(shipped: Any, small: Any, tokenizer: Any, backend: str) -> None:
    """It counts: transformers looks at the whole text."""
    inputs = tokenizer(TEXTS[:1], return_tensors="pt", return_token_type_ids=False)
    length = inputs["input_ids"].shape[1]
    (ids,) = greedy(shipped, inputs)
    strings = [TEXTS[0][-2:] + tokenizer.decode(ids[length:])[:2]]
    expected = greedy(shipped, inputs, stop_strings=strings, tokenizer=tokenizer)
    assert len(expected[0]) <= length + 2
    door = decgraph.hf("speculative", drafter=small, backend=backend, stop_strings=strings, tokenizer=tokenizer)
    assert greedy(shipped, inputs, custom_generate=door) == expected


CAREFUL = """extern finished(text) -> bool on host

algorithm careful(target: causal, drafter: causal, gamma: int in 1..8 = 4):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
                break if finished(text_of(ctx))
        verify t by rejection against target(t)
        commit t.accepted
"""


@pytest.mark.parametrize("given", [True, False])
def test_functions_that_read_text(given: bool, shipped: Any, small: Any, tokenizer: Any, backend: str) -> None:
    """With the tokenizer handed over, and with the one found beside the model's weights."""
    inputs = tokenizer(TEXTS[:1], return_tensors="pt", return_token_type_ids=False)
    seen: list[str] = []

    def finished(text: str) -> bool:
        seen.append(text)
        return len(seen) % 2 == 0

    door = decgraph.hf(decgraph.parse(CAREFUL), drafter=small, backend=backend, externs={"finished": finished},
                       tokenizer=tokenizer if given else None)  # fmt: skip
    assert greedy(shipped, inputs, custom_generate=door, max_new_tokens=8) == greedy(shipped, inputs, max_new_tokens=8)
    assert seen[0] == TEXTS[0]


def test_a_streamer_gets_every_commit(shipped: Any, small: Any, tokenizer: Any, backend: str) -> None:
    inputs = tokenizer(TEXTS[:1], return_tensors="pt", return_token_type_ids=False)
    log, door = processors.Log(), decgraph.hf("speculative", drafter=small, backend=backend)
    (ids,) = greedy(shipped, inputs, custom_generate=door, streamer=log)
    assert log.put_[0] == inputs["input_ids"][0].tolist(), "generate puts the prompt"
    assert [t for part in log.put_ for t in part] == ids
    assert len(log.put_) - 1 < len(ids) - len(log.put_[0]), "several tokens at a time"
    assert log.ended == 1


def test_text_streams(shipped: Any, small: Any, tokenizer: Any, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    inputs = tokenizer(TEXTS[:1], return_tensors="pt", return_token_type_ids=False)
    door = decgraph.hf("speculative", drafter=small, backend=backend)
    (ids,) = greedy(shipped, inputs, custom_generate=door, streamer=transformers.TextStreamer(tokenizer))
    assert capsys.readouterr().out == tokenizer.decode(ids) + "\n"

    iterator = transformers.TextIteratorStreamer(tokenizer, skip_prompt=True, timeout=SECONDS)
    thread = threading.Thread(target=lambda: greedy(shipped, inputs, custom_generate=door, streamer=iterator), daemon=True)
    thread.start()
    text = "".join(iterator)
    ended("the generation", thread)
    assert text == tokenizer.decode(ids[inputs["input_ids"].shape[1] :])


def test_an_error_ends_the_stream(shipped: Any, tokenizer: Any) -> None:
    log = processors.Log()
    with pytest.raises(DecError):
        greedy(shipped, tokenizer(TEXTS[0], return_tensors="pt", return_token_type_ids=False),
               custom_generate=decgraph.hf("autoregressive"), streamer=log, output_attentions=True)  # fmt: skip
    assert log.ended == 1


@pytest.fixture
def masked() -> Iterator[Any]:
    from transformers import AutoModelForMaskedLM

    yield AutoModelForMaskedLM.from_pretrained(zoo.path("masked"), dtype=torch.float32)


def test_a_masked_model_has_no_generate(masked: Any, backend: str) -> None:
    """So the door is called by itself, and gives what decgraph.run gives."""
    from transformers import GenerationConfig

    tokenizer = transformers.AutoTokenizer.from_pretrained(zoo.path("masked"))
    ids = tokenizer("add 12 + 30 =", return_tensors="pt")["input_ids"]
    door = decgraph.hf("fast_dllm", backend=backend, seed=1)
    config = GenerationConfig(max_new_tokens=16, eos_token_id=tokenizer.eos_token_id, pad_token_id=0)
    out = door(masked, ids, generation_config=config)
    plain = decgraph.run(
        "fast_dllm", ids[0].tolist(), max_tokens=16, temperature=0, eos=tokenizer.eos_token_id, backend=backend
    )
    assert out[0, ids.shape[1] :].tolist() == list(plain.tokens)
    sampled = GenerationConfig(max_new_tokens=16, do_sample=True, temperature=0.7, top_k=0, suppress_tokens=[5])
    got = door(masked, ids, generation_config=sampled)
    assert got.tolist() == door(masked, ids, generation_config=sampled).tolist()
    with pytest.raises(DecError, match="no_repeat_ngram_size is not supported"):
        door(masked, ids, generation_config=GenerationConfig(max_new_tokens=4, no_repeat_ngram_size=2))
