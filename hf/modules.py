"""The models of an algorithm around the module on which `generate` is called, made once for all of its calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from decgraph import zoo
from decgraph.errors import DecError
from decgraph.ir.values import Function
from decgraph.ir.values import Module as IR
from decgraph.ir.walk import ops_of
from decgraph.runtime.binding import named_among, part, whole, with_heads
from decgraph.runtime.keywords import check_keywords
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.masked_settings import NAMES, MaskedSettings, model_of
from decgraph.runtime.models.modules import live, width_of
from decgraph.runtime.models.sharing import making, renewed
from decgraph.runtime.placement import Placement
from decgraph.runtime.sources import (
    HEADS,
    PARTS,
    ModelSource,
    check_beside,
    corrects,
    is_module,
    main_parameter,
    source_of,
    told_apart,
    wanted_by,
)
from decgraph.runtime.text import vocabulary

if TYPE_CHECKING:
    from torch.nn import Module

_STATES = {
    *("model.attention", "model.memory", "model.derive", "model.layers", "model.embed"),
    *("memory.only", "memory.quantized", "memory.merged", "memory.join"),
}


def split(function: Function, kwargs: Mapping[str, Any], options: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """(models, parameters) by the algorithm's own names; `heads` is short for `<main model>.heads`, and so are the settings of
    a masked model: `shift`, `mask_token`, `visibility`.

    options: what else the caller could have meant. Raises DecError for a name that is neither, with the nearest one, for the
    main model, which is the one generate is called on, and for one that is missing.
    """
    main = main_parameter(function)
    wanted = wanted_by(function)
    scalars = [p.name for p in function.params if p.value.type.elem != "model"]
    settings = [name for name in kwargs if model_of(name)[0].removesuffix(".heads") in wanted]
    takes = [*(name for name in wanted if name != main), *scalars, *settings, *options, "heads", *NAMES]
    check_keywords(f"decgraph.hf({function.name!r})", kwargs, [*takes, main])
    models, params = {}, {}
    for name, value in kwargs.items():
        of, _ = model_of(name)
        if name in ("heads", *NAMES) and not any(p.name == name for p in function.params):
            models[f"{main}.{name}"] = value
        elif of.removesuffix(".heads") in wanted:
            models[name] = value
        else:
            params[name] = value
    if main in models:
        raise DecError(
            f"`{main}` is the model on which generate is called, so it is not given to decgraph.hf",
            hint=f"leave out {main}=...",
        )
    for name in wanted:
        if name != main and name not in models:
            raise DecError(
                f"{function.name} needs the model `{name}`", hint=f"decgraph.hf({function.name!r}, {name}=MODULE_OR_FOLDER)"
            )
    return models, params


class Binder:
    """The models of a function: `given` ones, created once, around the module on which generate is called.

    A live causal module is taken "as it is" (`hf_live`: any architecture), or by "layers" (`net_of_module`: Llama and its like)
    where the algorithm reads its states, memory or heads. The reference backend computes prefixes again with the first and
    caches them with the second, so there layers are tried "first".
    """

    def __init__(self, module: IR, function: Function, arguments: Mapping[str, Any], backend: str) -> None:
        self.function, self.arguments = function, dict(arguments)
        self.models = wanted_by(function)
        states = any(op.opcode in _STATES for f in module.functions.values() for op in ops_of(f))
        heads = any(one.gives == HEADS or one.kind in PARTS for one in self.models.values())
        self.form = "layers" if states or heads else "first" if backend == "reference" else "as it is"
        self.main = main_parameter(function)
        self._sources = told_apart(function, arguments, zoo.known())  # an invalid folder is refused here, not in a call
        check_beside(function, self.models, self._sources.models)
        self._parts: dict[str, tuple[object, Model]] = {}
        self._placed = Placement()

    def __call__(self, module: Module) -> dict[str, Model]:
        """A model for every model parameter; the same objects as long as the modules are what they were. Raises DecError for an
        unusable value."""
        from decgraph.runtime.models.watch import one_look

        with making, one_look():
            return self._bound(source_of(module))

    def _bound(self, main: ModelSource) -> dict[str, Model]:
        if main.what != "module":
            raise DecError(f"`{self.main}` must be a Hugging Face model, not {type(main.value).__name__}")
        sources = {self.main: main, **self._sources.models}
        wholes = {name: source for name, source in sources.items() if self.models[name].kind not in PARTS}
        placed = Placement().beside({name: s.value for name, s in wholes.items() if s.what != "stored"})
        placed = self._placed = self._placed if placed == self._placed else placed  # folders follow the module
        models: dict[str, Model] = {}
        for name in sorted(wholes, key=lambda n: wholes[n].what == "module"):  # others may name the vocabulary of modules
            make = self._whole(name, wholes[name], placed, models)
            models[name] = make() if wholes[name].what == "module" else self._once(name, placed, make)
        for name, one in self.models.items():
            if one.gives == HEADS and getattr(models[name], "attached", None) is None:
                models[name] = self._once(name, models[name], self._with_heads(name, models[name]))
            elif one.kind in PARTS:
                base = models.get(one.family)
                head = models.get(corrects(name, self.models, self._sources.models) or "")
                models[name] = self._once(name, base, self._part(name, base, head))
        return {name: models[name] for name in self.models}

    def _whole(self, name: str, source: ModelSource, placed: Placement, models: Mapping[str, Model]) -> Callable[[], Model]:
        kind, asked = self.models[name].kind, self._sources.readings.get(name, MaskedSettings())
        if source.what != "module":
            return lambda: whole(source, kind, asked, placed)
        vocab = vocabulary(
            None, width_of(source.value), named_among(models.values())
        )  # generate may give every id that has a score
        return lambda: live(source.value, kind, vocab, asked if kind == "masked" else self.form)

    def _with_heads(self, name: str, base: Model) -> Callable[[], Model]:
        heads = self._sources.heads.get(name)
        if heads is None:
            asked = f"decgraph.hf({self.function.name!r}, heads=FOLDER)"
            raise DecError(f"{self.function.name} needs Medusa heads for `{name}`", hint=asked)
        return lambda: with_heads(base, heads)

    def _part(self, name: str, base: Model | None, head: Model | None) -> Callable[[], Model]:
        one = self.models[name]
        return lambda: part(one.kind, name, self._sources.models[name], base, one.gives, head)

    def _once(self, name: str, base: object, make: Callable[[], Model]) -> Model:
        """The result of `make`, cached as long as the base, and what it was made of, are the same."""
        known = self._parts.get(name)
        if known is None or known[0] is not base or renewed(known[1]) is not known[1]:
            self._parts[name] = base, make()
        return self._parts[name][1]


_evaluating = threading.Lock()
_users: dict[int, int] = {}
"""How many calls of `evaluating` use a module in training mode, by the module's id: the last one restores the mode."""


@contextmanager
def evaluating(objects: Iterable[object]) -> Iterator[None]:
    """Torch modules in evaluation mode, without gradients; training mode is restored when the last thread has ended.

    Inference mode and a default device are left as well (`own_modes`).
    """
    import torch

    from decgraph.runtime.placement import own_modes

    with _evaluating:
        every = (one for module in objects if is_module(module) for one in module.modules())
        training = [one for one in every if one.training or id(one) in _users]
        for one in training:
            _users[id(one)] = _users.get(id(one), 0) + 1
            one.training = False
    try:
        with own_modes(), torch.no_grad():
            yield
    finally:
        with _evaluating:
            for one in training:
                _users[id(one)] -= 1
                if not _users[id(one)]:
                    del _users[id(one)]
                    one.training = True
