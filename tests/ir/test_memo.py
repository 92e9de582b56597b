"""What is kept with an object goes with it, and is its alone."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from dataclasses import replace
from functools import partial

import pytest

from decgraph.ir.memo import memo_of
from decgraph.ir.values import Op
from decgraph.runtime.models.table import TableModel


class Made:
    """A value that refers back to what it was made of, as engines and kernels do."""

    def __init__(self, of: object) -> None:
        self.of = of


def test_made_once_and_freed_with_its_object() -> None:
    model = TableModel(4, seed=1)
    first = memo_of(model).once("engine", partial(Made, model))
    assert memo_of(model).once("engine", partial(Made, model)) is first and memo_of(model).get("engine") is first
    gone, made = weakref.ref(model), weakref.ref(first)
    del model, first
    gc.collect()
    assert gone() is None and made() is None


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_starts_without(copied: object) -> None:
    model = TableModel(4, seed=1)
    first = memo_of(model).once("engine", lambda: Made(model))
    other = copied(model)  # type: ignore[operator]
    assert memo_of(other).get("engine") is None
    assert memo_of(other).once("engine", lambda: Made(other)).of is other
    assert memo_of(model).get("engine") is first


def test_a_module_of_torch_is_saved_and_copied_without() -> None:
    from torch import nn

    module = nn.Linear(2, 2)
    memo_of(module).once("engine", lambda: Made(module))
    assert set(module.state_dict()) == {"weight", "bias"}
    assert memo_of(copy.deepcopy(module)).get("engine") is None
    assert memo_of(module).get("engine").of is module


def test_an_operation_that_is_replaced_starts_without() -> None:
    op = Op("const", (), {"value": 1}, (), ())
    op.memo.once("kernels", lambda: Made(op))
    assert replace(op, opcode="other").memo.get("kernels") is None
    assert copy.deepcopy(op).memo.get("kernels") is None
    op.memo.forget("kernels")
    assert op.memo.get("kernels") is None
