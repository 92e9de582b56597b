"""The names by which programs call ops come from the ops, and are the same in `.dec` and in Python."""

from __future__ import annotations

import builtins
import re
from dataclasses import replace

import pytest

from decgraph.dsl import prelude
from decgraph.dsl.lower import builtins as functions
from decgraph.ir.opdef import op
from decgraph.ir.table import TABLE, lookup, surface


def test_every_name_can_be_called_in_both_languages() -> None:
    for name in surface():
        assert name in functions.TABLE
        assert hasattr(builtins, name) or name in prelude.__all__, f"{name} is not in dsl/prelude.py"


def test_attributes_and_operands_of_a_call_are_some_that_the_op_takes() -> None:
    """A sample of the op has these attributes and as many operands, so the call is one that its type rule was tried on."""
    for form in surface().values():
        assert {*lookup(form.opcode).required} <= {*form.attrs} <= {a.rstrip("?") for a in lookup(form.opcode).attrs}
        counts = set()
        for text, _ in lookup(form.opcode).samples:
            last = text.splitlines()[-1]
            if all(f'{k} = "{v}"' in last for k, v in form.attrs.items()):
                counts.add(len(re.findall(r"%\w+", last.partition("(")[2])))
        most = len(form.parameters)
        if counts:
            assert counts <= {*range(most - form.optional, most + 1)}, form.signature
        else:
            assert form.opcode == "map", f"no sample of {form.opcode} is a call of {form.signature}"


def test_signatures_are_read_as_they_are_written() -> None:
    assert surface()["learn"].signature == "learn(index, tokens, more?)"
    assert surface()["learn"].optional == 1
    written = {signature for row in TABLE.values() for signature in row.surface}
    assert {form.signature for form in surface().values()} == written


def test_two_ops_cannot_have_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TABLE, "softer", replace(TABLE["softmax"], name="softer"))
    with pytest.raises(TypeError, match="softmax.* is declared by softmax and by softer"):
        surface.__wrapped__()


@pytest.mark.parametrize("signature", ["softer", "softer(", "softer(x?, y)", "(x)", "softer(x,y)"])
def test_a_signature_that_is_none_is_refused(signature: str) -> None:
    rules = {name: getattr(TABLE["softmax"], name) for name in ("type", "meaning", "label", "batch", "samples", "refusals")}
    with pytest.raises(TypeError, match="expected a signature"):
        op("softer")(type("Softer", (), {"__doc__": "Nothing.", **rules, "surface": signature}))


def test_a_form_of_the_front_end_cannot_take_an_ops_name() -> None:
    with pytest.raises(TypeError, match="declared by op softmax"):
        functions.builtin("softmax")(functions.length)
