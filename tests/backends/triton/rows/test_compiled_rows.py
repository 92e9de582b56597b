"""Row kernels compile for devices that are not there, without spills."""

from __future__ import annotations

import pytest
from shelf import NAMES

import decgraph
from decgraph.backends.triton.cubin import Spec, reports
from decgraph.check.worlds import params_for
from decgraph.ir.values import Module
from decgraph.passes.plan import Plan
from lab.gpu.specs.rows import made, ops_on_rows, specs, specs_of


def module(name: str) -> Module:
    a = decgraph.load(name)
    return a.optimised(params_for(a.function, 0), Plan())


def compiled(wanted: list[Spec], arches: tuple[int, ...]) -> None:
    found = reports(wanted, arches)
    assert len(found) == len(wanted) * len(arches)
    wrong = [r for r in found if r.error or r.spills]
    assert not wrong, wrong[:3]


def test_a_few_compile() -> None:
    compiled([*made(128256)["draw_logits"].specs(64), *made(100, wide=True)["draw"].specs(8)], (90,))


@pytest.mark.nightly
def test_all_of_them_compile() -> None:
    compiled(specs(), (80, 90))


@pytest.mark.nightly
def test_those_of_every_algorithm_compile() -> None:
    wanted = specs_of(map(module, NAMES))
    assert len(wanted) > 40
    compiled(wanted, (80, 90))


def test_every_segment_with_rows_has_a_kernel_but_a_race_over_all_tokens() -> None:
    from decgraph.backends.triton.rows.shown import shown

    none = {
        (name, op.attrs.get("name", op.opcode))
        for name in NAMES
        for op in ops_on_rows(module(name))
        if op.opcode not in ("face", "gather") and not shown(op)
    }
    assert none == {("rsd_s", "draw.race")}, none
