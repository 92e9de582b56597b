"""From what a caller names to models: folders, shipped models by name, and one for every parameter left out."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decgraph import zoo
from decgraph.errors import DecError
from decgraph.ir.values import Function, Param
from decgraph.runtime.request import Request

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


def request_for(session: Any, prompt: str | Sequence[int], **fields: Any) -> Request:
    """A request for a session's models: the prompt as tokens, and the model's own end of text unless `eos` is given.

    Raises DecError for a text without a tokenizer and for every field outside its range.
    """
    if isinstance(prompt, str):
        if session.tokenizer is None:
            raise DecError("a text needs a tokenizer, and these models have none", hint="give the prompt as token ids")
        if not prompt:
            raise DecError("the prompt is empty; a request needs at least one token to read")
        tokens: Sequence[int] = session.tokenizer.encode(prompt)
    else:
        tokens = prompt
    if "eos" not in fields:
        fields["eos"] = _end_of_text(session)
    unknown = sorted(set(fields) - set(Request.__dataclass_fields__))
    if unknown:
        import difflib

        near = difflib.get_close_matches(unknown[0], Request.__dataclass_fields__, 1)
        raise DecError(f"a request has no {unknown[0]!r}", hint=f"did you mean {near[0]}?" if near else "")
    return Request(prompt=tuple(tokens), **fields)


def _model_params(function: Function) -> list[Param]:
    return [p for p in function.params if p.value.type.elem == "model"]


def _read(function: Function, param: Param, folder: Path, models: Mapping[str, Any], heads: Any) -> Any:
    """The model in a folder, of the kind that a parameter asks for; with heads where it asks for them."""
    from decgraph.runtime.models import hf

    kind, _, family, visibility = param.value.type.of
    if kind == "causal":
        model: Any = hf.load_causal(folder, reuse=True)
        if visibility == "causal+heads":
            model = model.with_heads(hf.load_heads(folder_of(heads), model))
        return model
    if kind == "masked":
        return hf.load_masked(folder)
    target: Any = models.get(str(family))
    if not hasattr(target, "net"):
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


def _end_of_text(session: Any) -> frozenset[int]:
    """The end-of-text tokens in the first model's generation settings, or else its configuration."""
    families = [Path(str(m.family)) for m in session.models.values()][:1]
    for folder in families:
        for name in ("generation_config.json", "config.json"):
            if (folder / name).is_file():
                found = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
                if found is not None:
                    return frozenset(found if isinstance(found, list) else [found])
    return frozenset()
