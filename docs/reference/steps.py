"""Writes the page of whole decoding steps beside it: which algorithms of stdlib/ have one on the device, and why the others
have none: `python docs/reference/steps.py`. With names of algorithms, only their lines are computed anew.

With `--check` it writes nothing and says whether the page is up to date (exit 1 where it is not). It needs torch; no GPU.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

from decgraph import api, stdlib
from decgraph.backends.registry import machine
from decgraph.backends.triton.lanes import wants
from decgraph.backends.triton.support import NotSteppable
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for
from decgraph.errors import DecError
from decgraph.runtime.request import Request

PAGE = Path(__file__).with_suffix(".md")
VOCAB, SEED = 7, 1
HEAD = """# Whole steps on the device

*Made by `python docs/reference/steps.py`, from what the triton backend says of each algorithm of stdlib/ on models that are
tables; change `backends/triton/`, not this page.*

With `--backend triton` an algorithm of the first list runs as whole steps (graph mode): a step is recorded once and replayed,
and nothing is read back in between. One of the second runs as on torch (eager mode), with the same tokens: on CUDA its causal
models' forwards are captured, a graph for each shape that comes again (`runtime/models/engine/forward_graphs.py`). Those of
masked models, and over memories that a program makes, are launched one by one: their keys and values are at other addresses in
every call.
"""


@cache
def reason(name: str) -> str | None:
    """Why an algorithm has no step, with its defaults, as far as they fit to a small vocabulary, or with small parameters; None
    where it has one with both."""
    function = api.load(name).function
    small = params_for(function, SEED, vocab=VOCAB)
    asked = {p.name for p in function.params if p.default is None}
    try:
        found = _reason(name, {k: v for k, v in small.items() if k in asked})
    except DecError:  # a topology that is wider than the vocabulary
        found = None
    return found or _reason(name, small)


def _reason(name: str, params: dict[str, Any]) -> str | None:
    algorithm = api.load(name)
    models = models_for(algorithm.function, VOCAB, SEED)
    session = algorithm.session(models, backend="triton", externs=outside(algorithm.module)["externs"], **params)
    run = machine("triton")(
        session.module,
        session.function.name,
        session.models,
        session.params,
        Request((1, 2, 3), max_tokens=6),
        externs=session.externs,
    )
    try:
        wants(run)
    except NotSteppable as error:
        return error.why
    return None


def committed() -> dict[str, str | None]:
    """The reasons on the page, by name; None for the algorithms that have a step."""
    steps, driven = PAGE.read_text(encoding="utf-8").split("## The driver runs")
    listed = steps.split(" have a step\n")[1]
    return {**dict.fromkeys(re.findall(r"`(\w+)`", listed)), **dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", driven, re.M))}


def reasons(anew: list[str]) -> dict[str, str | None]:
    """The reason of every algorithm: computed for those of `anew` (all, where it is empty), the page's for the others."""
    before = committed() if anew else {}
    return {name: reason(name) if name in anew or name not in before else before[name] for name in stdlib.names()}


def launches(name: str, because: str) -> bool:
    """Whether forwards of an algorithm are not captured: it has a masked model, or makes memories of keys and values."""
    models = (p.value.type for p in api.load(name).function.params if p.value.type.elem == "model")
    return any(str(model.of[0]) == "masked" for model in models) or bool(re.search(r"memory|model\.attention", because))


def page(why: dict[str, str | None]) -> str:
    """The whole page."""
    steps = [name for name in why if why[name] is None]
    lines = [HEAD, f"## {len(steps)} of {len(why)} have a step\n", ", ".join(f"`{name}`" for name in steps) + "\n"]
    lines += ["## The driver runs"]
    for apart, title in ((False, "Forwards as CUDA graphs"), (True, "Some forwards, or all, launched one by one")):
        of = [name for name, because in why.items() if because is not None and launches(name, because) is apart]
        lines += [f"\n### {len(of)}: {title}\n", "| algorithm | because of |", "|---|---|"]
        lines += [f"| `{name}` | {why[name]} |" for name in of]
    return "\n".join(lines) + "\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` say whether it is up to date."""
    check = arguments == ["--check"]
    names = [] if check else arguments
    if not {*names} <= {*stdlib.names()}:
        print("usage: python docs/reference/steps.py [--check | NAME ...]")
        return 2
    why = reasons(names)
    text = page(why)
    if check:
        same = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print(f"{PAGE} is {'up to date' if same else 'out of date: run python docs/reference/steps.py'}")
        return 0 if same else 1
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: {list(why.values()).count(None)} steps")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
