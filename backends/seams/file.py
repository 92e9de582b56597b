"""What every exported file has: the program it carries, its class, and words about where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any, Final

from decgraph.backends.seams.fits import Trial, trial
from decgraph.backends.seams.seam import carried
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.parameters import written

TEMPLATES: Final = ("vllm_logits", "vllm_drafts", "sglang_logits", "sglang_drafts", "sglang_dllm")
"""The files beside this one that have an `INTERFACE` each, in the order in which they are tried."""


KINDS: Final = {"logits": "a logits processor", "drafts": "a drafter", "dllm": "a dLLM algorithm"}


@dataclass(frozen=True)
class Interface:
    """A place of an engine into which programs go. key: its name in commands (of KINDS); core: how a program is run
    there (fits.py); made_for: the version that files are made for; link: its public source; ran: a sentence that says what was
    run inside the engine. template: the text of a file, with names between @ for what `exported` fills in."""

    engine: str
    key: str
    core: str
    made_for: str
    link: str
    ran: str
    template: str


@dataclass(frozen=True)
class Exported:
    """A Python file. name: of the module; class_name: of what the engine makes an instance of; trial: what was found out of the
    program."""

    name: str
    class_name: str
    text: str
    trial: Trial
    interface: Interface


def interfaces(engine: str) -> list[Interface]:
    """The places of an engine ("vllm", "sglang") into which programs go."""
    found: list[Interface] = [import_module(f"decgraph.backends.seams.{name}").INTERFACE for name in TEMPLATES]
    return [one for one in found if one.engine.lower() == engine.lower()]


def exported(
    engine: str, module: Module, params: Mapping[str, Any], *, key: str = "", source: str = "", version: str = ""
) -> Exported:
    """A module's algorithm as a file for the first interface of an engine that it fits, or for the one that is named.

    params: the values of its parameters, which the file carries. source: the paper. Raises DecError where it fits none, with
    every reason and its line.
    """
    algorithm, refused = module.main, list[str]()
    for one in interfaces(engine):
        if key and one.key != key:
            continue
        found = trial(module, params, one.core)
        if not found.misfits:
            return _written(one, module, params, found, source, version)
        path = module.path or algorithm
        refused += [
            f"  as {one.key}: {path}:{m.line}: {m.why}" if m.line else f"  as {one.key}: {path}: {m.why}" for m in found.misfits
        ]
    if not refused:
        raise DecError(f"no interface of {engine} is called {key!r}", hint=", ".join(one.key for one in interfaces(engine)))
    reasons = "\n".join(refused)
    raise DecError(
        f"{algorithm} cannot be exported for {engine}:\n{reasons}",
        hint="docs/engines.md says what engines let in; `decgraph serve` runs every program",
    )


def _written(one: Interface, module: Module, params: Mapping[str, Any], found: Trial, source: str, version: str) -> Exported:
    algorithm = module.main
    camel = "".join(word.capitalize() for word in algorithm.split("_"))
    name = f"{algorithm}_{one.engine.lower()}"
    values = {
        "NAME": name,
        "CLASS": camel,
        "ALGORITHM": algorithm,
        "UPPER": algorithm.upper(),
        "SOURCE": f" ({source})" if source else "",
        "MADE_FOR": one.made_for,
        "LINK": one.link,
        "RAN": one.ran,
        "VERSION": version or "a development version",
        "MOST": str(found.most),
        "ROWS": str(1 + found.most),
        "OPEN": repr(found.open),
        "PARAMS": repr({k: v if isinstance(v, int | float | str) else _number(v) for k, v in params.items()}),
        "PROGRAM": _quoted(carried(module)),
    }
    text = one.template
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return Exported(name, camel, text, found, one)


def _number(value: Any) -> object:
    """A parameter's value as Python writes it: a number, or the text that an author would write."""
    return float(value) if isinstance(value, Fraction) else written(value)


def _quoted(text: str) -> str:
    """A text as a raw string literal of several lines."""
    return f'r"""\n{text.strip()}\n"""' if '"""' not in text and not text.rstrip().endswith(("\\", '"')) else repr(text)
