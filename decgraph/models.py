"""From what a caller names to models: folders, shipped models by name, and one for every parameter left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decgraph import zoo
from decgraph.errors import DecError
from decgraph.ir.values import Function, Param
from decgraph.runtime.prompts import request_for

__all__ = ["Bound", "bind", "request_for", "shipped"]


@dataclass(frozen=True)
class Bound:
    """Models by parameter name, and the tokenizer of the first one that has a folder."""

    models: dict[str, Any]
    tokenizer: Any


def shipped(function: Function) -> dict[str, str]:
    """The shipped model that stands in for every model parameter which is left out.

    The first causal model is the target, every other one the drafter; heads that read features or layers are the ones
    trained on the target.
    """
    out: dict[str, str] = {}
    for p in _model_params(function):
        kind = p.value.type.of[0]
        causal = "drafter" if "target" in out.values() else "target"
        out[p.name] = {"causal": causal, "features": "eagle", "layers": "exit", "masked": "masked"}[str(kind)]
    return out


def bind(function: Function, given: Mapping[str, Any], *, tokenizer: Any = None) -> Bound:
    """A model for every model parameter of a function. `name.heads` gives the Medusa heads of the model `name`.

    Raises DecError for a name the function does not have, a folder that cannot be used, and a part (heads, features,
    adapter) whose target was not read from a folder.
    """
    wanted = {p.name: p for p in _model_params(function)}
    for name in given:
        if name.removesuffix(".heads") not in wanted:
            raise DecError(f"{function.name} takes no model `{name}`", hint=f"it takes {', '.join(wanted) or 'none'}")
    defaults = shipped(function)
    models: dict[str, Any] = {}
    folders: dict[str, Path] = {}
    order = sorted(wanted, key=lambda name: wanted[name].value.type.of[0] in ("features", "layers"))
    for name in order:
        value = given.get(name, defaults[name])
        if not isinstance(value, str | Path):
            models[name] = value
            continue
        folders[name] = folder_of(value)
        models[name] = _read(function, wanted[name], folders[name], models, given.get(f"{name}.heads", "medusa"))
    if tokenizer is None:
        tokenizer = _tokenizer(list(folders.values()))
    return Bound({name: models[name] for name in wanted}, tokenizer)


def folder_of(name: str | Path) -> Path:
    """A model's folder: the name of a shipped model, or a path."""
    if isinstance(name, str) and name in zoo.names() and not Path(name).is_dir():
        return zoo.path(name)
    return Path(name)


def _model_params(function: Function) -> list[Param]:
    return [p for p in function.params if p.value.type.elem == "model"]


def _read(function: Function, param: Param, folder: Path, models: Mapping[str, Any], heads: Any) -> Any:
    """The model in a folder, of the kind that a parameter asks for; with heads where it asks for them."""
    from decgraph.runtime.models import hf
    from decgraph.runtime.models.hf_causal import HFCausal

    kind, _, family, visibility = param.value.type.of
    if kind == "causal":
        model: Any = hf.load_causal(folder, reuse=True)
        if visibility == "causal+heads":
            model = model.with_heads(hf.load_heads(folder_of(heads), model))
        return model
    if kind == "masked":
        return hf.load_masked(folder)
    target: Any = models.get(str(family))
    if not isinstance(target, HFCausal):
        raise DecError(
            f"{function.name}: `{param.name}` reads states of `{family}`, which was not read from a folder",
            hint=f"give both as folders, or both as models: {param.name} and {family}",
        )
    return hf.load_features(folder, target) if kind == "features" else hf.load_adapter(folder, target)


def _tokenizer(folders: Sequence[Path]) -> Any:
    for folder in folders:
        if (folder / "tokenizer.json").is_file():
            from decgraph.runtime.text import Tokenizer

            return Tokenizer(folder)
    return None
