"""A folder's words and its tensors, where they disagree: what transformers makes of the folder, or the module itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.models.family_configs import CONFIGS, random_model

from decgraph.runtime.models.decoder.families import shape_of
from decgraph.runtime.models.decoder.folder import net_of_folder
from decgraph.runtime.models.decoder.settings import OPTIONAL
from decgraph.runtime.models.decoder.shape import UnknownToDecoder
from decgraph.runtime.models.decoder.weights import ModuleSource, canonical

FLAGS = [flag for flag in OPTIONAL if flag]


@pytest.mark.quick(first=2)
@pytest.mark.parametrize("name", CONFIGS)
def test_what_a_family_declares_is_what_its_module_has(name: str) -> None:
    """Every switch on and off: no bias or norm of transformers' module is left, and none is wanted that it has not."""
    import transformers

    kind, config = CONFIGS[name]
    compared = 0
    for flag in ("", *FLAGS):
        for value in (True, False)[: 2 if flag else 1]:
            try:
                made = transformers.AutoConfig.for_model(kind, **config, **({flag: value} if flag else {}))
                with torch.device("meta"):
                    module: Any = transformers.AutoModelForCausalLM.from_config(made)
            except (TypeError, ValueError):  # given twice, or of no such value
                continue
            except Exception as error:
                if "Validation" not in type(error).__name__:
                    raise
                continue
            shape, names = shape_of(made.to_dict())
            canonical(shape, names, ModuleSource(module.base_model, owned=False))
            assert shape.biased is not None
            assert (getattr(module.get_output_embeddings(), "bias", None) is not None) == ("out" in shape.biased), (flag, value)
            compared += 1
    assert compared > 10


def saved(name: str, at: Path) -> dict[str, torch.Tensor]:
    """The tensors of a random model in a folder."""
    from safetensors.torch import load_file

    random_model(name, torch.float32).save_pretrained(at)
    return load_file(at / "model.safetensors")


def logits(at: Path) -> tuple[torch.Tensor | str, torch.Tensor]:
    """Of six tokens, by the decoder (or why it does not read the folder) and by transformers."""
    import transformers

    ids = torch.tensor([3, 9, 27, 5, 44, 8])
    module: Any = transformers.AutoModelForCausalLM.from_pretrained(at, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        wanted = module(input_ids=ids[None]).logits[0]
    try:
        config = json.loads((at / "config.json").read_text())
        return net_of_folder(at, config, torch.float32, "cpu").scores(ids, causal=True).float(), wanted
    except UnknownToDecoder as unknown:
        return str(unknown), wanted


def agree(at: Path) -> bool:
    mine, wanted = logits(at)
    return isinstance(mine, str) or bool((mine - wanted).abs().max() <= 1e-4 * wanted.abs().max())


@pytest.mark.quick(first=2)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_tied_flag_beside_another_output_matrix(name: str, tmp_path: Path) -> None:
    """Numbers of their own are not tied, equal ones are, with either flag."""
    from safetensors.torch import save_file

    tensors = saved(name, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    embed = next(v for k, v in tensors.items() if k.endswith(("embed_tokens.weight", "wte.weight", "embed_in.weight",
                                                             "word_embeddings.weight")))  # fmt: skip
    out = next(
        (k for k in tensors if k in ("lm_head.weight", "embed_out.weight", "output_projection.weight")), "lm_head.weight"
    )
    torch.manual_seed(0)
    for matrix in (torch.randn_like(embed), embed.clone()):
        for tied in (True, False):
            save_file({**tensors, out: matrix}, tmp_path / "model.safetensors", metadata={"format": "pt"})
            (tmp_path / "config.json").write_text(json.dumps({**config, "tie_word_embeddings": tied}))
            assert agree(tmp_path), (tied, out)


@pytest.mark.quick(first=1)
@pytest.mark.parametrize("name", CONFIGS)
def test_tensors_that_are_too_many_or_too_few(name: str, tmp_path: Path) -> None:
    """A bias or a norm of a layer more, which transformers leaves out; or one fewer, which the decoder names."""
    from safetensors.torch import save_file

    tensors = saved(name, tmp_path)
    layer = [k for k in tensors if ".1." in k and k.endswith(".weight")]
    torch.manual_seed(0)
    for key in layer:
        more = {key.removesuffix("weight") + "bias": torch.rand(len(tensors[key]))}
        if key.endswith("q_proj.weight"):
            more |= {key.replace("q_proj", f"{one}_norm"): torch.rand(tensors[key].shape[0]) for one in "qk"}
        if key == layer[0]:
            more["lm_head.bias"] = torch.rand(97)
        kept = {**tensors, **{k: v for k, v in more.items() if k not in tensors}}
        save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
        assert agree(tmp_path), key
    for key in (k for k in tensors if ".1." in k):
        everywhere = {k for k in tensors if re.sub(r"\d+", "", k) == re.sub(r"\d+", "", key)}
        for gone in ({key}, everywhere):
            fewer = {k: v for k, v in tensors.items() if k not in gone}
            save_file(fewer, tmp_path / "model.safetensors", metadata={"format": "pt"})
            with pytest.raises(UnknownToDecoder):
                net_of_folder(tmp_path, json.loads((tmp_path / "config.json").read_text()), torch.float32, "cpu")


@pytest.mark.parametrize(
    "changed", [{"num_hidden_layers": 4}, {"num_hidden_layers": 2}, {"layer_types": ["full_attention"] * 5}]
)
def test_layers_that_are_not_as_many_as_their_kinds(changed: dict[str, object], tmp_path: Path) -> None:
    """transformers refuses such a folder; it is not read as one with as many layers as have a kind."""
    saved("gemma2", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(UnknownToDecoder, match="layers, of which"):
        net_of_folder(tmp_path, {**config, **changed}, torch.float32, "cpu")
