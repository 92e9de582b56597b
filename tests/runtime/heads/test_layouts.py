"""Variants of published layouts: what they compute, and that a head's engine gives what the head gives without a cache."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.lazily import transformers
from lib.models import plain_heads
from lib.models import published_heads as heads
from lib.models.hf_models import V
from lib.models.published_heads import WIDTH, Weights, written
from torch import Tensor, nn

from decgraph.runtime.models import hf
from decgraph.runtime.models.derive import derive
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.base import OUTSIDE
from decgraph.runtime.models.hf_causal import HFCausal
from decgraph.runtime.models.interface import Model


def some(names: Iterable[str], *quick: str) -> list[Any]:
    """All of them as parameters; the others are slow."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in names]


IDS = (1, 5, 9, 11, 44, 9, 3, 20, 31)
READS = [0, 2, 4]  # of a target of four layers: the first input, one between, and the last states


def without_output(config: dict[str, Any], weights: Weights) -> tuple[dict[str, Any], Weights]:
    """A folder that leaves its output matrix to the target."""
    return config, {name: tensor for name, tensor in weights.items() if name != "lm_head.weight"}


FEATURES: dict[str, Callable[[], tuple[dict[str, Any], Weights]]] = {
    "eagle1": heads.eagle1,
    "eagle1, without a bias": lambda: heads.eagle1(bias=False),
    "eagle1, the target's embedding, shared heads": lambda: heads.eagle1(embedding=False, kv=2),
    "eagle3": lambda: heads.eagle3(reads=READS),
    "eagle3, the whole vocabulary, its own embedding, shared heads": lambda: heads.eagle3(
        draft=V, kv=2, embedding=True, reads=READS
    ),
    "eagle3, the target's output matrix": lambda: without_output(*heads.eagle3(reads=READS)),
    "eagle3, the target's whole output matrix": lambda: without_output(*heads.eagle3(draft=V, reads=READS)),
    "speculators eagle3": lambda: heads.speculators("eagle3", READS),
    "speculators eagle3, in another order": lambda: heads.speculators("eagle3", [3, 1, 2]),
    "speculators peagle": lambda: heads.speculators("peagle", READS),
    "speculators peagle, two layers": lambda: heads.speculators("peagle", READS, layers=2),
    "hydra": heads.hydra,
    "hydra, two blocks": lambda: heads.hydra(blocks=2),
    "hydra++": lambda: heads.hydra(prefix=True),
    "hydra++, two blocks": lambda: heads.hydra(prefix=True, blocks=2),
    "redrafter": heads.redrafter,
    "redrafter, without an RNN": lambda: heads.redrafter(rnn=False),
    "redrafter, with a projection": lambda: heads.redrafter(inner=40, blocks=1),
    "dflash": heads.dflash,
    "dflash, one layer, the last states": lambda: heads.dflash(layers=1, reads=[1, 3]),
}


@pytest.mark.parametrize("name", some(FEATURES, "eagle1", "eagle3", "speculators peagle", "hydra++", "redrafter", "dflash"))
def test_engines(name: str, target: HFCausal, tmp_path: Path) -> None:
    """Trees below a context that grows, with and without accepted tokens, and one whose end changes."""
    head: Any = hf.load_features(written(tmp_path / "head", *FEATURES[name]()), target)
    engine = engine_of(head)
    deep = getattr(head.module, "depth", None) or 9
    random = np.random.default_rng(0)
    context, uid = [1, 5, 9], 0
    for step in range(4):
        tokens = [int(t) for t in random.integers(3, V, 7)]
        parents = [-1, -1, 0, 0, 1, 2, 5]
        depth = {-1: 0}
        for n, parent in enumerate(parents):
            depth[n] = depth[parent] + 1
        given = Remembered(target, context, len(context) - 1)
        for count in (0, 2, 5, 7):
            rows = [row for row in range(-1, count) if depth[row] < deep]
            call = ForwardCall(
                "a", list(context), (), tokens[:count], parents[:count], range(uid, uid + count), rows, memory=given
            )
            (made,) = engine.compute([call])
            assert isinstance(made, Tensor), made
            want = stacked(head.eval(call.paths(), memory=given.value), V)
            assert torch.equal(torch.isfinite(made), torch.isfinite(want))
            assert torch.allclose(made.double(), want, atol=3e-4, rtol=1e-4)
        uid += len(tokens)
        context = [*context[:-2], 7, 8] if step == 2 else [*context, *(int(t) for t in random.integers(3, V, step))]


