"""The text of a module: golden texts, errors, and what is printed reads back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, event, given, settings
from lib.programs.ir_modules import all_ops, modules
from quick import examples

from decgraph.errors import InternalError
from decgraph.ir.printing import data
from decgraph.ir.text import IRTextError, difference, equal, parse_module, print_module
from decgraph.ir.types import Dim, parse_type
from decgraph.ir.values import Function, Loc, Module, Op, Region, Value
from decgraph.ir.verify import verify
from decgraph.ir.walk import clone

HAND = """
// What a person writes: types of results are inferred, comments are dropped.
module(main = "speculative", path = "stdlib/speculative.dec")

func autoregressive(%target: model<causal,V,target,causal>) {
  body {
    while(bound = "done") (%i: int) {
      %d = done()
      %go = map(%d, fn = "not")
      yield %go
    } (%i: int) {
      %ctx = context()
      %p = model.eval(%target, %ctx) loc(stdlib/autoregressive.dec:4:9)
      %key = noise(kind = "output", site = "output")
      %x = draw(%p, %key)
      commit(%x)
    }
  }
}

func speculative(%target: model<causal,V,target,causal>, %drafter: model<causal,V,small,causal>,
                 %gamma: int in 1..32 = 4, %tau: prob in 0..1 = 9/10 per batch) loc("my file.dec":2:1) {
  doc "Speculative decoding."
  policy "target" by "dual"
  state count: int per session {
    %zero = const(value = 0, type = !int)
    yield %zero
  }
  claim refines(text = "refines autoregressive(target) in distribution", spec = "autoregressive",
                args = (("target", ("param", "target")),), mode = "distribution") loc(speculative.dec:3:5-3:40)
  body {
    while(bound = "done") (%i: int) {
      %d = done()
      %go = map(%d, fn = "not")
      yield %go
    } (%i: int) {
      %root = context()
      %t = tree.new(%root, tree = "t")
      %zero = const(value = 0, type = !int)
      %t.1 = for(%zero, %gamma, %t, bound = 32) (%j: int, %t.2: tree<t,token,V>) {
        %leaves = tree.nodes(%t.2, which = "leaves")
        %q = model.eval(%drafter, %leaves, %t.2, with = ("tree",))
        %g = noise(%i, %j, kind = "race", site = "speculative.1")
        %x = draw(%q, %g)
        %t.3, %new = tree.grow(%t.2, %x)
        yield %t.3
      }
      %p = model.eval(%target, %t.1)
      %path = tree.walk(%t.1, %p, scope = "node", rule = "match") (%k: int, %at: dist<V,shaped>, %xs: draw<V>[k]) {
        %none = const(value = none, type = !none)
        %no = const(value = false, type = !bool)
        %yes = const(value = true, type = !bool)
        %key = noise(kind = "output", site = "output")
        %y = draw(%at, %key)
        yield %no, %none, %yes, %y
      }
      commit(%path)
    }
  }
}
"""

SMALL = """module(main = "f")

extern judge(text, token<V>[k]) -> prob

