"""KV caches of finished runs: a prompt that goes on from one computes only what is new, and its answer is the same."""

from __future__ import annotations

from typing import Any

import pytest

import decgraph
from decgraph.runtime.models.engine.of import engine_of
from decgraph.serve.prefixes import LEAST, alike

TEXT = "class Reader:\n    def read(self, size):\n        return self.file.read(size)\n\n    def write(self, data):\n"
MODELS = {"target": "target", "drafter": "drafter"}


@pytest.mark.parametrize("algorithm", ["speculative", "autoregressive"])
def test_the_next_turn_computes_what_is_new(api: Any, catalogue: Any, algorithm: str) -> None:
    prompt = f"# {algorithm}\n{TEXT}"
    fields: Any = {"model": f"target:{algorithm}", "max_tokens": 16, "seed": 4, "logit_bias": {"0": -100}}
    first = api.completions.create(prompt=prompt, **fields)
    engine = engine_of(catalogue.sessions[algorithm].models["target"])
    before = engine.counted.computed
    longer = prompt + first.choices[0].text + "\n\ndef main():\n"
    second = api.completions.create(prompt=longer, **fields)
    reused = second.usage.prompt_tokens_details.cached_tokens
    assert reused >= first.usage.prompt_tokens - 2
    assert engine.counted.computed - before < 4 * 16 + second.usage.prompt_tokens - reused
    models = MODELS if algorithm == "speculative" else {"target": "target"}
    alone = decgraph.run(algorithm, longer, models, max_tokens=16, seed=4, bias={0: -100})
    assert second.choices[0].text == alone.text


def test_another_algorithm_reuses_what_one_left(api: Any) -> None:
    prompt = f"# shared\n{TEXT}"
    api.completions.create(model="target:autoregressive", prompt=prompt, max_tokens=4, temperature=0)
    got = api.completions.create(model="target:speculative", prompt=prompt + "        pass\n", max_tokens=8, temperature=0)
    assert got.usage.prompt_tokens_details.cached_tokens > LEAST
    assert got.choices[0].text == decgraph.run("speculative", prompt + "        pass\n", MODELS, max_tokens=8).text


def test_the_budget_bounds_what_is_kept(server: Any, api: Any) -> None:
    prefixes = server.service.prefixes
    before = prefixes.budget
    try:
        for n in range(3):
            api.completions.create(model="target", prompt=f"# {n}\n{TEXT}", max_tokens=4)
        assert len(prefixes) > 2 and prefixes.bytes == sum(rows.bytes for _, rows in prefixes._copies.values())
        prefixes.budget = prefixes.bytes // 2
        api.completions.create(model="target", prompt=f"# new\n{TEXT}", max_tokens=4)
        assert 0 < prefixes.bytes <= prefixes.budget
    finally:
        prefixes.budget = before


def test_a_text_in_which_an_early_token_changed(api: Any) -> None:
    api.completions.create(model="target", prompt=f"# early\n{TEXT}", max_tokens=4)
    changed = f"# early\n{TEXT.replace('size', 'count')}"
    got = api.completions.create(model="target", prompt=changed, max_tokens=12, temperature=0)
    assert got.choices[0].text == decgraph.run("speculative", changed, MODELS, max_tokens=12).text


def test_how_much_two_texts_begin_alike() -> None:
    text = list(range(40))
    assert alike(text, text) == alike(text, (*text, 1)) == 40
    assert alike(text, [*text[:30], 99, *text[31:]]) == 30
    assert alike(text, [*text[:3], 99]) == 3 and alike(text, ()) == 0
