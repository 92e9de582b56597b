"""A caller's module as decgraph runs it: Python objects of its own around the caller's tensors.

What decgraph changes while it runs a module (the attention in its `config`, hooks that record, evaluation mode) it
changes on the shadow, so an error or another thread that runs the module meets no trace of it. Weights that are written in
place are the shadow's too; what else changes is seen by watch.py, and a new shadow is made.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable

from torch import nn

from decgraph.errors import DecError
from decgraph.runtime.models.watch import HOOKS, global_hooks, tensors_of

_MARK = "_decgraph_borrows"


def shadow(module: nn.Module) -> nn.Module:
    """The module's shadow, in evaluation mode. Its hooks are called with the caller's modules.

    Raises DecError for hooks of every module, which would be called with the shadow's parts, and for a module that cannot be
    copied.
    """
    if global_hooks():
        raise DecError(
            "there are forward hooks of every module (torch.nn.modules.module.register_module_forward_hook), which decgraph "
            "does not run",
            hint="remove them, or register a hook on the module that it is for",
        )
    known: dict[int, object] = {id(t): t for t in tensors_of(module)}
    for part in module.modules():
        known.update({id(hook): hook for name in HOOKS for hook in vars(part)[name].values()})
    try:
        made = copy.deepcopy(module, known)
    except Exception as error:  # an attribute of the caller's that cannot be copied
        raise DecError(
            f"{type(module).__name__} cannot be decoded: it has an attribute that cannot be copied ({error})"
        ) from error
    for theirs, ours in zip(module.modules(), made.modules(), strict=True):
        for name in HOOKS:
            setattr(ours, name, OrderedDict((key, _Hook(hook, theirs)) for key, hook in vars(theirs)[name].items()))
        ours.training = False
        setattr(ours, _MARK, True)
    return made


def borrows(module: nn.Module) -> bool:
    """Whether a module's tensors are a caller's, whose places in memory are not to be changed."""
    return bool(vars(module).get(_MARK))


class _Hook:
    """A caller's hook, called with the caller's module, also in a copy of the shadow."""

    def __init__(self, hook: Callable[..., object], module: nn.Module) -> None:
        self.hook, self.module = hook, module

    def __call__(self, _: nn.Module, *given: object, **named: object) -> object:
        return self.hook(self.module, *given, **named)

    def __deepcopy__(self, memo: object) -> _Hook:
        return self
