"""Tensors that say they lie on a GPU, without one: mixing them with tensors of the CPU raises, as it would there.

A `Far` holds a CPU tensor that everything is computed with. Inside `Elsewhere` every torch function is watched: what is made
with `device=cuda`, moved there or computed from a `Far` is one; `.cpu()`, `.tolist()` and `.item()` bring values back; a
`Far` and a CPU tensor of one dimension or more in one operation is an error. Kernels, streams and speed are not imitated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA = torch.device("cuda", 0)
WORD = 16
"""Bytes that attention kernels of a GPU read at a time."""
_CPU = torch.device("cpu")
_MAY_MIX = {"copy_", "to", "__getitem__", "__setitem__", "type_as"}


class Far(Tensor):
    """A tensor whose values are `inner`'s and whose device is `CUDA`."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> Far:
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(), dtype=inner.dtype, device=CUDA
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Outside of `Elsewhere`: what modules do to their parameters when they are made or copied."""
        held = tree_map(lambda x: x.inner if isinstance(x, Far) else x, (args, kwargs or {}))
        return tree_map(lambda x: Far(x) if isinstance(x, Tensor) else x, func(*held[0], **held[1]))


def _tensor(x: Any) -> bool:
    return isinstance(x, Tensor)


def _cuda(place: Any) -> bool:
    return isinstance(place, str | torch.device) and str(place).split(":")[0] == "cuda"


_READS = {"cpu", "tolist", "item", "numpy", "__array__", "__bool__", "__int__", "__float__", "__index__", "nonzero"}


class Elsewhere(TorchFunctionMode):
    """See the module. Raises RuntimeError where devices are mixed."""

    recording = False
    """Whether a graph is being recorded (far_graphs.py): reading a value then, or copying one from the host, is an error."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if func is torch.device or name == "_parse_to":  # `Module.to` reads its arguments with it
            return func(*args, **kwargs)
        if func == torch.Tensor.device.__get__:
            return CUDA if isinstance(args[0], Far) else func(*args)
        if func == torch.Tensor.is_cuda.__get__:
            return isinstance(args[0], Far)
        if func is torch._has_compatible_shallow_copy_type:  # what `Module.to` asks: a tensor of another device takes its place
            return isinstance(args[0], Far) == isinstance(args[1], Far)
        own = [x for x in args if not isinstance(x, Tensor) and hasattr(type(x), "__torch_function__")]
        if own:  # an object of the library's, which computes with tensors that are watched too
            with self:
                return type(own[0]).__torch_function__(func, types, args, kwargs)
        given: list[Tensor] = []
        tree_map(lambda x: given.append(x) if isinstance(x, Tensor) else None, (args, kwargs))
        kinds = [type(t) for t in given if type(t) not in (Far, Tensor, nn.Parameter)]
        if kinds and not torch._C._is_torch_function_enabled():  # asked by such a kind's own function
            return func(*args, **kwargs)
        if kinds:  # a kind that says itself what is done with it, by functions that are watched too
            with self:
                return kinds[0].__torch_function__(func, types, args, kwargs)
        far = [t for t in given if isinstance(t, Far)]
        near = [t for t in given if not isinstance(t, Far) and t.dim()]
        mixed = bool(far and near) and name not in _MAY_MIX
        if Elsewhere.recording and far and (name in _READS or name == "to" and not self._result(name, args, kwargs, far)):
            raise RuntimeError(f"{name}: a value is read while a graph is recorded")
        result = self._result(name, args, kwargs, far)
        if name == "__setitem__":
            value = args[2]
            mixed = isinstance(value, Tensor) and bool(value.dim()) and isinstance(value, Far) != isinstance(args[0], Far)
        if name == "__getitem__":
            mixed = bool(far) and not isinstance(args[0], Far)
        mixed = mixed or Elsewhere.recording and bool(far and near)
        if mixed or (far and name in ("numpy", "__array__")):
            raise RuntimeError(f"{name}: tensors of the CPU {[tuple(t.shape) for t in near]} and of a GPU meet")
        known = {id(t.inner): t for t in far}
        inner, named = tree_map(self._near, (args, kwargs))
        attends = bool(far) and name == "scaled_dot_product_attention"
        if attends and any(t.storage_offset() * t.element_size() % WORD for t in tree_flatten((inner, named))[0] if _tensor(t)):
            raise RuntimeError(f"{name}: a tensor does not begin at a multiple of {WORD} bytes: CUDA's misaligned address")
        out = func(*inner, **named)
        if attends:  # CUDA's kernels give a token's heads side by side
            out = out.transpose(1, 2).contiguous().transpose(1, 2)
        if not result:
            return out
        return tree_map(lambda x: known[id(x)] if id(x) in known else Far(x) if isinstance(x, Tensor) else x, out)

    @staticmethod
    def _near(x: Any) -> Any:
        if isinstance(x, Far):
            return x.inner
        return _CPU if _cuda(x) else x

    @staticmethod
    def _result(name: str, args: Any, kwargs: Any, far: list[Far]) -> bool:
        """Whether what comes out lies on the GPU."""
        if name == "cpu":
            return False
        if name == "to" and len(args) > 1 and isinstance(args[1], Tensor):
            return isinstance(args[1], Far)
        if name == "__getitem__":
            return isinstance(args[0], Far)
        words = (kwargs.get("device"), *args) if kwargs.get("device") is not None or name == "to" else ()
        places = [p for p in words if _cuda(p) or isinstance(p, torch.device) or (isinstance(p, str) and p == "cpu")]
        return _cuda(places[0]) if places else bool(far)


def away(module: nn.Module) -> Any:
    """The module with its parameters and buffers on the GPU that there is not."""
    for part in module.modules():
        for name, p in part._parameters.items():
            if p is not None:
                part._parameters[name] = nn.Parameter(Far(p.data), requires_grad=False)
        for name, b in part._buffers.items():
            if b is not None:
                part._buffers[name] = Far(b)
    return module


class Launched:
    """Inside it Triton's interpreter takes tensors that say they lie on a GPU, and none of the CPU beside them: a kernel on a
    GPU cannot read those. `count` is how many kernels were launched on such tensors. near: whether kernels may be launched on
    tensors of the CPU alone."""

    def __init__(self, near: bool = True) -> None:
        self.count, self.near = 0, near

    def __enter__(self) -> Launched:
        from triton.runtime.interpreter import InterpretedFunction

        self._run = InterpretedFunction.run

        def run(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
            far = [x for x in given if isinstance(x, Far)]
            if len(far) < len(given) and (far or not self.near):
                raise RuntimeError(
                    f"{kernel.fn.__name__}: tensors of the CPU {'and of a GPU meet' if far else 'are'} in a kernel"
                )
            self.count += bool(far)
            near = [x.inner if isinstance(x, Far) else x for x in args]
            named = {k: x.inner if isinstance(x, Far) else x for k, x in kwargs.items()}
            return self.launch(lambda: self._run(kernel, *near, grid=grid, warmup=warmup, **named))

        InterpretedFunction.run = run
        return self

    def launch(self, run: Any) -> Any:
        """Run a kernel on its tensors."""
        return run()

    def __exit__(self, *_: object) -> None:
        from triton.runtime.interpreter import InterpretedFunction

        InterpretedFunction.run = self._run
