"""LLaDA's and Dream's own classes as masked models: their scores, their recordings, and what is found when something is wrong.

The oracle is the module itself, called by the test, with an attention mask where the visibility is not "full".
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import masked_modules
from safetensors.torch import save_file

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models.engine.canvas_call import CanvasCall
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.hf_masked import CalledMasked, HFMasked
from decgraph.runtime.models.interface import MASK as MASKED
from decgraph.runtime.models.interface import Model, SoftCell, Visibility, sees
from decgraph.runtime.prompts import request_for

VISIBILITIES: list[Visibility] = ["full", "causal", ("block", 4), ("prompt+block", 4), ("window", 3)]
CLASSES: dict[str, Callable[[], Any]] = {
    "llada": lambda: masked_modules.llada(),
    "llada, fused": lambda: masked_modules.llada("sequential"),
    "dream": lambda: masked_modules.dream(),
    "llada 2": lambda: masked_modules.mixture(),
    "llada moe": lambda: masked_modules.mixture(masked_modules.LLaDAMoEModelLM),
}


def expected(module: Any, ids: list[int], visibility: Visibility, prompt: int, shift: bool) -> np.ndarray:
    """float64[length, vocabulary]: the module's own forward, the mask's score removed, every row moved to what it predicts."""
    seen = [[j in sees(visibility, i, len(ids), prompt) for j in range(len(ids))] for i in range(len(ids))]
    bias = torch.zeros(len(ids), len(ids)).masked_fill(~torch.tensor(seen), -1e30)[None, None]
    name = "attention_bias" if isinstance(module, masked_modules.LLaDAModelLM) else "attention_mask"
    with torch.no_grad():
        rows = module(input_ids=torch.tensor([ids]), **{name: bias}).logits[0].double().numpy()
    if shift:
        rows = np.concatenate([rows[:1], rows[:-1]])
    rows[:, masked_modules.MASK] = -np.inf
    return rows


def canvases(seed: int) -> list[tuple[list[int], int]]:
    """(ids, where the canvas begins) of some half-decided canvases."""
    rng, mask = Random(seed), masked_modules.MASK
    out = []
    for _ in range(3):
        prompt, length = rng.randint(1, 6), rng.randint(4, 14)
        text = [rng.randrange(120) for _ in range(prompt)]
        out.append((text + [rng.choice([mask, mask, rng.randrange(120)]) for _ in range(length)], prompt))
    return out


def both(model: Model, ids: list[int], prompt: int) -> list[np.ndarray]:
    """The scores as the reference and as the engine compute them."""
    cells = tuple(MASKED if i == masked_modules.MASK else i for i in ids)
    scores = model.after(prompt).eval_canvas(cells, range(len(ids)))
    call = CanvasCall("s", torch.tensor(ids), rows=range(len(ids)), prompt=prompt)
    (out,) = engine_of(model).compute([call])
    assert not isinstance(out, DecError), str(out)
    return [np.stack([s.to_float().logits for s in scores]), out.logits.double().numpy()]


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return np.allclose(np.nan_to_num(a, neginf=-1e6), np.nan_to_num(b, neginf=-1e6), atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("called", [False, True], ids=["by layers", "called whole"])
@pytest.mark.parametrize("visibility", VISIBILITIES, ids=str)
@pytest.mark.parametrize("name", CLASSES)
def test_scores_are_the_module_s(name: str, visibility: Visibility, called: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    module = CLASSES[name]()
    if called:
        monkeypatch.setattr("decgraph.runtime.models.masked_load._check_equal", _refuse)
    model = decgraph.masked(module, visibility=visibility)
    assert isinstance(model, CalledMasked if called else HFMasked)
    assert model.shift == (name == "dream") and model.mask == masked_modules.MASK and model.visibility == visibility
    for ids, prompt in canvases(3):
        wanted = expected(module, ids, visibility, prompt, model.shift)
        for found in both(model, ids, prompt):
            assert close(found, wanted)
        # A wrong shift, or another visibility, does not go unnoticed here
        assert not close(both(model, ids, prompt)[1], expected(module, ids, visibility, prompt, not model.shift))
        others = [v for v in VISIBILITIES if v != visibility]
        assert not all(close(wanted, expected(module, ids, v, prompt, model.shift)) for v in others)


def _refuse(*_: Any) -> None:
    raise DecError("this class is of unknown make")


def recorded(file: str, case: int) -> Any:
    return json.loads((masked_modules.GOLDEN.parent / f"{file}.json").read_text(encoding="utf-8"))["cases"][case]


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize(
    "file, program, cache, module",
    [
        ("llada_low_confidence", "llada", None, "llada"),
        ("fast_dllm_v1_dual", "fast_dllm", "dual", "llada"),
        ("fast_dllm_v1_prefix", "fast_dllm", "prefix", "llada, fused"),
        ("dream_entropy", "dream", None, "dream"),
        ("dream_maskgit_plus", "dream_confidence", None, "dream"),
    ],
)
def test_modules_decode_what_was_recorded_of_them(
    file: str, program: str, cache: str | None, module: str, backend: str
) -> None:
    case = recorded(file, 1)
    algorithm = decgraph.load(program) if cache is None else decgraph.load(program).cached(cache)
    names = {"gen_length": "length", "block_length": "block", "threshold": "tau", "steps": "steps"}
    params = {ours: case["parameters"][theirs] for theirs, ours in names.items() if theirs in case["parameters"]}
    known = {name: value for name, value in params.items() if name in algorithm.params}
    prompt = case["prompt"][0]
    result = algorithm.run(prompt, {"model": CLASSES[module]()}, params=known, max_tokens=200, backend=backend, eos=frozenset())
    assert result.error is None and list(result.tokens) == case["output"][0][len(prompt) :]


def test_folders_of_published_classes_need_no_code_of_theirs(tmp_path: Path) -> None:
    for name, settings, weights, module in (
        ("llada", masked_modules.llada_settings(), masked_modules.llada_weights(), masked_modules.llada()),
        (
            "fused",
            masked_modules.llada_settings("sequential"),
            masked_modules.llada_weights("sequential"),
            masked_modules.llada(),
        ),
        ("dream", masked_modules.dream_settings(), masked_modules.dream().state_dict(), masked_modules.dream()),
        *(
            (
                kind.__name__,
                masked_modules.mixture_settings(kind),
                masked_modules.mixture(kind).state_dict(),
                masked_modules.mixture(kind),
            )
            for kind in (masked_modules.LLaDA2MoeModelLM, masked_modules.LLaDAMoEModelLM)
        ),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(settings))
        save_file({key: value.clone() for key, value in weights.items()}, folder / "model.safetensors")
        model = decgraph.masked(folder)
        assert isinstance(model, HFMasked) and model.shift == (name == "dream") and model.home == folder.resolve()
        assert model.visibility == (("block", 32) if name == "LLaDA2MoeModelLM" else "full")
        for ids, prompt in canvases(5):
            wanted = expected(module, ids, model.visibility, prompt, model.shift)
            assert all(close(found, wanted) for found in both(model, ids, prompt))


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"alibi": True}, "alibi = True"),
        ({"layer_norm_type": "default"}, "layer_norm_type = 'default'"),
        ({"n_layers": 4}, "has no weights: model.layers.3"),
        ({"n_layers": 2}, "has other weights: model.layers.2"),
        ({"mlp_hidden_size": 64}, "weights of another shape"),
        ({"block_type": "sequential"}, "blocks 'sequential' with 'silu'"),
        ({"mask_token_id": 128}, "the mask of llada is 128, and it has 128 tokens"),
        ({"mask_token_id": None}, "the mask of llada is 126336"),  # LLaDA's published one
    ],
    ids=lambda v: str(v)[:40],
)
def test_a_folder_that_is_something_else_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    folder = tmp_path / "llada"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**masked_modules.llada_settings(), **changes}))
    save_file(masked_modules.llada_weights(), folder / "model.safetensors")
    with pytest.raises(DecError, match=said):
        decgraph.masked(folder)


def test_a_class_that_computes_something_else_is_called_and_says_so() -> None:
    module = masked_modules.llada(spoiled="other")
    model = decgraph.masked(module)
    assert isinstance(model, CalledMasked)
    for ids, prompt in canvases(9):
        assert all(close(found, expected(module, ids, "full", prompt, False)) for found in both(model, ids, prompt))
    prompt = [3, 5, 8]
    for backend in ("torch", "reference"):
        cached = decgraph.load("fast_dllm").run(prompt, {"model": module}, params={"length": 8, "block": 4}, backend=backend)
        assert cached.error is not None and "keeps no keys and values" in str(cached.error)
        assert "computes something else than its published class" in str(cached.error)
        plain = decgraph.load("fast_dllm_uncached").run(
            prompt, {"model": module}, params={"length": 8, "block": 4}, backend=backend
        )
        advised = decgraph.load("fast_dllm").cached("none")
        other = advised.run(prompt, {"model": module}, params={"length": 8, "block": 4}, backend=backend)
        assert plain.error is None and plain.tokens == other.tokens and len(plain.tokens) == 8


def test_a_causal_module_is_found_by_what_its_scores_depend_on() -> None:
    module = masked_modules.llada(spoiled="causal")
    with pytest.raises(DecError, match="does not attend as visibility full says") as refused:
        decgraph.masked(module)
    assert "set visibility" in refused.value.hint
    assert decgraph.masked(module, visibility="causal").visibility == "causal"
    with pytest.raises(DecError, match="does not attend as visibility block:4 says"):
        decgraph.masked(module, visibility="block:4")


def test_many_canvases_share_a_call() -> None:
    module = masked_modules.llada(spoiled="other")
    engine = engine_of(decgraph.masked(module))
    rows = [torch.tensor([3, 4, masked_modules.MASK, n, masked_modules.MASK]) for n in range(5)]
    before = engine.model.module.called
    outs = engine.compute([CanvasCall(n, row, rows=[2, 4]) for n, row in enumerate(rows)])
    assert engine.model.module.called == before + 1 and engine.counted.computed == 25
    alone = [engine_of(decgraph.masked(module)).compute([CanvasCall(9, row, rows=[4])])[0] for row in rows]
    assert all(torch.allclose(a.logits[1], b.logits[0], atol=1e-4) for a, b in zip(outs, alone, strict=True))  # type: ignore[union-attr]
    again = engine.compute([CanvasCall(0, rows[0], rows=[2])])[0]
    assert again.computed == 0  # type: ignore[union-attr]


def test_mixtures_go_in_as_embeddings() -> None:
    module = masked_modules.llada(spoiled="other")
    engine = engine_of(decgraph.masked(module))
    weights = torch.zeros(1, 128)
    weights[0, 7] = 1.0
    cells = torch.tensor([3, 4, masked_modules.MASK, 9])
    (soft,) = engine.compute([CanvasCall(0, cells, soft=([2], weights, torch.zeros(1)), rows=[0, 2])])
    (hard,) = engine.compute([CanvasCall(1, torch.tensor([3, 4, 7, 9]), rows=[0, 2])])
    assert torch.allclose(soft.logits, hard.logits, atol=1e-4)
    model = engine.model
    shared = (3, 4, SoftCell(tuple([0.0] * 7 + [1.0] + [0.0] * 120)), 9)
    assert np.allclose(model.eval_canvas(shared, [0])[0].logits[:127], hard.logits[0, :127], atol=1e-4)


@pytest.mark.parametrize("name", CLASSES)
def test_weights_stay_the_module_s(name: str) -> None:
    """Shared, their gradients wanted as before, and followed when they change."""
    module = CLASSES[name]()
    ids, prompt = canvases(2)[0]
    first = both(decgraph.masked(module), ids, prompt)[1]
    assert all(p.requires_grad for p in module.parameters())
    before = {key: value.clone() for key, value in module.state_dict().items()}
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(1.1)
    changed = decgraph.masked(module)
    assert close(both(changed, ids, prompt)[1], expected(module, ids, "full", prompt, changed.shift))
    assert not close(both(changed, ids, prompt)[1], first)
    assert set(module.state_dict()) == set(before)


@pytest.mark.parametrize("name", ["llada", "dream"])
def test_half_precision_is_as_near_to_float32_as_the_module_s_own(name: str) -> None:
    exact, module = CLASSES[name](), CLASSES[name]().bfloat16()
    model = decgraph.masked(module)
    assert isinstance(model, HFMasked)
    ours, theirs = [], []
    for ids, prompt in canvases(4):
        with torch.no_grad():
            rows = [m(input_ids=torch.tensor([ids])).logits[0].double().numpy() for m in (exact, module)]
        wanted, own = (np.concatenate([r[:1], r[:-1]]) if model.shift else r for r in rows)
        theirs.append(np.square(own - wanted).mean())
        for found in both(model, ids, prompt):
            seen = np.isfinite(found)
            ours.append(np.square(found[seen] - wanted[seen]).mean())
    assert np.sqrt(np.mean(ours)) <= 1.5 * np.sqrt(np.mean(theirs))


PROGRAMS: dict[str, dict[str, Any]] = {
    "llada": {"length": 8, "block": 4, "steps": 8},
    "fast_dllm": {"length": 8, "block": 4, "tau": 0.02},
    "joint_threshold": {"block": 8, "tau": 0.02},
    "klass": {"length": 8, "block": 4},
}


@pytest.mark.quick("LLaDA2MoeModelLM-joint_threshold")
@pytest.mark.parametrize("algorithm", PROGRAMS)
@pytest.mark.parametrize("kind", ["LLaDA2MoeModelLM", "LLaDAMoEModelLM"])
def test_mixtures_decode_alone_and_in_a_batch(kind: str, algorithm: str) -> None:
    """What the reference decodes by whole forwards; canvases of a batch share calls, and a call decides several positions."""
    module, program = masked_modules.mixture(getattr(masked_modules, kind)), decgraph.load(algorithm)
    params = {name: value for name, value in PROGRAMS[algorithm].items() if name in program.params}
    settings: dict[str, Any] = {"max_tokens": 8, "temperature": 0, "eos": frozenset()}
    prompts = [[3, 5, 8], [20, 1], [7, 7, 9, 30]]
    alone = [program.run(p, {"model": module}, backend="reference", params=params, **settings) for p in prompts]
    session = program.session({"model": module}, **params)
    together = session.generate([request_for(session, p, **settings) for p in prompts], batch=3)
    assert [r.tokens for r in together] == [r.tokens for r in alone] and all(r.error is None and r.tokens for r in alone)
    if algorithm in ("fast_dllm", "joint_threshold"):  # which decide all positions above a low threshold
        assert all(r.stats.target_calls < len(r.tokens) for r in together), [r.stats.target_calls for r in together]
