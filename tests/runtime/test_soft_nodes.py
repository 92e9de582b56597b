"""Soft nodes: a causal model at positions that hold mixtures of embeddings, against transformers' own `inputs_embeds`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import transformers
from lib.models.hf_models import V, gpt2, llama
from lib.stdlib.table_models import layered, tables

import decgraph
from decgraph.backends.registry import machine
from decgraph.check.algorithm import check_algorithm
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.passes.manager import optimise
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.taps import tap
from decgraph.runtime.models.hf import load_causal
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.interface import Model, SoftCell
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

DRAFTED = """
algorithm drafted(target: causal, drafter: causal, gamma: int in 1..8 = 3, k: int in 1..8 = 2):
    refines autoregressive(target) in tokens

    while not done:
        guess = [ctx.token]
        draft u:
            tip = root
            repeat gamma:
                q = drafter(tip).raw
                guess = guess ++ [argmax(q)]
                grow soft(drafter.embed(renorm_topk(q, k))) at tip
                break if len(u.new) == 0  # the context window is full
                tip = u.new[0]
        draft t:
            grow chain(guess[1:])
        verify t by match against target(t)
        commit t.accepted
"""
"""A chain drafted on mixtures of the drafter's k likeliest tokens."""
PATH: tuple[Any, ...] = (1, 5, 9)


def mixed(*parts: tuple[int, float]) -> SoftCell:
    weights = dict(parts)
    return SoftCell(tuple(weights.get(v, 0.0) for v in range(V)))


def gemma() -> Any:
    """Its embeddings are scaled where they are looked up."""
    torch.manual_seed(3)
    config = transformers.Gemma3TextConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        initializer_range=0.4,
        sliding_window=64,
    )
    return transformers.Gemma3ForCausalLM(config).eval()


@torch.no_grad()
def theirs(module: Any, path: tuple[Any, ...]) -> torch.Tensor:
    """The module's logits after a path, every embedding looked up and mixed here."""
    embed = module.get_input_embeddings()
    rows = []
    for cell in path:
        if isinstance(cell, SoftCell):
            rows.append(sum(w * embed(torch.tensor(v)) for v, w in enumerate(cell.weights) if w))
        else:
            rows.append(embed(torch.tensor(cell)))
    return module(inputs_embeds=torch.stack(rows)[None], use_cache=False).logits[0, -1].double()


MODULES = {"llama": lambda: llama(5), "gpt2": lambda: gpt2(5), "gemma3": gemma}


TAPPED = [("llama", (1,)), ("llama", (0, 1)), ("gemma3", (1,))]


@pytest.mark.parametrize(("kind", "layers"), [*((kind, ()) for kind in MODULES), *TAPPED])
def test_an_engine_reads_mixtures_in_a_tree_and_in_a_batch(kind: str, layers: tuple[int, ...], tmp_path: Path) -> None:
    """layers: those whose entering states another program of the same model reads."""
    module = MODULES[kind]()
    model = from_module(module, name=kind)
    half, third = mixed((7, 0.5), (8, 0.5)), mixed((3, 0.25), (44, 0.75))
    tree = ForwardCall("a", PATH, (), [0, 4, 0, 6], [-1, 0, -1, 2], [1, 2, 3, 4], range(-1, 4), soft={0: half, 2: third})
    plain = ForwardCall("b", (1, 2), (), [9], [-1], [1], [0])
    paths = [PATH, (*PATH, half), (*PATH, half, 4), (*PATH, third), (*PATH, third, 6)]
    assert tree.paths() == paths
    engine = engine_of(model)
    if layers:
        MODULES[kind]().save_pretrained(tmp_path)  # the same one, whose weights no engine has moved
        loaded = load_causal(tmp_path)
        engine = engine_of(loaded)
        tap(engine, loaded.net, layers, lambda: engine)
    for got, want in zip(engine.compute([tree, plain]), (paths, [(1, 2, 9)]), strict=True):
        assert torch.allclose(got.double(), torch.stack([theirs(module, p) for p in want]), atol=1e-4, rtol=1e-4)
    below = ForwardCall("a", PATH, (), [0, 4, 5], [-1, 0, 1], [1, 2, 5], [2], soft={0: half})
    before = engine.counted.computed
    (got,) = engine.compute([below])
    assert torch.allclose(got[0].double(), theirs(module, (*PATH, half, 4, 5)), atol=1e-4, rtol=1e-4)
    assert engine.counted.computed == before + 1  # what stands at soft nodes is cached like tokens


