"""The manager: order, choice, reports, dumps, plans; and what every pass promises: a valid module that it changes only once."""

from __future__ import annotations

import sys
from dataclasses import replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from lib.programs.corpus import NAMES as PROGRAMS
from lib.programs.corpus import program
from lib.programs.for_passes import TEXTS, small
from lib.programs.ir_modules import modules
from lib.stdlib.table_models import FEW
from lib.stdlib.table_models import NAMES as SHELF
from quick import examples

import decgraph
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError, InternalError
from decgraph.ir.data.topology import Topology
from decgraph.ir.labels import check_labels
from decgraph.ir.text import difference, parse_module, print_module
from decgraph.ir.values import Module
from decgraph.ir.verify import verify
from decgraph.ir.walk import ops_of
from decgraph.passes import manager
from decgraph.passes.manager import ORDER, load, optimise, pipeline
from decgraph.passes.plan import Plan


def module(name: str) -> Module:
    if name in SHELF:
        return decgraph.load(name).module
    if name in TEXTS:
        return small(name)
    try:
        return load_text(program(name), f"{name}.dec")
    except DecError:
        pytest.skip(f"{name} does not load (tests/dsl/test_lowering.py: LATER)")


EVERYTHING = [*SHELF, *TEXTS, *(p for p in PROGRAMS if p not in SHELF)]


@pytest.mark.parametrize("name", EVERYTHING)
def test_passes_give_valid_modules_and_change_them_once(name: str) -> None:
    before = module(name)
    made, report = optimise(before)
    verify(made, level=2)  # the text reads back, every attribute is one of the op table
    again, _ = optimise(made)
    assert difference(made, again) == ""
    assert [s.name for s in report.steps] == list(ORDER)
    assert print_module(parse_module(print_module(made, locs=True)), locs=True) == print_module(made, locs=True)


@given(modules())
@settings(max_examples=examples(60))
def test_passes_keep_any_module_valid(before: Module) -> None:
    """Modules of random ops, which mean nothing: what comes out is valid, and stays as it is."""
    made, _ = optimise(before)
    verify(made, level=2 if verifies(before) else 1)
    assert difference(made, optimise(made)[0]) == ""


def verifies(m: Module) -> bool:
    """Whether all attributes are of the op table (generated modules have odd ones)."""
    try:
        verify(m, level=2)
    except InternalError:
        return False
    return True


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("name", SHELF)
def test_every_pass_alone_changes_a_module_once(name: str) -> None:
    for one in ORDER:
        made, _ = optimise(module(name), only=(one,))
        verify(made, level=2)
        assert difference(made, optimise(made, only=(one,))[0]) == "", one


@pytest.mark.parametrize("name", SHELF)
def test_the_label_check_sees_through_what_passes_make(name: str) -> None:
    before = module(name)
    made, _ = optimise(before, without=("simplify",))

    def found(m: Module) -> list[tuple[str, Any]]:
        return [(f.kind, f.loc) for f in check_labels(m)]

    assert found(made) == found(before)


def test_the_label_check_finds_pruning_inside_a_segment() -> None:
    text = """algorithm wrong(target: causal, drafter: causal, budget: int in 1..8 = 2):
    while not done:
        draft t:
            x ~ drafter(t.leaves)
            grow x
        prune t to top(t.drafted, budget, by = t.logprob)
        verify t by rejection against target(t)
        commit t.accepted
"""
    before = load_text(text, check_labels=False)
    made, _ = optimise(before)
    assert any(
        op.opcode == "segment" and any(o.opcode == "tree.keep" for o in op.regions[0].walk()) for op in made.entry.body.walk()
    )
    assert [f.kind for f in check_labels(made)] == [f.kind for f in check_labels(before)] == ["prune"]


def test_passes_run_in_their_order_whatever_is_said() -> None:
    _, report = optimise(small("chain"), only=("placement", "simplify"))
    assert [s.name for s in report.steps] == ["simplify", "placement"]
    _, report = optimise(small("chain"), without=("reuse",))
    assert [s.name for s in report.steps] == [n for n in ORDER if n != "reuse"]
    same, report = optimise(small("chain"), only=())
    assert same is small("chain")
    assert report.text() == "chain: passes\n  none"


