"""Decoding with SmolLM2-135M-Instruct: the tokens of transformers' `generate` on chats, long contexts and batches; sampling,
streaming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.models import request_for
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.trace import Committed

CODE = """def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)"""
TALKS = {
    "fact": [{"role": "user", "content": "What is the capital of France?"}],
    "list": [{"role": "system", "content": "Answer with a list."}, {"role": "user", "content": "Name three colours."}],
    "copy": [{"role": "user", "content": f"Repeat this function exactly:\n{CODE}"}],
    "turns": [
        {"role": "user", "content": "Hello, my name is Ada."},
        {"role": "assistant", "content": "Hello Ada, how can I help?"},
        {"role": "user", "content": "What is my name?"},
    ],
}
LIMIT = 32


@pytest.fixture(scope="module")
def greedy(module: Any, tokenizer: Any) -> dict[str, list[int]]:
    """What `generate` answers in each chat."""
    import torch

    answers = {}
    for name, talk in TALKS.items():
        ids = tokenizer.apply_chat_template(talk, add_generation_prompt=True, return_dict=False)
        out = module.generate(torch.tensor([ids]), max_new_tokens=LIMIT, do_sample=False)
        answers[name] = out[0, len(ids) :].tolist()
    return answers


@pytest.fixture(scope="module")
def sessions(module: Any) -> dict[str, Any]:
    """Sessions on the one module."""
    return {name: decgraph.load(name).session({"target": module}) for name in ("autoregressive", "prompt_lookup")}


@pytest.mark.parametrize("algorithm", ["autoregressive", "prompt_lookup"])
@pytest.mark.parametrize("talk", TALKS)
def test_chats_have_the_tokens_of_generate(algorithm: str, talk: str, sessions: Any, greedy: Any) -> None:
    session = sessions[algorithm]
    result = session.run(request_for(session, TALKS[talk], max_tokens=LIMIT, temperature=0))
    assert list(result.tokens) == greedy[talk]
    if talk == "copy" and algorithm == "prompt_lookup":
        assert result.stats.tokens_per_call > 1.5


def test_an_answer_ends_with_the_templates_own_token(tokenizer: Any, greedy: Any, sessions: Any) -> None:
    assert greedy["fact"][-1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    session = sessions["autoregressive"]
    result = session.run(request_for(session, TALKS["fact"], max_tokens=LIMIT, temperature=0))
    assert result.reason == "eos" and result.text == "The capital of France is Paris."


def test_inside_generate(module: Any, tokenizer: Any, greedy: Any) -> None:
    """Four chats padded on the left, and a stop at the end of each."""
    talks = [TALKS[name] for name in TALKS]
    batch = tokenizer.apply_chat_template(
        talks, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    )
    decode = decgraph.hf("prompt_lookup")
    out = module.generate(**batch, custom_generate=decode, max_new_tokens=LIMIT, do_sample=False)
    new = out[:, batch["input_ids"].shape[1] :].tolist()
    pad = module.generation_config.pad_token_id
    for row, expected in zip(new, greedy.values(), strict=True):
        assert row == expected + [pad] * (len(row) - len(expected))


def test_a_batch_of_four(sessions: Any, greedy: Any) -> None:
    results = sessions["autoregressive"].generate(TALKS.values(), batch=4, max_tokens=LIMIT, temperature=0)
    assert [list(result.tokens) for result in results] == list(greedy.values())


@pytest.mark.nightly
def test_a_context_of_two_thousand_tokens(module: Any, tokenizer: Any, sessions: Any) -> None:
    import torch

    told = "\n".join(
        f"{n}. The box number {n} holds {n * 37 % 101} red stones and {n * 53 % 97} blue ones." for n in range(1, 90)
    )
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": f"{told}\nRepeat the first two lines."}], add_generation_prompt=True, return_dict=False
    )
    assert 2000 <= len(ids) <= 2200
    out = module.generate(torch.tensor([ids]), max_new_tokens=16, do_sample=False)
    session = sessions["prompt_lookup"]
    result = session.run(request_for(session, ids, max_tokens=16, temperature=0))
    assert list(result.tokens) == out[0, len(ids) :].tolist()


def test_sampling_is_reproducible(sessions: Any) -> None:
    """One seed, one text: alone, again, and beside others; another seed gives another."""
    session = sessions["autoregressive"]
    asked = [
        request_for(session, TALKS["list"], max_tokens=12, temperature=0.9, top_p=0.95, seed=seed) for seed in (1, 1, 2, 3)
    ]
    alone = [session.run(request).tokens for request in asked[:3]]
    assert alone[0] == alone[1] != alone[2]
    assert [r.tokens for r in session.generate(asked)][:3] == alone


def test_drafts_keep_sampled_tokens(sessions: Any) -> None:
    """Prompt lookup verifies by `match`: its sampled tokens are those of the target alone with the same seed."""
    tokens = {}
    for name, session in sessions.items():
        tokens[name] = session.run(request_for(session, TALKS["copy"], max_tokens=16, temperature=0.7, seed=5)).tokens
    assert tokens["prompt_lookup"] == tokens["autoregressive"]


def test_text_streams(sessions: Any, greedy: Any, tokenizer: Any) -> None:
    session = sessions["autoregressive"]
    detokenizer, shown, pending = session.tokenizer.detokenizer, [], b""
    for event in session.stream(request_for(session, TALKS["turns"], max_tokens=LIMIT, temperature=0)):
        if isinstance(event, Committed):
            for token in event.tokens:
                pending, piece = detokenizer.feed(pending, token)
                shown.append(piece)
    assert len(shown) > 4
    assert "".join(shown) == tokenizer.decode(greedy["turns"], skip_special_tokens=True)


def test_a_conversation_goes_on_in_the_cache(smollm2: Path) -> None:
    session = decgraph.load("prompt_lookup").session(target=str(smollm2))
    engine = engine_of(session.models["target"])
    with session.chat("You answer briefly.", max_tokens=40) as chat:
        chat.say("Name three colours.")
        before = engine.counted.computed
        answer = chat.say("Which of them is the sky?")
        computed = engine.counted.computed - before
    whole = request_for(session, chat.messages[:-1], max_tokens=40)
    assert answer.tokens == session.run(whole).tokens
    assert computed < len(whole.prompt) / 2 + 3 * len(answer.tokens)


def test_the_shipped_head_drafts_for_it(module: Any, tokenizer: Any, greedy: dict[str, list[int]]) -> None:
    """The tokens of `generate` in fewer calls, with a chain and with a tree, on prompts that the head was not trained on."""
    per_call = {}
    for name, sizes in {"chain": {"depth": 4, "k": 1, "budget": 4}, "tree": {"depth": 4, "k": 4, "budget": 12}}.items():
        session = decgraph.load("eagle2").session({"target": module, "head": "smollm2_eagle"}, **sizes)
        tokens = calls = 0
        for talk, answer in greedy.items():
            ids = tokenizer.apply_chat_template(TALKS[talk], add_generation_prompt=True, return_dict=False)
            result = session.run(request_for(session, ids, max_tokens=LIMIT, temperature=0))
            assert result.error is None and list(result.tokens) == answer, (name, talk)
            tokens, calls = tokens + len(answer), calls + result.stats.target_calls
        per_call[name] = tokens / calls
    assert per_call["tree"] > per_call["chain"] > 1.3, per_call