@pytest.mark.parametrize("kind", MODULES)
def test_the_reference_reads_mixtures(kind: str, tmp_path: Path) -> None:
    module = MODULES[kind]()
    models: list[Model] = [from_module(module, name=kind)]
    if kind == "llama":
        module.save_pretrained(tmp_path)
        models.append(load_causal(tmp_path))
    path = (*PATH, mixed((7, 0.5), (8, 0.5)), 4)
    for model in models:
        (row,) = model.eval([path])
        assert row.logits is not None
        assert torch.allclose(torch.from_numpy(row.logits), theirs(module, path), atol=1e-4, rtol=1e-4)


def models(kind: str) -> dict[str, Model]:
    if kind == "real":
        return {"target": from_module(llama(5), name="target"), "drafter": from_module(llama(6), name="drafter")}
    return tables() if kind == "tables" else {**layered(kind), "drafter": layered(kind)["target"]}


@pytest.mark.parametrize("kind", ["tables", "free", "tiny", "real"])
def test_torch_reads_what_the_reference_reads(kind: str) -> None:
    known, module = models(kind), load_text(DRAFTED, "drafted.dec")
    bound = {n: known[n] for n in ("target", "drafter")}
    wanted = None
    for backend, made in (("reference", module), ("torch", module), ("torch", optimise(module)[0])):
        session = Session(made, bound, {}, machine=machine(backend))
        requests = [Request(prompt=p, max_tokens=10, seed=n, repetition_penalty=1.3) for n, p in enumerate([(1, 2, 3), (2,)])]
        results = [session.run(requests[0]), *session.generate(requests, batch=2)]
        assert all(r.error is None for r in results), [r.error for r in results]
        got = [(r.tokens, r.stats.draft_calls, r.stats.accepted) for r in results]
        assert wanted is None or got == wanted
        wanted = got


def test_drafts_of_soft_nodes_hold() -> None:
    """What is committed has a derivation; of `renorm_topk`, which the draft needs outside of it, nothing is known of errors."""
    found = check_algorithm(load_text(DRAFTED, "drafted.dec"), models=4)
    assert found.verdict == "holds" and "would end the run in an error" in found.proofs[0].stopped()


WRONG = """
algorithm wrong(target: causal):
    {claim}

    while not done:
        draft u:
            grow soft(target.embed({what}))
        x ~ target(u.leaves)[0] as output
        commit x
"""


@pytest.mark.parametrize("claim", ["refines autoregressive(target) in tokens", "keeps support of target", "ensures p[x] > 0"])
@pytest.mark.parametrize("what", ["ctx.token", "target(ctx).raw"])
def test_a_call_at_a_soft_node_is_no_call_of_the_text(claim: str, what: str) -> None:
    report = check_algorithm(load_text(WRONG.format(claim=claim, what=what), "wrong.dec"), models=20)
    assert report.verdict == "refuted", report


REFUSED = {
    "twice": ("draft v:\n            grow soft(target.embed(prompt))\n        commit ctx.token", "takes one embedding"),
    "verified": ("verify u by match against target(u)\n        commit u.accepted", "cannot be verified"),
    "token": ("x = u.token[u.leaves[0]]\n        commit x", "no token"),
    "text": ("commit u.leaves[0]", "no token"),
    "number": ("draft v:\n            grow soft(target(ctx).raw)\n        commit ctx.token", "takes one embedding"),
    "drawn": ("x ~ target.embed(ctx.token)\n        commit x", "distribution"),
    "memory": ("q = target(ctx, given = target.memory(u.leaves[0]))\n        commit argmax(q)", "no"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_soft_node_has_no_token(name: str) -> None:
    line, word = REFUSED[name]
    text = f"""
algorithm refused(target: causal):
    while not done:
        draft u:
            grow soft(target.embed(ctx.token))
        {line}
"""
    said = []
    for backend in ("reference", "torch"):
        try:
            session = Session(load_text(text, "refused.dec"), {"target": tables()["target"]}, {}, machine=machine(backend))
            result = session.run(Request(prompt=(1, 2), max_tokens=3))
            said.append(str(result.error))
        except DecError as error:
            said.append(str(error))
    assert all(word in s for s in said), said


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_grammar_goes_by_the_drafts_and_not_by_soft_nodes(backend: str) -> None:
    grammar = decgraph.Grammar.regex(r" *return [a-z]+\([a-z]+\)")
    result = decgraph.run("superposed", "def mean(values):", max_tokens=12, allow=grammar, backend=backend)
    assert re.fullmatch(r" *return [a-z]+\([a-z]+\)", result.text), result.text
