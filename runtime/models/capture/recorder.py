"""Records every torch function that a module's code calls, with where each tensor came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from decgraph.runtime.models.capture.attention import plain_attention
from decgraph.runtime.models.capture.experts import Experts
from decgraph.runtime.models.capture.functional import functional, put_at, shares, writes_in_place
from decgraph.runtime.models.capture.ops import put
from decgraph.runtime.models.capture.program import Refused
from decgraph.runtime.models.capture.running import Calling, Form

# Functions of a tensor whose results do not depend on its values.
_METADATA = {
    "size", "dim", "numel", "stride", "is_floating_point", "is_complex", "is_contiguous", "element_size", "nelement",
    "get_device", "storage_offset", "data_ptr", "__len__", "__hash__", "__eq__", "is_inference", "type", "ndimension",
    "shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "is_cpu", "is_meta", "is_mps", "is_xpu", "is_mkldnn",
    "is_quantized", "is_sparse", "is_nested", "layout", "grad", "itemsize", "nbytes", "names", "is_leaf", "grad_fn",
}  # fmt: skip
_RANDOM = ("rand", "bernoulli", "multinomial", "normal", "uniform", "exponential")
# Modes, not values.
_MODES = {"_set_grad_enabled", "set_grad_enabled", "is_grad_enabled", "get_default_dtype", "is_autocast_enabled"}


@dataclass(frozen=True)
class Ref:
    """A tensor in a recorded call: an input ("ids", "keys/3"), a weight by name, or a part of an earlier call's result."""

    kind: str  # "input", "weight", "loose" or "call"
    name: str | int
    item: int | None = None


@dataclass
class RecordedCall:
    """One recorded call: arguments with `Ref` for tensors, its results, and whether the result is its first operand."""

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    out: Any  # a tensor, or a tuple of tensors
    same: Ref | None
    layer: int


@dataclass
class Sample:
    """Random inputs of a step; the module's forward writes the caches."""

    ids: Tensor
    positions: Tensor
    write: Tensor
    keys: list[Tensor]
    values: list[Tensor]
    masks: dict[str, Tensor]

    def copy(self) -> Sample:
        """The same inputs with copied caches."""
        return Sample(
            self.ids, self.positions, self.write, [k.clone() for k in self.keys], [v.clone() for v in self.values], self.masks
        )

    def inputs(self) -> tuple[Any, ...]:
        """The arguments of a step."""
        return self.ids, self.positions, self.write, self.keys, self.values, self.masks


