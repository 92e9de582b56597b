"""Adapters of PEFT, switched, disabled, merged and deleted after decgraph has decoded; soft prompts: as in `generate`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lib.lazily import peft
from lib.models.hf_models import llama, noisy

import decgraph
from decgraph.errors import DecError

pytestmark = pytest.mark.filterwarnings(
    "ignore:Position ids are not supported:UserWarning", "ignore:Already:UserWarning", "ignore:Adapter default was:UserWarning"
)
PROMPT = torch.tensor([[5, 9, 50, 5, 9, 50, 5, 9]])
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None, "pad_token_id": 0}


def lora(seed: int, *targets: str) -> Any:
    torch.manual_seed(seed)
    return peft.LoraConfig(r=4, lora_alpha=64, target_modules=list(targets), init_lora_weights=False, task_type="CAUSAL_LM")


def adapted() -> Any:
    made = peft.get_peft_model(llama(5), lora(1, "q_proj", "down_proj")).eval()
    made.add_adapter("b", lora(2, "q_proj", "o_proj"))
    return made.eval()


def right(m: Any) -> Any:
    return m.generate(input_ids=PROMPT, **GREEDY).tolist()


def door_of(algorithm: str) -> Any:
    given = {"drafter": noisy(llama(5), 0.02), "gamma": 3} if algorithm == "speculative" else {}
    return decgraph.hf(algorithm, **given)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "set_adapter": lambda m: m.set_adapter("b"),
    "disable_adapter": lambda m: m.disable_adapter(),
    "merge_adapter": lambda m: (m.set_adapter("b"), m.merge_adapter()),
    "unmerge_adapter": lambda m: (m.merge_adapter(), m.unmerge_adapter(), m.set_adapter("b")),
    "delete_adapter": lambda m: m.delete_adapter("default"),
    "scale": lambda m: [part.scale_layer(0.2) for part in m.modules() if hasattr(part, "scale_layer")],
    "training": lambda m: [p.data.mul_(3) for n, p in m.named_parameters() if "lora_B.default" in n],
    "another adapter": lambda m: (m.add_adapter("c", lora(3, "v_proj")), m.set_adapter("c")),
}


@pytest.mark.budget(6)
@pytest.mark.quick("autoregressive")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("algorithm", ["autoregressive", "prompt_lookup", "speculative"])
def test_adapters_that_change(algorithm: str, change: str) -> None:
    m, door = adapted(), door_of(algorithm)
    session = decgraph.load("autoregressive").session(target=m)

    def same() -> bool:
        request = decgraph.Request(tuple(PROMPT[0].tolist()), max_tokens=12, temperature=0, eos=())
        wanted = right(m)
        ours = m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist()
        return ours == wanted == [[*request.prompt, *session.run(request).tokens]]

    assert same()
    before, done = right(m), CHANGES[change](m)
    with done if isinstance(done, contextlib.AbstractContextManager) else contextlib.nullcontext():
        assert right(m) != before, "the change does not show"
        assert same()
    assert same()


SOFT: dict[str, Callable[[], Any]] = {
    "prompt tuning": lambda: peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    "p-tuning": lambda: peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, encoder_hidden_size=16),
    "prefix tuning": lambda: peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
}


def soft(kind: str) -> Any:
    torch.manual_seed(3)
    made = peft.get_peft_model(llama(5), SOFT[kind]()).eval()
    with torch.no_grad():
        for p in made.prompt_encoder.parameters():
            p.normal_(0, 2)
    return made


@pytest.mark.budget(6)
@pytest.mark.quick("autoregressive")
@pytest.mark.parametrize("kind", SOFT)
@pytest.mark.parametrize("algorithm", ["autoregressive", "prompt_lookup", "speculative", "token_recycling"])
def test_soft_prompts(algorithm: str, kind: str) -> None:
    m, door = soft(kind), door_of(algorithm)
    plain = llama(5).generate(input_ids=PROMPT, **GREEDY).tolist()

    def ours() -> Any:
        return m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist()

    assert ours() == right(m) != plain
    with m.disable_adapter():
        assert ours() == right(m) == plain
    for p in m.prompt_encoder.parameters():
        p.data.neg_()
    assert ours() == right(m)
    both = torch.cat([PROMPT, PROMPT.flip(1)])
    wanted = m.generate(input_ids=both, attention_mask=torch.ones_like(both), **GREEDY).tolist()
    assert m.generate(input_ids=both, attention_mask=torch.ones_like(both), custom_generate=door, **GREEDY).tolist() == wanted


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize("kind", SOFT)
def test_soft_prompts_in_a_session(kind: str, backend: str) -> None:
    m = soft(kind)
    made = decgraph.run(
        "autoregressive", PROMPT[0].tolist(), {"target": m}, backend=backend, max_tokens=12, temperature=0, eos=()
    )
    assert [[*PROMPT[0].tolist(), *made.tokens]] == right(m)


def test_what_needs_the_layers_refuses_a_soft_prompt() -> None:
    with pytest.raises(DecError, match="soft prompt"):
        decgraph.load("ffn_skip").session(target=soft("prompt tuning"))


def test_another_kind_of_soft_prompt_is_refused_by_name() -> None:
    made = peft.get_peft_model(
        llama(5), peft.MultitaskPromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4, num_tasks=2)
    ).eval()
    with pytest.raises(DecError, match="MULTITASK_PROMPT_TUNING"):
        decgraph.run("autoregressive", [5, 9], {"target": made}, max_tokens=4)
