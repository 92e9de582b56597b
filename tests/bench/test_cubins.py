"""The checker of compiled kernels: what it finds wrong, and that nothing is compiled twice or mixed up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from decgraph.backends.triton.cubin import ARCHES, Report, Spec
from decgraph.backends.triton.source import HEADER
from decgraph.bench import cubins
from decgraph.errors import DecError

TEXT = HEADER + '''

@triton.jit
def filled(x, V: tl.constexpr, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), V)


@triton.jit
def crowded(x, B: tl.constexpr):
    at = tl.arange(0, B)
    v = tl.load(x + at)
    tl.store(x + at, v / tl.sum(v))


@triton.jit
def mistyped(x):
    tl.store(x, tl.arange(0, 8))
'''
FINE = Spec("fine", "filled", {"x": "*fp32"}, {"V": 1.0, "B": 64}, TEXT)
SPILLS = Spec("spills", "crowded", {"x": "*fp32"}, {"B": 16384}, TEXT, warps=1)
MISTYPED = Spec("mistyped", "mistyped", {"x": "*fp32"}, {}, TEXT)


def test_planted_faults_are_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cubins, "everything", lambda only: [FINE, SPILLS, MISTYPED, replace(FINE, name="again")])
    out = tmp_path / "cubins.json"
    assert cubins.main(["--table", "--processes", "2", "--out", str(out)]) == 1
    made = json.loads(out.read_text())
    assert list(made["kernels"]) == ["fine", "spills", "mistyped"]
    assert made["kernels"]["fine"]["sm_90"]["spills"] == 0 and made["kernels"]["spills"]["sm_80"]["spills"] > 0
    assert len(made["wrong"]) == 4 and all("spills" in w or "mistyped" in w for w in made["wrong"])
    said = capsys.readouterr().out
    assert "bytes of spills" in said and "CompilationError" in said
    monkeypatch.setattr(cubins, "everything", lambda only: [FINE])
    assert cubins.main([]) == 0 and "1 kernels for sm_80, sm_90: nothing is wrong" in capsys.readouterr().out


def test_what_is_a_fault() -> None:
    fine = Report("k", 90, registers=40, shared=200 << 10)
    assert not cubins.fault(fine) and "shared memory" in cubins.fault(replace(fine, arch=80))
    assert "spills" in cubins.fault(replace(fine, spills=4)) and "nothing was compiled" in cubins.fault(Report("k", 80))
    assert cubins.fault(Report("k", 80, error="no")) == "k for sm_80: no"


def test_one_of_each() -> None:
    same = replace(FINE, name="other")
    more = replace(FINE, constexprs={"V": 2.0, "B": 64})
    assert cubins.unique([FINE, same, more, FINE]) == [FINE, more]
    assert cubins.unique([same, FINE]) == [same]


def test_reports_stay_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def reports(specs: list[Spec]) -> list[Report]:
        asked.append(len(specs))
        return [Report(s.name, arch) for s in specs for arch in ARCHES]

    monkeypatch.setattr(cubins, "reports", reports)
    specs = [replace(FINE, name=str(n)) for n in range(7)]
    made = cubins.compiled(specs, 3)
    assert [(r.name, r.arch) for r in made] == [(s.name, arch) for s in specs for arch in ARCHES]
    assert sorted(asked) == [2, 2, 3]


def test_an_area_without_kernels_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cubins.pkgutil, "iter_modules", lambda _: [])
    with pytest.raises(DecError, match="backends/triton/attention lists no kernels"):
        cubins.of_area("attention")