def test_heads_of_one_target_share_its_engine(target: HFCausal, tmp_path: Path) -> None:
    """Heads that read different states, an exit, and the target itself: each as if it were alone."""
    made = {
        "eagle1": hf.load_features(written(tmp_path / "a", *heads.eagle1()), target),
        "eagle3": hf.load_features(written(tmp_path / "b", *heads.eagle3(reads=READS)), target),
        "dflash": hf.load_features(written(tmp_path / "c", *heads.dflash()), target),
    }
    small = derive(target, "exit", 2)
    given = Remembered(target, list(IDS), len(IDS) - 1)
    calls = [ForwardCall("a", list(IDS), (), [4, 5], [-1, 0], [0, 1], [-1, 0, 1], memory=given)]
    for _ in range(2):
        for model in (target, made["eagle1"], small, made["eagle3"], target, made["dflash"], made["eagle1"], small):
            one = calls if model in made.values() else [ForwardCall("a", list(IDS), (), [4, 5], [-1, 0], [0, 1], [-1, 0, 1])]
            (got,) = engine_of(model).compute(one)
            assert isinstance(got, Tensor), got
            how = {"memory": given.value} if model in made.values() else {}
            want = stacked(model.eval(one[0].paths(), **how), V)
            assert torch.allclose(got.double(), want, atol=3e-4, rtol=1e-4)


def scores(model: Model, base: HFCausal, path: tuple[int, ...], known: int) -> np.ndarray:
    (row,) = model.eval([path], base.memory(path[:known]))
    assert row.logits is not None
    return row.logits


def states_of(folder: Path) -> Tensor:
    """The target's hidden states at every layer [layers + 1, n, width], from transformers."""
    module = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        return torch.stack(module(torch.tensor([IDS]), output_hidden_states=True).hidden_states)[:, 0]


CHAINS = [name for name in FEATURES if "eagle" in name and "the target's output" not in name]


@pytest.mark.parametrize("name", some(CHAINS, "eagle1", "eagle3", "speculators peagle"))
@torch.no_grad()
def test_chains_written_out(name: str, target: HFCausal, folder: Path, tmp_path: Path) -> None:
    """The head's own states are those of its layers in plain code, below the target's features and below its own."""
    config, w = FEATURES[name]()
    head: Any = hf.load_features(written(tmp_path / "head", config, w), target)
    reads, output = head.module.reads or (4,), target.net.output
    first = "midlayer." if any(key.startswith("midlayer.") for key in w) else "layers.0."
    shape = {**config, **config.get("transformer_layer_config", {})}
    plain = plain_heads.Chain(w, shape, target.token_embeddings(), output, first)
    states = torch.cat([states_of(folder)[n] for n in reads], dim=-1)
    for known in (1, 5):
        for depth in range(3):
            path = IDS[: known + 1 + depth]
            ids, want = plain.logits(states[:known], list(path), known)
            np.testing.assert_allclose(scores(head, target, path, known)[ids], want, atol=2e-4)


@torch.no_grad()
def test_hydra_prefix(target: HFCausal, folder: Path, tmp_path: Path) -> None:
    """Hydra++ with transformers' own layer over the target's last states, and its blocks written out."""
    config, w = heads.hydra(prefix=True, blocks=2)
    head = hf.load_features(written(tmp_path / "head", config, w, "hydra_lm_head.pt"), target)
    shape = transformers.AutoConfig.from_pretrained(folder)
    shape.num_hidden_layers = 1
    prefix = transformers.LlamaModel(shape).eval()
    prefix.load_state_dict({k.removeprefix("prefix_embeding_layer."): t for k, t in w.items() if k.startswith("prefix")})
    known = 6
    state = prefix(inputs_embeds=states_of(folder)[-1][None, :known]).last_hidden_state[0, -1]
    for h in range(3):
        x = torch.cat([state, *(w["input_embed_fn.weight"][t] for t in IDS[known : known + h + 1])])
        first = [
            w[f"hydra_mlp.{h}.1.{n}"] for n in ("res_connection.weight", "res_connection.bias", "linear.weight", "linear.bias")
        ]
        x = first[0] @ x + first[1] + nn.functional.silu(first[2] @ x + first[3])
        x = x + nn.functional.silu(w[f"hydra_mlp.{h}.3.linear.weight"] @ x + w[f"hydra_mlp.{h}.3.linear.bias"])
        want = w[f"hydra_lm_head.{h}.1.weight"] @ x + w[f"hydra_lm_head.{h}.1.bias"]
        np.testing.assert_allclose(scores(head, target, IDS[: known + h + 1], known), want, atol=1e-4)


