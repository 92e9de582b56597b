"""Loaded transformers modules in `decgraph.run(models=...)` and `session(models=...)`: as the folders they came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models import hf_models
from lib.models.hf_models import PROMPT

import decgraph
from decgraph import zoo

TOKENS = tuple(PROMPT[0].tolist())


def tokens_of(algorithm: str, models: dict[str, Any], backend: str, **more: Any) -> tuple[int, ...]:
    result = decgraph.run(
        algorithm, TOKENS, models, backend=backend, seed=3, **{"max_tokens": 12, "temperature": 1, "eos": (), **more}
    )
    assert result.error is None, result.error
    return result.tokens


@pytest.mark.parametrize("algorithm", ["autoregressive", "speculative", "prompt_lookup"])
def test_a_module_decodes_as_its_folder_does(algorithm: str, backend: str, target: Any, drafter: Any, tmp_path: Path) -> None:
    live = {"target": target} | ({"drafter": drafter} if algorithm == "speculative" else {})
    saved = {}
    for name, module in live.items():
        module.save_pretrained(tmp_path / name)
        saved[name] = tmp_path / name
    assert tokens_of(algorithm, live, backend) == tokens_of(algorithm, saved, backend)
    mixed = {**live, **dict(list(saved.items())[-1:])}
    assert tokens_of(algorithm, mixed, backend) == tokens_of(algorithm, saved, backend)


def test_greedy_tokens_are_those_of_generate(backend: str, target: Any, gpt2: Any) -> None:
    """By layers (Llama), and as it is (GPT-2 has no layers that decgraph can read)."""
    for module in (target, gpt2):
        expected = module.generate(PROMPT, do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0)
        made = tokens_of("autoregressive", {"target": module}, backend, temperature=0)
        assert made == tuple(expected[0, PROMPT.shape[1] :].tolist())


def test_a_session_on_a_module_in_half_precision(backend: str) -> None:
    module = hf_models.llama(5).to(torch.bfloat16)
    session = decgraph.load("autoregressive").session({"target": module}, backend=backend)
    results = session.generate([TOKENS, TOKENS[:3]], max_tokens=6, temperature=0, eos=())
    assert [r.error for r in results] == [None, None]
    assert [len(r.tokens) for r in results] == [6, 6]
    assert next(module.parameters()).dtype == torch.bfloat16


def test_the_modules_own_end_of_text_ends_a_run(backend: str) -> None:
    module = hf_models.llama(1)
    free = tokens_of("autoregressive", {"target": module}, backend, temperature=0)
    module.generation_config.eos_token_id = [free[4]]
    again = hf_models.llama(1)
    again.generation_config.eos_token_id = [free[4]]
    result = decgraph.run("autoregressive", TOKENS, {"target": again}, backend=backend, max_tokens=12, temperature=0)
    assert (result.reason, result.tokens) == ("eos", free[: free.index(free[4]) + 1])


def test_dropout_is_off_in_a_session(backend: str) -> None:
    module = hf_models.llama(1, attention_dropout=0.5).train()
    expected = tokens_of("autoregressive", {"target": hf_models.llama(1)}, backend)
    assert tokens_of("autoregressive", {"target": module}, backend) == expected


def test_the_folder_of_a_module_gives_vocabulary_and_tokenizer() -> None:
    """The shipped target, loaded by transformers: texts work, and the shipped drafter, eagle and Medusa heads go with it."""
    import transformers

    module = transformers.AutoModelForCausalLM.from_pretrained(zoo.path("target"), dtype=torch.float32)
    for algorithm in ("speculative", "eagle2", "medusa"):
        live = decgraph.run(algorithm, "import os", {"target": module}, max_tokens=8, temperature=0)
        named = decgraph.run(algorithm, "import os", {"target": "target"}, max_tokens=8, temperature=0)
        assert live.error is None
        assert (live.text, live.stats) == (named.text, named.stats), algorithm


def test_a_tokenizer_of_transformers_goes_with_a_session(target: Any) -> None:
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(zoo.path("target"))
    session = decgraph.load("autoregressive").session({"target": target}, tokenizer=tokenizer)
    assert session.tokenizer is not None
    assert session.tokenizer.encode("import os") == tuple(tokenizer.encode("import os"))


def test_modules_that_do_not_fit(target: Any) -> None:
    one = decgraph.load("speculative")
    with pytest.raises(decgraph.DecError, match="`target` is a model of speculative") as caught:
        one.run((1, 2), params={"target": target})
    assert 'models={"target": ...}' in str(caught.value)
    with pytest.raises(decgraph.DecError, match="`target` is given twice"):
        one.session({"target": target}, target=target)
    with pytest.raises(decgraph.DecError, match="`drafter` was left out") as caught:
        one.session({"target": target})
    assert "--model drafter=FOLDER" in str(caught.value)
    with pytest.raises(decgraph.DecError, match="a model of transformers is needed, not Linear"):
        one.session({"target": torch.nn.Linear(2, 2), "drafter": target})
    with pytest.raises(decgraph.DecError, match="nothing is fetched from the Hub") as caught:
        one.session({"target": "HuggingFaceTB/SmolLM2-135M", "drafter": target})
    assert "hf download HuggingFaceTB/SmolLM2-135M" in str(caught.value)


def test_one_module_as_target_and_drafter(backend: str, target: Any) -> None:
    """Through both doors: the calls are those of two copies of the module, and its first layers draft as they do alone."""
    gamma = {"params": {"gamma": 3}, "temperature": 0, "max_tokens": 12, "eos": ()}
    runs = [
        decgraph.run("speculative", TOKENS, {"target": target, "drafter": d}, backend=backend, **gamma)
        for d in (target, hf_models.llama(1))
    ]
    assert runs[0].tokens == runs[1].tokens
    assert [(r.stats.target_calls, r.stats.draft_calls) for r in runs] == [(3, 9), (3, 9)]
    door = decgraph.hf("speculative", drafter=target, gamma=3, backend=backend)
    target.generate(PROMPT, custom_generate=door, do_sample=False, max_new_tokens=12, eos_token_id=None, pad_token_id=0)
    assert (door.last[0].stats.target_calls, door.last[0].stats.draft_calls) == (3, 9)


EARLY = """algorithm early(target: causal, drafter: causal, gamma: int in 1..8 = 3):
    refines autoregressive(target) in distribution

    while not done:
        draft t:
            repeat gamma:
                x ~ drafter.exit(1)(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
"""


def test_a_model_derived_from_a_second_name_of_the_target_is_its_own(target: Any) -> None:
    """The first layer drafts, not the whole model under its name."""
    early = decgraph.parse(EARLY)
    same, two = (early.session(target=target, drafter=d, backend="torch") for d in (target, hf_models.llama(1)))
    runs = [s.run(decgraph.models.request_for(s, TOKENS, max_tokens=12, eos=())) for s in (same, two)]
    assert runs[0].tokens == runs[1].tokens == tokens_of("autoregressive", {"target": target}, "torch", temperature=0)
    assert runs[0].stats == runs[1].stats
    assert sum(runs[0].stats.accepted) < sum(runs[0].stats.tested)
