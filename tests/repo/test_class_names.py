"""A class name means one thing in the product."""

from __future__ import annotations

import ast
from collections import defaultdict

from lib.repository import ROOT, room_files

FORMS = ("dsl/syntax.py", "dsl/expressions.py", "ir/", "check/proof/", "check/certificate/", "backends/")
"""Where one thing has several forms under its one name: a construct's syntax and its op, a value, what is proved of it and what
a certificate says of it, and its form on each backend."""

SAME = {
    "Algorithm": "the definition in a text, and what the facade makes of it",
    "Automaton": "what ops ask of one, and the class that is one",
    "Model": "what ops ask of one, and the class that is one",
    "Memory": "what ops ask of one, its form on the device, and the class that is one",
}


def test_a_class_name_means_one_thing() -> None:
    files: dict[str, list[str]] = defaultdict(list)
    for path in room_files():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(path.relative_to(ROOT).as_posix())
    several = {name for name, of in files.items() if len(of) > 1 and not all(f.startswith(FORMS) for f in of)}
    assert {name: files[name] for name in sorted(several - SAME.keys())} == {}
    assert not SAME.keys() - several, "these stand once now: take them out of SAME"
