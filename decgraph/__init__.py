"""decgraph: a compiler for decoding algorithms.

Everything here loads when it is first used, so that `import decgraph` costs milliseconds and no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from decgraph.errors import DecError, InternalError
from decgraph.version import __version__ as __version__

if TYPE_CHECKING:  # what editors and type checkers see; `_LAZY` says the same to Python, tests/repo/test_types.py compares
    import decgraph.check as _check
    import decgraph.hf as _hf
    from decgraph import models, stdlib, testing, zoo
    from decgraph.api import Algorithm, algorithm, load, parse, run
    from decgraph.check.report import Report
    from decgraph.models import masked
    from decgraph.passes.plan import Plan
    from decgraph.runtime.grammars import Grammar
    from decgraph.runtime.request import Request
    from decgraph.runtime.session import Result, Session

    check: _check.CheckModule
    hf: _hf.HfModule

# public name -> (module, attribute); no attribute means the module itself
_LAZY: dict[str, tuple[str, str]] = {
    "Algorithm": ("decgraph.api", "Algorithm"),
    "Grammar": ("decgraph.runtime.grammars", "Grammar"),
    "Plan": ("decgraph.passes.plan", "Plan"),
    "Report": ("decgraph.check.report", "Report"),
    "Request": ("decgraph.runtime.request", "Request"),
    "Result": ("decgraph.runtime.session", "Result"),
    "Session": ("decgraph.runtime.session", "Session"),
    "load": ("decgraph.api", "load"),
    "masked": ("decgraph.models", "masked"),
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
    "Grammar",
    "InternalError",
    "Plan",
    "Report",
    "Request",
    "Result",
    "Session",
    "algorithm",
    "check",
    "hf",
    "load",
    "masked",
    "models",
    "parse",
    "run",
    "stdlib",
    "testing",
    "zoo",
]


def load_ipython_extension(shell: object) -> None:
    """What `%load_ext decgraph` calls in a notebook: cells that start with `%%dec` are algorithms (docs/editors.md)."""
    from decgraph.editor.notebook import load as load_magic

    load_magic(shell)


if not TYPE_CHECKING:  # to a type checker, a `__getattr__` would make every misspelt name an Any

    def __getattr__(name: str) -> object:
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
