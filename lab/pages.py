"""Results and the pages that are written from them: `lab/results/NAME.json`, and marked regions of pages in docs/.

A region stands between `<!-- table NAME -->` and `<!-- end -->`; what a person wrote around regions stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "lab" / "results"
REGION = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.S)
WIDE = 1000
"""Characters of a line of JSON up to which an object or a list is not spread over several."""


def read(path: Path) -> Any:
    """What a JSON file holds; an empty object where there is none."""
    return json.loads(path.read_text("utf-8")) if path.is_file() else {}


def result(name: str, folder: Path | None = None) -> dict[str, Any]:
    """A result file; empty where nothing was measured. folder: not that of the repository."""
    found: dict[str, Any] = read((folder or RESULTS) / f"{name}.json")
    return found


def keep(name: str | Path, document: Any) -> Path:
    """Write a result file by its name, or another path, so that its differences can be read. Returns the path."""
    path = name if isinstance(name, Path) else RESULTS / f"{name}.json"
    path.write_text(_spread(document) + "\n", encoding="utf-8")
    return path


def _spread(value: Any, indent: str = "") -> str:
    flat = json.dumps(value)
    if len(indent) + len(flat) <= WIDE or not isinstance(value, dict | list):
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_spread(part, inner)}" for key, part in value.items()]
    elif not any(isinstance(part, dict | list) for part in value):
        return flat
    else:
        items = [_spread(part, inner) for part in value]
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{inner}" + f",\n{inner}".join(items) + f"\n{indent}{end}"


def filled(page: str, regions: Mapping[str, Callable[[], str]]) -> str:
    """A page with its regions written anew. Raises KeyError for a region that nothing fills."""
    return REGION.sub(lambda found: found[1] + regions[found[2]]() + found[3], page)
