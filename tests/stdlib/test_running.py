"""Every algorithm of stdlib/ runs, within the request's limits, on tables, free models and tiny transformers."""

from __future__ import annotations

import pytest
from lib.stdlib.table_models import FEW, NAMES, V, layered, module, parameters, run, tables

WITH_LAYERS = [(n, k) for n in NAMES for k in ("free", "tiny") if k == "free" or n not in ("kangaroo", "eesd")]
"""A tiny transformer has no adapter."""


def test_few_stand_for_all() -> None:
    """FEW is a greedy cover: each uses more of the ops that those before it do not use than any other algorithm does."""
    unused = {name: {op.opcode for f in module(name).functions.values() for op in f.body.walk()} for name in NAMES}
    for name in FEW:
        assert len(unused[name]) == max(len(ops) for ops in unused.values()), f"another algorithm covers more than {name}"
        unused = {n: ops - unused[name] for n, ops in unused.items()}


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize(("name", "kind"), WITH_LAYERS)
def test_runs_on_models_with_layers(name: str, kind: str, temperature: int) -> None:
    models = layered(kind)
    params = parameters(name, length=6, block=3)
    result = run(name, models, params, max_tokens=6, temperature=temperature)
    assert len(result.tokens) == 6
    assert set(result.tokens) <= set(range(V))


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_sampled_from_tables_with_holes(name: str) -> None:
    for seed in range(5):
        assert len(run(name, tables(seed, zeros=True), seed=seed).tokens) == 12


@pytest.mark.parametrize("name", NAMES)
def test_limit_of_one(name: str) -> None:
    assert len(run(name, max_tokens=1).tokens) == 1


@pytest.mark.parametrize("name", NAMES)
def test_limit_cuts_in_mid_path(name: str) -> None:
    for limit in range(2, 8):
        assert len(run(name, max_tokens=limit).tokens) == limit


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_follows_the_end_of_text(name: str) -> None:
    ended = 0
    for seed in range(8):
        result = run(name, tables(seed), eos={2}, seed=seed)
        assert 2 not in result.tokens[:-1]
        assert len(result.tokens) == 12 or result.tokens[-1] == 2
        assert result.reason == ("eos" if result.tokens[-1] == 2 else "limit")
        ended += result.reason == "eos"
    assert ended


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", NAMES)
def test_same_request_same_tokens(name: str) -> None:
    assert run(name, seed=7).tokens == run(name, seed=7).tokens
    if name not in ("beam_patience", "medusa"):  # these choose the likeliest, whatever the seed
        assert len({run(name, seed=s).tokens for s in range(4)}) > 1


@pytest.mark.parametrize("name", NAMES)
def test_bans_hold(name: str) -> None:
    for seed in range(3):
        assert not {1, 3} & set(run(name, tables(seed), bans={1, 3}, seed=seed).tokens)
