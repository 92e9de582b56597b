"""The backends by name: what runs a module. One of the two registries there are (the other is the op table).

A backend is a class made as `backends.reference.machine.Machine` is: it takes a module, a function's name, models,
parameters and a request, and has `run_function`, `committed_tokens`, `reason` and `results`.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any

from decgraph.errors import DecError

BACKENDS: dict[str, tuple[str, str]] = {
    "reference": ("decgraph.backends.reference.machine", "Machine"),
    "torch": ("decgraph.backends.torch.machine", "Machine"),
    "triton": ("decgraph.backends.triton.machine", "Machine"),
}
DEFAULT = "reference"


def machine(name: str = DEFAULT) -> Any:  # Any: a class made as Machine is
    """The class of a backend, imported when it is asked for. Raises DecError for an unknown name, and where a library that the
    backend needs is not installed.

    >>> machine("reference").__name__
    'Machine'
    """
    if name not in BACKENDS:
        near = difflib.get_close_matches(name, BACKENDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(BACKENDS)}"
        raise DecError(f"there is no backend called {name!r}", hint=hint)
    module, attribute = BACKENDS[name]
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("decgraph"):
            raise
        raise DecError(
            f"backend {name} needs {error.name}, which is not installed",
            hint='pip install "decgraph[models]" (Triton is for Linux only)',
        ) from error
