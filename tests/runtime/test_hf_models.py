"""Hugging Face adapters on tiny random models, against the library's own plain forwards."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from lib.lazily import modeling, transformers

from decgraph.errors import ContextFullError, DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.forward_call import ForwardCall
from decgraph.runtime.models.engine.of import causal_engine_of
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import MASK, Scores, SoftCell
from decgraph.runtime.models.masked_load import load_masked
from decgraph.runtime.models.table import TableModel

V, WIDTH, MASK_ID = 23, 16, 22
PATHS = [(1, 2, 3, 4, 5), (1, 2, 3), (1, 2, 7, 8), (9,), (1, 2, 3, 4, 6)]
SIZES = {
    "vocab_size": V,
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
    "initializer_range": 0.5,
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    made = {
        "llama": transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2)),
        "mistral": transformers.MistralForCausalLM(
            transformers.MistralConfig(**SIZES, num_key_value_heads=2, sliding_window=3)
        ),
        "eurobert": transformers.EuroBertForMaskedLM(
            transformers.EuroBertConfig(**SIZES, num_key_value_heads=4, mask_token_id=MASK_ID, pad_token_id=0)
        ),
        "modernbert": transformers.ModernBertForMaskedLM(
            transformers.ModernBertConfig(
                **SIZES,
                initializer_cutoff_factor=2.0,
                local_attention=4,
                global_attn_every_n_layers=2,
                pad_token_id=0,
                cls_token_id=1,
                sep_token_id=2,
                bos_token_id=1,
                eos_token_id=2,
                mask_token_id=MASK_ID,
            )
        ),
        "medusa": modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=WIDTH, heads=2)),
        "eagle": modeling.EagleHead(modeling.EagleConfig(**SIZES, num_key_value_heads=4)),
        "exit": modeling.ExitAdapter(modeling.ExitConfig(exit_layer=2, **SIZES, num_key_value_heads=4)),
    }
    for block in made["medusa"].fall:  # they start as the identity, which would test nothing
        torch.nn.init.normal_(block.weight)
    for name, model in made.items():
        model.save_pretrained(root / name)
    return {name: root / name for name in made}


@pytest.fixture(scope="module")
def target(folders: dict[str, Path]) -> HFCausal:
    return hf.load_causal(folders["llama"])


def plain(folder: Path, kind: str, ids: tuple[int, ...]) -> np.ndarray:
    """The library's own logits, float64[positions, V]."""
    auto = getattr(transformers, kind)
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa").eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].double().numpy()


def close(row: Scores, logits: np.ndarray) -> bool:
    assert row.logits is not None
    held = np.isfinite(row.logits)
    return bool(np.allclose(row.logits[held], logits[: len(row.logits)][held], atol=2e-4, rtol=1e-4))