@dataclass
class Recorder(TorchFunctionMode):
    """Records the calls made while it is entered; `places` is the origin of every tensor, by id."""

    sample: Sample
    names: dict[int, str]
    calling: Calling
    calls: list[RecordedCall] = field(default_factory=list)
    places: dict[int, Ref] = field(default_factory=dict)
    loose: dict[str, Tensor] = field(default_factory=dict)
    kinds: list[str] = field(default_factory=list)
    windows: list[int | None] = field(default_factory=list)
    layer: int = -1
    chosen: list[tuple[int, Tensor]] = field(default_factory=list)  # experts, int64[n, k], with their layer
    numbers: set[int] = field(default_factory=set)  # of layers whose caches were written
    stale: set[int] = field(default_factory=set)  # views of tensors that were changed in place

    def __post_init__(self) -> None:
        super().__init__()
        self._kept: list[Tensor] = []  # so that no id is used twice
        self._inside = False
        s = self.sample
        for name, tensor in (("ids", s.ids), ("positions", s.positions), ("write", s.write)):
            self.places[id(tensor)] = Ref("input", name)
        for name, tensors in (("keys", s.keys), ("values", s.values)):
            for i, tensor in enumerate(tensors):
                self.places[id(tensor)] = Ref("input", name, i)
        for kind, tensor in s.masks.items():
            self.places[id(tensor)] = Ref("input", f"masks/{kind}")

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._inside:  # called by a function that is recorded as one call
            return func(*args, **(kwargs or {}))
        return self.call(func, args, kwargs or {})

    def call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs one function and records it. Raises Refused where a straight-line graph cannot contain it."""
        raw = _name(func)
        if raw in _METADATA or raw in _MODES:
            return func(*args, **kwargs)
        given = list(_tensors((args, kwargs)))
        if func is F.dropout and not (args[2] if len(args) > 2 else kwargs.get("training", True)):
            return args[0] if args else kwargs["input"]
        if raw in ("detach", "data", "detach_") and given:
            func, args, kwargs = torch.Tensor.view_as, (given[0], given[0]), {}
        if func is not put and writes_in_place(raw):
            return self.write(raw, args, kwargs)
        if kwargs.get("out") is not None or kwargs.get("inplace"):
            raise Refused(f"it changes a tensor in place ({raw})")
        with self._unrecorded():
            out = func(*args, **kwargs)
        made = list(out) if isinstance(out, tuple | list) else [out]
        if not made or not all(isinstance(t, Tensor) for t in made):
            raise Refused(f"its code branches on the result of {raw}")
        if raw.startswith(_RANDOM):
            raise Refused(f"it draws random numbers ({raw})")
        same = next((self.place(t) for t in given if t is out), None)
        self._record(func, args, kwargs, tuple(made) if out is not made[0] else out, same)
        return out

    def _record(self, func: Any, args: Any, kwargs: Any, out: Any, same: Ref | None = None) -> None:
        """Appends a call; its results come from there from now on."""
        number = len(self.calls)
        self.calls.append(RecordedCall(func, _refs(args, self), _refs(kwargs, self), out, same, self.layer))
        for item, tensor in enumerate(out if isinstance(out, tuple) else (out,)):
            self._kept.append(tensor)
            self.places[id(tensor)] = Ref("call", number, item if isinstance(out, tuple) else None)

    def write(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call that changes its first operand, recorded as one that returns what that becomes (functional.py)."""
        x, plain = args[0], functional(name)
        ref = self.place(x) if isinstance(x, Tensor) else None
        if ref is None or plain is None or name.startswith(_RANDOM):
            raise Refused(f"it changes a tensor in place ({name})")
        if ref.kind != "call":
            raise Refused(f"it changes a weight or an input in place ({name})")
        with self._unrecorded():
            made = plain(*args, **kwargs)
        self._record(plain, args, kwargs, made)
        if made.dtype != x.dtype:
            with self._unrecorded():
                rounded = made.to(x.dtype)
            self._record(torch.Tensor.to, (made, x.dtype), {}, rounded)
            made = rounded
        aliases = [t for t in self._kept if t is not x and t is not made and shares(t, x)]
        self._become(x, ref, made, aliases)
        with self._unrecorded():
            x.copy_(made)
        self.stale.update(id(t) for t in aliases)
        return None if name == "__setitem__" else x

    def _become(self, x: Tensor, ref: Ref, made: Tensor, aliases: list[Tensor]) -> None:
        """From now on `x` is `made`, and what it is a slice of has it there."""
        self.places[id(x)] = self.places[id(made)]
        call = self.calls[int(ref.name)]
        if _name(call.func) != "__getitem__" or not isinstance(call.args[0], Ref):
            return
        for whole in [t for t in aliases if self.places.get(id(t)) == call.args[0]]:
            before = self.places[id(whole)]
            if any(isinstance(r, Ref) for r in _leaves(call.args[1])) or before.kind != "call":
                continue
            with self._unrecorded():
                changed = put_at(whole, call.args[1], made)
            self._record(put_at, (whole, call.args[1], made), {}, changed)
            aliases[:] = [t for t in aliases if t is not whole]
            self._become(whole, before, changed, aliases)

    @contextmanager
    def _unrecorded(self) -> Iterator[None]:
        self._inside = True
        try:
            yield
        finally:
            self._inside = False

    def place(self, tensor: Tensor) -> Ref:
        """Where a tensor came from. Raises Refused for a view of one that was changed in place since."""
        if id(tensor) in self.stale:
            raise Refused("it reads a view of a tensor after it changed the tensor in place")
        if id(tensor) in self.places:
            return self.places[id(tensor)]
        self._kept.append(tensor)
        if id(tensor) in self.names:
            ref = Ref("weight", self.names[id(tensor)])
        else:  # neither created while recording nor registered with the module: a constant of its code
            ref = Ref("loose", f"constant_{len(self.loose)}")
            self.loose[str(ref.name)] = tensor
        self.places[id(tensor)] = ref
        return ref

    @property
    def cached(self) -> bool:
        """See `StandIn`."""
        return self.calling.cached

    def added_masks(self) -> dict[str, Tensor]:
        """The sample's masks as terms of the scores, [B, 1, T, S] by kind, for a module that is called with masks."""
        if not self.cached:
            return {}
        dtype, device = self.sample.keys[0].dtype, self.sample.ids.device
        shown = torch.zeros(1, 1, 1, 1, dtype=dtype, device=device)
        hidden = torch.full_like(shown, torch.finfo(dtype).min)
        kinds = sorted(set(self.calling.kinds))
        return {kind: self.call(torch.where, (self.sample.masks[kind], shown, hidden), {}) for kind in kinds}

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Writes new keys and values [B, H, T, D] to a layer's caches; returns these, [B, H, S, D]. Raises Refused for a second
        write."""
        at = len(self.kinds)
        if layer in self.numbers or at >= len(self.sample.keys):
            raise Refused("it writes to a layer's cache more than once")
        self.numbers.add(layer)
        self.kinds.append(self.calling.kinds[at])
        self.windows.append(self.calling.windows[at])
        return self._put(at, key, value)

    def _put(self, at: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        keys = self.call(put, (self.sample.keys[at], key, self.sample.write), {})
        return keys, self.call(put, (self.sample.values[at], value, self.sample.write), {})

    def attend(self, query: Tensor, key: Tensor, value: Tensor, form: Form) -> Tensor:
        """Writes new keys and values [B, H, T, D] to the cache, and attends with queries [B, Hq, T, D] to the cached rows
        that the mask of this layer's kind shows: [B, T, Hq, D]. Raises Refused for more attentions than layers."""
        mask = form.mask
        if not self.cached:
            at = len(self.kinds)
            self.kinds.append(form.kind)
            self.windows.append(form.window)
            if at >= len(self.sample.keys):
                raise Refused("it has more attention layers than layers")
            key, value = self._put(at, key, value)
            mask = self.sample.masks[form.kind]
        elif mask is None:
            raise Refused("it does not hand the mask it is given on to its attention")
        if form.softcap is None and form.sinks is None:
            options = {"attn_mask": mask, "scale": form.scaling, "enable_gqa": query.shape[1] != key.shape[1]}
            out = self.call(F.scaled_dot_product_attention, (query, key, value), options)
        else:
            capped = {"attn_mask": mask, "scale": form.scaling, "softcap": form.softcap}
            out = self.call(plain_attention, (query, key, value, form.sinks), capped)
        out = self.call(torch.Tensor.transpose, (out, 1, 2), {})
        result: Tensor = self.call(torch.Tensor.contiguous, (out,), {})  # as modules expect it
        return result

    def experts(self, module: Any, hidden: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The experts as one call: states [n, width] to [n, width]."""
        made: Tensor = self.call(Experts(module), (hidden, chosen, weights), {})
        self.chosen.append((self.layer, chosen))
        return made


def _name(func: Callable[..., Any]) -> str:
    """A function's name; for a property such as `x.shape`, the property's."""
    name = str(getattr(func, "__name__", func))
    if name in ("__get__", "__set__"):
        return str(getattr(getattr(func, "__self__", None), "__name__", name)) if name == "__get__" else "setting_"
    return name


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _tensors(item)


def _refs(value: Any, recorder: Recorder) -> Any:
    """Arguments with a `Ref` in place of every tensor."""
    if isinstance(value, Tensor):
        return recorder.place(value)
    if isinstance(value, dict):
        return {key: _refs(item, recorder) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(_refs(value.start, recorder), _refs(value.stop, recorder), _refs(value.step, recorder))
    if isinstance(value, tuple | list):
        items = [_refs(item, recorder) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if type(value).__module__ == "numpy" and hasattr(value, "item"):  # a number of NumPy's, such as a square root
        return value.item()
    return value
