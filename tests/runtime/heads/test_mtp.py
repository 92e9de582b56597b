"""MTP layers in targets' checkpoints: drafted logits against transformers' own decoder layer, decoding against `generate`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lib.engines.device_calls import Drafts
from lib.lazily import transformers
from lib.models.architecture_table import LATENT, SHARED, E, H, T
from safetensors.torch import load_file, save_file
from torch import Tensor

import decgraph
from decgraph.backends.triton.models.device import step_model
from decgraph.backends.triton.pages import Pages
from decgraph.backends.triton.support import NotSteppable
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.engine.forward_call import ForwardCall, Remembered
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.models.engine.plain import stacked
from decgraph.runtime.models.heads.convert import convert
from decgraph.runtime.models.hf_causal import HFCausal

IDS = (1, 5, 9, 11, 44, 9, 3, 20, 31)
COUNT = 3  # layers of the targets
V = 97


@dataclass(frozen=True)
class Family:
    """kind: transformers' model_type; begin: of the MTP layer's names in the published layout; block: of its decoder layer's;
    names: of embedding norm, state norm, joining matrix and last norm; state_first: how the two are joined."""

    kind: str
    config: dict[str, Any]
    begin: str
    block: str
    names: tuple[str, str, str, str]
    state_first: bool = False


DEEPSEEK = ("enorm", "hnorm", "eh_proj", "shared_head.norm")
QWEN = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
LINEAR = {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
          "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"]}  # fmt: skip
LAST = f"model.layers.{COUNT}."
FAMILIES = {
    "deepseek_v3": Family("deepseek_v3", LATENT, LAST, LAST, DEEPSEEK),
    "glm4_moe": Family("glm4_moe", {**H, **SHARED}, LAST, LAST, DEEPSEEK),
    "glm4_moe_lite": Family("glm4_moe_lite", LATENT, LAST, LAST, DEEPSEEK),
    "qwen3_next": Family(
        "qwen3_next", {**H, **E, **LINEAR, "shared_expert_intermediate_size": 16}, "mtp.", "mtp.layers.0.", QWEN
    ),
    "qwen3_5": Family("qwen3_5_text", {**H, **LINEAR}, "mtp.", "mtp.layers.0.", QWEN),
    "mimo": Family(
        "qwen2",
        T,
        "model.mtp_layers.0.",
        "model.mtp_layers.0.",
        ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
        state_first=True,
    ),
}


def some(*quick: str) -> list[Any]:
    """All families as parameters; the others are slow."""
    return [pytest.param(name, marks=() if name in quick else pytest.mark.slow) for name in FAMILIES]


class Built:
    """A target's folder with an MTP layer in the published layout, and what transformers computes with its parts."""

    def __init__(self, name: str, at: Path) -> None:
        self.family, self.at = FAMILIES[name], at
        family = self.family
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(family.kind, **{**family.config, "num_hidden_layers": COUNT + 1})
        self.whole: Any = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
        for p in self.whole.parameters():
            torch.nn.init.normal_(p, 1 if p.ndim == 1 else 0, 0.15)
        self.whole.save_pretrained(at)
        weights = load_file(at / "model.safetensors")
        width = config.hidden_size
        norms = {n: torch.randn(width) * 0.1 + 1 for n in (0, 1, 3)}
        self.joining = torch.randn(width, 2 * width) * 0.2
        self.own = {family.begin + family.names[n] + ".weight": norms.get(n, self.joining) for n in range(4)}
        self.norms = norms
        for key in [key for key in weights if key.startswith(LAST)]:
            self.own[family.block + key.removeprefix(LAST)] = weights.pop(key)
        if family.names is DEEPSEEK:  # copies of the target's matrices, as these checkpoints have them
            self.own[LAST + "embed_tokens.weight"] = weights["model.embed_tokens.weight"].clone()
            self.own[LAST + "shared_head.head.weight"] = weights["lm_head.weight"].clone()
        self.rest = weights
        self.config = json.loads((at / "config.json").read_text())
        self.config["num_hidden_layers"] = COUNT
        for key, value in self.config.items():
            if isinstance(value, list) and len(value) == COUNT + 1:
                self.config[key] = value[:-1]
        self.write(at, {**weights, **self.own})

    def write(self, at: Path, weights: dict[str, Tensor], **change: Any) -> Path:
        """A folder with these tensors."""
        at.mkdir(exist_ok=True)
        (at / "config.json").write_text(json.dumps({**self.config, **change}))
        save_file(weights, at / "model.safetensors", {"format": "pt"})
        return at

    @torch.no_grad()
    def logits(self, path: tuple[int, ...], known: int) -> Tensor:
        """The layer's logits [V] after a path, of which the target has the states of the first `known` tokens: its later slots
        read its own outputs. No cache; positions are those of tokens, as in transformers' `MtpModel`."""
        base = self.whole.base_model
        layer, norm = base.layers[COUNT], lambda n, x: self.normed(self.norms[n], x)
        target = transformers.AutoModelForCausalLM.from_pretrained(self.at)
        features = list(target(torch.tensor([path[:known]]), output_hidden_states=True).hidden_states[-1][0])
        for end in range(known + 1, len(path) + 1):
            embedded = norm(0, base.embed_tokens(torch.tensor(path[1:end])))
            state = norm(1, torch.stack(features))
            both = (state, embedded) if self.family.state_first else (embedded, state)
            states = (torch.cat(both, -1) @ self.joining.T)[None]
            positions = torch.arange(1, end)[None]
            mask = torch.full((end - 1, end - 1), torch.finfo(torch.float32).min).triu(1)[None, None]
            rotary = base.rotary_emb(states, position_ids=positions)
            out = layer(states, attention_mask=mask, position_ids=positions, position_embeddings=rotary)
            features.append(norm(3, out[0, -1]))
        made: Tensor = target.lm_head(features[-1])
        return made

    def normed(self, weight: Tensor, states: Tensor) -> Tensor:
        """The family's norm with this weight."""
        norm = self.whole.base_model.norm
        return torch.func.functional_call(norm, {"weight": weight}, (states,))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Folders by family, each written once."""
    made: dict[str, Built] = {}

    def get(name: str) -> Built:
        if name not in made:
            made[name] = Built(name, tmp_path_factory.mktemp("mtp") / name)
        return made[name]

    return get


def target_of(at: Path) -> HFCausal:
    target = hf.load_causal(at)
    assert isinstance(target, HFCausal)
    return target


@pytest.mark.parametrize("name", some("glm4_moe", "mimo"))
def test_logits(name: str, built: Any) -> None:
    """The first draft and those that read the layer's own output."""
    one = built(name)
    target = target_of(one.at)
    head = hf.load_features(one.at, target)
    for known in (1, 5):
        for depth in range(3):
            path = IDS[: known + 1 + depth]
            (row,) = head.eval([path], target.memory(path[:known]))
            np.testing.assert_allclose(row.logits, one.logits(path, known), atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("name", some("glm4_moe"))
def test_engine(name: str, built: Any) -> None:
    """A tree below a context that grows: with a cache what the head gives without one."""
    one = built(name)
    target = target_of(one.at)
    head: Any = hf.load_features(one.at, target)
    engine, random = engine_of(head), np.random.default_rng(0)
    context, uid = [1, 5, 9], 0
    for step in range(3):
        tokens = [int(t) for t in random.integers(3, V, 5)]
        given = Remembered(target, context, len(context) - 1)
        call = ForwardCall("a", list(context), (), tokens, [-1, -1, 0, 2, 1], range(uid, uid + 5), range(-1, 5), memory=given)
        (made,) = engine.compute([call])
        assert isinstance(made, Tensor), made
        assert torch.allclose(made.double(), stacked(head.eval(call.paths(), memory=given.value), V), atol=3e-4, rtol=1e-4)
        uid += 5
        context = [*context, *(int(t) for t in random.integers(3, V, step + 1))]


@pytest.mark.parametrize("name", some("mimo"))
def test_steps_on_the_device(name: str, built: Any) -> None:
    """The same over buffers of a fixed size."""
    target = target_of(built(name).at)
    head: Any = hf.load_features(built(name).at, target)
    if name.startswith("qwen3"):
        with pytest.raises(NotSteppable, match="has recurrent layers, whose states are no slots"):
            step_model(target, Pages(3, 60))
        return
    whole = step_model(target, Pages(3, 60))
    made = step_model(head, whole.pages, target=whole)

    def check(text: tuple[int, ...], paths: list[tuple[int, ...]], states: Tensor) -> None:
        want = stacked(head.eval(paths, target.memory(text[:-1])), V)
        assert torch.allclose(made.read(states).double(), want, atol=3e-4, rtol=1e-4)

    Drafts(whole, made, V, 5, check).run([7, 2, 1], steps=3)


@pytest.mark.parametrize("name", some("deepseek_v3", "mimo"))
def test_decoding(name: str, built: Any) -> None:
    """eagle2 of the standard library with a checkpoint as target and as head commits what `generate` does."""
    one = built(name)
    module = transformers.AutoModelForCausalLM.from_pretrained(one.at).eval()
    want = module.generate(torch.tensor([IDS]), max_new_tokens=16, do_sample=False, eos_token_id=None, pad_token_id=0)
    result = decgraph.load("eagle2").run(
        list(IDS),
        models={"target": one.at, "head": one.at},
        temperature=0,
        max_tokens=16,
        params={"depth": 3, "k": 2, "budget": 6},
    )
    assert list(result.tokens)[:16] == want[0, len(IDS) :].tolist()
    assert result.stats.target_calls <= 16


@pytest.mark.parametrize("name", ["qwen3_5", pytest.param("qwen3_next", marks=pytest.mark.slow)])
def test_speculators_folder(name: str, built: Any, tmp_path: Path) -> None:
    """vLLM's folder of an MTP layer: other names around the same computation."""
    one = built(name)
    names = dict(zip(("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
                     ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"), strict=True))  # fmt: skip
    weights = {}
    for key, tensor in one.own.items():
        short = key.removeprefix("mtp.layers.0.").removeprefix("mtp.")
        part = names.get(short.partition(".")[0]) if "layers" not in key else None
        weights[f"mtp_layers.0.{f'{part}.weight' if part else short}"] = tensor
    at = tmp_path / "head"
    one.write(at, weights)
    config = {"speculators_model_type": "mtp", "num_nextn_predict_layers": 1, "transformer_layer_config": one.config}
    (at / "config.json").write_text(json.dumps(config))
    target = target_of(one.at)
    head, own = hf.load_features(at, target), hf.load_features(one.at, target)
    given = target.memory(IDS[:5])
    for path in (IDS[:6], IDS[:8]):
        np.testing.assert_array_equal(head.eval([path], given)[0].logits, own.eval([path], given)[0].logits)
    save_file({**weights, "spare.weight": torch.ones(2)}, at / "model.safetensors", {"format": "pt"})
    with pytest.raises(DecError, match=r"spare\.weight"):
        hf.load_features(at, target)


@pytest.mark.parametrize("name", some("qwen3_5", "mimo", "glm4_moe"))
def test_a_tensor_beside_the_layers_parts(name: str, built: Any, tmp_path: Path) -> None:
    """Of the module, not of its decoder layer; and of a layer behind a gap."""
    one = built(name)
    target, whole = target_of(one.at), {**one.rest, **one.own}
    stem, _, number = one.family.begin[:-1].rpartition(".")
    for spare in (one.family.begin, f"{stem}.{int(number) + 3}." if number.isdecimal() else "mtp.layers.spare."):
        at = one.write(tmp_path / f"at{len(spare)}{spare}", {**whole, f"{spare}spare.weight": torch.ones(2)})
        with pytest.raises(DecError, match=r"spare\.weight"):
            hf.load_features(at, target)


def test_an_mtp_layer_of_a_model_of_images_and_text(built: Any, tmp_path: Path) -> None:
    """Qwen3.5 as it is published: the text model under `text_config` and `model.language_model.*`."""
    one = built("qwen3_5")
    module = transformers.AutoModelForCausalLM.from_pretrained(one.at).eval()
    want = module.generate(torch.tensor([IDS]), max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0)
    at = tmp_path / "whole"
    weights = {
        name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name: tensor
        for name, tensor in {**one.rest, **one.own}.items()
    }
    one.write(at, weights)
    whole = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"], "text_config": one.config}
    (at / "config.json").write_text(json.dumps(whole))
    result = decgraph.load("eagle2").run(list(IDS), models={"target": at, "head": at}, temperature=0, max_tokens=8)
    assert list(result.tokens)[:8] == want[0, len(IDS) :].tolist() and result.stats.drafted > 0


@pytest.mark.parametrize("name", some("glm4_moe"))
def test_convert(name: str, built: Any, tmp_path: Path) -> None:
    """Written alone it is the same head."""
    one = built(name)
    told = convert(one.at, out=tmp_path / "out", target=one.at)
    assert told.layout.startswith("MTP")
    target = target_of(one.at)
    rows = [hf.load_features(at, target).eval([IDS], target.memory(IDS[:-2]))[0].logits for at in (one.at, tmp_path / "out")]
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-4)
    assert (
        sum(t.numel() for t in load_file(tmp_path / "out" / "model.safetensors").values())
        < sum(t.numel() for t in one.own.values()) + 1
    )


@pytest.mark.parametrize("name", some("glm4_moe", "mimo"))
def test_every_tensor_counts(name: str, built: Any, tmp_path: Path) -> None:
    """Without any one of the layer's tensors it does not load, nor with one more, a cut one, or NaN; copies of the target's
    matrices are not read."""
    one = built(name)
    whole = {**one.rest, **one.own}
    names = [n for n in one.own if not n.endswith(("head.weight", "embed_tokens.weight"))]
    chosen = names if name == "mimo" else names[:4] + names[-3:]
    target = target_of(one.at)
    for n, missed in enumerate(chosen):
        at = one.write(tmp_path / f"m{n}", {k: t for k, t in whole.items() if k != missed})
        with pytest.raises(DecError):
            hf.load_features(at, target)
        at = one.write(tmp_path / f"c{n}", {**whole, missed: whole[missed][..., :-1].contiguous()})
        with pytest.raises(DecError):
            hf.load_features(at, target)
    with pytest.raises(DecError, match="spare"):
        hf.load_features(one.write(tmp_path / "spare", {**whole, one.family.block + "spare.weight": torch.ones(2)}), target)
    broken = one.family.begin + one.family.names[2] + ".weight"
    with pytest.raises(DecError, match="NaN"):
        hf.load_features(one.write(tmp_path / "nan", {**whole, broken: whole[broken] * float("nan")}), target)


@pytest.mark.parametrize("name", some("glm4_moe"))
def test_a_layer_for_each_depth(name: str, built: Any, tmp_path: Path) -> None:
    """The first depth is the first layer's; of more tokens than there are layers none is drafted. (Recorded drafts of two and
    three layers are in tests/fidelity: ar2/hf_mtp.)"""
    one = built(name)
    if one.family.names is QWEN:
        pytest.skip("its layers stand in one module")
    number = int(one.family.begin.rstrip(".").rsplit(".", 1)[1])
    other = one.family.begin.replace(f".{number}.", f".{number + 1}.")
    further = {k.replace(one.family.begin, other): t.clone() for k, t in one.own.items()}
    at = one.write(tmp_path / "two", {**one.rest, **one.own, **further})
    convert(at, out=tmp_path / "out", target=at)
    target = target_of(at)
    memory = target.memory(IDS[:-2])
    alone, two, again = (hf.load_features(folder, target) for folder in (one.at, at, tmp_path / "out"))
    root = alone.eval([IDS[:-1]], memory)[0].logits
    for head in (two, again):
        np.testing.assert_allclose(head.eval([IDS[:-1]], memory)[0].logits, root, atol=1e-4)
        assert np.abs(head.eval([IDS], memory)[0].logits - alone.eval([IDS], memory)[0].logits).max() > 1e-4
        with pytest.raises(DecError, match="drafts at most 2 tokens"):
            head.eval([(*IDS, 3)], memory)
        with pytest.raises(NotSteppable):
            step_model(head, Pages(1, 32), target=step_model(target, Pages(1, 32)))


def test_refused(built: Any, tmp_path: Path) -> None:
    """A layer of a window, and a configuration that transformers does not know."""
    one = built("glm4_moe")
    whole = {**one.rest, **one.own}
    target = target_of(one.at)
    with pytest.raises(DecError, match="of the type sliding_attention"):
        hf.load_features(one.write(tmp_path / "window", whole, mtp_layer_types=["sliding_attention"]), target)
    with pytest.raises(DecError, match="does not describe a model that transformers knows"):
        hf.load_features(one.write(tmp_path / "kind", whole, model_type="unheard_of"), target)
    with pytest.raises(DecError, match="no known layout"):
        hf.load_features(one.write(tmp_path / "none", one.rest), target)
