"""docs/functions.md: every function stands there, in a table and in a program, and the programs run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lib.stdlib.letters import Letters
from lib.stdlib.requests import V

import decgraph
from decgraph.backends.registry import machine
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for
from decgraph.dsl.lower import builtins
from decgraph.passes.plan import Plan
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session, check_params

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```dec\n(.*?)```", PAGE, re.S)
HELPERS = re.findall(r"^def (\w+)", (ROOT / "stdlib" / "helpers.dec").read_text(encoding="utf-8"), re.M)
NAMES = sorted({*builtins.TABLE, *HELPERS})


def test_every_function_is_in_a_table() -> None:
    rows = "".join(line.split("|")[1] for line in PAGE.splitlines() if line.startswith("| `"))
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", rows)] == []


def test_every_function_is_in_a_program() -> None:
    assert [name for name in NAMES if not re.search(rf"\b{name}\(", "".join(PROGRAMS))] == []


@pytest.mark.parametrize("text", PROGRAMS, ids=lambda text: re.findall(r"algorithm (\w+)", text)[-1])
def test_a_program_runs_on_torch_as_on_the_reference(text: str) -> None:
    algorithm = decgraph.parse(text)
    params = params_for(algorithm.function, 1)
    models = models_for(algorithm.function, V, 1)
    given: dict[str, Any] = {"tokenizer": Letters(), "externs": outside(algorithm.module)["externs"]}
    requests = [Request(prompt=(1, 2, 3, 1), max_tokens=8, seed=s, temperature=t) for s, t in ((0, 1), (1, 0), (2, 1))]
    for r in requests:
        want = Session(algorithm.module, models, params, machine=machine("reference"), **given).run(r)
        module = algorithm.optimised(check_params(algorithm.function, params), Plan())
        got = Session(module, models, params, machine=machine("torch"), **given).run(r)
        assert want.error is None, want.error
        assert (got.tokens, str(got.error)) == (want.tokens, "None") and want.tokens
