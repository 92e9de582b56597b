"""On which device kernels run. Triton decides once a process, when a kernel is decorated, whether it is compiled for a GPU or
interpreted on the host; beyond that everything follows the tensors of the models."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from triton import knobs

from decgraph.errors import DecError
from decgraph.runtime.placement import placement_of


def interpreted() -> bool:
    """Whether kernels run in Triton's interpreter: on tensors of any device, with copies to the host."""
    return bool(knobs.runtime.interpret)


def captures(device: torch.device) -> bool:
    """Whether iterations on a device are captured as CUDA graphs. The interpreter reads what it computes with, which a capture
    does not allow."""
    return device.type == "cuda" and not interpreted()


def home(models: Mapping[str, object]) -> torch.device:
    """The device of a run with these models: of their weights, or, of models without tensors (tables), where kernels run."""
    for model in models.values():
        if (found := placement_of(model)) is not None:
            return torch.device(found.device)
    return torch.device("cpu" if interpreted() else "cuda")


def check(models: Mapping[str, object]) -> None:
    """Raises DecError for models that compiled kernels cannot read, and says what to do."""
    if interpreted():
        return
    interpret = "TRITON_INTERPRET=1 in the environment runs kernels on the CPU (correct, and very slow)"
    near = [name for name, model in models.items() if (found := placement_of(model)) is not None and found.device == "cpu"]
    if near:
        raise DecError(
            f"backend triton: `{near[0]}` lies on the CPU, and kernels that are compiled for a GPU cannot read it",
            hint=f'--device cuda, or in Python device="cuda" (a module: {near[0]}.to("cuda")); {interpret}',
        )
    if not torch.cuda.is_available():  # not a choice: without a device there is nothing to run on
        raise DecError("backend triton: kernels are to be compiled, and torch sees no CUDA device", hint=interpret)
