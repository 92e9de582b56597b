"""A mixture of experts in which every token goes to the expert of one rank: against transformers' own module with its routers'
choice replaced, and on the engine; self_contrast_moe on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.models.architecture_table import architecture

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import engine_of

PATHS = [(5, 9, 3), (7,), (5, 9, 3, 60, 11, 2)]


@pytest.fixture(scope="module", params=["mixtral", pytest.param("qwen3_moe", marks=pytest.mark.slow)])
def folder(request: Any, tmp_path_factory: Any) -> Path:
    at: Path = tmp_path_factory.mktemp(request.param)
    architecture(request.param).save_pretrained(at)
    return at


def by_hand(folder: Path, rank: int) -> Any:
    """transformers' module, in which a hook replaces what the routers choose."""
    import transformers

    module = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    def chosen(router: Any, args: Any, out: Any) -> Any:
        order = out[0].argsort(-1, descending=True)[:, rank - 1 : rank]
        return out[0], torch.ones(len(order), 1), order

    for part in module.modules():
        if type(part).__name__.endswith("TopKRouter"):
            part.register_forward_hook(chosen)
    return module.eval()


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_every_token_goes_to_the_expert_of_its_rank(folder: Path, rank: int) -> None:
    whole = hf.load_causal(folder)
    before = whole.eval([PATHS[2]])[0].logits
    weak, module = whole.derive("expert", rank), by_hand(folder, rank)
    engine = engine_of(weak)
    for path in PATHS:
        with torch.no_grad():
            want = module(input_ids=torch.tensor([path])).logits[0, -1].double().numpy()
        (row,) = weak.eval([path])
        (rows,) = engine.compute([ForwardCall(("a", path), path)])
        assert np.allclose(row.logits, want, atol=1e-4)
        assert np.allclose(rows[0].double().numpy(), want, atol=1e-4)
        assert np.abs(whole.eval([path])[0].logits - want).max() > 1e-2
    assert (whole.eval([PATHS[2]])[0].logits == before).all(), "the target itself is as it was"


def test_a_rank_and_a_model_without_one_are_refused(folder: Path) -> None:
    from fidelity import models

    with pytest.raises(DecError, match="a router has 4 experts"):
        hf.load_causal(folder).derive("expert", 5)
    with pytest.raises(DecError, match="none of its layers is a mixture"):
        models.causal("target").derive("expert", 1)


def test_self_contrast(folder: Path) -> None:
    """Equal on both backends; without contrast the target's tokens; greedy tokens are those of the scores written out."""
    models = {"target": hf.load_causal(folder)}

    def tokens(backend: str, **params: Any) -> tuple[int, ...]:
        session = decgraph.load("self_contrast_moe").session(models, backend=backend, **params)
        done = session.run(decgraph.Request((5, 9, 3), max_tokens=8, temperature=0))
        assert done.error is None, done.error
        return tuple(done.tokens)

    got = tokens("torch", beta=2.0, alpha=0.01, rank=2)
    assert got == tokens("reference", beta=2.0, alpha=0.01, rank=2)
    plain = (
        decgraph.load("autoregressive")
        .session(models, backend="torch")
        .run(decgraph.Request((5, 9, 3), max_tokens=8, temperature=0))
    )
    assert tokens("torch", beta=0.0, alpha=0.0) == tuple(plain.tokens)
    strong, weak = models["target"], by_hand(folder, 2)
    path = [5, 9, 3]
    for token in got:
        a = torch.tensor(strong.eval([tuple(path)])[0].logits)
        with torch.no_grad():
            b = weak(input_ids=torch.tensor([path])).logits[0, -1].double()
        p = a.softmax(-1)
        scores = torch.where(p >= 0.01 * p.max(), 3.0 * a - 2.0 * b, -torch.inf)
        assert token == int(scores.argmax())
        path.append(token)
