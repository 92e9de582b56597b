"""Heads from folders: which layout a folder has, and the module that it becomes, checked tensor by tensor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.folders import configuration
from decgraph.runtime.models.heads import (
    assistant,
    chained,
    corrections,
    dflash,
    eagle,
    kangaroo,
    medusa,
    mtp,
    rooted,
    sequential,
    speculators,
    staged,
)
from decgraph.runtime.models.heads.files import tensors
from decgraph.runtime.models.heads.layout import Beside, Config, HeadFolder, HeadLayout, Part, ReadHead, some
from decgraph.runtime.models.hf_heads import Mlp

LAYOUTS: tuple[HeadLayout, ...] = (
    *speculators.LAYOUTS,
    *dflash.LAYOUTS,
    *eagle.LAYOUTS,
    *medusa.LAYOUTS,
    *sequential.LAYOUTS,
    *kangaroo.LAYOUTS,
    *mtp.LAYOUTS,
    *assistant.LAYOUTS,
)

# Our own kinds of heads: what each can be bound to, and its class.
MODULES: dict[str, tuple[Part, Callable[[Config], nn.Module]]] = {
    "decgraph_eagle2": ("features", chained.Eagle),
    "decgraph_eagle3": ("features", chained.Eagle3),
    "decgraph_mtp": ("features", mtp.Mtp),
    "decgraph_assistant": ("features", assistant.Assistant),
    "decgraph_staged": ("features", staged.Staged),
    "decgraph_medusa": ("heads", medusa.Residual),
    "decgraph_medusa_output": ("heads", medusa.Medusa),
    "decgraph_hydra": ("features", rooted.Hydra),
    "decgraph_dflash": ("features", dflash.DFlash),
    "decgraph_correction": ("features", corrections.made),
    "decgraph_confidence": ("head", corrections.ConfidenceHead),
    "decgraph_redrafter": ("features", rooted.Recurrent),
    "decgraph_kangaroo": ("layers", kangaroo.Adapter),
    "decgraph_head": ("head", Mlp),
}
_SHAPE = ("num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters", "rope_theta",
          "rope_scaling", "hidden_act", "max_position_embeddings", "intermediate_size")  # fmt: skip
_CALLED: dict[Part, str] = {"features": "a features head", "heads": "Medusa heads", "layers": "an adapter of layers",
                            "head": "a head with one value"}  # fmt: skip


def read(folder: Path, beside: Beside | None = None) -> ReadHead:
    """A head's folder in any layout, decgraph's own among them; beside: what it has beside the head, where its layout has such
    parts. Raises DecError for a folder of no known layout, with what was found and what is known."""
    _, config = configuration(folder)
    kind = str(config.get("model_type"))
    if kind in MODULES:
        return ReadHead("decgraph", MODULES[kind][0], kind, config, dict(tensors(folder)))
    source = HeadFolder(folder, config, tensors(folder))
    for layout in LAYOUTS:
        if layout.looks(config, source.tensors.keys()):
            return layout.read(source) if beside is None or layout.beside is None else layout.beside(source, beside)
    known = "; ".join(f"{layout.name}: {layout.what}" for layout in LAYOUTS)
    raise DecError(
        f"{folder} has no known layout of drafting heads: its config.json says {_said(config)}, its weights are "
        f"{some(source.tensors)}",
        hint=f"known are {known}",
    )


def beside(folder: Path) -> tuple[str, ...]:
    """The parts that a folder has beside its head, by the names of their tensors' beginnings; none of a folder of no known
    layout. Tensors are not read."""
    try:
        _, config = configuration(folder)
        source = HeadFolder(folder, config, tensors(folder))
        known = config.get("model_type") in MODULES
        layout = None if known else next((one for one in LAYOUTS if one.looks(config, source.tensors.keys())), None)
        return tuple(corrections.parts_of(source)) if layout is not None and layout.beside is not None else ()
    except DecError:  # the same when the head is read
        return ()


def module(head: ReadHead, folder: Path, dtype: torch.dtype, target: Config | None = None) -> nn.Module:
    """The module of a head in this precision, in evaluation mode. target: the target's configuration, which some layouts
    leave the shape of their layers to. Raises DecError, naming it, for a tensor that is missing, has another shape, belongs to
    nothing, or holds NaN or infinity; and for a head that needs its target's configuration."""
    if head.config.get("of_target"):
        if target is None:
            raise DecError(f"{folder} does not say the shape of its layer, which is its target's", hint="--target FOLDER")
        shape = {key: target[key] for key in _SHAPE if target.get(key) is not None}
        head = replace(head, config={**shape, **{k: v for k, v in head.config.items() if v is not None}, "of_target": False})
    _check_counts(head, folder)
    try:
        with torch.device("meta"):
            made = MODULES[head.model_type][1](head.config)
    except DecError:
        raise
    except Exception as error:  # a configuration with values that the library's classes do not take
        raise DecError(f"{folder / 'config.json'} does not describe a head: {type(error).__name__}: {error}") from error
    wanted = made.state_dict()
    _check(head, folder, wanted)
    cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in head.tensors.items()}
    made.load_state_dict(cast, strict=True, assign=True)
    _rotary(made)
    return made.eval().requires_grad_(False)


