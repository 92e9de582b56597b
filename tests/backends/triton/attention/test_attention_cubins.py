"""The kernels compiled for devices that are not there, at the sizes that real models launch."""

from __future__ import annotations

import pytest

from decgraph.backends.triton.cubin import Report, reports
from lab.gpu.specs.attention import specs

SHARED = {80: 163 * 1024, 90: 227 * 1024}


def check(made: list[Report]) -> None:
    assert made
    for report in made:
        assert not report.error, report
        assert report.spills == 0, report
        assert report.shared <= SHARED[report.arch], report
    assert {report.arch for report in made} == set(SHARED)


def test_the_most_used_ones() -> None:
    names = {"attend 8b T=64", "merge 8b 8", "move 8 x 128"}
    check(reports([s for s in specs() if s.name in names]))


@pytest.mark.nightly
def test_all_of_them() -> None:
    check(reports(specs()))


def test_names_are_names() -> None:
    """One spec for a name and an architecture."""
    every = [(s.name, arch) for s in specs() for arch in s.arches or (80, 90)]
    assert len(every) == len(set(every))
