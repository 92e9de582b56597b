"""The op table is whole, and every op's meaning gives what its type rule says."""

from __future__ import annotations

import ast
import inspect
import re
from fractions import Fraction
from math import isfinite
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lib.ops.machine import Machine
from lib.ops.operands import OPERANDS
from lib.programs.ir_modules import STRAIGHT
from quick import examples

from decgraph.backends.exact.numbers import EXACT
from decgraph.backends.exact.reals import Log
from decgraph.ir import labels
from decgraph.ir.data.canvas import Canvas, Edit
from decgraph.ir.data.dist import Dist, Draw, Draws, Path, box, value_row
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.opdef import BATCHES, EFFECTS, EXACTS, OpDef, OpError, op
from decgraph.ir.table import TABLE, lookup
from decgraph.ir.text import parse_module
from decgraph.ir.types import BOOL, INT, parse_type
from decgraph.ir.values import Module, Region, Value
from decgraph.ir.verify import verify
from decgraph.ir.walk import EXITS
from decgraph.runtime.reals.real import Real

OPS = sorted(TABLE)
CASES = [(name, n) for name in OPS for n in range(len(TABLE[name].samples))]
REFUSALS = [(name, *refusal, {})[:4] for name in OPS for refusal in TABLE[name].refusals]


def module_of(text: str) -> Module:
    """A module whose function `f` has the sample as its body and the operands that it names as parameters."""
    heads = " ".join(re.findall(r"^%[\w%, ]+ = ", text, re.M))
    inner = {*re.findall(r"%(\w+): ", text), *re.findall(r"%(\w+)", heads)}
    used = [n for n in dict.fromkeys(re.findall(r"%(\w+)", text)) if n in OPERANDS and n not in inner]
    params = ", ".join(f"%{n}: {OPERANDS[n][0]} = none" for n in used)
    return parse_module(
        f'module(main = "f")\nextern judge(text) -> bool\nfunc f({params}) {{\n'
        "state count: int per sequence {\n%c = const(value = 0, type = !int)\nyield %c\n}\n"
        f"body {{\n{text}\n}}\n}}\n"
    )


def plain(value: Any) -> Any:
    """A value as plain data: tokens of draws, probabilities of distributions, tokens of a tree's edges."""
    if isinstance(value, (int, float, bool, str, type(None))):
        return value
    if isinstance(value, Draw):
        return value.token
    if isinstance(value, Draws):
        flat = [None if d is None else d.token for d in value.items.ravel()]
        return np.array(flat, dtype=object).reshape(value.shape).tolist()
    if isinstance(value, Dist):
        return plain(value.vector())
    if isinstance(value, Path):
        return [edge_token(x) for x in value.tokens]
    if isinstance(value, Tree):
        return [n.edge.token for n in value.nodes[1:]]
    if isinstance(value, Canvas):
        return [c.token if isinstance(c, Draw) else c for c in value.cells]
    if isinstance(value, Edit):
        return (value.position, value.token)
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if hasattr(value, "positions"):
        return value.positions
    return [plain(v) for v in value] if isinstance(value, list) else value


def as_it_is(value: Any) -> Any:
    return value


def exactly(value: Any) -> Any:
    """A value with rationals in the place of finite floats."""
    if isinstance(value, float):
        return Fraction(value) if isfinite(value) else value
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return np.vectorize(lambda x: exactly(float(x)), otypes=[object])(value)
    if isinstance(value, Dist):
        rows = [value_row(exactly(np.asarray(row.face(value.face)))) for row in value.rows.ravel()]
        return Dist(box(rows).reshape(value.rows.shape), value.face, value.at, value.inner)
    return value


class Exact(Machine):
    """The same over the exact checker's numbers."""

    num: Any = EXACT

    def shown(self, value: Any) -> Any:
        """Rationals, and exact reals beyond them, as floats."""
        if isinstance(value, np.ndarray) and value.dtype == object and all(map(_is_number, value.ravel())):
            whole = all(isinstance(x, int | np.integer) for x in value.ravel())
            return value.astype(np.int64 if whole else np.float64)
        return float(value) if _is_number(value) and not isinstance(value, int | np.integer) else value


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.number | Fraction | Real | Log) and not isinstance(x, bool)


def same(got: Any, wanted: Any) -> bool:
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(same, got, wanted))
    if isinstance(wanted, float) and not isinstance(got, bool):
        return bool(got == wanted or abs(got - wanted) < 1e-12)
    return bool(type(got) is type(wanted) and got == wanted)


@pytest.mark.parametrize(("name", "n"), CASES, ids=[f"{name}-{n}" for name, n in CASES])
def test_meaning_is_what_the_type_rule_says(name: str, n: int) -> None:
    """Over floats, as the reference runs it, and over rationals, as the exact checker does."""
    text, expected = TABLE[name].samples[n]
    module = module_of(text)
    verify(module, level=2)
    function = module.functions["f"]
    last = function.body.ops[-1]
    assert name in (last.opcode, *(op.opcode for r in last.regions for op in r.walk() if op.opcode in EXITS))
    for machine, made in ((Machine(), as_it_is), (Exact(), exactly)):
        machine.env = {p.value: made(OPERANDS[p.name][1]) for p in function.params}
        results = machine.run_ops(function.body.ops)  # holds every result against its type
        if expected is not ...:
            got = plain(machine.shown(results[0])) if results else None
            assert same(got, expected), f"{name} gives {got}, not {expected}, with {type(machine).__name__}"


