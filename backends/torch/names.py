"""Python names for IR values: the source's own where they are free."""

from __future__ import annotations

import builtins
import keyword
import re


class Names:
    """Assigns every value a unique name."""

    def __init__(self) -> None:
        self.taken = {"m", "stop", *keyword.kwlist, *dir(builtins)}

    def fresh(self, wanted: str) -> str:
        """`wanted` as an identifier, numbered where it is taken."""
        base = re.sub(r"\W+", "_", wanted or "v").strip("_") or "v"
        if base[0].isdigit():
            base = "v" + base
        name = f"{base}_" if keyword.iskeyword(base) or hasattr(builtins, base) else base
        if name == "i":  # a counter within a counter
            name = next((c for c in "ijk" if c not in self.taken), name)
        n = 2
        while name in self.taken:
            name, n = f"{base}_{n}", n + 1
        self.taken.add(name)
        return name
