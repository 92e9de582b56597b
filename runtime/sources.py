"""What a caller gave for the models of an algorithm: the kind of each value, the folder of each name, and shipped models for
those that are left out.

No other file decides whether a value is a folder, a module of torch or a model of decgraph's. Importing this loads no torch.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar

from decgraph.errors import DecError
from decgraph.ir.values import Function
from decgraph.runtime.models.folders import GGUF, folder, holds_heads
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.masked_settings import NAMES, MaskedSettings

if TYPE_CHECKING:
    from torch.nn import Module

T = TypeVar("T")
PARTS = ("features", "layers", "head")
"""Kinds of models that read the states of another one."""
HEADS = "causal+heads"
"""What a causal model gives whose Medusa heads are called."""


@dataclass(frozen=True)
class ModelNames:
    """Models that have a name. folders: of those on this machine. absent: an error for each of the others. root: the folder of
    the shipped ones. standing: the shipped model that replaces one that is left out, by its kind."""

    folders: Mapping[str, Path]
    absent: Mapping[str, DecError]
    root: Path
    standing: Mapping[str, str]

    def folder_of(self, value: str | Path) -> Path:
        """A model's folder or its GGUF file, from a name or a path. Raises DecError for a model that was not fetched yet, a
        misspelt name, and what looks like an id on the Hub."""
        if Path(value).suffix == GGUF:
            if not Path(value).exists():
                raise DecError(f"there is no file {value}")
            return Path(value)
        if isinstance(value, str) and not Path(value).is_dir():
            if value in self.all():
                return self.named(value)
            if near := difflib.get_close_matches(value, self.all(), 1, 0.7):
                raise DecError(f"there is no folder and no model called {value!r}", hint=f"did you mean {near[0]}?")
            if value.count("/") == 1 and not value.startswith((".", "~", "/")) and not Path(value).parent.is_dir():
                raise DecError(
                    f"{value} is not a folder here, and nothing is fetched from the Hub",
                    hint=f"download it: hf download {value} --local-dir DIR, and give DIR; "
                    "or load it with from_pretrained and give that",
                )
        return Path(value)

    def named(self, name: str) -> Path:
        """A model's folder by its name, whatever lies in the working directory. Raises DecError where it is not here."""
        if name in self.absent:
            raise self.absent[name]
        return self.folders[name]

    def located(self, value: T) -> T | Path:
        """What a caller gave, with the folder in the place of a name or a path; a folder that is called as a model is read
        with a warning. Raises DecError as `folder_of`."""
        if isinstance(value, str) and value in self.all() and Path(value).is_dir():
            if value in self.absent or Path(value).resolve() != self.folders[value].resolve():
                warnings.warn(
                    f"the folder {value} of this directory is read, not the model called {value}: rename it for that one"
                )
        return self.folder_of(value) if isinstance(value, str | Path) else value

    def check(self, value: str | Path) -> None:
        """Check that a model exists, without reading it or importing torch. Raises DecError where it does not."""
        found = self.folder_of(value)
        if found.suffix == GGUF and found.is_file():
            return
        if found.is_file():
            folder(found)
        if not found.is_dir():
            named = ", ".join(name for name in self.all() if name != "tokenizer")  # which is no model
            raise DecError(
                f"{value} is not a folder with a model in it", hint=f"a folder with a config.json, or one of {named}"
            )

    def shipped(self, function: Function) -> dict[str, str]:
        """The shipped model that stands in for every model parameter which is left out.

        The first causal model is the target, every other one the drafter; heads that read features or layers are the ones
        trained on the target.
        """
        out: dict[str, str] = {}
        for name, one in wanted_by(function).items():
            if one.kind in self.standing:  # what stands in for a head with one value needs no folder
                stands = self.standing[one.kind]
                out[name] = "drafter" if one.kind == "causal" and stands in out.values() else stands
        return out

    def has(self, path: Path) -> bool:
        """Whether a path is a shipped model's folder."""
        return path.resolve().parent == self.root.resolve()

    def all(self) -> list[str]:
        """The names, those of absent models last."""
        return [*self.folders, *self.absent]


@dataclass(frozen=True)
class ModelSource:
    """A caller's value for a model: the path of a folder or a GGUF file, a module of torch, or a model of decgraph's (an object
    with its methods is one). home: the folder that it was loaded from, if that is on this machine."""

    value: Any  # of the kind that `what` says
    what: Literal["stored", "module", "model"]
    home: Path | None


@dataclass(frozen=True)
class Wanted:
    """A model parameter of an algorithm. kind: causal, masked, features, layers or head. vocabulary: its name in the type.
    family: the model whose states it reads. gives: what it returns: the value's type for a head with one value, and
    "causal+heads" for a causal model whose Medusa heads are called."""

    kind: str
    vocabulary: str
    family: str
    gives: str


