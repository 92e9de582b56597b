"""Rollouts for TRL and verl: what is written, its log-probabilities, what is refused. Their trainers' seams are played here;
docs/huggingface.md says with which versions they were run."""

from __future__ import annotations

import asyncio
import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import decgraph
from decgraph import zoo
from decgraph.errors import DecError
from decgraph.hf.rollouts import Rollouts

SECONDS = 300
PROMPTS = ["def main():", "class Queue:"]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(zoo.path("drafter"))


@pytest.fixture
def policy() -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(zoo.path("drafter"), dtype=torch.float32).train()


def trainer_of(model: Any, tokenizer: Any, **changed: Any) -> Any:
    """What a rollout function reads of a GRPOTrainer."""
    settings = {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0, **changed}
    return SimpleNamespace(
        model=model, processing_class=tokenizer, accelerator=SimpleNamespace(unwrap_model=lambda m: m), chat_template_kwargs={},
        max_completion_length=12, eos_token_ids=[0], **settings,
    )  # fmt: skip


def scored(model: Any, prompt: list[int], tokens: list[int], temperature: float = 1.0) -> list[float]:
    """Log-probabilities as a trainer computes them."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    return torch.log_softmax(logits / temperature, -1).gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


def test_trl_gets_texts_with_the_policys_log_probabilities(policy: Any, tokenizer: Any) -> None:
    torch.manual_seed(1)
    rollouts = Rollouts("prompt_lookup")
    made = rollouts(PROMPTS + PROMPTS, trainer_of(policy, tokenizer))
    assert policy.training and len(made["completion_ids"]) == 4 == len(rollouts.last)
    assert made["prompt_ids"][:2] == [tokenizer(p)["input_ids"] for p in PROMPTS]
    assert made["completion_ids"][0] != made["completion_ids"][2], "the same prompt twice is two draws"
    for prompt, tokens, logprobs in zip(*(made[k] for k in ("prompt_ids", "completion_ids", "logprobs")), strict=True):
        assert logprobs == pytest.approx(scored(policy, prompt, tokens, 0.7), abs=1e-4)


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_cuts_are_in_the_log_probabilities(policy: Any, tokenizer: Any, backend: str) -> None:
    """The two tokens that top_k leaves have all of the mass."""
    made = Rollouts("autoregressive", backend=backend)(PROMPTS, trainer_of(policy, tokenizer, top_k=2))
    for prompt, tokens, logprobs in zip(*(made[k] for k in ("prompt_ids", "completion_ids", "logprobs")), strict=True):
        free = scored(policy, prompt, tokens, 0.7)
        with torch.no_grad():
            logits = policy(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        two = torch.log_softmax(logits / 0.7, -1).topk(2).values.logsumexp(-1).tolist()
        assert logprobs == pytest.approx([a - b for a, b in zip(free, two, strict=True)], abs=1e-4)


@pytest.mark.parametrize(
    ("name", "given"), [("medusa", {"heads": "medusa"}), ("spec_rl", {"drafter": "drafter"}), ("beam", {})]
)
def test_what_is_not_proved_is_refused(name: str, given: dict[str, Any]) -> None:
    with pytest.raises(DecError, match=f"{name} is not known to keep the target's distribution"):
        Rollouts(name, **given)


def test_a_draft_must_be_a_parameter() -> None:
    with pytest.raises(DecError, match="prompt_lookup has no parameter `before` for a text"):
        Rollouts("prompt_lookup", draft="before")


def test_weights_that_a_step_changed_are_used(policy: Any, tokenizer: Any) -> None:
    rollouts, trainer = Rollouts("prompt_lookup"), trainer_of(policy, tokenizer)
    rollouts(PROMPTS, trainer)
    with torch.no_grad():
        for weight in policy.parameters():
            weight.mul_(1.1)
    made = rollouts(PROMPTS, trainer)
    for prompt, tokens, logprobs in zip(*(made[k] for k in ("prompt_ids", "completion_ids", "logprobs")), strict=True):
        assert logprobs == pytest.approx(scored(policy, prompt, tokens, 0.7), abs=1e-4)


def test_the_last_epochs_text_is_the_draft(policy: Any, tokenizer: Any) -> None:
    """With the same policy and the same noise the text is the same, and is verified in few calls."""
    ids = [tokenizer(p)["input_ids"] for p in PROMPTS]
    rollouts = Rollouts("predicted_outputs", draft="prediction")
    first = rollouts.run(policy, ids, seed=3, max_tokens=40)
    again = rollouts.run(policy, ids, seed=3, max_tokens=40)
    assert [r.tokens for r in first] == [r.tokens for r in again] and all(len(r.tokens) == 40 for r in first)
    assert [r.stats.target_calls for r in again] == [3, 3], "16 tokens a draft, its parameter k, and one behind each"


def test_spec_rl_keeps_the_last_text_of_an_unchanged_policy(policy: Any, tokenizer: Any) -> None:
    """Its old tokens are as likely as they were, so all are kept; the log-probabilities are the present policy's."""
    ids = [tokenizer(p)["input_ids"] for p in PROMPTS]
    rollouts = Rollouts("spec_rl", require=None, draft="before", drafter=copy.deepcopy(policy))
    first = [r.tokens for r in rollouts.run(policy, ids, seed=1, max_tokens=12)]
    assert [r.tokens for r in rollouts.run(policy, ids, seed=2, max_tokens=12)] == first
    assert all(r.stats.target_calls <= 2 for r in rollouts.last)
    with torch.no_grad():
        policy.lm_head.weight.mul_(3)
    later = rollouts.run(policy, ids, seed=3, max_tokens=12)
    assert [r.tokens for r in later] != first
    for prompt, result in zip(ids, later, strict=True):
        assert result.logprobs is not None
        assert list(result.logprobs.tokens) == pytest.approx(scored(policy, prompt, list(result.tokens)), abs=1e-4)


