"""Whether a caller's module is what it was when something was made of it: its structure, its weights, and what it runs.

A decoder, a copy of a matrix or kept keys and values are made of a module at one time. Between two calls its owner may
register a hook, switch an adapter, set `config` values, replace a child or a buffer, patch a class, or write weights; PyTorch
counts the writes of some of these ways only: fused optimizers and writes through `.data` move no version counter. So three
things are compared:

- every dictionary, list and set that can be reached from the module and its classes, with a copy of it (9,500 entries in a
  Llama of 30 layers, 0.25 ms: two lists of containers are compared in C);
- the address, version, type and form of every tensor;
- a checksum of the bits of every tensor, sums of words of 8 bytes by their place modulo a prime. It reads all weights once, as
  one decoding step does: 60 to 85 ms for 538 MB on one core.

`training` is no part of it: decgraph computes in evaluation mode, on a shadow: Python objects of its own
around the caller's tensors. What decgraph changes while it runs a module (the attention in its `config`, hooks that record,
evaluation mode) it changes there, so an error or another thread that runs the module meets no trace of it. Weights that are
written in place are the shadow's too; where something else changes, a new shadow is made.
"""

from __future__ import annotations

import copy
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from decgraph.errors import DecError
from decgraph.runtime.models.decoder.products import MOVED

M = TypeVar("M", bound=nn.Module)

_CAPTURING = "transformers.utils.output_capturing"
HOOKS = ("_forward_pre_hooks", "_forward_hooks")
_GLOBAL_HOOKS = (modules._global_forward_pre_hooks, modules._global_forward_hooks)
_PLACES = 65521  # a prime: rows or columns that change places are other words, modulo it
_DEPTH = 6  # containers and objects below a module's attributes


class _Anything:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


_FREE = dict.fromkeys(("training", "_decgraph_memo"), _Anything())


class _Look:
    now: object = None


@contextmanager
def one_look() -> Iterator[None]:
    """Inside, a module is compared once, however many models are made of it."""
    _Look.now = object()
    try:
        yield
    finally:
        _Look.now = None


class Watch:
    """What a module is now. tensors: all that were found in it."""

    def __init__(self, module: nn.Module) -> None:
        self.tensors: list[Tensor] = []
        self._module = module
        self._there: list[object] = []
        self._copies: list[object] = []
        self._seen: set[int] = set()
        self._parts = list(module.modules())
        self._types = list(map(type, self._parts))
        self._hooked = any(map(runs_others, self._parts[1:])) or bool(hooks_of(module))
        for part in self._parts:
            self._walk(vars(part), 0)
        self._globals: list[tuple[dict[str, object], str]] = []
        for cls in {base for kind in self._types for base in kind.__mro__ if base is not object}:
            self._note(vars(cls), dict(vars(cls)))
            if cls is not nn.Module:
                self._globals += sorted({(id(g), n): (g, n) for g, n in _read_by(cls)}.values(), key=lambda pair: pair[1])
        self._read = self._globals_now()
        for table in (*_GLOBAL_HOOKS, ALL_ATTENTION_FUNCTIONS._global_mapping):
            self._note(table, dict(table))
        self._stamp, self._sums = _stamp(self.tensors), sums(self.tensors)
        self._look, self._was = _Look.now, True

    def same(self) -> bool:
        """Whether the module is still that. Reads all of its weights."""
        if _Look.now is None or self._look is not _Look.now:
            self._look, self._was = _Look.now, self._compared()
        return self._was

    def _compared(self) -> bool:
        return self.same_structure() and _stamp(self.tensors) == self._stamp and _same_sums(self.tensors, self._sums)

    def same_structure(self) -> bool:
        """Whether all but the values of its weights are the same. Never of a module whose parts have hooks or a `forward` of
        their own: such code may do something else every time."""
        try:
            return not self._hooked and bool(
                list(map(type, self._parts)) == self._types
                and self._there == self._copies
                and self._globals_now() == self._read
            )
        except Exception:  # two tensors or arrays that are not one: their comparison has no truth
            return False

    def _globals_now(self) -> list[object]:
        return [names.get(name) for names, name in self._globals]

    def _note(self, there: object, copied: object) -> None:
        self._there.append(there)
        self._copies.append(copied)

    def _walk(self, value: object, depth: int) -> None:
        """Notes a container and all that it leads to, short of modules, which are noted one by one."""
        if isinstance(value, Tensor):
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self.tensors.append(value)
            return
        if value is None or isinstance(value, _PLAIN) or id(value) in self._seen or depth > _DEPTH:
            return
        self._seen.add(id(value))
        if isinstance(value, dict):
            free = {name: _FREE[name] for name in _FREE if name in value} if depth == 0 else {}
            self._note(value, {**value, **free})
            inner: Iterable[object] = [item for name, item in value.items() if name not in free]
        elif isinstance(value, list | set):
            self._note(value, value.copy())
            inner = value
        elif isinstance(value, tuple | frozenset):
            inner = value
        elif isinstance(found := getattr(value, "__dict__", None), dict):  # an object of somebody else's class
            inner = (found,)
            depth = max(depth, 1)
        else:
            return
        for item in list(inner):
            self._walk(item, depth + 1)


