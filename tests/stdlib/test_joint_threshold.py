"""SGLang's joint threshold: a block that the prompt begins penalises the prompt's last token in its first cell, as other
cells do with the token before them."""

from __future__ import annotations

from lib.stdlib.table_models import run, tables


def first(seed: int, penalty: float, prompt: tuple[int, ...]) -> int:
    params = {"block": 3, "tau": 0.0, "rounds": 0, "penalty": penalty}
    return run("sglang_joint_threshold", tables(seed), params, prompt=prompt, temperature=0, max_tokens=3).tokens[0]


def test_the_prompts_last_token_counts_inside_a_block() -> None:
    plain = {seed: first(seed, 0.0, (1, 2)) for seed in range(30)}
    assert 2 in plain.values()
    assert all(first(seed, 100.0, (1, 2)) != 2 for seed in plain)


def test_a_block_of_its_own_begins_without() -> None:
    again = [seed for seed in range(30) if first(seed, 0.0, (1, 0, 2)) == 2]
    assert again and all(first(seed, 100.0, (1, 0, 2)) == 2 for seed in again)
