"""Each rule of the kernel is needed: without it, some program whose claim is false is derived.

A mutant weakens one rule or side condition. The programs are those of wrong/, and IR that no program is lowered to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import decgraph
from decgraph.check.proof import (
    claims,
    environment,
    judgments,
    kernel,
    lossless,
    masses,
    matching,
    rows,
    terms,
)
from decgraph.check.proof.claims import prove
from decgraph.check.proof.derive import Derivation
from decgraph.check.proof.kernel import Kernel
from decgraph.dsl.lower import load_text
from decgraph.ir import facts
from decgraph.ir.expressions import Expressions
from decgraph.ir.facts import CellEdit, CellTokens, Memory, Picked, Row, Token, Tree
from decgraph.ir.opdef import TABLE
from decgraph.ir.ops.canvases import CanvasPut
from decgraph.ir.text import parse_module, print_module
from decgraph.ir.values import Module, Op, Value

HERE = Path(__file__).parent
Patch = pytest.MonkeyPatch
MUTANTS: dict[str, tuple[Callable[[Patch], None], str]] = {}
"""Changes of the kernel by name, and a program that is derived then."""


def mutant(program: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def noted(change: Callable[[Patch], None]) -> Callable[[Patch], None]:
        MUTANTS[change.__name__] = change, program
        return change

    return noted


def changed(module: Module, old: str, new: str) -> Module:
    """A module with a piece of its text exchanged."""
    text = print_module(module)
    assert text.count(old) == 1, f"{text.count(old)} times {old} in {text}"
    return parse_module(text.replace(old, new))


COIN = '%19: noise = noise(%i.1, %depth, %i.3, kind = "unit", site = "speculative/rejection@3.5")'


TWO_WAYS = """
algorithm program(target: causal, k: int in 0..3 = 0):
    refines autoregressive(target) in tokens
    while not done:
        x ~ target(ctx) as output
        if k > 1:
            commit x
        else:
            commit x
"""


ACCEPTS = """
rule r(p: dist, children: draws, c: prob):
    for x in children:
        if CONDITION:
            accept x
    y ~ REST
    emit y
algorithm program(target: causal, drafter: causal, c: prob = 0.5):
    keeps support of target
    while not done:
        draft t:
            x ~ drafter(t.leaves)
            grow x
        verify t by r(c) against target(t)
        commit t.accepted
