"""The verifier accepts what lowering makes and names what is wrong, where."""

# ruff: noqa: E501  (IR text in tables)
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lib.programs.ir_modules import modules
from quick import examples

from decgraph.errors import InternalError
from decgraph.ir.text import parse_module
from decgraph.ir.types import INT, parse_type
from decgraph.ir.values import Function, Module, Op, Param, Region, Value
from decgraph.ir.verify import verify

GOOD = """module(main = "f")
extern judge(text) -> bool
func f(%target: model<causal,V,target,causal>, %n: int in 1..32 = 4, %word: text = "a") {
  state count: int per session {
    %zero: int = const(value = 0, type = !int)
    yield %zero
  }
  claim refines(spec = "f", args = (("target", ("param", "target")),), mode = "tokens")
  body {
    while(bound = "done") (%i: int) {
      %d: bool = done()
      %go: bool = map(%d, fn = "not")
      yield %go
    } (%i.1: int) {
      %ctx: node<ctx> = context()
      %lo: int = const(value = 0, type = !int)
      %r: real = const(value = 1/2, type = !real)
      %s: real = for(%lo, %n, %r) (%j: int, %a: real) {
        %p: dist<V,shaped> = model.eval(%target, %ctx)
        %g: noise = noise(%i.1, %j, kind = "race", site = "f.0")
        %x: draw<V> = draw(%p, %g)
        %q: prob = lookup(%p, %x)
        yield %q
      }
      %ok: bool = extern(%word, extern = "judge", params = (!text,), returns = !bool)
      %y: path<V> = run(%ctx, %n, %target, %i.1, callee = "f", args = ("target",), has_tree = false, site = "f.1") (%path: path<V>) {
        yield %ok
      }
      %c: int = state.read(state = "count", type = !int)
      state.write(%c, state = "count", type = !int)
      commit(%y)
    }
  }
}
"""


def test_a_good_module_passes() -> None:
    verify(parse_module(GOOD), level=2)


BROKEN = [
    ('main = "f"', 'main = "g"', "main is 'g', which is not one of its functions (f)"),
    ('%go: bool = map(%d, fn = "not")', '%go: bool = map(%d, %d, fn = "or")', "another condition than `not done`"),
    ("per session", "per universe", "count has scope 'universe'"),
    ("    yield %zero\n", "    yield %zero, %zero\n", "the start of state count yields 2 values"),
    ("claim refines", "claim promises", "a claim is 'promises'"),
    ('spec = "f"', 'spec = "greedy"', "a claim refers to 'greedy'"),
    ('(("target", ("param", "target")),)', '(("model", ("param", "target")),)', "gives f model, which it does not take"),
    ('args = (("target", ("param", "target")),), ', "", "the claim does not give f its target"),
    ('mode = "tokens"', 'mode = "tokens", models = ("drafter",)', "drafter, which is not a parameter"),
    ("yield %go", "yield %i", "a loop condition must be one bool"),
    ('map(%d, fn = "not")', "map(%d)", "attribute fn is missing"),
    ('map(%d, fn = "not")', 'map(%d, fn = "and")', "and takes 2 operands, got 1"),
    ('map(%d, fn = "not")', 'map(%d, fn = "not", over = 1)', "attribute over is not one of the op table (fn)"),
    ("%s: real = for", "%s: int = for", "result 0 is declared int; its operands give real"),
    ("%d: bool = done()", "%d: bool, %e: bool = done()", "has 2 results, not 1"),
    ("(%j: int, %a: real)", "(%j: int)", "region 0 has 1 arguments, not 2"),
    ("(%j: int, %a: real)", "(%j: int, %a: bool)", "for a value of type real"),
    ("        yield %q\n", "        yield %x\n", "a variable is real before for and draw<V> after its body"),
    ("(%i.1: int) {\n      %ctx", "(%i.1: real) {\n      %ctx", "the condition takes %i: int where the body takes %i: real"),
    ("noise(%i.1, %j,", "noise(%j,", "%i: int, the counter of a loop around it"),
    ("noise(%i.1, %j,", "noise(%j, %i.1,", "%j: int, the counter of a loop around it"),
    ("noise(%i.1, %j, kind", "noise(%i.1, %j, %n, kind", ""),
    ("run(%ctx, %n, %target, %i.1,", "run(%ctx, %n, %target,", "is not among its keys"),
    ('kind = "race"', 'kind = "output"', "at most an index"),
    ('extern = "judge"', 'extern = "jury"', "extern jury is not declared"),
    ("extern judge(text)", "extern judge(int)", "is not declared with these types"),
    ('callee = "f"', 'callee = "g"', "runs 'g', which is not a function"),
    ('args = ("target",)', 'args = ("word",)', "it does not give f its target"),
    (
        'state = "count", type = !int)\n      commit',
        'state = "total", type = !int)\n      commit',
        "no state total is declared",
    ),
    ("%ctx: node<ctx> = context()\n", "%ctx: node<ctx> = context() {\n}\n", "takes no regions, has 1"),
    ("commit(%y)", "commit(%p)", None),
]


