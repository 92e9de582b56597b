"""The checker of compiled kernels: what it finds wrong, and that nothing is compiled twice or mixed up."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from decgraph.backends.triton.cubin import ARCHES, Report, Spec
from decgraph.backends.triton.source import HEADER
from decgraph.errors import DecError
from lab.gpu import cubins

TEXT = (
    HEADER
    + """

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
"""
)
FINE = Spec("fine", "filled", {"x": "*fp32"}, {"V": 1.0, "B": 64}, TEXT)
SPILLS = Spec("spills", "crowded", {"x": "*fp32"}, {"B": 16384}, TEXT, warps=1)
MISTYPED = Spec("mistyped", "mistyped", {"x": "*fp32"}, {}, TEXT)


def test_planted_faults_are_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cubins, "everything", lambda only: [FINE, SPILLS, MISTYPED, replace(FINE, name="again")])
    out = tmp_path / "cubins.json"
    assert cubins.main(["--table", "--processes", "2", "--out", str(out), "--write"]) == 1
    made = json.loads(out.read_text())["kernels"]
    assert [row["name"] for row in made.values()] == ["fine"], "what has a fault is not kept"
    assert made[cubins.digest(FINE)]["sm_90"]["spills"] == 0
    said = capsys.readouterr().out
    assert said.count("bytes of spills") == 2 and said.count("mistyped for sm_") == 2 and "CompilationError" in said
    monkeypatch.setattr(cubins, "everything", lambda only: [FINE])
    assert cubins.main(["--out", str(out)]) == 0 and "1 kernels for sm_80, sm_90: nothing is wrong" in capsys.readouterr().out


def test_what_is_known_is_not_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[str] = []

    def reports(specs: list[Spec]) -> list[Report]:
        asked.extend(s.name for s in specs)
        return [Report(s.name, arch, registers=arch) for s in specs for arch in ARCHES]

    monkeypatch.setattr(cubins, "reports", reports)
    out = tmp_path / "cubins.json"
    monkeypatch.setattr(cubins, "everything", lambda only: [FINE])
    for _ in range(2):
        assert cubins.main(["--out", str(out), "--write"]) == 0
    assert asked == ["fine"]
    changed = replace(FINE, text=TEXT.replace("B), V)", "B), V + 1)"), name="changed")
    monkeypatch.setattr(cubins, "everything", lambda only: [FINE, changed])
    assert cubins.main(["--out", str(out), "--only", "rows", "--write"]) == 0 and asked == ["fine", "changed"]
    assert cubins.main(["--out", str(out), "--fresh"]) == 0 and asked == ["fine", "changed", "fine", "changed"]
    made = cubins.found([changed, FINE], cubins.kept(out))
    assert [r.registers for rows in made.values() for r in rows] == [80, 90, 80, 90]


def test_digests() -> None:
    """They change with the code that is run, and with nothing else."""
    same = replace(
        FINE,
        name="x",
        text="# a comment\n"
        + TEXT.replace("def crowded(x, B: tl.constexpr):", 'def crowded(x, B: tl.constexpr):\n    """Says."""'),
    )
    assert cubins.digest(same) == cubins.digest(FINE)
    others = [
        replace(FINE, warps=8),
        replace(FINE, constexprs={"V": 2.0, "B": 64}),
        replace(FINE, function="crowded"),
        replace(FINE, signature={"x": "*bf16"}),
        replace(FINE, stages=3),
        replace(FINE, aligned=("x",)),
        replace(FINE, text=TEXT.replace("v / tl.sum(v)", "v * tl.sum(v)")),
        replace(FINE, text=TEXT + "from decgraph.backends.triton.prelude import philox\n"),
    ]
    assert len({cubins.digest(s) for s in [FINE, *others]}) == 1 + len(others)
    of_module = Spec("m", "words_of", {}, module="decgraph.backends.triton.step.keys")
    assert {"decgraph.backends.triton.prelude", of_module.module} <= cubins._files(of_module.module, "")
    with pytest.raises(DecError, match="no module decgraph.backends.triton.nowhere"):
        cubins.digest(replace(of_module, module="decgraph.backends.triton.nowhere"))


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
        return [Report(s.name, arch) for s in specs for arch in s.arches or ARCHES]

    monkeypatch.setattr(cubins, "reports", reports)
    specs = [replace(FINE, name=str(n), arches=(90,) if n % 3 else ()) for n in range(7)]
    made = cubins.compiled(specs, 3)
    expected = [[(s.name, arch) for arch in s.arches or ARCHES] for s in specs]
    assert [[(r.name, r.arch) for r in rows] for rows in made] == expected
    assert sorted(asked) == [2, 2, 3] and cubins.compiled([]) == []