@dataclass(frozen=True)
class ModelArguments:
    """The models that a caller gave for an algorithm; only heads that need no weights may be missing. heads: Medusa's, by the
    name of their model. readings: the settings of masked models that the caller gave."""

    wanted: dict[str, Wanted]
    models: dict[str, ModelSource]
    heads: dict[str, ModelSource]
    readings: dict[str, MaskedSettings]


def wanted_by(function: Function) -> dict[str, Wanted]:
    """The parameters of a function that are models, by name."""
    return {p.name: Wanted(*map(str, p.value.type.of[:4])) for p in function.params if p.value.type.elem == "model"}


def concerns(function: Function, name: str) -> bool:
    """Whether a function reads what a caller gives under a name: `drafter`, `target.heads`, `model.shift`."""
    of, _, what = name.partition(".")
    one = wanted_by(function).get(of)
    return one is not None and (what != "heads" or one.gives == HEADS)


def handed_out(function: Function, main: T | None, drafter: T | None, named: Mapping[str, T]) -> dict[str, T]:
    """What an algorithm gets of models that several share: `main` is its first one, `drafter` every further causal one, and
    those by a parameter's name go before both."""
    out: dict[str, T] = {}
    for number, (name, one) in enumerate(wanted_by(function).items()):
        usual = main if number == 0 else drafter if one.kind == "causal" else None
        if (found := named.get(name, usual)) is not None:
            out[name] = found
    return out | {name: value for name, value in named.items() if "." in name and concerns(function, name)}


def main_parameter(function: Function) -> str:
    """The name of the parameter that the model on which generate is called is bound to: the first causal or masked one.
    Raises DecError for an algorithm without such a model."""
    for name, one in wanted_by(function).items():
        if one.kind not in PARTS:
            return name
    raise DecError(f"{function.name} has no causal or masked model that generate could be called on")


def source_of(value: object) -> ModelSource:
    """The source that a caller's value is. Names have been replaced by folders before (`ModelNames.located`)."""
    if isinstance(value, str | Path):
        return ModelSource(Path(value), "stored", Path(value))
    if is_module(value):
        return ModelSource(value, "module", home_of(value))
    return ModelSource(value, "model", getattr(value, "home", None))


def is_module(value: object) -> TypeGuard[Module]:
    """Whether a value is a torch module; does not import torch."""
    return any(c.__module__ == "torch.nn.modules.module" and c.__name__ == "Module" for c in type(value).__mro__)


def home_of(module: object) -> Path | None:
    """The folder that a transformers module was loaded from, if it is on this machine."""
    at = Path(str(getattr(getattr(module, "config", None), "name_or_path", "") or "/nowhere"))
    return at if at.is_dir() else None


def arguments_of(function: Function, values: Mapping[str, object], names: ModelNames) -> ModelArguments:
    """The caller's values for a function's models (`target`, `target.heads`, `model.shift`), with folders for names and shipped
    models for those that are left out.

    Raises DecError for a name that the function does not have or that no model has, for heads that it does not call, for
    settings of a model that is not masked, and where a model was left out beside one that is not shipped.
    """
    args = told_apart(function, values, names)
    _given_again(args)
    _check_left_out(function, args, names)
    for name, stands in names.shipped(function).items():
        if name not in args.models:
            args.models[name] = source_of(names.named(stands))
    for name, one in args.wanted.items():
        if one.gives == HEADS and name not in args.heads:
            own = args.models[name]
            if own.what == "stored" and holds_heads(own.value):  # Medusa v1.0 puts its heads into the target's folder
                args.heads[name] = own
            elif own.what != "model":
                args.heads[name] = source_of(names.named("medusa"))
    return args


def told_apart(function: Function, values: Mapping[str, object], names: ModelNames) -> ModelArguments:
    """The caller's values by purpose: models, heads, settings. Raises DecError as `arguments_of` does, but not for what is left
    out."""
    wanted = wanted_by(function)
    models: dict[str, ModelSource] = {}
    heads: dict[str, ModelSource] = {}
    settings: dict[str, dict[str, object]] = {}
    for name, value in values.items():
        of, _, what = name.partition(".")
        if of not in wanted or what not in ("", "heads", *NAMES):
            raise DecError(f"{function.name} takes no model `{name}`", hint=f"it takes {', '.join(wanted) or 'none'}")
        if what == "heads" and wanted[of].gives != HEADS:
            raise DecError(f"{function.name} uses no heads", hint="leave heads out")
        if what in NAMES:
            settings.setdefault(of, {})[what] = value
        else:
            (heads if what else models)[of] = source_of(names.located(value))
    for of, said in settings.items():
        setting = next(iter(said))
        if wanted[of].kind != "masked":
            raise DecError(f"{function.name}: `{of}` is no masked model, so it has no {setting}", hint=f"leave {setting} out")
        if of in models and isinstance(models[of].value, Model):
            raise DecError(f"{function.name}: `{of}` is a model of decgraph's, whose {setting} was set when it was made",
                           hint=f"decgraph.masked(MODULE_OR_FOLDER, {setting}=...)")  # fmt: skip
    return ModelArguments(wanted, models, heads, {of: MaskedSettings.of(**said) for of, said in settings.items()})