@pytest.mark.parametrize(("old", "new", "message"), BROKEN, ids=[b[1].strip() for b in BROKEN])
def test_what_is_wrong_is_named(old: str, new: str, message: str | None) -> None:
    text = GOOD.replace(old, new, 1)
    assert text != GOOD
    if message is None:  # the reader refuses already
        with pytest.raises(Exception, match="not defined here"):
            parse_module(text)
        return
    if not message:  # a further key is no fault: an unrolled loop leaves constants
        verify(parse_module(text), level=2)
        return
    with pytest.raises(InternalError) as caught:
        verify(parse_module(text), level=2)
    assert message in str(caught.value)


def test_the_offending_op_is_shown_among_its_neighbours(golden: Callable[[str, str], None]) -> None:
    with pytest.raises(InternalError) as caught:
        verify(parse_module(GOOD.replace("noise(%i.1, %j,", "noise(%j,")))
    golden("missing_counter.txt", str(caught.value) + "\n")


def function(*ops: Op, params: tuple[Param, ...] = (), yields: tuple[Value, ...] = ()) -> Module:
    return Module({"f": Function("f", params, (), Region((), ops, yields))}, "f")


def const(value: Value) -> Op:
    return Op("const", (), {"value": 1, "type": INT}, (), (value,))


def test_values_are_defined_once_and_before_they_are_used() -> None:
    x, y = Value(INT, "x"), Value(INT, "y")
    twice = function(const(x), const(x))
    with pytest.raises(InternalError, match="%x: int is defined a second time"):
        verify(twice)
    with pytest.raises(InternalError, match="operand 0 .%x: int. is not defined before"):
        verify(function(Op("map", (x,), {"fn": "neg"}, (), (y,)), const(x)))
    with pytest.raises(InternalError, match="is not defined before"):
        verify(function(yields=(x,)))


def test_values_of_a_region_are_not_visible_after_it() -> None:
    b, x, y = Value(parse_type("bool"), "b"), Value(INT, "x"), Value(INT, "y")
    cond = Op("const", (), {"value": True, "type": parse_type("bool")}, (), (b,))
    branch = Op("if", (b,), {}, (Region((), (const(x),), ()), Region((), (), ())), ())
    with pytest.raises(InternalError, match="%x: int. is defined in a region that does not reach here"):
        verify(function(cond, branch, Op("map", (x,), {"fn": "neg"}, (), (y,))))


def test_functions_do_not_share_values() -> None:
    x = Value(INT, "x")
    one = Function("one", (Param(x),), (), Region((), (), ()))
    with pytest.raises(InternalError, match="defined a second time"):
        verify(Module({"one": one, "two": replace(one, name="two")}, "one"))
    with pytest.raises(InternalError, match="function one is filed under two"):
        verify(Module({"two": one}, "two"))
    with pytest.raises(InternalError, match="arguments of the body are not the parameters"):
        verify(Module({"one": replace(one, body=Region((Value(INT),), (), ()))}, "one"))
    with pytest.raises(InternalError, match="parameter x appears twice"):
        verify(Module({"one": replace(one, params=(Param(x), Param(Value(INT, "x"))))}, "one"))


def test_unknown_ops_are_refused() -> None:
    with pytest.raises(InternalError, match="no op named tree.gorw; did you mean tree.grow"):
        verify(function(Op("tree.gorw", (), {}, (), ())))


def test_a_narrower_operand_is_accepted_and_a_wider_is_not() -> None:
    xs = Param(Value(parse_type("int[k<=3]"), "xs"))
    wide, narrow = Value(parse_type("int[k<=9]"), "y"), Value(parse_type("int[k<=2]"), "z")
    verify(function(Op("map", (xs.value,), {"fn": "neg"}, (), (wide,)), params=(xs,)), level=2)
    with pytest.raises(InternalError, match="is declared int.k<=2."):
        verify(function(Op("map", (xs.value,), {"fn": "neg"}, (), (narrow,)), params=(xs,)))


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(modules(), st.data())
def test_a_dropped_op_that_is_used_is_noticed(module: Module, data: st.DataObject) -> None:
    f = module.functions["f"]
    used = [
        n for n, op in enumerate(f.body.ops) if any(v in other.operands for v in op.results for other in f.body.ops[n + 1 :])
    ]
    if not used:
        return
    n = data.draw(st.sampled_from(used))
    body = replace(f.body, ops=f.body.ops[:n] + f.body.ops[n + 1 :])
    with pytest.raises(InternalError, match="is not defined before"):
        verify(replace(module, functions={**module.functions, "f": replace(f, body=body)}))
