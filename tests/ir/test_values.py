"""Every value that an op gives while the shipped algorithms run is of the type that the op's rule predicted."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lib.ops.machine import misfit
from lib.stdlib.table_models import SHELF

import decgraph.stdlib
from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.check.validation import outside
from decgraph.check.worlds import models_for, params_for, request_for
from decgraph.dsl.lower import load_text
from decgraph.ir.data.dist import Draws
from decgraph.ir.opdef import OpDef
from decgraph.ir.table import TABLE
from decgraph.ir.values import Op, Value
from decgraph.ir.verify import verify

FILES = [decgraph.stdlib.path(name) for name in SHELF]
SEEDS = (0, 1)
OPTIONAL = ("if", "for", "while", "each", "state.read")
"""Where a variable is none on one way and a value on the other, its type is the value's."""


def fault(op: Op, value: Value, result: Any) -> str:
    if result is None and op.opcode in OPTIONAL:
        return ""
    if op.opcode == "request" and op.attrs["field"] in ("mask", "eos", "eos_or_none") and result == -1:
        return ""  # the models here have no mask and no end of sequence among their tokens
    if op.opcode == "tile" and isinstance(result, np.ndarray) and set(result.ravel().tolist()) == {-1}:
        return ""  # so many of these masks
    if value.type.elem == "list" and not isinstance(result, list):
        return ""  # a vector joins a list of its elements, and stays one
    if op.opcode in ("state.read", "if", "within") and value.type.elem == "token" and isinstance(result, Draws):
        result = result.tokens()  # a state of tokens keeps draws, so that the exact checker reads no token too early
    if isinstance(result, list) and not result and value.type.dims:
        return ""  # `[]`, before anything is known of it
    if isinstance(result, list) and op.opcode == "each":
        result = [r for r in result if r is not None]
    if value.type.elem == "edit" and value.type.dims:
        return "" if len(result) else "no edits"
    wrong = misfit(result, value.type)
    return f"{op.opcode}: {wrong}; its type rule says {value.type} ({op.loc})" if wrong else ""


def checked(row: OpDef, seen: Counter[str]) -> OpDef:
    """The op, holding what it gives against its types."""

    def meaning(m: Any, op: Op, *operands: Any) -> Any:
        out = row.meaning(m, op, *operands)
        seen[op.opcode] += 1
        faults = [f for v, r in zip(op.results, out, strict=True) if (f := fault(op, v, r))]
        assert not faults, faults[0]
        return out

    return replace(row, meaning=meaning)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_values_are_of_their_types(file: Path) -> None:
    module = load_text(file.read_text(encoding="utf-8"), str(file))
    verify(module, level=2)
    seen: Counter[str] = Counter()
    for seed in SEEDS if module.main else ():
        function = module.functions[module.main]
        models, request = models_for(function, 3, seed), request_for(3, seed, 4)
        machine = ReferenceMachine(module, module.main, models, params_for(function, seed), request, **outside(module))
        machine.table = {name: checked(row, seen) for name, row in TABLE.items()}
        machine.run()
    assert seen["commit"] + seen["return"] > 0 or not module.main
