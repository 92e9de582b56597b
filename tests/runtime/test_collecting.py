"""Garbage collection is held back while models load, and is as it was afterwards; nothing that was garbage stays for ever."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from decgraph.runtime.collecting import uncollected


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled: bool) -> None:
    had = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ValueError, match="inside"), uncollected():
            assert not gc.isenabled()
            with uncollected():
                assert not gc.isenabled()
            assert not gc.isenabled()
            raise ValueError("inside")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if had else gc.disable)()


def test_what_was_made_counts_as_old_and_can_be_freed() -> None:
    code = (
        "import gc, weakref\nfrom decgraph.runtime.collecting import uncollected\n"
        "class Cycle:\n    def __init__(self): self.itself = self\n"
        "with uncollected(): found = weakref.ref(Cycle())\n"
        "gc.collect(1)\nassert found() is not None, 'not among the young ones, which are walked often'\n"
        "gc.collect()\nassert found() is None and not gc.get_freeze_count()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_process_of_ours_walks_them_no_more() -> None:
    code = (
        "import gc; from decgraph.runtime.collecting import process_is_ours, uncollected; process_is_ours()\n"
        "with uncollected(): kept = [[] for _ in range(1000)]\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 1000"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_somebody_froze_stays_frozen() -> None:
    code = (
        "import gc; gc.freeze(); count = gc.get_freeze_count()\n"
        "from decgraph.runtime.collecting import uncollected\n"
        "with uncollected(): pass\n"
        "assert gc.isenabled() and gc.get_freeze_count() >= count - 100 > 0, (count, gc.get_freeze_count())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
