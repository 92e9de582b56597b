"""From what a caller names to models: folders, shipped models by name, modules, and one for every parameter left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError
from decgraph.extras import needs_models
from decgraph.ir.values import Function, Param
from decgraph.runtime.models.derivations import unreached
from decgraph.runtime.models.hf import holds_heads
from decgraph.runtime.models.interface import Model, Vocab
from decgraph.runtime.models.masked_settings import MaskedSettings, model_of
from decgraph.runtime.models.reading import Confidence
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement
from decgraph.runtime.prompts import request_for
from decgraph.runtime.text import Tokenizer, has_tokenizer
from decgraph.zoo.folders import folder_of, is_shipped

if TYPE_CHECKING:
    from decgraph.runtime.arguments import ModelLike, TokenizerLike, Tokenizing

__all__ = ["Bound", "bind", "request_for", "shipped"]

PARTS = ("features", "layers", "head")
"""Kinds of models that read the states of another one."""


@dataclass(frozen=True)
class Bound:
    """Models by parameter name, and the tokenizer: the one given, or that of the first model whose folder has one."""

    models: dict[str, Model]
    tokenizer: Tokenizing | None


def shipped(function: Function) -> dict[str, str]:
    """The shipped model that stands in for every model parameter which is left out.

    The first causal model is the target, every other one the drafter; heads that read features or layers are the ones
    trained on the target.
    """
    out: dict[str, str] = {}
    for p in _model_params(function):
        if _kind(p) == "head":  # what stands in needs no folder: see `bind`
            continue
        causal = "drafter" if "target" in out.values() else "target"
        out[p.name] = {"causal": causal, "features": "eagle", "layers": "exit", "masked": "masked"}[_kind(p)]
    return out


@needs_models()
def bind(
    function: Function,
    given: Mapping[str, ModelLike],
    *,
    tokenizer: TokenizerLike | None = None,
    device: DeviceLike = AUTO,
    dtype: DtypeLike = AUTO,
) -> Bound:
    """A model for every model parameter of a function. `name.heads` is for the Medusa heads of the model `name`; `name.shift`,
    `name.mask_token` and `name.visibility` say how a masked model is read (`runtime/models/masked_settings.py`).

    A transformers module is bound as the folder that it was saved in would be, on its own weights and in evaluation mode; its
    vocabulary and its tokenizer are those of the folder that it was loaded from, where that is on this machine. device, dtype:
    where folders are loaded and in which precision (`runtime/placement.py`); heads and adapters follow their target.

    Raises DecError for a name the function does not have, a folder or module that cannot be used, a part (heads, features,
    adapter) whose target is neither a folder nor a module, a model left out beside one that is not shipped, a device that is
    not there, and modules on several devices, or elsewhere than asked for.
    """
    from decgraph.hf import modules

    asked_for = Placement.of(device, dtype)
    wanted = {p.name: p for p in _model_params(function)}
    for name in given:
        if model_of(name)[0].removesuffix(".heads") not in wanted:
            raise DecError(f"{function.name} takes no model `{name}`", hint=f"it takes {', '.join(wanted) or 'none'}")
    modules.check_settings(function, given)
    asked = {name: MaskedSettings.among(given, name) for name in wanted}
    given = {name: value for name, value in given.items() if not model_of(name)[1]}
    _check_left_out(function, wanted, given)
    sources = {**shipped(function), **given}
    folders = {name: folder_of(value) for name, value in sources.items() if isinstance(value, str | Path)}
    wholes = {name: value for name, value in given.items() if name in wanted and _kind(wanted[name]) not in PARTS}
    placed = asked_for.beside(wholes)
    placed = placed.found() if folders else placed
    models: dict[str, Model] = {}
    # Parts come after what they read; modules after folders, which may name the vocabulary of modules of the same size.
    for name in sorted(wanted, key=lambda n: (_kind(wanted[n]) in PARTS, n not in folders)):
        merged = name in folders and holds_heads(folders[name])  # Medusa v1.0: the target's folder holds them
        heads = sources.get(f"{name}.heads", folders[name] if merged else "medusa")
        if name not in sources:
            kind, _, family, gives = wanted[name].value.type.of
            models[name] = Confidence(models[str(family)], str(gives))
            continue
        models[name] = _bound(function, wanted[name], sources[name], models, heads, asked[name], placed)
    if tokenizer is not None:
        from decgraph.hf.text import text_side

        return Bound({name: models[name] for name in wanted}, text_side(tokenizer, None))
    homes = (folders[n] if n in folders else _home(sources[n]) for n in wanted)
    return Bound({name: models[name] for name in wanted}, _tokenizer(homes))


def _model_params(function: Function) -> list[Param]:
    return [p for p in function.params if p.value.type.elem == "model"]


def _kind(param: Param) -> str:
    return str(param.value.type.of[0])


def _bound(
    function: Function,
    param: Param,
    value: ModelLike,
    models: Mapping[str, Model],
    heads: ModelLike,
    asked: MaskedSettings,
    placed: Placement,
) -> Model:
    """The model that a folder or a module is, of the kind of a parameter; with heads where that has them, read as `asked`."""
    from decgraph.hf import modules
    from decgraph.runtime.models import hf

    if isinstance(value, Model) or not (isinstance(value, str | Path) or modules.is_module(value)):
        return value  # type: ignore[return-value]  # what quacks like a Model is one to a session
    kind, _, family, visibility = param.value.type.of
    if kind in PARTS:
        from decgraph.runtime.models.hf_causal import HFCausal

        target = models.get(str(family))
        if isinstance(target, Model) and target.unreached is not None:
            raise unreached(target.name, f"{function.name}: `{param.name}` reads states and", target.unreached)
        if not isinstance(target, HFCausal):
            raise DecError(
                f"{function.name}: `{param.name}` reads states of `{family}`, which was not read from a folder or a module",
                hint=f"give both as folders or modules, or both as models: {param.name} and {family}",
            )
        return modules.part_of(str(kind), param.name, value, target, str(visibility))
    if modules.is_module(value):
        named = next((m.vocab for m in models.values() if m.vocab.name != "ids"), None)
        vocab = vocabulary_of(value) or modules.vocabulary_of(value, named)
        model = modules.live(value, str(kind), vocab, asked if kind == "masked" else "first")
    elif kind == "masked":
        from decgraph.runtime.models.masked_load import load_masked

        return load_masked(folder_of(value), asked, placed)  # type: ignore[arg-type]  # not a module: a folder
    else:
        model = hf.load_causal(folder_of(value), reuse=True, placed=placed)  # type: ignore[arg-type]
    if visibility == "causal+heads" and getattr(model, "attached", None) is None:
        return modules.with_heads(model, heads)
    return model


def _home(value: ModelLike) -> Path | None:
    """The folder that a module or a model of ours was loaded from, if it is on this machine."""
    if isinstance(value, Model):
        return value.home
    folder = Path(str(getattr(getattr(value, "config", None), "name_or_path", "") or "/nowhere"))
    return folder if folder.is_dir() else None


def vocabulary_of(module: ModelLike) -> Vocab | None:
    """The vocabulary of the tokenizer beside a module's weights: rows of the output matrix past its size are padding."""
    from decgraph.hf.modules import width_of

    home = _home(module)
    tokenizer: Any = _tokenizer([home])
    return None if tokenizer is None else Vocab(tokenizer.digest, min(width_of(module), tokenizer.size))