func f(%n: int, %s: text = "a\\nb") {
  body {
    %0: int = const(value = 3, type = !int)
    %x: int[k<=3,nodes."a b"] = tile(%0, kind = "zeros", elem = "int", dims = [dim k<=3, dim nodes."a b"])
    %x.1: list<any,-1> = const(value = [], type = !list<any,-1>)
    %"x.1": real = const(value = 1/3, type = !real)
    %%acc: topology = topology(shape = [(0, [(0, 0), (0, 1)])])
  }
}
"""


def test_golden_speculative(golden: Callable[[str, str], None]) -> None:
    module = parse_module(HAND)
    verify(module, level=2)
    golden("speculative.ir", print_module(module))
    golden("speculative_with_places.ir", print_module(module, locs=True))


def test_small_text_is_its_own_print() -> None:
    assert print_module(parse_module(SMALL)) == SMALL


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(modules())
def test_generated_modules_print_and_read_back(module: Module) -> None:
    verify(module, level=2)
    for op in all_ops(module):
        event(op.opcode)
    text = print_module(module, locs=True)
    again = parse_module(text)
    assert print_module(again, locs=True) == text
    assert equal(module, again)
    assert [v.name for op in all_ops(again) for v in op.results] == [v.name for op in all_ops(module) for v in op.results]
    assert [op.loc for op in all_ops(again)] == [op.loc for op in all_ops(module)]
    assert [op.attrs for op in all_ops(again)] == [op.attrs for op in all_ops(module)]


@settings(max_examples=examples(30), suppress_health_check=list(HealthCheck))
@given(modules())
def test_equality_sees_ops_and_not_names_or_places(module: Module) -> None:
    f = module.functions["f"]

    def with_body(body: Region) -> Module:
        return replace(module, functions={**module.functions, "f": replace(f, body=body)})

    own = Region((), f.body.ops, f.body.yields)
    renamed = clone(own)
    for op in renamed.walk():
        for value in (*op.results, *(a for r in op.regions for a in r.args)):
            object.__setattr__(value, "name", "another")
        object.__setattr__(op, "loc", Loc("elsewhere", 1, 1))
    assert equal(with_body(own), with_body(renamed))
    if f.body.ops:
        assert not equal(with_body(own), with_body(replace(own, ops=own.ops[:-1])))
        first = own.ops[0]
        changed = replace(first, attrs={**first.attrs, "extra": 1})
        assert "extra = 1" in difference(with_body(own), with_body(replace(own, ops=(changed, *own.ops[1:]))))


BAD = [
    ("", "expected `module`", 1, 1),
    ("module(main = 3)", 'module(main = "name")', 1, 1),
    ('module(main = "f")\nfunc f() {\n}', "no body", 3, 2),
    ('module(main = "f")\nfunc f() {\n  body {\n    %x = nope()\n  }\n}', "no op named nope", 4, 10),
    ('module(main = "f")\nfunc f() {\n  body {\n    commit(%x)\n  }\n}', "%x is not defined here", 4, 12),
    ('module(main = "f")\nfunc f(%n: int) {\n  body {\n    %x: it = len(%n)\n  }\n}', "unknown element 'it'", 4, 9),
    ('module(main = "f")\nfunc f(%n: int[q]) {\n  body {\n  }\n}', "unknown dimension 'q'", 2, 12),
    ('module(main = "f")\nfunc f(%n: int[k) {\n  body {\n  }\n}', "not closed", 2, 12),
    ('module(main = "f")\nfunc f(%n: int, %n: int) {\n  body {\n  }\n}', "%n is defined twice", 2, 17),
    ('module(main = "f")\nfunc f(%n: int) {\n  body {\n    %a, %b = len(%n)\n  }\n}', "len needs a vector", 4, 14),
    ('module(main = "f")\nfunc f() {\n  body {\n    %a: int, %b = done()\n  }\n}', "every result a type", 4, 5),
    ('module(main = "f")\nfunc f() {\n  body {\n    %a = const(value = ?, type = !int)', "expected a constant", 4, 24),
    ('module(main = "f")\nfunc f() {\n  body {\n    %a = const(value = 1/0, type = !int)', "not a number", 4, 24),
    ('module(main = "f")\nfunc f() {\n  body {\n    %a = const(value = {[]: 1}, type = !int)', "key of a table", 4, 25),
    ('module(main = "f")\nfunc f() {\n  body {\n    %a = const(value = 1, value = 2)', "given twice", 4, 27),
    ('module(main = "f")\nfunc f() {\n  body {\n', "expected `}`", 4, 1),
    ('module(main = "f")\nfunc f() {\n  body {\n    yield\n  }\n}', "a value such as %x", 5, 3),
    ('module(main = "f")\nfunc f() {\n  claim refines(mood = "x")\n  body {\n  }\n}', "not mood", 3, 9),
    ('module(main = "f")\nfunc f() {\n  body {\n  }\n}\nfunc f() {\n  body {\n  }\n}', "function f is defined twice", 6, 1),
    ('module(main = "f")\nclass f:', "expected func or extern, got `class`", 2, 1),
]


@pytest.mark.parametrize(("text", "message", "line", "column"), BAD, ids=[b[1] for b in BAD])
def test_errors_say_where_and_what(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(IRTextError) as caught:
        parse_module(text)
    assert message in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column), str(caught.value)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(IRTextError) as caught:
        parse_module('module(main = "f")\nfunc f(%target: int) {\n  body {\n    commit(%taget)\n  }\n}')
    assert "did you mean %target?" in str(caught.value)
    assert "4 |     commit(%taget)\n  |            ^" in str(caught.value)


def test_deep_nesting_is_an_error_not_a_crash() -> None:
    with pytest.raises(IRTextError, match="nested too deeply"):
        parse_module('module(main = "f")\nfunc f(%n: int = ' + "(" * 100_000)


def test_attributes_are_plain_data() -> None:
    with pytest.raises(InternalError, match="Value is not plain data"):
        data(Value(parse_type("int")))
    assert data((1, [None, True], {"a": Dim("k", "", 3)})) == '(1, [none, true], {"a": dim k<=3})'


def test_an_undefined_value_is_shown_as_such() -> None:
    stray = Op("commit", (Value(parse_type("token<V>"), "x"),), {}, (), ())
    module = Module({"f": Function("f", (), (), Region((), (stray,), ()))}, "f")
    assert "commit(%x.undefined)" in print_module(module)
