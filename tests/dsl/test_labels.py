"""The label check accepts every sound program of the table and names the line of every broken one."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from decgraph.check import check_algorithm
from decgraph.dsl.lower import load_text, warnings_of
from decgraph.dsl.lower.labels import place
from decgraph.dsl.parse import parse_text
from decgraph.dsl.source import Source
from decgraph.errors import DecError
from decgraph.ir.labels import check_labels, weighed

FOLDER = Path(__file__).parent / "labels"
SOUND = sorted(p.stem for p in (FOLDER / "sound").glob("*.dec"))
STDLIB = sorted(p.name[:-4] for p in resources.files("decgraph.stdlib").iterdir() if p.name.endswith(".dec"))
BROKEN = sorted(p.stem for p in (FOLDER / "broken").glob("*.dec") if p.stem != "out_of_order")


RULED = """algorithm ruled(target: causal, drafter: causal):
    while not done:
        draft t:
            x ~ drafter(root)
            grow x
        verify t by {rule} against target(t)
        commit t.accepted
"""


def text_of(folder: str, name: str) -> str:
    return (FOLDER / folder / f"{name}.dec").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SOUND)
def test_sound_program_passes(name: str) -> None:
    module = load_text(text_of("sound", name), f"{name}.dec")
    assert check_labels(module) == []
    assert weighed(module.functions["a"]) == (set() if name == "match_ignores_laws" else {"t"})


@pytest.mark.parametrize("name", BROKEN)
def test_broken_program_is_named_at_its_line(name: str, golden: Callable[[str, str], None]) -> None:
    with pytest.raises(DecError) as caught:
        load_text(text_of("broken", name), f"{name}.dec")
    assert set(caught.value.codes) == {"E031"}
    golden(f"{name}.txt", f"{caught.value}\n")


@pytest.mark.parametrize("name", [*BROKEN, "out_of_order"])
def test_it_lowers_when_the_check_is_off(name: str) -> None:
    module = load_text(text_of("broken", name), check_labels=False)
    assert check_labels(module)


@pytest.mark.parametrize("name", BROKEN)
def test_the_same_drafts_pass_under_match(name: str) -> None:
    load_text(text_of("broken", name).replace("by rejection", "by match").replace("in distribution", "in tokens"))


def test_cells_decided_out_of_order_are_a_warning(golden: Callable[[str, str], None]) -> None:
    text = text_of("broken", "out_of_order")
    module = load_text(text, "out_of_order.dec")
    found = warnings_of(module, parse_text(text), Source(text, "out_of_order.dec"))
    assert [d.severity for d in found] == ["warning"]
    golden("out_of_order.txt", f"{found[0].render()}\n")


LONG = {"chosen_frontier", "race_beams", "speculative_jacobi", "match_ignores_laws"}
ALONE_SOUND = {"tetris"}
"""A batch of one keeps a prefix of its chain; what others do to it is not to be seen alone."""
NO_TOKENS = {"scores_in_a_branch"}
"""Ends in an error where the branch is taken, and there is nothing to compare."""
LONG_BROKEN = {"best_of_drawn", "gumbel_then_prune", "prune_by_own_probability", "helper_prunes"}


def verdict(folder: str, name: str) -> str:
    """What the exact check says of a program, in small worlds."""
    module = load_text(text_of(folder, name), f"{name}.dec", check_labels=False)
    params = {"gamma": 2} if any(p.name == "gamma" for p in module.entry.params) else {"depth": 1, "k": 2}
    if name == "pearl":
        params = {"gamma": 1}
    return check_algorithm(module, models=4, params=params).verdict


@pytest.mark.quick("bandit_on_past_draws", "chain", "pearl", "stop_after_keeping")
@pytest.mark.parametrize("name", [n for n in SOUND if n not in LONG])
def test_the_exact_check_proves_what_passes(name: str) -> None:
    assert verdict("sound", name) in ("proved", "holds")


@pytest.mark.parametrize("name", [n for n in BROKEN if n not in LONG_BROKEN | ALONE_SOUND | NO_TOKENS])
def test_the_exact_check_refutes_what_is_reported(name: str) -> None:
    assert verdict("broken", name) == "refuted"


@pytest.mark.quick("speculative", "sequoia", "staged_speculative")
@pytest.mark.parametrize("name", STDLIB)
def test_no_published_program_is_reported(name: str) -> None:
    text = (resources.files("decgraph.stdlib") / f"{name}.dec").read_text(encoding="utf-8")
    assert check_labels(load_text(text, f"stdlib/{name}.dec", check_labels=False)) == []


def warned(text: str) -> list[str]:
    """The messages of the warnings of a program that loads."""
    found = warnings_of(load_text(text, "warned.dec"), parse_text(text), Source(text, "warned.dec"))
    return [f"{d.span.line}: {d.message}" for d in found]


def test_what_may_be_kept_in_a_state_is_a_warning() -> None:
    sometimes = text_of("broken", "kept_in_a_state").replace("    kept = sample(drafter(ctx), 1)\n", "")
    drawn = "        if len(kept) == 0:\n            kept = sample(drafter(ctx), 1)\n"
    anew = "        kept = sample(drafter(ctx), 1)\n"
    assert warned(sometimes.replace("        draft t:\n", f"{drawn}        draft t:\n")) == [
        "8: an iteration may grow a draw that an earlier one has grown already"
    ]
    assert warned(sometimes.replace("        draft t:\n", f"{anew}        draft t:\n")) == []


@pytest.mark.parametrize("row", ["drafter(t.leaves) * (1 / gamma)", "relu(drafter(root) - target(root))", "target(root) ^ 2"])
def test_a_sum_that_does_not_show_is_a_warning(row: str) -> None:
    text = text_of("broken", "half_a_distribution").replace("drafter(t.leaves) * 0.5", row)
    assert warned(text) == ["5: what is drawn from here may be no distribution: nothing shows that it sums to 1"]
    assert warned(text.replace(row, f"normalize({row})")) == []


@pytest.mark.parametrize("name", ["longer_path", "grown_twice"])
def test_a_program_that_claims_its_support_alone_is_warned(name: str) -> None:
    text = text_of("broken", name)
    assert warned(text.replace("refines autoregressive(target) in distribution", "keeps support of target"))


def test_a_place_in_a_rule_is_told_at_the_programs_line() -> None:
    """The line that uses the rule, and behind it the rule's own; of the program's own rules the line itself."""
    text = RULED.format(rule="rejection")
    source = Source(text, "ruled.dec")
    ops = list(load_text(text, "ruled.dec").entry.body.walk())
    inside = [op.loc for op in ops if op.loc.path == "stdlib/rules.dec"]
    assert inside
    for loc in inside:
        shown, span, further = place(loc, source, "here")
        assert shown is source and text[span.start : span.end] == "verify t by rejection against target(t)"
        (other, there, label), *none = further
        assert (other.path, there.line, label, none) == (loc.path, loc.line, "here", [])
    own = next(op.loc for op in ops if op.opcode == "model.eval")
    shown, span, further = place(own, source, "here")
    assert (shown, span.line, further) == (source, own.line, ())