def alike(a: list[Scores], b: list[Scores]) -> bool:
    return all(close(x, y.logits) for x, y in zip(a, b, strict=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["llama", "mistral"])
def test_a_tree_of_paths_has_the_rows_of_plain_forwards(folders: dict[str, Path], name: str) -> None:
    model = hf.load_causal(folders[name])
    for path, row in zip(PATHS, model.eval(PATHS), strict=True):
        assert row.logits is not None and row.logits.dtype == np.float64
        assert close(row, plain(folders[name], "AutoModelForCausalLM", path)[-1])


def test_rows_are_independent_of_their_neighbours_and_of_earlier_calls(folders: dict[str, Path]) -> None:
    once = hf.load_causal(folders["llama"]).eval(PATHS)
    model = hf.load_causal(folders["llama"])
    assert [model.eval([p])[0] for p in reversed(PATHS)] == once[::-1]
    assert model.eval(PATHS) == model.eval(PATHS) == once


def test_a_kept_causal_prefix_is_a_recomputed_one(target: HFCausal) -> None:
    path = PATHS[0]
    for cut in range(len(path)):
        assert alike(target.eval([path], target.memory(path[:cut])), target.eval([path]))
    grown = target.memory(path, memory=target.memory(path[:2]))
    assert grown.positions == target.memory(path).positions and grown.length == 5
    assert torch.allclose(grown.features[4], target.memory(path).features[4], atol=1e-4)
    several = [path, (1, 2, 9), (1, 2)]  # one of them shorter than what is held
    assert alike(
        target.eval(several, target.memory(path[:3])),
        [target.eval([p], target.memory(path[:3]))[0] for p in several],
    )
    assert alike(target.eval([(1, 2)], target.memory(path[:3])), target.eval([(1, 2)]))


def test_evicted_and_stale_rows_change_the_answer(target: HFCausal) -> None:
    path, full = PATHS[0], target.memory(PATHS[0][:4])
    assert not alike(target.eval([path], full.without([1])), target.eval([path]))
    assert not alike(target.eval([path], target.memory((2, 2, 3, 4))), target.eval([path]))
    assert alike(target.eval([path], full.without([1]).join(full.only([1]))), target.eval([path]))
    thin = full.with_layer(1, full[1].without([0, 1]))
    assert not alike(target.eval([path], thin), target.eval([path]))


def test_derived_models_share_the_targets_keys_and_values_as_far_as_that_is_exact(target: HFCausal) -> None:
    path, prefix = PATHS[0], target.memory(PATHS[0][:3])
    early, skipping, coarse = (derive(target, *how) for how in (("exit", 2), ("skip", {1}), ("quantized", 3)))
    assert alike(early.eval([path], prefix), early.eval([path]))
    assert alike(derive(target, "head", derive(target, "upto", 2)).eval([path]), early.eval([path]))
    assert alike(derive(target, "head", derive(target, "upto", 2)).eval([path], prefix), early.eval([path]))
    for other in (skipping, coarse):
        assert not alike(other.eval([path], prefix), other.eval([path]))
    for other in (early, skipping, coarse):
        assert not alike(other.eval([path]), target.eval([path]))
    assert alike(derive(target, "skip", set()).eval([path]), target.eval([path]))
    assert alike(derive(target, "quantized", 16).eval([path]), target.eval([path]))
    with pytest.raises(DecError, match="no exit"):
        derive(target, "exit", 4)


def test_an_exit_adapter_is_its_module_under_the_targets_head(folders: dict[str, Path], target: HFCausal) -> None:
    adapter, path = hf.load_adapter(folders["exit"], target), PATHS[0]
    small = derive(target, "head", derive(adapter, "on", derive(target, "upto", 2)))
    own = transformers.LlamaForCausalLM.from_pretrained(folders["llama"], dtype=torch.float32).eval()
    layer = modeling.ExitAdapter.from_pretrained(folders["exit"]).eval()
    with torch.no_grad():
        early = own(torch.tensor([path]), output_hidden_states=True).hidden_states[2]
        wanted = own.lm_head(own.model.norm(layer(early)))[0].double().numpy()
    assert all(close(small.eval([path[: i + 1]])[0], wanted[i]) for i in range(len(path)))
    assert alike(small.eval([path], target.memory(path[:3])), small.eval([path]))
    gap = adapter.apply({i: row for i, row in enumerate(early[0]) if i != 1})
    assert sorted(gap) == [0, 2, 3, 4] and not torch.allclose(gap[4], adapter.apply(dict(enumerate(early[0])))[4])
    with pytest.raises(DecError, match="after 2 layers, not after 1"):
        derive(adapter, "on", derive(target, "upto", 1))


def test_medusa_heads_read_the_last_state(folders: dict[str, Path], target: HFCausal) -> None:
    heads, path = hf.load_heads(folders["medusa"], target), PATHS[0]
    own = transformers.LlamaForCausalLM.from_pretrained(folders["llama"], dtype=torch.float32).eval()
    with torch.no_grad():
        last = own.model(torch.tensor([path])).last_hidden_state
        wanted = [own.lm_head(h)[0, -1].double().numpy() for h in heads.module(last)]
    got = heads.heads(path)
    assert len(got) == 2 and all(close(row, w) for row, w in zip(got, wanted, strict=True))
    assert target.with_heads(heads).heads(path) == got
    with pytest.raises(DecError, match="load_heads"):
        target.heads(path)


def test_an_eagle_head_pairs_features_with_the_next_token(folders: dict[str, Path], target: HFCausal) -> None:
    head = hf.load_features(folders["eagle"], target)
    own = transformers.LlamaForCausalLM.from_pretrained(folders["llama"], dtype=torch.float32).eval()
    layer = modeling.EagleHead.from_pretrained(folders["eagle"]).eval()
    root = (1, 2, 3, 4)
    given = target.memory(root[:-1])

    def chain(path: tuple[int, ...]) -> np.ndarray:
        """By hand: the target's features up to the root's parent, then the head's own, one at a time."""
        with torch.no_grad():
            features = own.model(torch.tensor([root[:-1]])).last_hidden_state
            for end in range(len(root), len(path) + 1):
                out = layer(torch.tensor([path[1:end]]), features)
                features = torch.cat([features, out[:, -1:]], dim=1)
            return own.lm_head(out)[0, -1].double().numpy()

    tree = [root, (*root, 5), (*root, 6), (*root, 5, 7), (*root, 6, 7), (*root, 5, 7, 8)]
    for path, row in zip(tree, head.eval(tree, given), strict=True):
        assert close(row, chain(path))
    fresh = hf.load_features(folders["eagle"], target)
    assert alike(fresh.eval(tree[::-1], given), head.eval(tree[::-1], given))
    assert not alike(head.eval([tree[1]]), head.eval([tree[1]], given))  # committed: the target's feature instead
    assert alike(head.eval([root]), head.eval([root], given))
    assert len(head.eval([(1,), (1, 2)], target.memory(()))) == 2
    mixed = [(1, 2, 3, 9), (1, 2, 3, 4, 5), (1, 2)]
    assert alike(head.eval(mixed, given), [head.eval([p], given)[0] for p in mixed])
    with pytest.raises(DecError, match="evicted"):
        head.eval([root], given.without([2]))


@pytest.mark.parametrize("name", ["eurobert", "modernbert"])
def test_a_canvas_has_the_rows_of_a_plain_forward(folders: dict[str, Path], name: str) -> None:
    model = load_masked(folders[name])
    cells = (3, 4, MASK, 6, MASK, MASK, 9)
    wanted = plain(folders[name], "AutoModelForMaskedLM", tuple(MASK_ID if c is MASK else c for c in cells))
    for i, row in enumerate(model.eval_canvas(cells, range(len(cells)))):
        assert close(row, wanted[i])
        assert row.logits is not None and row.logits[MASK_ID] == -np.inf
    assert close(model.eval_canvas(cells, [4])[0], wanted[4])
    assert model.eval_canvas(cells, []) == []


@pytest.mark.parametrize("name", ["eurobert", "modernbert"])
def test_memory_of_a_canvas(folders: dict[str, Path], name: str) -> None:
    model = load_masked(folders[name])
    masked, now = (3, 4, MASK, MASK, MASK), (3, 4, MASK, 6, MASK)
    stale = model.memory(masked)
    everything = range(len(now))
    assert alike(model.eval_canvas(now, everything, stale), model.eval_canvas(now, everything))
    assert alike(model.eval_canvas(masked, [2, 4], stale), model.eval_canvas(masked, [2, 4]))  # nothing changed
    assert not alike(model.eval_canvas(now, [2, 4], stale), model.eval_canvas(now, [2, 4]))
    assert not alike(model.eval_canvas(now, [2, 3, 4], stale.only([0])), model.eval_canvas(now, [2, 3, 4], stale))
    again = model.memory(now, at=[2, 3, 4], memory=stale.without([2, 3, 4]))
    assert again.positions == frozenset(everything) and again.cells[3] == 6
    for old, layer in zip(stale.layers, again.layers, strict=True):
        assert old.kv[0] is layer.kv[0] and old.kv[3] is not layer.kv[3]
    # What is held at a fresh position is overridden, so holding it or not is the same.
    assert alike(model.eval_canvas(now, [2, 3, 4], stale), model.eval_canvas(now, [2, 3, 4], stale.without([2, 3, 4])))


def test_a_soft_cell_is_a_mixture_of_embeddings(folders: dict[str, Path]) -> None:
    model = load_masked(folders["eurobert"])
    point = SoftCell(tuple(float(v == 7) for v in range(V)))
    assert alike(model.eval_canvas((3, point, MASK), [2]), model.eval_canvas((3, 7, MASK), [2]))
    assert alike(model.eval_canvas((3, SoftCell((0.0,) * V, 1.0), MASK), [2]), model.eval_canvas((3, MASK, MASK), [2]))
    half = SoftCell(tuple(0.5 * (v == 7) for v in range(V)), 0.5)
    assert not alike(model.eval_canvas((3, half, MASK), [2]), model.eval_canvas((3, 7, MASK), [2]))


def test_a_block_causal_model_does_not_see_later_blocks(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders["eurobert"], tmp_path / "blocks"))
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "decgraph_block": 2}))
    model = load_masked(copy)
    assert model.visibility == ("block", 2)
    cells = (3, 4, MASK, MASK)
    assert alike(model.eval_canvas(cells, [0, 1]), model.eval_canvas((3, 4, 5, 6), [0, 1]))
    assert not alike(model.eval_canvas(cells, [0, 1]), model.eval_canvas((3, 5, MASK, MASK), [0, 1]))
    assert alike(model.eval_canvas(cells, [2, 3], model.memory((3, 4))), model.eval_canvas(cells, [2, 3]))
    assert not alike(model.eval_canvas(cells, [2, 3], model.memory((3, MASK))), model.eval_canvas(cells, [2, 3]))