def test_verl_asks_one_by_one_and_brings_weights(policy: Any, tokenizer: Any) -> None:
    server = Rollouts("prompt_lookup", model=policy)
    asked = {"temperature": 0.5, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True, "max_tokens": 8}

    async def session() -> Any:
        ids = [tokenizer(p)["input_ids"] for p in PROMPTS]
        before = await asyncio.gather(*(server.generate(p, asked, request_id=str(n)) for n, p in enumerate(ids)))
        await server.update_weights([(n, w * 1.2) for n, w in policy.state_dict().items()])
        return ids, before, await server.generate(ids[0], {**asked, "logprobs": False, "temperature": 0})

    old = copy.deepcopy(policy)
    ids, before, after = asyncio.run(asyncio.wait_for(session(), SECONDS))
    for prompt, answer in zip(ids, before, strict=True):
        assert answer.log_probs == pytest.approx(scored(old, prompt, answer.token_ids, 0.5), abs=1e-4)
    greedy = decgraph.run("autoregressive", ids[0], {"target": policy}, max_tokens=8, temperature=0, eos=())
    assert after.log_probs is None and after.token_ids == list(greedy.tokens)
    assert torch.allclose(policy.lm_head.weight, old.lm_head.weight * 1.2)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"n": 2}, "`n` is not supported"), ({"temperature": -1}, "temperature is -1"), ({"min_tokens": 3}, "`min_tokens`")],
)
def test_verls_other_parameters_are_refused(wrong: dict[str, Any], message: str, policy: Any) -> None:
    server = Rollouts("autoregressive", model=policy)
    with pytest.raises(DecError, match=message):
        asyncio.run(asyncio.wait_for(server.generate([1, 2], {"max_tokens": 2, **wrong}), SECONDS))
    with pytest.raises(DecError, match="`image_data` is not supported"):
        asyncio.run(asyncio.wait_for(server.generate([1, 2], {"max_tokens": 2}, image_data=["x.png"]), SECONDS))
    with pytest.raises(DecError, match="no policy"):
        asyncio.run(asyncio.wait_for(Rollouts("autoregressive").generate([1, 2], {"max_tokens": None}), SECONDS))
    with pytest.raises(DecError, match="no policy"):
        asyncio.run(asyncio.wait_for(Rollouts("autoregressive").update_weights([]), SECONDS))
    with pytest.raises(DecError, match="delta_flush"):
        asyncio.run(asyncio.wait_for(server.update_weights([], wire_format="delta_flush"), SECONDS))
    with pytest.raises(DecError, match="no weight 'x'"):
        asyncio.run(asyncio.wait_for(server.update_weights([("x", torch.zeros(1))]), SECONDS))
