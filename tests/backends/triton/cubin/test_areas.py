"""Every kernel that the areas list for real models compiles for sm_80 and sm_90, spills nothing, and fits.

What lab/gpu/results/cubins.json has is not compiled again: `python -m lab.gpu.cubins --write` after a change
of kernels keeps this fast, and a changed kernel that was not written there is compiled here.
"""

from __future__ import annotations

import pytest

from lab.gpu import cubins


@pytest.mark.quick("step")
@pytest.mark.parametrize("area", cubins.AREAS)
def test_kernels_of_an_area(area: str) -> None:
    specs = cubins.of_area(area)
    made = cubins.found(specs, cubins.kept())
    assert len(specs) >= len(made) > 0 and {r.arch for rows in made.values() for r in rows} == {80, 90}
    assert not cubins.faults(r for rows in made.values() for r in rows)