def _check_left_out(function: Function, wanted: Mapping[str, Param], given: Mapping[str, ModelLike]) -> None:
    """Raises DecError where a model was left out and one that was given is not shipped: the shipped ones go with one another,
    and drafts of theirs for another target would be accepted by chance alone, or not fit."""
    heads = {name for name, p in wanted.items() if _kind(p) == "head"}  # a stand-in goes with any target, a head with a shipped
    own = str(next(iter(wanted.values())).value.type.of[1]) if wanted else ""
    heads |= {name for name, p in wanted.items() if p.value.type.of[1] != own}  # a model that is read through its text
    foreign = next((name for name, value in given.items() if name not in heads and not _is_shipped(value)), None)
    kinds = {name: getattr(value, "kind", None) for name, value in given.items()}
    if foreign is None or kinds[foreign] not in (
        None,
        _kind(wanted[foreign.removesuffix(".heads")]),
    ):  # that has its own message
        return
    left = [name for name in wanted if name not in given and name not in heads]
    reading = (n for n, p in wanted.items() if n in given and p.value.type.of[3] == "causal+heads")
    left += [f"{n}.heads" for n in reading if f"{n}.heads" not in given and not _has_heads(given[n])]
    if left:
        raise DecError(
            f"{function.name}: `{left[0]}` was left out, and `{foreign}` is not a shipped model: no shipped one goes with it",
            hint=f'give it: --model {left[0]}=FOLDER, or models={{"{left[0]}": ...}} in Python',
        )


def _has_heads(value: ModelLike) -> bool:
    """Whether a folder holds heads beside its model, or a model of decgraph's has heads: attached ones, or, where none can be
    attached, its own."""
    if isinstance(value, str | Path):
        return holds_heads(folder_of(value))
    return isinstance(value, Model) and getattr(value, "attached", True) is not None


def _is_shipped(value: ModelLike) -> bool:
    """Whether a model is a shipped one, or was read from one's folder. A folder that is not there has its own message."""
    if isinstance(value, str | Path):
        return is_shipped(value) or not folder_of(value).exists()
    home = _home(value) or getattr(value, "family", None)
    return home is not None and is_shipped(Path(home))


def _tokenizer(folders: Iterable[Path | None]) -> Tokenizing | None:
    for folder in folders:
        if has_tokenizer(folder):
            return Tokenizer(folder)  # type: ignore[arg-type]  # has one, and so is none
    return None
