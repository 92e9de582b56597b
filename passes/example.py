"""Small bodies of IR before and after a pass: what the examples at the top of every pass are written with."""

from __future__ import annotations

import textwrap

from decgraph.ir.text import parse_module, print_module
from decgraph.ir.verify import verify
from decgraph.passes.manager import optimise

MODEL = "%target: model<causal,V,target,causal>"


def after(name: str, body: str, params: str = MODEL, *, states: str = "") -> str:
    """The body of a function once the pass called `name` has run over it. Raises IRTextError and InternalError for a body that
    is not valid."""
    text = f'module(main = "f")\n\nfunc f({params}) {{\n{states}\nbody {{\n{body}\n}}\n}}\n'
    module = parse_module(text)
    verify(module)
    made, _ = optimise(module, only=(name,))
    lines = print_module(made).splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("  body"))
    return textwrap.dedent("\n".join(lines[start + 1 : -2]))
