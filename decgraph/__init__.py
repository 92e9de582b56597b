"""decgraph: a compiler for decoding algorithms.

Everything here loads when it is first used, so that `import decgraph` costs milliseconds and no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from decgraph.errors import DecError, InternalError

__version__ = "0.1.0"

# public name -> (module, attribute); no attribute means the module itself
_LAZY: dict[str, tuple[str, str]] = {
    "Algorithm": ("decgraph.api", "Algorithm"),
    "load": ("decgraph.api", "load"),
    "parse": ("decgraph.api", "parse"),
    "run": ("decgraph.api", "run"),
    "algorithm": ("decgraph.api", "algorithm"),
    "check": ("decgraph.check", ""),
    "hf": ("decgraph.hf", ""),
    "models": ("decgraph.models", ""),
    "testing": ("decgraph.testing", ""),
    "stdlib": ("decgraph.stdlib", ""),
    "zoo": ("decgraph.zoo", ""),
}

__all__ = [
    "Algorithm",
    "DecError",
    "InternalError",
    "algorithm",
    "check",
    "hf",
    "load",
    "models",
    "parse",
    "run",
    "stdlib",
    "testing",
    "zoo",
]


def __getattr__(name: str) -> Any:
    try:
        module, attribute = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module 'decgraph' has no attribute {name!r}") from None
    found = import_module(module)
    value = getattr(found, attribute) if attribute else found
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
