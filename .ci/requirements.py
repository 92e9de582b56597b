"""Prints requirements that .ci/setup gives to pip, a line each.

demo: what `make demo` needs beside decgraph itself: the extra `models` without Triton, a gigabyte that the demo does not use.
oldest: constraints, of every package that a user may install the oldest version that pyproject.toml allows. What only extras
`dev` and `site` name is left out: which pytest or mkdocs the tests run with is no promise to users.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=([^,; ]+)")


def demo(text: str) -> list[str]:
    """Requirements from the text of pyproject.toml."""
    models = tomllib.loads(text)["project"]["optional-dependencies"]["models"]
    return [requirement for requirement in models if not requirement.startswith("triton")]


def oldest(text: str) -> list[str]:
    """`name==version` lines from the text of pyproject.toml. Raises ValueError for a requirement without a lower bound."""
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    found = set()
    for requirement in [*project["dependencies"], *(r for name in extras.keys() - {"dev", "site"} for r in extras[name])]:
        bound = REQUIREMENT.match(requirement)
        if bound is None:
            raise ValueError(f"{requirement!r} has no lower bound")
        found.add(f"{bound[1]}=={bound[2]}")
    return sorted(found)


if __name__ == "__main__":
    print("\n".join({"demo": demo, "oldest": oldest}[sys.argv[1]](PROJECT.read_text(encoding="utf-8"))))