"""
NO_MASS, AT_LEAST = ("bernoulli(c * p[x] + (1 - c) * x.law[x])", "p"), ("p[x] >= c * max(p)", "p")
OTHERS = ("p[x] > c", "normalize(where(p > c, p, 0.5))")


def programs() -> dict[str, Module]:
    """What is wrong, by name: programs, and IR that no program is lowered to."""
    found = {path.stem: decgraph.load(path).module for path in sorted((HERE / "wrong").glob("*.dec"))}
    speculative = decgraph.load("speculative").module
    drafts, rest = 'kind = "race", site = "speculative.2"', 'kind = "race", site = "speculative/rejection@3.6"'
    found["one coin for all nodes"] = changed(speculative, COIN, COIN.replace("%depth, %i.3, ", ""))
    found["one coin for all steps"] = changed(speculative, COIN, COIN.replace("%i.1, ", ""))
    found["one noise for all drafts"] = changed(speculative, "%5: noise = noise(%i.1, %i.2, ", "%5: noise = noise(%i.1, ")
    found["the noise of the drafts for the rest"] = changed(speculative, rest, drafts)
    for condition, rest in (NO_MASS, AT_LEAST, OTHERS):
        found[condition + rest] = load_text(ACCEPTS.replace("CONDITION", condition).replace("REST", rest))
    found["nothing is committed"] = changed(load_text(TWO_WAYS), "} {\n        commit(%x)\n", "} {\n")
    return found


@pytest.fixture(scope="module")
def wrong() -> dict[str, Module]:
    return programs()


def derived(module: Module) -> bool:
    """Whether a claim is derived."""
    return any(isinstance(prove(module, claim), Derivation) for claim in module.entry.claims)


def rule_of(patch: Patch, opcode: str, rule: Callable[..., Any]) -> None:
    """Another fact for an op."""
    patch.setitem(TABLE, opcode, replace(TABLE[opcode], fact=rule))


@mutant("commits_twice")
def contexts_do_not_change(patch: Patch) -> None:
    patch.setattr(Kernel, "_new_version", lambda self, one=None: None)


@mutant("one noise for all drafts")
def every_noise_is_fresh(patch: Patch) -> None:
    patch.setattr(Kernel, "fresh", lambda self, op, noise: True)


@mutant("size_tells")
def drafts_grow_anywhere(patch: Patch) -> None:
    patch.setattr(Kernel, "grows", lambda self, op, drafts: "")


@mutant("context_tells")
def the_context_tells_nothing(patch: Patch) -> None:
    patch.setattr(Kernel, "in_context", lambda self: facts.NONE)


@mutant("race_by_iterations")
def no_value_tells(patch: Patch) -> None:
    patch.setattr(Kernel, "tells", lambda self, noises, *values: False)


@mutant("chosen_by_itself")
def nothing_depends_on_draws(patch: Patch) -> None:
    patch.setattr(Kernel, "taint", lambda self, *values: facts.NONE)


@mutant("half_a_law")
def every_row_is_a_distribution(patch: Patch) -> None:
    patch.setattr(environment, "sums_to_one", lambda k, v, seen=frozenset(): True)


@mutant("signed_distribution")
def no_weight_is_negative(patch: Patch) -> None:
    patch.setattr(environment, "not_negative", lambda k, v, seen=frozenset(): True)


@mutant("column_above_one")
def what_is_typed_a_probability_is_one(patch: Patch) -> None:
    patch.setattr(Expressions, "share", lambda self, v, deep=8: v.type.elem == "prob")


@mutant("chosen_by_itself")
def commits_may_depend_on_their_draws(patch: Patch) -> None:
    patch.setattr(Kernel, "_independent", lambda self, op, what: None)


@mutant("peeked_at")
def the_output_stream_may_decide(patch: Patch) -> None:
    patch.setattr(Kernel, "output_decides", property(lambda self: False, lambda self, value: None), raising=False)


@mutant("evidence_of_the_drafter")
def any_model(patch: Patch) -> None:
    of = Kernel.of

    def of_any(self: Kernel, v: Value) -> Any:
        fact = of(self, v)
        return replace(fact, model=self.model) if isinstance(fact, facts.Path | Token) else fact

    patch.setattr(Kernel, "of", of_any)


@mutant("part_of_the_text")
def every_memory_is_whole(patch: Patch) -> None:
    of = Kernel.of
    patch.setattr(Kernel, "of", lambda self, v: Memory(self.model, self.version) if v.type.elem == "memory" else of(self, v))


@mutant("nothing is committed")
def iterations_may_commit_nothing(patch: Patch) -> None:
    patch.setattr(Kernel, "progress", property(lambda self: True, lambda self, value: None), raising=False)


@mutant("no_row_at_the_root")
def numbers_are_at_least_one(patch: Patch) -> None:
    patch.setattr(Kernel, "low", lambda self, v: 1)


@mutant("loop_in_a_branch")
def any_loop_ends_the_run(patch: Patch) -> None:
    patch.setattr(Kernel, "ended", property(lambda self: True, lambda self, value: None), raising=False)


@mutant("sub_run_tells")
def nothing_is_told_by_regions(patch: Patch) -> None:
    patch.setattr(Kernel, "_absorb", lambda self, op: None)


@mutant("function_in_a_sub_run")
def functions_remember_nothing(patch: Patch) -> None:
    patch.setattr(Kernel, "_remember", lambda self, op, taint: self.states.setdefault(kernel.memory_of(op), facts.NONE))


@mutant("carried_draw")
def loops_keep_what_holds_before_them(patch: Patch) -> None:
    patch.setattr(Kernel, "_check_invariant", lambda self, op, inv, now: None)


@mutant("".join(NO_MASS))
def a_sum_is_nothing_where_one_part_is(patch: Patch) -> None:
    patch.setattr(masses, "_both", lambda a, b: a if a is not None else b)


@mutant("".join(AT_LEAST))
def nothing_is_not_at_least_nothing(patch: Patch) -> None:
    known = matching.greater
    patch.setattr(matching, "greater", lambda big, small, or_equal=False: known(big, small))


@mutant("".join(OTHERS))
def what_is_chosen_is_as_the_first(patch: Patch) -> None:
    patch.setattr(matching, "chosen", lambda condition, x, y: x)


@mutant("what_is_too_much")
def every_rule_is_matching(patch: Patch) -> None:
    patch.setattr(matching.Paths, "judge", lambda self: "matching")


@mutant("not_both")
def both_or_neither(patch: Patch) -> None:
    known = matching.Paths._map

    def part(self: matching.Paths, fn: str, xs: list[Any], **more: Any) -> Any:
        equal = [x for x in xs if isinstance(x, matching.Equal)]
        return equal[0] if fn == "and" and equal else known(self, fn, xs, **more)

    patch.setattr(matching.Paths, "_map", part)


@mutant("what_is_too_much")
def no_balance(patch: Patch) -> None:
    patch.setattr(lossless.Lossless, "_balanced", lambda self, accepted, again: None)


@mutant("one coin for all nodes")
def noises_of_rules_may_be_shared(patch: Patch) -> None:
    patch.setattr(lossless.Lossless, "noises", lambda self, region, counters, made: None)
    patch.setattr(kernel, "_weighed", lambda k, op, rows, noises: "")


@mutant("one coin for all steps")
def noises_of_rules_may_be_those_of_the_last_step(patch: Patch) -> None:
    patch.setattr(kernel, "_weighed", lambda k, op, rows, noises: "")


@mutant("the noise of the drafts for the rest")
def sites_may_be_shared(patch: Patch) -> None:
    patch.setattr(Kernel, "shared_sites", property(lambda self: set(), lambda self, value: None), raising=False)


@mutant("normalized_negative")
def rows_below_zero_are_normalized(patch: Patch) -> None:
    patch.setattr(rows.RowNames, "normalized", lambda self, row: rows.scaled(row, rows.inverse(self.total(row))))


@mutant("accepted_too_often")
def every_rule_has_a_lemma(patch: Patch) -> None:
    patch.setattr(judgments, "digest", lambda op: next(iter(judgments.LEMMAS)))


@mutant("specification_of_two")
def specifications_are_what_they_are_called(patch: Patch) -> None:
    patch.setattr(claims, "_no_sampler", lambda module, claim: None)


@mutant("logits_of_a_computed_row")
def computed_rows_have_all_faces(patch: Patch) -> None:
    def face(k: facts.Known, op: Op) -> Any:
        row = k.of(op.operands[0])
        return replace(row, face=op.attrs["face"]) if isinstance(row, Row) else None

    rule_of(patch, "face", face)


@mutant("likeliest_of_a_normalized_nothing")
def the_largest_entry_has_mass(patch: Patch) -> None:
    def arg(k: facts.Known, op: Op) -> Any:
        row = k.of(op.operands[0])
        return Token(row.model, row.version, "inside") if isinstance(row, Row) else None

    rule_of(patch, "arg", arg)


@mutant("mixed_rows")
def either_face_is_shaped(patch: Patch) -> None:
    joined = facts.joined

    def shaped(a: Any, b: Any, value: Value, decided_by: Any) -> Any:
        return replace(a, face="shaped") if isinstance(a, Row) and isinstance(b, Row) else joined(a, b, value, decided_by)

    patch.setattr(kernel, "joined", shaped)


@mutant("pruned_by_size")
def sampled_drafts_may_be_pruned(patch: Patch) -> None:
    def keep(k: facts.Known, op: Op) -> Any:
        tree = k.of(op.operands[0])
        return replace(tree, tree=op.result) if isinstance(tree, Tree) else None

    rule_of(patch, "tree.keep", keep)


@mutant("grown_in_another_tree")
def nodes_have_the_same_numbers_everywhere(patch: Patch) -> None:
    grow = TABLE["tree.grow"].fact
    assert grow is not None

    def anywhere(k: facts.Known, op: Op) -> Any:
        tree, drafts = k.of(op.operands[0]), k.of(op.operands[1])
        found = grow(k, op)
        inside = isinstance(tree, Tree) and isinstance(found, Tree) and isinstance(drafts, CellTokens | Token)
        return replace(found, inside=facts.one_model(tree.inside, drafts.model)) if inside else found  # type: ignore[union-attr]

    rule_of(patch, "tree.grow", anywhere)


@mutant("cells_of_an_earlier_canvas")
def cells_of_any_canvas(patch: Patch) -> None:
    put = CanvasPut.fact

    def anywhere(k: facts.Known, op: Op) -> Any:
        canvas, tokens = k.of(op.operands[0]), k.of(op.operands[2]) if len(op.operands) > 2 else None
        known = isinstance(canvas, facts.Canvas) and isinstance(tokens, CellTokens | CellEdit)
        return facts.Canvas(tokens.model) if known else put(k, op)  # type: ignore[union-attr]

    rule_of(patch, "canvas.put", anywhere)


@mutant("position_of_another_token")
def positions_go_with_any_token(patch: Patch) -> None:
    def edit(k: facts.Known, op: Op) -> Any:
        where, what = (k.of(v) for v in op.operands)
        if isinstance(where, Picked) and isinstance(what, Picked) and what.tokens is not None:
            return CellEdit(what.tokens.model, what.tokens.canvas, op.result)
        return None

    rule_of(patch, "edit", edit)


@mutant("certain_is_not_impossible")
def bounds_are_strict(patch: Patch) -> None:
    symbol = terms.Terms._symbol

    def below(self: terms.Terms, v: Value, low: Any, high: Any, real: bool = False) -> Any:
        made = symbol(self, v, low, high, real)
        self.facts[v] = tuple(replace(atom, strict=real) for atom in self.facts[v])
        return made

    patch.setattr(terms.Terms, "_symbol", below)


@mutant("sorted_positions")
def sorted_is_as_it_was(patch: Patch) -> None:
    patch.setitem(terms.RULES, "sort", terms.Terms._same)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_weaker_kernel_derives_what_is_wrong(name: str, wrong: dict[str, Module], monkeypatch: Patch) -> None:
    change, program = MUTANTS[name]
    assert not derived(wrong[program])
    change(monkeypatch)
    assert derived(wrong[program])