@pytest.mark.parametrize(("name", "types", "word", "attrs"), REFUSALS, ids=[f"{name}-{word}" for name, _, word, _ in REFUSALS])
def test_refusals_say_what_to_do(name: str, types: str, word: str, attrs: dict[str, Any]) -> None:
    operands = tuple(parse_type(t) for t in re.split(r", (?![^<\[]*[>\]])", types) if t)
    with pytest.raises(OpError) as caught:
        lookup(name).type(operands, attrs, ())
    assert word in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize("name", OPS)
def test_columns(name: str) -> None:
    row = TABLE[name]
    assert row.batch in BATCHES and row.exact in EXACTS and row.effects in EFFECTS
    assert row.doc.rstrip().endswith((".", ")", '"')), "a docstring is sentences"
    assert len(set(row.attrs)) == len(row.attrs)


@pytest.mark.parametrize("name", OPS)
def test_attributes_that_rules_read_are_in_the_table(name: str) -> None:
    row = TABLE[name]
    known = {a.rstrip("?") for a in row.attrs}
    read = _attributes(row.type) | _attributes(row.meaning) | (_attributes(row.regions) if row.regions else set())
    assert read <= known, f"{name} reads {sorted(read - known)}: add to its attrs"


def _attributes(rule: Any) -> set[str]:
    """The names in `attrs["x"]`, `attrs.get("x")` and the same of `op.attrs` in a rule's source."""
    found = set()
    for node in ast.walk(ast.parse(inspect.cleandoc("\n" + inspect.getsource(rule)))):
        if isinstance(node, ast.Subscript) and _is_attrs(node.value) and isinstance(node.slice, ast.Constant):
            found.add(str(node.slice.value))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            if _is_attrs(node.func.value) and isinstance(node.args[0], ast.Constant):
                found.add(str(node.args[0].value))
    return found


def _is_attrs(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "attrs") or (isinstance(node, ast.Attribute) and node.attr == "attrs")


class _Whole:
    """Nothing."""

    def type(types: Any, attrs: Any, regions: Any) -> Any:
        return ()

    def meaning(m: Any, op: Any) -> Any:
        return ()

    label, batch = labels.nothing, "scalar"
    samples, refusals = (("%z = f()", None),), ()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"label": None}, "lacks: label"),
        ({"meaning": None}, "lacks: meaning"),
        ({"__doc__": None}, "docstring"),
        ({"samples": None}, "lacks: samples"),
        ({"refusals": None}, "lacks: refusals"),
        ({"samples": ()}, "has no sample"),
        ({"lable": 1}, "has lable, which no op has"),
        ({"batch": "loud"}, "batch = 'loud'"),
        ({"effects": "boom"}, "effects = 'boom'"),
    ],
)
def test_an_incomplete_op_cannot_be_registered(changes: dict[str, Any], word: str) -> None:
    members = {k: v for k, v in {**vars(_Whole), **changes}.items() if v is not None or k == "__doc__"}
    with pytest.raises(TypeError, match=re.escape(word)):
        op("test.incomplete")(type("Incomplete", (), members))
    assert "test.incomplete" not in TABLE


def test_an_op_cannot_be_defined_twice() -> None:
    with pytest.raises(TypeError, match="defined twice"):
        op("map")(_Whole)


def test_unknown_ops_are_answered_with_the_nearest() -> None:
    with pytest.raises(OpError) as caught:
        lookup("tree.gorw")
    assert "tree.grow" in caught.value.hint


def test_conditions_of_loops_are_single_bools() -> None:
    some = Value(parse_type("bool[k]"))
    with pytest.raises(OpError, match="one bool"):
        lookup("while").type((), {}, (Region((Value(INT),), (), (some,)), Region((Value(INT),), (), ())))
    with pytest.raises(OpError) as caught:
        lookup("if").type((some.type,), {}, (Region((), (), ()), Region((), (), ())))
    assert "any(...)" in caught.value.hint
    assert lookup("if").type((BOOL,), {}, (Region((), (), ()), Region((), (), ()))) == ()


def test_the_table_is_made_of_rows() -> None:
    assert all(isinstance(row, OpDef) and row.name == name for name, row in TABLE.items())


STRANGE = [
    parse_type(t)
    for t in (
        "any",
        "none",
        "set",
        "list<any,-1>",
        "list<list<int,-1>,-1>",
        "scores<V>",
        "text[k]",
        "tree<t,any,V>",
        "tree<t,step,V>",
        "path<V>[k]",
        "list<path<V>,-1>",
        "dist<V,logits>[part.t]",
        "token<W>[k<=0]",
        "real[vocab.W]",
    )
]
TYPES = [parse_type(t) for t, _ in OPERANDS.values()] + STRANGE


@settings(max_examples=examples(400))
@given(st.sampled_from(STRAIGHT), st.randoms(use_true_random=False))
def test_type_rules_refuse_with_an_op_error_and_nothing_else(sample: Any, random: Any) -> None:
    """The front end turns an OpError into a diagnostic; anything else would be a crash on somebody's program."""
    name, types, attrs = sample
    operands = tuple(random.choice(TYPES) if random.random() < 0.6 else t for t in types)
    try:
        results = lookup(name).type(operands, dict(attrs), ())
    except OpError as error:
        assert str(error)
    else:
        assert all(parse_type(str(t)) == t for t in results)