@torch.no_grad()
def test_redrafter_without_an_rnn(target: HFCausal, folder: Path, tmp_path: Path) -> None:
    """Embeddings are summed; only the 50 likeliest tokens have mass."""
    config, w = heads.redrafter(rnn=False, inner=40)
    head = hf.load_features(written(tmp_path / "head", config, w), target)
    embedding, state = target.token_embeddings(), states_of(folder)[-1][4]
    x = torch.cat([state, sum(embedding[t] for t in IDS[5:8])])  # type: ignore[list-item]
    x = w["input_proj.weight"] @ x + w["input_proj.bias"]
    for b in range(2):
        x = x + nn.functional.silu(w[f"lm_head.{b}.linear.weight"] @ x + w[f"lm_head.{b}.linear.bias"])
    want = w["lm_head.2.weight"] @ x
    got = scores(head, target, IDS[:8], 5)
    assert (got > OUTSIDE).sum() == 50
    np.testing.assert_allclose(got[(got > OUTSIDE)], want[(got > OUTSIDE)], atol=1e-4)
    assert want[~(got > OUTSIDE)].max() <= want[(got > OUTSIDE)].min()


@torch.no_grad()
def test_peagle_reads_masks(target: HFCausal, folder: Path, tmp_path: Path) -> None:
    """A row of depth d is one forward over the context and d slots of the mask token and the learned state."""
    config, w = heads.speculators("peagle", READS, layers=2)
    head: Any = hf.load_features(written(tmp_path / "head", config, w), target)
    states, known = states_of(folder), 5
    features = torch.cat([states[n] for n in READS], dim=-1)[:known]
    for d in range(3):
        inputs = torch.cat([features, w["mask_hidden"][0].expand(d, -1)]) @ w["fc.weight"].T
        tokens = torch.tensor([*IDS[1 : known + 1], *[3] * d])
        entering = head.module.enter(tokens, inputs)
        logits = head.module.read_out(plain_heads.layers(head.module.state_dict(), entering, heads.HEADS)[-1:].float())[0]
        np.testing.assert_allclose(scores(head, target, IDS[: known + 1 + d], known), logits, atol=1e-4)