def _given_again(args: ModelArguments) -> None:
    """Where a head's folder was given, what it has beside the head stands for what was left out."""
    for name, one in args.wanted.items():
        for head, other in args.wanted.items():
            if name in args.models or other.kind != "features" or other.family == name:
                continue
            parts = beside(args.models.get(head))
            fits = {
                "features": bool(_corrections(parts)),
                "prob": "confidence_head" in parts,
                "dist": bool(_corrections(parts)),
                "causal": "markov_head" in parts,
            }
            if fits.get(one.gives if one.kind == "head" else one.kind) and (one.kind != "head" or one.family == head):
                args.models[name] = args.models[head]


def beside(source: ModelSource | None) -> tuple[str, ...]:
    """The parts that a head's folder has beside the head, by name: nothing is loaded."""
    if source is None or source.what != "stored":
        return ()
    from decgraph.runtime.models.heads import load

    return load.beside(source.value)


def corrects(name: str, wanted: Mapping[str, Wanted], sources: Mapping[str, ModelSource]) -> str | None:
    """The parameter whose head this one corrects: both were given one folder, which has such a part; the head comes first."""
    if wanted[name].kind != "features" or not _corrections(beside(sources.get(name))):
        return None
    first = next(n for n in wanted if wanted[n].kind == "features" and _same(sources, n, name))
    return None if first == name else first


def check_beside(function: Function, wanted: Mapping[str, Wanted], sources: Mapping[str, ModelSource]) -> None:
    """Raises DecError for a head whose folder has what corrects its scores, where nothing reads that."""
    for name, one in wanted.items():
        left = _corrections(beside(sources.get(name))) if one.kind == "features" else []
        if left and not any(n != name and _same(sources, n, name) and wanted[n].gives != "prob" for n in wanted):
            raise DecError(
                f"{sources[name].value} has {', '.join(left)} beside its head, which {function.name} does not read",
                hint="algorithms that read such parts take the same folder again, as `markov`, `selector` or `correction`: "
                "`dspark`, `dspark_confident`, `dspark_rnn`, `dflash2`, `domino`",
            )


def _same(sources: Mapping[str, ModelSource], name: str, other: str) -> bool:
    """Whether two parameters were given the same folder."""
    a, b = sources.get(name), sources.get(other)
    return a is not None and b is not None and a.what == b.what == "stored" and a.value.resolve() == b.value.resolve()


def _corrections(parts: Iterable[str]) -> list[str]:
    """The parts of a head's folder that change its scores. A confidence head says when to stop, and may be left out."""
    return [f"{part}.*" for part in parts if part != "confidence_head"]


def _check_left_out(function: Function, args: ModelArguments, names: ModelNames) -> None:
    """Raises DecError where a model was left out and one that was given is not shipped: the shipped ones go with one another,
    and drafts of theirs for another target would be accepted by chance alone, or not fit."""
    # A stand-in for a head goes with any target, and so does a model that is read through its text.
    wanted = args.wanted
    own = next((one.vocabulary for one in wanted.values()), "")
    free = {name for name, one in wanted.items() if one.kind == "head" or one.vocabulary != own}
    all_given = {**args.models, **{f"{name}.heads": heads for name, heads in args.heads.items()}}
    foreign = next((n for n, source in all_given.items() if n not in free and not _is_shipped(source, names)), None)
    if foreign is None:
        return
    kind = getattr(all_given[foreign].value, "kind", None)
    if kind not in (None, wanted[foreign.removesuffix(".heads")].kind):  # that has its own message
        return
    left = [name for name in wanted if name not in args.models and name not in free]
    for name, one in wanted.items():
        if one.gives == HEADS and name in args.models and name not in args.heads and not _has_heads(args.models[name]):
            left.append(f"{name}.heads")
    if left:
        raise DecError(
            f"{function.name}: `{left[0]}` was left out, and no shipped model goes with the `{foreign}` that was given",
            hint=f"--model {left[0]}=FOLDER or a name (`decgraph zoo list` says what goes with what), or "
            f'models={{"{left[0]}": ...}} in Python',
        )


def _is_shipped(source: ModelSource, names: ModelNames) -> bool:
    """Whether a model is a shipped one, or was read from one's folder. A folder that is not there has its own message."""
    if source.what == "stored":
        return names.has(source.value) or not source.value.exists()
    home = source.home or getattr(source.value, "family", None)
    return home is not None and names.has(Path(home))


def _has_heads(source: ModelSource) -> bool:
    """Whether a folder holds heads beside its model, or a model of decgraph's has heads: attached ones, or, where none can be
    attached, its own."""
    if source.what == "stored":
        return holds_heads(source.value)
    return source.what == "model" and getattr(source.value, "attached", True) is not None