_PLAIN = (str, int, float, complex, bytes, type, nn.Module, torch.dtype, torch.device, types.ModuleType, types.FunctionType,
          types.BuiltinFunctionType, types.MethodType)  # fmt: skip


def _read_by(cls: type) -> Iterator[tuple[dict[str, object], str]]:
    """The global names that the functions of a class read, with where they stand."""
    for value in vars(cls).values():
        function = getattr(value, "__wrapped__", value)
        for one in (value, function):
            if isinstance(one, types.FunctionType):
                yield from ((one.__globals__, name) for name in one.__code__.co_names if name in one.__globals__)


def tensors_of(module: nn.Module) -> list[Tensor]:
    """The tensors of a module, of any shapes: parameters, buffers, and those that its attributes lead to."""
    found = Watch.__new__(Watch)
    found.tensors, found._there, found._copies, found._seen = [], [], [], set()
    for part in module.modules():
        found._walk(vars(part), 0)
    return found.tensors


def hooks_of(module: nn.Module) -> list[object]:
    """The hooks of a module's forward, but those that transformers leaves after a forward that returned hidden states or
    attentions: they do nothing in other forwards."""
    found = (hook for name in HOOKS for hook in vars(module)[name].values())
    return [hook for hook in found if getattr(hook, "__module__", "") != _CAPTURING]


def runs_others(module: nn.Module, ours: Callable[[object], bool] = lambda hook: False) -> bool:
    """Whether a module, its parts aside, runs code that somebody put there: a hook of its forward that is not `ours`, or a
    `forward` of the object's own."""
    return "forward" in vars(module) or not all(map(ours, hooks_of(module)))


def global_hooks() -> bool:
    """Whether there are hooks of every module's forward."""
    return any(_GLOBAL_HOOKS)


def sums(tensors: Iterable[Tensor]) -> list[Tensor]:
    """A checksum of the bits of each tensor: int64[n], on its device."""
    return [_sums(tensor) for tensor in tensors]


@torch.no_grad()
def _sums(tensor: Tensor) -> Tensor:
    flat = _words(tensor.detach())
    whole = flat.numel() // _PLACES * _PLACES
    tail = flat[whole:]
    if not whole:
        return tail.clone()
    made = flat[:whole].view(-1, _PLACES).sum(0)
    made[: len(tail)] += tail
    return made


def _words(tensor: Tensor) -> Tensor:
    """The bits of a tensor as int64[n], in the order in which they lie."""
    if is_traceable_wrapper_subclass(tensor):  # quantised weights, shards: the tensors that it is made of
        parts = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        return torch.cat([_words(part) for part in parts if isinstance(part, Tensor)])
    tensor = tensor.as_subclass(Tensor)
    if tensor.layout != torch.strided or tensor.is_meta:
        return torch.zeros(0, dtype=torch.int64)
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=lambda dim: -tensor.stride(dim))
        tensor = tensor.permute(order).contiguous()
    flat = tensor.reshape(-1).view(torch.uint8)
    rest = flat.numel() % 8
    if flat.storage_offset() % 8 or flat.data_ptr() % 8:
        flat = flat.clone()
    words = flat[: flat.numel() - rest].view(torch.int64)
    return torch.cat([words, flat[flat.numel() - rest :].long()]) if rest else words


def _same_sums(tensors: list[Tensor], known: list[Tensor]) -> bool:
    """Whether each tensor's checksum is the known one. On the CPU they are compared one by one, so that the memory of one
    serves the next; on another device together, for one read-back."""
    far: dict[torch.device, list[tuple[Tensor, Tensor]]] = {}
    for tensor, was in zip(tensors, known, strict=True):
        now = _sums(tensor)
        if now.device != was.device or now.device.type == "cpu" and not torch.equal(now, was):
            return False
        if now.device.type != "cpu":
            far.setdefault(now.device, []).append((now, was))
    return all(torch.equal(*map(torch.cat, zip(*pairs, strict=True))) for pairs in far.values())


def _stamp(tensors: Iterable[Tensor]) -> list[object]:
    return [
        (_place(t), -1 if t.is_inference() else t._version, t.dtype, t.shape, t.stride())
        if type(t) in (Tensor, nn.Parameter) and t.layout == torch.strided
        else (t.dtype, t.shape)
        for t in tensors
    ]


def _place(t: Tensor) -> int:
    """The address of a tensor; that of before where decgraph has laid it beside others."""
    now = t.data_ptr()
    moved, before = MOVED.get(t, (0, 0))
    return before if moved == now else now


_MARK = "_decgraph_borrows"


def shadow(module: M) -> M:
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
            hooks = [(key, hook) for key, hook in vars(theirs)[name].items() if hook in hooks_of(theirs)]
            setattr(ours, name, OrderedDict((key, _Hook(hook, theirs)) for key, hook in hooks))
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

    def __call__(self, _: nn.Module, *args: object, **named: object) -> object:
        return self.hook(self.module, *args, **named)

    def __deepcopy__(self, memo: object) -> _Hook:
        return self
