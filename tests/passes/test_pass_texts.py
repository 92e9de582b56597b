"""What every pass makes of a small program, as text: before, after, and what the report says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lib.programs.for_passes import small

from decgraph.ir.text import print_module
from decgraph.passes.manager import ORDER, optimise

CASES = [
    ("simplify", "flags", {"deep": False, "k": 2}),
    ("simplify", "chain", {}),
    ("tree_fusion", "beside", {}),
    ("reuse", "chain", {}),
    ("reuse", "early", {}),
    ("vocabulary", "sure", {}),
    ("vocabulary", "chain", {}),
    ("placement", "sure", {}),
    ("placement", "table", {}),
    ("batching", "table", {}),
]


@pytest.mark.parametrize(("name", "program", "params"), CASES, ids=[f"{n}-{p}" for n, p, _ in CASES])
def test_before_and_after(name: str, program: str, params: dict[str, object], golden: Callable[[str, str], None]) -> None:
    """The passes before it have run, as they would have."""
    module, _ = optimise(small(program), params, only=ORDER[: ORDER.index(name)])
    made, report = optimise(module, params if name == "simplify" else None, only=(name,))
    texts = [print_module(m).split(f"func {program}(")[1] for m in (module, made)]
    golden(f"{name}_{program}.txt", f"before\n\n{program}({texts[0]}\nafter\n\n{program}({texts[1]}\n{report.text()}\n")