def test_passes_say_why() -> None:
    assert [p.name for p in pipeline()] == list(ORDER)
    for p in pipeline():
        assert len(p.reason) > 40
        assert p.precondition


@pytest.mark.parametrize("where", ["only", "without"])
def test_a_pass_that_does_not_exist(where: str) -> None:
    with pytest.raises(DecError, match="there is no pass simplfy") as caught:
        optimise(small("chain"), **{where: ("simplfy",)})  # type: ignore[arg-type]
    assert "did you mean simplify?" in str(caught.value)
    with pytest.raises(DecError, match=f"passes: {', '.join(ORDER)}"):
        load("zzz")


class Noted:
    """A plan that remembers which of its fields were read."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.read = plan, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.read.add(name)
        return getattr(self.plan, name)


@pytest.mark.parametrize("name", ORDER)
def test_a_pass_reads_the_options_that_it_declares(name: str) -> None:
    noted = Noted(Plan())
    load(name).run(decgraph.load("eagle2").module, noted)  # type: ignore[arg-type]
    assert noted.read == set(load(name).options)


@pytest.mark.parametrize("name", ORDER)
def test_a_pass_shows_an_example(name: str) -> None:
    """Its docstring holds one, which tests/repo/test_docs.py runs: before, and after this pass."""
    doc = import_module(f"decgraph.passes.{name}").__doc__ or ""
    assert doc.startswith(f"{name}: ")
    assert f'>>> print(after("{name}", body' in doc


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "declares no pass; it ends in PASS = Pass(name='mine'"),
        ("PASS = 3", "declares no pass"),
        ("PASS = Pass('other', 'why', 'none', run)", "declares a pass called 'other'"),
        ("PASS = Pass('mine', ' ', 'none', run)", "pass mine has no reason"),
        ("PASS = Pass('mine', 'why', '', run)", "pass mine has no precondition"),
        ("PASS = Pass('mine', 'why', 'none', run, options=('fast',))", "pass mine has the option 'fast'; a plan has passes"),
        (None, "there is no file passes/mine.py"),
    ],
)
def test_a_pass_that_is_not_declared(text: str | None, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import decgraph.passes

    if text is not None:
        head = "from decgraph.passes.plan import Pass\n\ndef run(module, plan):\n    return module\n\n"
        (tmp_path / "mine.py").write_text(head + text + "\n")
    monkeypatch.setattr(decgraph.passes, "__path__", [*decgraph.passes.__path__, str(tmp_path)])
    monkeypatch.setattr(manager, "ORDER", (*ORDER, "mine"))
    monkeypatch.delitem(sys.modules, "decgraph.passes.mine", raising=False)
    with pytest.raises(InternalError) as caught:
        load("mine")
    assert words in str(caught.value)


def test_dumps_are_numbered(tmp_path: Path) -> None:
    made, _ = optimise(small("chain"), without=("tree_fusion",), dump=tmp_path / "ir")
    names = sorted(p.name for p in (tmp_path / "ir").iterdir())
    ran = ["source", *(name for name in ORDER if name != "tree_fusion")]
    assert names == [f"{number:02}-{name}.ir" for number, name in enumerate(ran)]
    assert (tmp_path / "ir" / "00-source.ir").read_text() == print_module(small("chain"))
    assert (tmp_path / "ir" / names[-1]).read_text() == print_module(made)
    (tmp_path / "file").write_text("")
    with pytest.raises(DecError, match="cannot write into"):
        optimise(small("chain"), dump=tmp_path / "file")


def test_the_verifier_looks_at_what_a_pass_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(m: Module, plan: Plan) -> Module:
        body = m.entry.body
        return replace(m, functions={m.main: replace(m.entry, body=replace(body, ops=body.ops[1:]))})

    broken = replace(load("simplify"), run=breaks)
    monkeypatch.setattr(manager, "load", lambda name: broken)
    with pytest.raises(InternalError, match="the IR is not valid"):
        optimise(load_text("algorithm a(target: causal):\n    x = argmax(target(ctx))\n    commit x\n"), only=("simplify",))


def test_validate_is_called_with_both_modules() -> None:
    seen: list[tuple[Module, Module, str]] = []
    made, report = optimise(small("beside"), validate=lambda a, b, name: seen.append((a, b, name)))
    assert [name for _, _, name in seen] == [s.name for s in report.steps if s.changed]
    assert seen[0][0] is small("beside")
    assert seen[-1][1] is made
    assert all(a[1] is b[0] for a, b in zip(seen, seen[1:], strict=False))
    assert "every one of them validated" in report.text()
    assert report.to_json()["validated"] is True


# -- parameters that are known
def test_known_parameters_are_constants_and_nothing_else_is_allowed() -> None:
    made, _ = optimise(small("flags"), {"deep": True, "k": 3}, only=("simplify",))
    entry = made.entry
    assert (entry.param("k").low, entry.param("k").high, entry.param("k").default) == (3, 3, 3)
    assert entry.param("deep").default is True
    used = {v for op in entry.body.walk() for v in op.operands}
    assert entry.param("k").value not in used
    assert not any(op.opcode == "if" and op.operands[0] is entry.param("deep").value for op in entry.body.walk())
    from decgraph.runtime.session import check_params

    with pytest.raises(DecError, match="it must be in 3..3"):
        check_params(entry, {"k": 2})


@pytest.mark.parametrize("shape", ["4x2", "[[0],[1],[0,0]]", Topology.of("2x2"), Topology.of([[0], [0, 0]])])
def test_known_shapes(shape: Any) -> None:
    made, _ = optimise(decgraph.load("recursive_sd").module, {"shape": shape}, only=("simplify",))
    verify(made, level=2)
    found = [op.attrs["shape"] for op in made.entry.body.walk() if op.opcode == "topology"]
    assert found == (
        [] if isinstance(shape, Topology) and not shape.name else [shape.name if isinstance(shape, Topology) else shape]
    )


def test_known_parameters_reach_the_start_of_states() -> None:
    made, _ = optimise(small("table"), {"k": 2}, only=("simplify",))
    verify(made, level=2)
    assert made.entry.param("k").value not in {v for op in ops_of(made.entry) for v in op.operands}


def test_reals_are_not_folded() -> None:
    """They are not the same in float64 and in fractions."""
    made, _ = optimise(small("reals"), {"tau": Fraction(1, 3)}, only=("simplify",))
    fns = [op.attrs["fn"] for op in made.entry.body.walk() if op.opcode == "map"]
    assert "mul" in fns
    assert "div" in fns


# -- plans
def test_plans_have_a_text() -> None:
    plan = Plan(("simplify",), "torch", 4, "host", (("t", 64),), (("gamma", 3), ("deep", True), ("tau", Fraction(1, 2))))
    assert Plan.parse(plan.text()) == plan
    assert Plan.parse("") == Plan()
    assert Plan.parse("passes = none  # nothing\n\nbatch = 2").passes == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("batch = 0", "at least 1"),
        ("colour = red", "passes, backend"),
        ("placement = moon", "device or host"),
        ("passes simplify", "name = value"),
        ("batch = many", "many"),
        ("capacity t = x", "x"),
        ("capacity t = 0", "at least 1"),
    ],
)
def test_plans_that_cannot_be_read(text: str, words: str) -> None:
    with pytest.raises(DecError, match="line 2 of the plan") as caught:
        Plan.parse(f"backend = torch\n{text}")
    assert words in str(caught.value)


def test_capacities_of_a_plan() -> None:
    def sizes(text: str) -> list[int]:
        made, _ = optimise(decgraph.load("eagle2").module, plan=Plan.parse(text))
        verify(made, level=2)
        return [op.attrs["capacity"] for op in made.entry.body.walk() if op.opcode == "tree.new"]

    assert sizes("capacity t = 64") == [64]
    assert sizes("capacity t = 99999") == sizes("") == [11297]
    with pytest.raises(DecError, match="eagle2 has no tree u") as caught:
        sizes("capacity u = 3")
    assert "it has t" in str(caught.value)


def test_a_plan_on_the_host_has_no_device_segments() -> None:
    def kinds(plan: Plan) -> set[str]:
        made, _ = optimise(small("chain"), plan=plan)
        return {op.attrs["kind"] for op in made.entry.body.walk() if op.opcode == "segment"}

    assert kinds(Plan()) == {"vocabulary", "device"}
    assert kinds(Plan(placement="host")) == {"vocabulary"}
    assert kinds(Plan(passes=("placement",))) == {"device"}
