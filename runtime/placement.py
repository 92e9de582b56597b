"""The device and the precision of models. Only this file looks at the hardware: after loading, every computation follows its
tensors. Importing this loads no torch."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from decgraph.errors import DecError

if TYPE_CHECKING:
    import torch
    from torch import nn

DeviceLike: TypeAlias = "str | torch.device"
"""auto, cpu, cuda or cuda:1, or a `torch.device`."""
DtypeLike: TypeAlias = "str | torch.dtype"
"""auto, float32, bfloat16 or float16, int8 or int4 (of a folder's matrices, on a CPU), or a `torch.dtype`."""

AUTO = "auto"
DTYPES = (AUTO, "float32", "bfloat16", "float16", "int8", "int4")
BLOCKS = ("int8", "int4")
"""Precisions of matrices alone: computations, keys and values are float32."""
_DEVICES = re.compile(r"auto|cpu|cuda(:\d+)?")


@dataclass(frozen=True)
class Placement:
    """A device and a dtype, as requested or as found on a model's tensors.

    device: `auto` is CUDA where there is one, else the CPU. dtype: `auto` is the folder's own on CUDA, float32 on a CPU.
    Modules stay as they are; with `auto` the folders beside them follow them.
    """

    device: str = AUTO
    dtype: str = AUTO

    @staticmethod
    def of(device: DeviceLike = AUTO, dtype: DtypeLike = AUTO) -> Placement:
        """Raises DecError for a word that is neither a device nor a dtype, with the legal ones."""
        where, precision = str(device), str(dtype).removeprefix("torch.")
        if not _DEVICES.fullmatch(where):
            raise DecError(f"device is {where!r}", hint="auto, cpu, cuda or a numbered one: cuda:1")
        if precision not in DTYPES:
            raise DecError(f"dtype is {precision!r}", hint=f"one of {', '.join(DTYPES)}")
        return Placement(where, precision)

    def resolved(self) -> Placement:
        """The placement with a device instead of `auto`. Raises DecError for a missing device, with a list of those present."""
        import torch

        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        kind, _, number = self.device.partition(":")
        if kind == AUTO:
            return replace(self, device="cuda" if count else "cpu")
        if kind == "cuda" and int(number or 0) >= count:
            there = " and ".join(["cpu", *(f"cuda:{n}" for n in range(count))])
            why = "" if count else f": torch {torch.__version__} finds no CUDA device"
            raise DecError(f"there is no device {self.device} here{why}", hint=f"what is there: {there}")
        return self

    def beside(self, models: Mapping[str, object]) -> Placement:
        """The placement with the device and dtype of loaded models instead of `auto`. Raises DecError for models on several
        devices, on another device or in another dtype than requested, and for one in mixed precision."""
        first: tuple[str, Placement] | None = None
        for name, model in models.items():
            if (now := placement_of(model)) is None:
                continue
            if "_original_forward" in vars(model):  # where accelerate's `prepare` keeps what it wrapped in autocast
                raise DecError(f"accelerate runs `{name}` in mixed precision, and decgraph computes in the weights' own dtype",
                               hint="accelerator.unwrap_model(model, keep_fp32_wrapper=False)")  # fmt: skip
            asked = "a loaded model is used as it is"
            if self.device not in (AUTO, now.device, now.device.split(":")[0]):
                raise DecError(f"device is {self.device}, and `{name}` lies on {now.device}",
                               hint=f'{asked}: leave device out, or {name}.to("{self.device}") before')  # fmt: skip
            if self.dtype not in (AUTO, now.dtype, *BLOCKS):
                raise DecError(f"dtype is {self.dtype}, and `{name}` is in {now.dtype}",
                               hint=f"{asked}: leave dtype out, or {name}.to(torch.{self.dtype}) before")  # fmt: skip
            first = first or (name, now)
            if now.device != first[1].device:
                raise DecError(f"`{first[0]}` lies on {first[1].device} and `{name}` on {now.device}",
                               hint=f'one device for all: {name}.to("{first[1].device}")')  # fmt: skip
        if first is None:
            return self
        return Placement(first[1].device, first[1].dtype if self.dtype == AUTO else self.dtype)

    def reserved(self, gpus: float, *, local: bool = False) -> Placement:
        """The placement of a worker for which a cluster reserved `gpus` GPUs: `auto` is one of them, or the CPU without any.
        local: the workers are on this machine. Raises DecError for a GPU that is not reserved or not used, or missing here."""
        if self.device == AUTO:
            made = replace(self, device="cuda" if gpus else "cpu")
            return made.resolved() if local else made
        if self.device == "cpu" and gpus:
            raise DecError(f"{gpus:g} GPUs are reserved for each worker, and device is cpu", hint="device cuda, or no GPUs")
        if self.device != "cpu" and not gpus:
            raise DecError(f"device is {self.device}, and no GPU is reserved for a worker", hint="--gpus 1, or device cpu")
        return self

    def precision(self, stored_dtype: torch.dtype | str) -> torch.dtype:
        """The dtype to read a folder in whose weights are stored in `stored_dtype`, a dtype or the name of one."""
        import torch

        if self.dtype == AUTO:
            stored: torch.dtype = getattr(torch, stored_dtype) if isinstance(stored_dtype, str) else stored_dtype
            return torch.float32 if self.device == "cpu" else stored
        if self.dtype in BLOCKS:
            return torch.float32
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    def settled(self) -> dict[str, str]:
        """What decides tokens, of a placement with a device, as far as it is known before folders are read. All CUDA devices
        count as the same."""
        kind = self.device.split(":")[0]
        return {"device": kind, "dtype": "float32" if (kind, self.dtype) == ("cpu", AUTO) else self.dtype}

    def text(self) -> str:
        """For people: "cuda:0, bfloat16"."""
        return f"{self.device}, {self.dtype}"


def refuse_autocast(placed: Placement) -> None:
    """Raises DecError inside `torch.autocast` of the device that a run computes on: it changes dtypes in the middle of a
    forward, by rules of each function's, which no decoder and no cache follows."""
    torch = sys.modules.get("torch")
    kind = placed.device.split(":")[0]
    if torch is not None and torch.is_autocast_enabled(kind):
        raise DecError(
            "this runs inside torch.autocast, and decgraph computes in the weights' own dtype",
            hint=f'with torch.autocast("{kind}", enabled=False) around it; a model in bfloat16 is as fast',
        )


@contextmanager
def own_modes() -> Iterator[None]:
    """Leave modes that a caller may have set for its own code: `torch.inference_mode`, whose weights and caches could not be
    used outside of it, and a default device, on which indices for other devices would be made. Gradients stay off where
    inference mode was on."""
    torch = sys.modules.get("torch")
    with ExitStack() as modes:
        if torch is not None and torch.is_inference_mode_enabled():
            modes.enter_context(torch.inference_mode(False))
            modes.enter_context(torch.no_grad())
        if torch is not None and torch.get_default_device().type != "cpu":
            modes.enter_context(torch.device("cpu"))
        yield


EXACT = Placement("cpu", "float64")
"""The placement of models without tensors: tables, and the models of the checker."""


def first_parameter(model: object) -> nn.Parameter | None:
    """The first weight of a model, ours or a module, that is a floating-point number in memory; None where it has none."""
    for holder in (model, getattr(model, "net", None), getattr(model, "module", None)):
        parameters: Callable[[], Iterable[nn.Parameter]] = getattr(holder, "parameters", list)
        for weight in parameters():
            if weight.is_floating_point() and weight.device.type != "meta":  # meta: accelerate has it on the disk or the host
                return weight
    return None


def placement_of(model: object) -> Placement | None:
    """The device and the dtype of a model's weights; None for a model without tensors, and for a folder."""
    weight = first_parameter(model)
    return None if weight is None else Placement(str(weight.device), str(weight.dtype).removeprefix("torch."))


def placement_of_all(models: Mapping[str, object]) -> Placement:
    """The placement of the first model that has one."""
    return next((found for model in models.values() if (found := placement_of(model)) is not None), EXACT)


def differing(models: Mapping[str, object]) -> dict[str, Placement]:
    """The placements of models, by name, that are not the first one's."""
    first = placement_of_all(models)
    return {name: found for name, model in models.items() if (found := placement_of(model)) is not None and found != first}