def write(head: ReadHead, out: Path) -> list[Path]:
    """Writes a head in decgraph's own layout: config.json and model.safetensors, in the precision of its files. Raises DecError
    for a folder that has files already, and for a head whose folder has other parts."""
    from safetensors.torch import save_file

    if head.beside:
        raise DecError(
            f"the folder of this {head.layout} head has also {', '.join(f'{name}.*' for name in head.beside)}, for which "
            "decgraph's own layout has no place",
            hint="give the folder itself, which is read as it is",
        )
    if out.exists() and any(out.iterdir()):
        raise DecError(f"{out} is not empty", hint="another --out")
    out.mkdir(parents=True, exist_ok=True)
    config = {"model_type": head.model_type, "converted_from": head.layout, **head.config}
    files = [out / "config.json", out / "model.safetensors"]
    files[0].write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file({k: v.contiguous() for k, v in head.tensors.items()}, files[1], metadata={"format": "pt"})
    return files


def expect(head: ReadHead, folder: Path, part: Part) -> None:
    """Raises DecError unless a head can be bound to this part."""
    if head.part != part:
        raise DecError(
            f"{folder} holds {_CALLED[head.part]} ({head.layout}), not {_CALLED[part]}",
            hint=_BOUND[head.part],
        )


_BOUND: dict[Part, str] = {
    "features": "an algorithm takes it as `head: features(target)`: eagle2, for example",
    "heads": "an algorithm takes them with `target: causal with heads`: medusa, for example (--model target.heads=FOLDER)",
    "layers": "an algorithm takes it as `adapter: layers(target)`: kangaroo, for example",
    "head": "an algorithm takes it as `judge: head(target) -> prob`: judge_decoding, for example",
}


def _check_counts(head: ReadHead, folder: Path) -> None:
    """Raises DecError for more layers or blocks than the file has tensors, before they are made."""
    parts = [head.config, *(part for part in head.config.values() if isinstance(part, Mapping))]
    for name in ("heads", "blocks", "num_hidden_layers"):
        for count in (part[name] for part in parts if name in part):
            if isinstance(count, int) and count > len(head.tensors):
                raise DecError(f"{folder / 'config.json'} has {count} for {name}, and the head has {len(head.tensors)} tensors")


def _check(head: ReadHead, folder: Path, wanted: dict[str, Tensor]) -> None:
    missing = sorted(set(wanted) - set(head.tensors))
    if missing:
        raise DecError(f"{folder} has no tensor {head.name(missing[0])}" + _more(missing),
                       hint=f"a head of the layout {head.layout} has it; without it weights would be random")  # fmt: skip
    extra = sorted(set(head.tensors) - set(wanted))
    if extra:
        raise DecError(f"{folder} has a tensor {head.name(extra[0])}{_more(extra)}, which no part of a head of the layout "
                       f"{head.layout} is made of",
                       hint="decgraph reads all tensors of a head: leave it out of the file if it is none of it")  # fmt: skip
    for name, tensor in head.tensors.items():
        if tensor.shape != wanted[name].shape:
            mine, theirs = ("x".join(map(str, t.shape)) or "one number" for t in (tensor, wanted[name]))
            raise DecError(
                f"{folder}: {head.name(name)} has the shape {mine}, and by the rest of the head it should have {theirs}"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise DecError(f"{folder}: {head.name(name)} holds numbers that are NaN or infinite")


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} others)" if len(names) > 1 else ""


def _rotary(head: nn.Module) -> None:
    """Computes the rotary frequencies, which no file holds; always in float32."""
    for name, part in list(head.named_modules()):
        if any(buffer.endswith("inv_freq") for buffer in part._buffers):
            holder, _, last = name.rpartition(".")
            setattr(head.get_submodule(holder), last, type(part)(part.config))


def _said(config: Config) -> str:
    found = {k: config[k] for k in ("model_type", "architectures", "speculators_model_type") if config.get(k)}
    return ", ".join(f"{k} {v}" for k, v in found.items()) or "nothing of its kind"
