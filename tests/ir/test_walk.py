"""Looking around and rewriting keep modules well formed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from lib.programs.ir_modules import all_ops, modules
from quick import examples

from decgraph.ir.text import equal, parse_module, print_module
from decgraph.ir.types import INT
from decgraph.ir.values import Module, Op, Region, Value
from decgraph.ir.verify import verify
from decgraph.ir.walk import (
    clone,
    free_values,
    inline,
    map_bodies,
    ops_of,
    parents,
    producers,
    rebuild,
    regions_of,
    substitute,
    uses,
)

LOOP = """module(main = "f")

func f(%a: int, %b: int) {
  body {
    %s: int = map(%a, %b, fn = "add")
    %t: int = for(%a, %s, %b) (%i: int, %c: int) {
      %u: int = map(%c, %s, fn = "mul")
      %d: bool = done()
      yield %u
    }
    %v: token<V> = request(field = "eos")
    commit(%v)
  }
}
"""


def loop() -> tuple[Module, tuple[Op, ...]]:
    module = parse_module(LOOP)
    return module, module.functions["f"].body.ops


def with_body(module: Module, body: Region) -> Module:
    return replace(module, functions={"f": replace(module.functions["f"], body=body)})


def test_uses_definitions_and_parents() -> None:
    module, (add, turn, *_) = loop()
    body = module.functions["f"].body
    mul = turn.regions[0].ops[0]
    assert [(u.op, u.index) for u in uses(body)[add.result]] == [(turn, 1), (mul, 1)]
    last = uses(body)[mul.result][-1]
    assert last.op is turn and last.region is turn.regions[0] and last.index == 0
    assert producers(body)[mul.result] is mul
    assert parents(body)[mul] is turn and parents(body)[turn] is None
    assert free_values(turn.regions[0]) == [add.result]
    assert list(regions_of(module.functions["f"])) == [body]
    assert [op.opcode for op in ops_of(module.functions["f"])] == ["map", "for", "map", "done", "request", "commit"]


def test_substitute_reaches_into_regions_and_keeps_what_does_not_change() -> None:
    module, (add, turn, eos, commit) = loop()
    body = module.functions["f"].body
    a = module.functions["f"].params[0].value
    changed = substitute(body, {add.result: a})
    assert changed.ops[1].operands[1] is a and changed.ops[1].regions[0].ops[0].operands[1] is a
    assert changed.ops[0] is add and changed.ops[2] is eos and changed.ops[3] is commit
    assert substitute(body, {Value(INT): a}) is body and substitute(body, {}) is body
    verify(with_body(module, changed), level=2)


def test_rebuild_replaces_ops_and_their_later_uses() -> None:
    module, (add, *_) = loop()
    f = module.functions["f"]

    def to_constants(op: Op) -> tuple[list[Op], list[Value]] | None:
        if op.opcode != "map":
            return None
        new = Op("const", (), {"value": 7, "type": INT}, (), (Value(INT, "seven"),))
        return [new], [new.result]

    text = print_module(with_body(module, rebuild(f.body, to_constants)))
    assert text.count("const(value = 7") == 2 and "for(%a, %seven, %b)" in text and "yield %seven.1" in text
    dropped = rebuild(f.body, lambda op: ([], [f.params[0].value]) if op is add else None)
    assert "for(%a, %a, %b)" in print_module(with_body(module, dropped))


def test_map_bodies_keeps_a_module_in_which_nothing_changes() -> None:
    module, _ = loop()
    assert map_bodies(module, lambda body: body) is module
    assert len(map_bodies(module, lambda body: Region(body.args, (), ())).functions["f"].body.ops) == 0


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(modules())
def test_a_clone_is_equal_and_shares_no_value(module: Module) -> None:
    f = module.functions["f"]
    own = Region((), f.body.ops, f.body.yields)
    copy = clone(own)
    assert equal(with_body_of(module, own), with_body_of(module, copy))
    ours = {v for op in own.walk() for v in op.results}
    assert not ours & {v for op in copy.walk() for v in op.results}
    both = Region((), own.ops + copy.ops, ())
    verify(with_body_of(module, both), level=2)


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(modules())
def test_inlining_each_region_where_it_stands_keeps_dominance(module: Module) -> None:
    f = module.functions["f"]
    own = Region((), f.body.ops, f.body.yields)
    for op in all_ops(module):
        for region in op.regions:
            outside = set(free_values(region))
            ops, yields = inline(region, [replace(a) for a in region.args])
            made = {v for o in ops for v in o.results}
            assert not made & {v for o in own.walk() for v in o.results}
            assert all(v in made or v in outside or v not in producers(own) or v in yields for v in yields)
            assert {o.opcode for o in ops} == {o.opcode for o in region.ops}


def with_body_of(module: Module, body: Region) -> Module:
    return replace(module, functions={**module.functions, "f": replace(module.functions["f"], body=body)})
