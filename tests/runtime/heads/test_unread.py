"""A tensor that nothing reads is refused by its name, in a folder of every layout: loaders that drop it run another head."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models import published_heads as heads
from lib.models.published_heads import V, written
from lib.repository import ROOT
from safetensors.torch import load_file, save_file

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.models import hf
from decgraph.runtime.models.heads import load
from decgraph.runtime.models.heads.convert import convert
from decgraph.runtime.models.markov import load_markov

FOLDERS = ROOT / "tests" / "fidelity" / "golden" / "heads" / "checkpoints"
GOLDEN = FOLDERS.parents[1]
MADE: dict[str, Any] = {
    "eagle1": heads.eagle1,
    "eagle3": heads.eagle3,
    "speculators eagle3": lambda: heads.speculators("eagle3", [1, 2, 3]),
    "speculators peagle": lambda: heads.speculators("peagle", [1, 2, 3]),
    "medusa": heads.medusa,
    "hydra": heads.hydra,
    "hydra++": lambda: heads.hydra(prefix=True),
    "redrafter": heads.redrafter,
    "dflash": heads.dflash,
    "kangaroo": heads.kangaroo,
}
RECORDED = ("dflash2", "domino", "dspark", "dspark_gated", "dspark_rnn", "speculators_dflash", "eagle1", "kangaroo",
            "redrafter")  # fmt: skip
SPARE = ("spare.weight", "layers.0.spare.weight", "markov_head.spare.weight", "candidate_selector.spare",
         "confidence_head.spare", "embed_proj.1.weight", "mtp.spare.weight", "layers.0.attention_conv.spare")  # fmt: skip


def opened(at: Path) -> Any:
    return load.module(load.read(at), at, torch.float32, {"num_attention_heads": 4, "num_key_value_heads": 2})


def spared(at: Path, name: str) -> Path:
    """The same folder with one tensor more."""
    (file,) = [p for p in at.iterdir() if p.suffix in (".safetensors", ".bin", ".pt")]
    if file.suffix == ".safetensors":
        save_file({**load_file(file), name: torch.ones(2)}, file, {"format": "pt"})
    else:
        torch.save({**torch.load(file, weights_only=True), name: torch.ones(2)}, file)
    return at


@pytest.mark.parametrize("name", SPARE)
@pytest.mark.parametrize("kind", [*MADE, *RECORDED])
def test_a_tensor_that_nothing_reads(kind: str, name: str, tmp_path: Path) -> None:
    """As it is the folder loads; with any tensor more, also one named like a part of another layout, it does not."""
    if kind in MADE:
        at = written(tmp_path / "head", *MADE[kind]())
    else:
        at = Path(shutil.copytree(FOLDERS / kind, tmp_path / "head"))
    opened(at)
    with pytest.raises(DecError, match=f"{name.removeprefix('layers.0.')}|has no known layout"):
        opened(spared(at, name))


@pytest.mark.parametrize("kind", ["decgraph_eagle2", "decgraph_dflash"])
def test_in_our_own_layout(kind: str, tmp_path: Path) -> None:
    at = FOLDERS / ("eagle1" if kind == "decgraph_eagle2" else "speculators_dflash")
    convert(at, out=tmp_path / "out")
    assert load.read(tmp_path / "out").model_type == kind
    opened(tmp_path / "out")
    with pytest.raises(DecError, match="spare"):
        opened(spared(tmp_path / "out", "spare"))


@pytest.mark.parametrize("kind", ["dspark", "dspark_gated", "dspark_rnn"])
def test_the_parts_beside_a_head(kind: str, tmp_path: Path) -> None:
    """A Markov head of another type than config.json says lacks tensors, or has too many."""
    target: Any = hf.load_causal(GOLDEN / "ar/models/target")
    for form in {"vanilla", "gated", "rnn"} - {"vanilla" if kind == "dspark" else kind.removeprefix("dspark_")}:
        at = Path(shutil.copytree(FOLDERS / kind, tmp_path / form))
        config = json.loads((at / "config.json").read_text())
        (at / "config.json").write_text(json.dumps({**config, "markov_head_type": form}))
        with pytest.raises(DecError, match=r"gate_proj|joint_proj"):
            hf.load_correction(at, hf.load_features(at, target))
    at = Path(shutil.copytree(FOLDERS / "dspark", tmp_path / "spared"))
    with pytest.raises(DecError, match=r"markov_head\.spare"):
        load_markov(spared(at, "markov_head.spare"), None, "cpu")


@pytest.mark.parametrize("kind", ["dflash2", "domino", "dspark", "dspark_gated", "dspark_rnn"])
def test_a_correction_is_not_left_out(kind: str, tmp_path: Path) -> None:
    """A program that would draft without it says so, and decgraph's own layout has no place for it."""
    models = {"target": GOLDEN / "ar/models/target", "head": FOLDERS / kind}
    with pytest.raises(
        DecError, match=r"(markov_head|candidate_selector|prefix_gru)\.\* beside its head, which dflash does not"
    ):
        decgraph.load("dflash").run([5, 9], models, max_tokens=4, params={"block": 4})
    with pytest.raises(DecError, match="for which decgraph's own layout has no place"):
        convert(FOLDERS / kind, out=tmp_path / "out")
    assert convert(FOLDERS / kind, target=GOLDEN / "ar/models/target").part == "features"


@pytest.mark.parametrize(
    ("program", "folder", "parts"),
    [
        ("dflash2", "dflash2", ("selector",)),
        ("domino", "domino", ("correction",)),
        ("dspark", "dspark", ("markov",)),
        ("dspark_rnn", "dspark_rnn", ("markov",)),
        ("dspark_confident", "dspark_gated", ("markov", "sure")),
    ],
)
def test_what_is_left_out_is_the_folders(program: str, folder: str, parts: tuple[str, ...]) -> None:
    """A head's folder that is given once is given for its other parts too; none is left out, and none is a stand-in."""
    at, asked = FOLDERS / folder, {"temperature": 0, "max_tokens": 16, "params": {"block": 4}}
    models = {"target": GOLDEN / "ar/models/target", "head": at}
    one, two = (
        decgraph.load(program).run([5, 9, 20], given, **asked)  # type: ignore[arg-type]
        for given in (models, {**models, **dict.fromkeys(parts, at)})
    )
    assert one.error is None and one.tokens == two.tokens
    assert one.stats.drafted == two.stats.drafted and one.stats.calls == two.stats.calls
    with pytest.raises(DecError, match="was left out, and no shipped model goes with"):
        decgraph.load(program).run([5, 9, 20], {"head": at}, **asked)  # type: ignore[arg-type]


def test_files_beside_the_weights(tmp_path: Path) -> None:
    at = written(tmp_path / "head", *heads.eagle1())
    save_file({"spare.weight": torch.ones(V)}, at / "more.safetensors")
    with pytest.raises(DecError, match=r"has more\.safetensors beside model\.safetensors"):
        opened(at)