def test_what_cannot_be_loaded_says_why(folders: dict[str, Path], target: HFCausal, tmp_path: Path) -> None:
    with pytest.raises(DecError, match="not a folder"):
        hf.load_causal(tmp_path / "nowhere")
    with pytest.raises(DecError, match="has no config.json"):
        hf.load_causal(tmp_path)
    with pytest.raises(DecError, match="not a causal model but a EuroBertForMaskedLM"):
        hf.load_causal(folders["eurobert"])
    with pytest.raises(DecError, match="does not say which token is the mask"):
        load_masked(folders["llama"])
    with pytest.raises(DecError, match=r"holds a features head \(decgraph\), not Medusa heads"):
        hf.load_heads(folders["eagle"], target)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(DecError, match="cannot be read"):
        hf.load_causal(tmp_path)
    broken = Path(shutil.copytree(folders["llama"], tmp_path / "broken"))
    (broken / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(DecError, match=r"model\.safetensors cannot be read"):
        hf.load_causal(broken)
    (broken / "model.safetensors").unlink()
    with pytest.raises(DecError, match="no safetensors"):
        hf.load_causal(broken)
    modeling.MedusaHeads(modeling.MedusaConfig(hidden_size=8)).save_pretrained(tmp_path / "narrow")
    with pytest.raises(DecError, match="belongs to another target"):
        hf.load_heads(tmp_path / "narrow", target)


def test_what_cannot_be_evaluated_says_why(folders: dict[str, Path], target: HFCausal) -> None:
    with pytest.raises(DecError, match="past the context length of 'llama' .32."):
        target.eval([(1,) * 33])
    with pytest.raises(DecError, match="not in the vocabulary"):
        target.eval([(1, V)])
    with pytest.raises(DecError, match="do not share"):
        target.eval([(1, 2)], TableModel(3, 0).memory((1,)))
    with pytest.raises(DecError, match="outside 0..1"):
        load_masked(folders["eurobert"]).eval_canvas((1, MASK), [2])
    broken = hf.load_causal(folders["llama"])
    broken.net.output.data[5, 0] = float("nan")
    with pytest.raises(DecError, match="'llama' gave logits that are not numbers at position 2"):
        broken.eval([(1, 2, 3)])


@pytest.mark.parametrize("kind", ["GPT2", "GPTJ", "GPTBigCode"])
def test_a_context_that_a_config_calls_n_positions_is_not_passed(kind: str, tmp_path: Path) -> None:
    own = {"rotary_dim": 4} if kind == "GPTJ" else {}
    sizes = {"vocab_size": V, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8, "bos_token_id": 1, "eos_token_id": 1}
    config = getattr(transformers, f"{kind}Config")(**sizes, **own)
    getattr(transformers, f"{kind}{'LMHeadModel' if kind == 'GPT2' else 'ForCausalLM'}")(config).save_pretrained(tmp_path)
    model = hf.load_causal(tmp_path)
    assert model.context == 8
    (out,) = causal_engine_of(model).compute([ForwardCall("one", [1] * 9)])
    assert isinstance(out, ContextFullError)
    with pytest.raises(ContextFullError, match="past the context length"):
        model.eval([(1,) * 9])
