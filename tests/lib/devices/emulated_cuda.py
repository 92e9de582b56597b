"""A CUDA device that is played on the CPU: tensors that say they are on it, and have their numbers here.

What runs on it takes the ways that code takes on a device (`device.type == "cuda"`), reads real values where it reads any, and
an operation over tensors of both devices is an error, as on a device. Kernels by hand run as their torch forms. What a device
was found to refuse is refused here, too: dtypes that an operation lacks there, masks of attention that are not aligned,
operators that write optional arguments, and a capture within a capture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from decgraph.backends.triton.regions import guarded

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


class Mixed(AssertionError):
    """An operation over tensors of both devices."""


class Refused(RuntimeError):
    """What CUDA refuses and a CPU does not."""


class Played(Tensor):
    """A tensor of any shape on the played device. here: the same numbers on the CPU."""

    here: Tensor

    @staticmethod
    def __new__(cls, here: Tensor) -> Played:
        out: Played = Tensor._make_wrapper_subclass(
            cls, here.shape, here.stride(), here.storage_offset(), dtype=here.dtype, device=CUDA
        )
        out.here = here
        return out

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return played(func, args, kwargs or {})

    def tolist(self) -> Any:
        """The numbers, which are read as everywhere: by a copy to the CPU."""
        return self.cpu().tolist()

    def __repr__(self) -> str:
        return f"Played({self.here})"


class Device(TorchDispatchMode):
    """Makes tensors on the played device where code asks for that."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return played(func, args, kwargs or {})


FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "linear")
LACKS = {
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_", "topk", "argmax", "argmin"), (torch.bool,)),
    **dict.fromkeys(PRODUCTS, (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64)),
}
"""Operations of torch whose CUDA kernels lack dtypes that their CPU kernels have (2.11: "not implemented for 'Bool'")."""
ALIGNED = 16
"""Bytes that CUDA's attention reads of a mask at a time."""


def refuse(func: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Raise Refused for an operation that CUDA has not for these tensors."""
    name, schema = func.overloadpacket.__name__, func._schema
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
    kinds = {t.dtype for t in tensors if not (name.startswith("scatter") and t.dtype == torch.int64)}
    lacks = kinds & set(LACKS.get(name, ()))
    if lacks:
        raise Refused(f'"{name}" not implemented for {lacks}')
    if func.namespace == "decgraph":
        written = [a for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if any(isinstance(a.type, torch.OptionalType) for a in written):
            raise Refused(f"{name}: an operator that writes an optional argument cannot be called in torch 2.11")
    if "scaled_dot_product" in name:
        named = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
        mask = named.get("attn_mask", named.get("attn_bias"))
        if mask is not None and mask.storage_offset() * mask.element_size() % ALIGNED:
            raise Refused("misaligned address: a mask of attention that begins within a word of 16 bytes")


class Capture:
    """Records functions one at a time, as a device does: a capture that begins while another is under way breaks both."""

    running = False

    @classmethod
    @contextmanager
    def begun(cls) -> Iterator[None]:
        """A capture. Raises Refused within another."""
        if cls.running:
            raise Refused("operation failed due to a previous error during capture: another capture is under way")
        cls.running = True
        try:
            yield
        finally:
            cls.running = False


COPIES = ("_to_copy", "copy_", "lift_fresh", "lift_fresh_copy", "index", "index_put", "index_put_")
"""Operations that take tensors of either device, and copy them."""


def played(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the numbers, and say which device its results are on. Raises Mixed."""
    refuse(func, args, kwargs) if any(isinstance(t, Played) for t in tree_leaves((args, kwargs))) else None
    own: dict[int, Played] = {}
    beside: list[Tensor] = []

    def here(t: Tensor) -> Tensor:
        if isinstance(t, Played):
            own[id(t.here)] = t
            return t.here
        if t.ndim:
            beside.append(t)
        return t

    given, named = tree_map_only(Tensor, here, (args, kwargs))
    name = func.overloadpacket.__name__
    if own and beside and name not in COPIES:
        raise Mixed(f"{func} over tensors of two devices: {[tuple(t.shape) for t in beside]} on the CPU")
    named.pop("pin_memory", None)
    there = named.get("device")
    on = torch.device(there).type == "cuda" if there is not None else bool(own)
    if name == "copy_":
        on = isinstance(args[0], Played)
    if there is not None and torch.device(there).type != "meta":
        named["device"] = CPU
        if name == "_to_copy" and on is not bool(own):  # a copy in any case
            func, given, named = torch.ops.aten.clone.default, (given[0].to(named.get("dtype")),), {}
    out = func(*given, **named)
    return tree_map_only(Tensor, lambda t: own[id(t)] if id(t) in own else Played(t) if on else t, out)


@contextmanager
def played_cuda() -> Iterator[torch.device]:
    """Within it there is the played device, which tensors are moved to and made on as on any."""
    had = torch.cuda._lazy_init
    torch.cuda._lazy_init = lambda: None
    lifted = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # what `torch.tensor` makes of a list is moved where a mode sees it
    try:
        with guarded(), Device():
            yield CUDA
    finally:
        torch._C._set_only_lift_cpu_tensors(lifted)
        torch.cuda._lazy_init = had
