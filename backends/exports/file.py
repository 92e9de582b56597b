"""What every exported file has: its name and class, the program it carries, and words about where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from decgraph.backends.exports.drafter import carried
from decgraph.backends.exports.fits import longest, misfits
from decgraph.errors import DecError
from decgraph.ir.values import Module

SOME = 8
"""Tokens of a draft that an engine is started with where the program sets no number."""


@dataclass(frozen=True)
class Seam:
    """Where an engine takes drafters. made_for: the version that exported files are made for; link: its public source; run: a
    sentence that says whether such files were run inside the engine."""

    engine: str
    made_for: str
    link: str
    run: str
    template: str


@dataclass(frozen=True)
class Exported:
    """A Python file. name: of the module; class_name: of what the engine makes an instance of; most: tokens of a draft at most,
    None where the program sets no number."""

    name: str
    class_name: str
    text: str
    most: int | None


def exported(seam: Seam, module: Module, params: Mapping[str, Any], *, source: str = "", version: str = "") -> Exported:
    """A module's algorithm as a drafter for an engine.

    module: simplified for `params`, the values of all its parameters, which the file carries. source: the paper, for the file's
    docstring. Raises DecError where the algorithm does not fit the seam, with every reason and its line.
    """
    algorithm = module.main
    if found := misfits(module):
        path = module.path or algorithm
        reasons = "\n".join(f"  {path}:{m.line}: {m.why}" if m.line else f"  {path}: {m.why}" for m in found)
        raise DecError(
            f"{algorithm} cannot be exported for {seam.engine}:\n{reasons}",
            hint=f"what fits is a chain of tokens drafted from the text's tokens alone; {seam.link}",
        )
    camel = "".join(word.capitalize() for word in algorithm.split("_"))
    name = f"{algorithm}_{seam.engine.lower()}"
    most = longest(module.entry)
    values = {
        "MOST": str(most or SOME),
        "ROWS": str(1 + (most or SOME)),
        "LENGTH": f"at most {most} tokens" if most else f"of no fixed length ({SOME} is a number to begin with)",
        "NAME": name,
        "ALGORITHM": algorithm,
        "UPPER": algorithm.upper(),
        "CLASS": camel,
        "SOURCE": f" ({source})" if source else "",
        "MADE_FOR": seam.made_for,
        "LINK": seam.link,
        "RUN": seam.run,
        "VERSION": version or "a development version",
        "PARAMS": repr({k: v for k, v in params.items() if isinstance(v, int | float | str | bool)}),
        "PROGRAM": _quoted(carried(module)),
    }
    text = seam.template
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return Exported(name, f"{camel}Proposer", text, most)


def _quoted(text: str) -> str:
    """A text as a raw string literal of several lines."""
    return f'r"""\n{text.strip()}\n"""' if '"""' not in text and not text.rstrip().endswith(("\\", '"')) else repr(text)


__all__ = ["Exported", "Seam", "exported"]
