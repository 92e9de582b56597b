"""The backends by name. One of the two registries (the other is the op table)."""

from __future__ import annotations

import difflib
from importlib import import_module

from decgraph import extras
from decgraph.errors import DecError
from decgraph.runtime.backend import Backend

BACKENDS: dict[str, tuple[str, str]] = {
    "reference": ("decgraph.backends.reference.machine", "ReferenceMachine"),
    "torch": ("decgraph.backends.torch.machine", "TorchMachine"),
    "triton": ("decgraph.backends.triton.machine", "TritonMachine"),
}
DEFAULT = "reference"


def machine(name: str = DEFAULT) -> type[Backend]:
    """The class of a backend, imported on first use. Raises DecError for an unknown name, and where a library that the backend
    needs is not installed.

    >>> machine("reference").name
    'reference'
    """
    if not isinstance(name, str) or name not in BACKENDS:
        near = difflib.get_close_matches(str(name), BACKENDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(BACKENDS)}"
        raise DecError(f"there is no backend called {name!r}", hint=hint)
    module, attribute = BACKENDS[name]
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("decgraph"):
            raise
        told = extras.needed("models", first=error.name, what=f"backend {name} needs")
        where = " (Triton is for Linux only)" if name == "triton" else ""
        raise DecError(told.diagnostics, hint=f"{told.hint}{where}") from error
    assert issubclass(found, Backend)
    return found
