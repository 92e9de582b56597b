"""What a tokenizer's file says beside its tokens, against transformers: truncation and padding that training left in it are off
at every door, and a stop string may spell special tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import transformers
from lib.models.model_folders import folder, model, tokenizer
from lib.server import served

import decgraph

TEXT = "Hello, world! The quick brown fox. Hello, world!"
PROMPT = (9, 10, 11)


@pytest.fixture(scope="module")
def truncating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose tokenizer was saved while it truncated and padded."""
    from tokenizers import Tokenizer

    made = folder(tmp_path_factory.mktemp("truncating"))
    backend = Tokenizer.from_str(tokenizer())
    backend.enable_truncation(max_length=4)
    backend.enable_padding(length=30, pad_id=0, pad_token="<pad>")
    backend.save(str(made / "tokenizer.json"))
    spec = json.loads((made / "tokenizer.json").read_text(encoding="utf-8"))
    assert spec["truncation"] and spec["padding"]
    (made / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}", encoding="utf-8")
    return made


@pytest.mark.parametrize("text", [TEXT, "Hello", TEXT * 300])
def test_saved_truncation_and_padding_are_off(truncating: Path, text: str) -> None:
    theirs = transformers.AutoTokenizer.from_pretrained(truncating)
    expected = theirs(text)["input_ids"]
    theirs(text, truncation=True, max_length=3, padding="max_length")  # leaves both on in its own backend
    for door in (truncating, theirs):
        session = decgraph.load("autoregressive").session(target=truncating, tokenizer=door)
        assert list(session.tokenizer.encode(text)) == expected
        assert list(session.tokenizer.encode_part(text)) == expected
        assert session.tokenizer.fewest(text) <= len(expected)


def test_a_prompt_a_chat_and_a_server_read_the_whole_text(truncating: Path) -> None:
    import openai

    from decgraph.serve.catalogue import Catalogue

    ids = transformers.AutoTokenizer.from_pretrained(truncating)(TEXT, return_tensors="pt")["input_ids"]
    module = transformers.AutoModelForCausalLM.from_pretrained(truncating)
    out = module.generate(input_ids=ids, do_sample=False, max_new_tokens=8, eos_token_id=None, pad_token_id=0)
    expected = tuple(out[0, ids.shape[1] :].tolist())
    for prompt in (TEXT, [{"role": "user", "content": TEXT}]):
        assert decgraph.run("autoregressive", prompt, {"target": truncating}, max_tokens=8, eos=()).tokens == expected
    with served(Catalogue(("autoregressive",), str(truncating))) as server:
        api = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
        name = api.models.list().data[0].id
        answer = api.completions.create(model=name, prompt=TEXT, max_tokens=2)
        assert answer.usage is not None and answer.usage.prompt_tokens == ids.shape[1]


BIASED = (3, 4, 40, 59)
"""Two special tokens and two letters: the only ones that the model writes."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """A folder, and what `generate` writes with it."""
    made = folder(tmp_path_factory.mktemp("special"))
    tokens = generated(24)
    assert {3, 4} < set(tokens)
    return made, tokens


def generated(new: int, **more: Any) -> list[int]:
    bias = {(token,): 100.0 for token in BIASED}
    out = model().generate(
        input_ids=torch.tensor([PROMPT]), do_sample=False, max_new_tokens=new, eos_token_id=None, pad_token_id=0,
        sequence_bias=bias, **more,
    )  # fmt: skip
    return list(out[0, len(PROMPT) :].tolist())


def spellings() -> dict[int, str]:
    from tokenizers import Tokenizer

    backend = Tokenizer.from_str(tokenizer())
    return {token: str(backend.id_to_token(token)) for token in BIASED}  # the letters are ASCII, which spells itself


def stops(tokens: list[int]) -> list[tuple[str, ...]]:
    """Stop strings that are special tokens, parts of them, and texts across their edges."""
    spelled = "".join(spellings()[t] for t in tokens)
    edge = spelled.index("|>", 20)
    return [("<|im_end|>",), ("<|im_start|>", "<|im_end|>"), (spelled[edge - 4 : edge + 4],), (spelled[edge - 14 : edge + 2],),
            (spelled[edge + 1 : edge + 4], "never"), ("<|im_end|>" * 2, spelled[-30:-12])]  # fmt: skip


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize(("name", "backend"), [("autoregressive", "torch"), ("prompt_lookup", "torch"),
                                               ("speculative", "reference")])  # fmt: skip
@pytest.mark.quick("autoregressive", ("prompt_lookup", "3"))
def test_a_stop_string_spells_special_tokens(written: tuple[Path, list[int]], name: str, backend: str, number: int) -> None:
    made, tokens = written
    stop = stops(tokens)[number]
    tokens = generated(24, stop_strings=list(stop), tokenizer=transformers.AutoTokenizer.from_pretrained(made))
    models = {"target": made, "drafter": made} if name == "speculative" else {"target": made}
    session = decgraph.load(name).session(models, backend=backend)
    request = decgraph.Request(PROMPT, max_tokens=24, temperature=0, bias=dict.fromkeys(BIASED, 100.0), eos=(), stop=stop)
    result = session.run(request)
    assert list(result.tokens) == tokens and result.reason == ("stop" if len(tokens) < 24 else "limit")


@pytest.mark.parametrize("number", range(6))
@pytest.mark.quick("0", "3")
def test_a_server_ends_the_text_before_it(written: tuple[Path, list[int]], number: int) -> None:
    import openai

    from decgraph.serve.catalogue import Catalogue

    made, tokens = written
    stop = stops(tokens)[number]
    names = spellings()
    read = [(c, len(names[t]) == 1) for t in tokens for c in names[t]]
    spelled = "".join(c for c, _ in read)
    last = min(((spelled.index(s) + len(s), spelled.index(s)) for s in stop if s in spelled), default=(0, len(spelled)))[1]
    expected = "".join(c for c, shown in read[:last] if shown)
    with served(Catalogue(("autoregressive",), str(made))) as server:
        api = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=60)
        asked: dict[str, Any] = {
            "model": api.models.list().data[0].id,
            "prompt": list(PROMPT),
            "max_tokens": 24,
            "temperature": 0,
            "logit_bias": {str(t): 100 for t in BIASED},
            "stop": list(stop),
        }
        choice = api.completions.create(**asked).choices[0]
        assert (choice.text, choice.finish_reason) == (expected, "stop")
        pieces = [chunk.choices[0] for chunk in api.completions.create(**asked, stream=True) if chunk.choices]
        assert "".join(p.text for p in pieces) == expected and pieces[-1].finish_reason == "stop"
