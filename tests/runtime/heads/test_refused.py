"""Folders that are no heads, or not whole: each is refused by name, and none is completed with random weights."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models import published_heads as heads
from lib.models.hf_models import V, llama
from lib.models.published_heads import WIDTH, Weights, written

from decgraph.cli import main as cli
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.convert import convert

Make = Callable[[], tuple[dict[str, Any], Weights]]
KINDS: dict[str, Make] = {
    "eagle1": heads.eagle1,
    "eagle3": heads.eagle3,
    "speculators": lambda: heads.speculators("peagle", [1, 2, 3]),
    "medusa": heads.medusa,
    "hydra": heads.hydra,
    "redrafter": heads.redrafter,
    "dflash": heads.dflash,
    "kangaroo": heads.kangaroo,
}


def opened(at: Path) -> Any:
    return load.module(load.read(at), at, torch.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_every_tensor_is_missed(kind: str, tmp_path: Path) -> None:
    """Without any one of its tensors a head does not load, and the message has the tensor's published name, unless what is left
    is a whole head of another variant (no embedding or output matrix of its own: the target's)."""
    config, weights = KINDS[kind]()
    # Left out, these make another variant: a head with the target's embedding or matrix; maps are each other's inverses.
    optional = {"embed_tokens.weight", "input_embed_fn.weight", "lm_head.weight", "t2d"}
    for n, name in enumerate(weights):
        at = written(tmp_path / str(n), config, {k: t for k, t in weights.items() if k != name})
        if name in optional:
            opened(at)
            continue
        with pytest.raises(DecError) as refused:
            opened(at)
        said, stem = str(refused.value), name.removesuffix(".weight").removesuffix(".bias")
        assert stem in said or "no known layout" in said or "does not" in said or "was" in said or "has the shape" in said, (
            name,
            said,
        )


@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_counts(kind: str, tmp_path: Path) -> None:
    config, weights = KINDS[kind]()
    for n, (name, tensor) in enumerate(weights.items()):
        cut = tensor[..., :-1].contiguous() if tensor.ndim else tensor
        at = written(tmp_path / str(n), config, {**weights, name: cut})
        if name == "t2d":
            continue
        with pytest.raises(DecError):
            opened(at)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_belong(kind: str, tmp_path: Path) -> None:
    """A tensor that no part of the head is made of, NaN, and a tensor of none of its parts under a name of another layout."""
    config, weights = KINDS[kind]()
    with pytest.raises(DecError, match=r"spare\.weight|no known layout"):
        opened(written(tmp_path / "a", config, {**weights, "spare.weight": torch.ones(2)}))
    name = next(k for k, t in weights.items() if t.is_floating_point())
    broken = weights[name].clone()
    broken.view(-1)[0] = float("nan")
    with pytest.raises(DecError, match=f"{name}.*NaN"):
        opened(written(tmp_path / "b", config, {**weights, name: broken}))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    config, weights = heads.eagle1()
    for file in ("model.safetensors", "pytorch_model.bin", "head.pt"):
        at = written(tmp_path / file, config, weights, file)
        whole = (at / file).read_bytes()
        for length in (0, 7, len(whole) // 2, len(whole) - 9):
            (at / file).write_bytes(whole[:length])
            with pytest.raises(DecError, match=r"cannot be read|more than tensors"):
                opened(at)
    at = written(tmp_path / "shards", config, weights, shards=3)
    sorted(at.glob("*-of-*"))[0].unlink()
    with pytest.raises(DecError, match="which is not there"):
        opened(at)
    (at / "model.safetensors.index.json").write_text('{"weight_map": {"fc.weight": "../../etc/passwd"}}')
    with pytest.raises(DecError, match="which is not there"):
        opened(at)
    more = written(tmp_path / "more", config, weights, shards=3)
    (more / "extra.safetensors").write_bytes(sorted(more.glob("*-of-*"))[0].read_bytes())
    with pytest.raises(DecError, match=r"extra\.safetensors beside model\.safetensors\.index\.json"):
        opened(more)
    for text in ("{", "[]", '{"weight_map": 3}'):
        (at / "model.safetensors.index.json").write_text(text)
        with pytest.raises(DecError, match="cannot be read"):
            opened(at)
    with pytest.raises(DecError, match="has no weights"):
        opened(written(tmp_path / "none", config, weights, "weights.npz"))
    two = written(tmp_path / "two", config, weights, "a.safetensors")
    (two / "b.safetensors").write_bytes((two / "a.safetensors").read_bytes())
    with pytest.raises(DecError, match="2 files of weights and no index"):
        opened(two)


class Runs:
    """Unpickling it runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.parametrize("file", ["pytorch_model.bin", "medusa_lm_head.pt"])
def test_code_in_a_folder_is_not_run(file: str, tmp_path: Path) -> None:
    config, weights = heads.eagle1()
    mark = tmp_path / "mark"
    at = written(tmp_path / "head", config, {**weights, "spare": Runs(f"touch {mark}")}, file)  # type: ignore[dict-item]
    (at / "modeling.py").write_text(f"open({str(mark)!r}, 'w')")
    (at / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "modeling.Head"}}))
    with pytest.raises(DecError, match="more than tensors, and code in a folder is never run"):
        opened(at)
    assert not mark.exists()
    torch.save(weights, at / file)
    opened(at)  # the map alone does no harm
    torch.save([1, 2], at / file)
    with pytest.raises(DecError, match="is no state dict"):
        opened(at)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_attention_heads": None}, "has no num_attention_heads"),
        ({"num_attention_heads": "four"}, "has 'four' for num_attention_heads"),
        ({"num_attention_heads": 5}, "config.json says 5 heads"),
        ({"head_dim": 16}, "config.json says heads of 16"),
        ({"hidden_act": "nonsense"}, "does not describe a head"),
        ({"rope_scaling": {"rope_type": "nonsense"}}, "does not describe a head"),
        ({"eagle_aux_hidden_state_layer_ids": "all"}, "for eagle_aux_hidden_state_layer_ids"),
    ],
)
def test_configurations(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    config, weights = heads.eagle3()
    made = {k: v for k, v in {**config, **change}.items() if v is not None}
    with pytest.raises(DecError, match=said):
        opened(written(tmp_path / "head", made, weights))


def test_maps_of_a_draft_vocabulary(tmp_path: Path) -> None:
    config, weights = heads.eagle3()
    for n, (steps, said) in enumerate([
        (weights["d2t"] + V, "out of the vocabulary"),
        (weights["d2t"] - V, "out of the vocabulary"),
        (torch.arange(24).flip(0) * 0 - torch.arange(24), "one token twice"),
        (weights["d2t"].float(), "whole numbers"),
        (weights["d2t"].roll(0)[:-1], "whole numbers"),
    ]):  # fmt: skip
        with pytest.raises(DecError, match=said):
            opened(written(tmp_path / str(n), config, {**weights, "d2t": steps.contiguous()}))
    other = weights["t2d"].roll(1)
    with pytest.raises(DecError, match="t2d and d2t name different tokens"):
        opened(written(tmp_path / "t2d", config, {**weights, "t2d": other}))


def test_other_targets(target: Any, tmp_path: Path) -> None:
    """A head that was trained with another target: too few layers, another width, another vocabulary."""
    with pytest.raises(DecError, match=r"layers 2, 2, 1, and this target has 4 layers"):
        hf.load_features(written(tmp_path / "a", *heads.eagle3()), target)
    with pytest.raises(DecError, match=r"layers 1, 3, 9, and this target has 4 layers"):
        hf.load_features(written(tmp_path / "b", *heads.eagle3(reads=[1, 3, 9])), target)
    with pytest.raises(DecError, match="inputs of the target's layers"):
        hf.load_features(written(tmp_path / "c", *heads.dflash(reads=[0, 7])), target)
    wide = hf.load_causal(_saved(tmp_path / "wide", hidden_size=64))
    more = hf.load_causal(_saved(tmp_path / "more", vocab_size=V + 3))
    for n, (kind, bind) in enumerate(BINDS.items()):
        config, weights = BOUND[kind]()
        at = written(tmp_path / f"head{n}", config, weights)
        bind(at, target)
        with pytest.raises(DecError, match="belongs to another target|does not fit"):
            bind(at, wide)
        if kind != "kangaroo":
            with pytest.raises(DecError, match="belongs to another target"):
                bind(at, more)


BOUND: dict[str, Make] = {**KINDS, "eagle3": lambda: heads.eagle3(reads=[0, 2, 4])}
BINDS: dict[str, Callable[..., Any]] = {
    kind: hf.load_heads if kind == "medusa" else hf.load_adapter if kind == "kangaroo" else hf.load_features for kind in KINDS
}


def _saved(at: Path, **more: Any) -> Path:
    llama(0, layers=4, **more).save_pretrained(at)
    return at


def test_other_parts(target: Any, tmp_path: Path) -> None:
    at = written(tmp_path / "head", *heads.medusa())
    with pytest.raises(DecError, match="holds Medusa heads .*, not a features head"):
        hf.load_features(at, target)
    with pytest.raises(DecError, match="has no known layout of drafting heads"):
        hf.load_features(_saved(tmp_path / "model"), target)
    with pytest.raises(DecError, match="of the kind 'mlp'"):
        hf.load_features(
            written(tmp_path / "mlp", {"speculators_model_type": "mlp", "transformer_layer_config": {}}, {}), target
        )
    with pytest.raises(DecError, match="architecture 'eagle-attn'"):
        config, weights = heads.hydra()
        hf.load_features(written(tmp_path / "arch", {**config, "hydra_head_arch": "eagle-attn"}, weights), target)


def test_more_drafts_than_heads(target: Any, tmp_path: Path) -> None:
    head: Any = hf.load_features(written(tmp_path / "head", *heads.hydra(heads=2)), target)
    with pytest.raises(DecError, match="drafts at most 2 tokens"):
        head.eval([(1, 5, 9, 3, 4)], target.memory((1, 5)))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what a folder holds, writes it, and says what is wrong without a traceback."""
    at = written(tmp_path / "head", *heads.eagle3(reads=[0, 2, 4]))
    out, base = tmp_path / "out", _saved(tmp_path / "base")
    assert cli.main(["convert", str(at), "--out", str(out), "--target", str(base), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["layout"] == "EAGLE-3" and said["part"] == "features" and len(said["files"]) == 2 and said["dtype"] == "float32"
    assert load.read(out).config["reads"] == [0, 2, 4]
    assert cli.main(["convert", str(at)]) == 0 and "EAGLE-3" in capsys.readouterr().out
    assert cli.main(["convert", str(at), "--out", str(out)]) == 2 and "is not empty" in capsys.readouterr().err
    assert cli.main(["convert", str(base)]) == 2 and "no known layout" in capsys.readouterr().err
    prefixed = written(tmp_path / "prefixed", *heads.hydra(prefix=True))
    assert cli.main(["convert", str(prefixed)]) == 2 and "--target" in capsys.readouterr().err
    assert convert(prefixed, target=base, out=tmp_path / "kept").layout == "Hydra++"
    assert hf.load_features(tmp_path / "kept", hf.load_causal(base)).module.config.hidden_size == WIDTH  # type: ignore[arg-type]