@pytest.mark.parametrize("window", [None, 3])
@torch.no_grad()
def test_dflash_of_transformers(window: int | None, target: HFCausal, folder: Path, tmp_path: Path) -> None:
    """transformers' own assistant model, called as its candidate generator calls it."""
    kinds = ["full_attention" if window is None else "sliding_attention", "full_attention"]
    config = transformers.MuseGlimmerAssistantConfig(
        hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        block_size=5, mask_token_id=3, target_layer_ids=[0, 2, 3], layer_types=kinds, sliding_window=window or 8,
        max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.MuseGlimmerAssistantModel(config).eval()
    for p in theirs.parameters():
        p.normal_(1 if p.ndim == 1 else 0, 0.2)
    theirs.save_pretrained(tmp_path / "head")
    head = hf.load_features(tmp_path / "head", target)
    states, known = states_of(folder), 6
    noise = target.token_embeddings()[[IDS[known], 3, 3, 3, 3]][None]
    context = torch.cat([states[n + 1] for n in (0, 2, 3)], dim=-1)[None, :known]
    cache = transformers.cache_utils.DFlashCache(config=config)
    cache.activate_past_recording()
    cache.set_previous_accepted_tokens(known)
    out = theirs(
        noise_embeds=noise,
        context_hidden_states=context,
        position_ids=torch.arange(known + 5)[None],
        attention_mask=torch.ones(1, known + 5, dtype=torch.long),
        past_key_values=cache,
    )
    want = target.net.logits(out.last_hidden_state[0, 1:])
    for slot in range(4):
        got = scores(head, target, (*IDS[: known + 1], *[5] * slot), known)
        np.testing.assert_allclose(got, want[slot], atol=1e-4)


@pytest.mark.parametrize("layout", ["v0.1", "v1.0", "vllm"])
@torch.no_grad()
def test_medusa_layouts(layout: str, folder: Path, tmp_path: Path) -> None:
    """The same heads in three layouts; v1.0 holds the target too."""
    config, w = heads.medusa(heads=3, blocks=2)
    if layout == "v0.1":
        at, base = written(tmp_path / "m", config, w, "medusa_lm_head.pt"), folder
    elif layout == "vllm":
        named = {
            k: (f"blocks.{k[0]}.layers.{k[2]}.{k.rpartition('.')[2]}" if "linear" in k else f"lm_heads.{k[0]}.weight")
            for k in w
        }
        at, base = written(tmp_path / "m", config, {named[k]: t for k, t in w.items()}), folder
    else:
        whole = dict(transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict())
        own = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        merged = {**own, "architectures": ["MedusaLlamaModel"], "medusa_num_heads": 3, "medusa_num_layers": 2}
        at = base = written(tmp_path / "m", merged, {**whole, **{f"medusa_head.{k}": t for k, t in w.items()}}, shards=3)
    target = hf.load_causal(base)
    assert isinstance(target, HFCausal)
    both = target.with_heads(hf.load_heads(at, target))
    state = states_of(folder)[-1][-1]
    (made,) = engine_of(both).compute([ForwardCall("a", list(IDS), part="heads")])
    for h, row in enumerate(both.heads(IDS)):
        x = state
        for b in range(2):
            x = x + nn.functional.silu(w[f"{h}.{b}.linear.weight"] @ x + w[f"{h}.{b}.linear.bias"])
        np.testing.assert_allclose(row.logits, w[f"{h}.2.weight"] @ x, atol=1e-4)
        assert isinstance(made, Tensor)
        np.testing.assert_allclose(made[h], row.logits, atol=1e-4)


FILES = {
    "bin": ("pytorch_model.bin", 1),
    "pt": ("head.pt", 1),
    "shards": ("model.safetensors", 3),
    "bins": ("pytorch_model.bin", 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("form", FILES)
def test_files(form: str, dtype: torch.dtype, target: HFCausal, tmp_path: Path) -> None:
    """In one file or several, safetensors or pickles of tensors, in any precision: the values that are stored."""
    config, w = heads.eagle3(reads=READS)
    w = {k: t.to(dtype) if t.is_floating_point() else t for k, t in w.items()}
    file, shards = FILES[form]
    read = load.read(written(tmp_path / "head", config, w, file, shards))
    module: Any = load.module(read, tmp_path, torch.float32)
    assert torch.equal(module.fc.weight, w["fc.weight"].float())
    assert torch.equal(module.output.tokens, w["d2t"] + torch.arange(len(w["d2t"])))
    out = load.write(read, tmp_path / "out")
    assert next(iter(load.read(out[0].parent).tensors.values())).dtype in (dtype, torch.int64)


@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("name", some(["eagle3", "eagle1", "hydra++", "dflash", "redrafter", "speculators peagle"], "eagle3"))
def test_heads_in_their_targets_precision(name: str, dtype: torch.dtype, folder: Path, tmp_path: Path) -> None:
    """A target in bf16 or fp16 with a head stored in that precision decodes what the target alone does."""
    import decgraph

    module = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    config, w = FEATURES[name]()
    at = written(tmp_path / "head", config, {k: t.to(dtype) if t.is_floating_point() else t for k, t in w.items()})
    program = (
        "algorithm chain(target: causal, head: features(target)):\n    refines autoregressive(target) in tokens\n\n    "
        "while not done:\n        draft t:\n            repeat 3:\n                grow topk(head(t.leaves, "
        "given = target.memory(ctx.parent)).raw, 1)\n        verify t by match against target(t)\n        commit t.accepted\n"
    )
    (tmp_path / "chain.dec").write_text(program, encoding="utf-8")
    ids = torch.tensor([IDS])
    want = module.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0)
    door = decgraph.hf(str(tmp_path / "chain.dec"), head=at)
    assert (
        module.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0, custom_generate=door).tolist() == want.tolist()
    )
    assert module.config.hidden_size == WIDTH
