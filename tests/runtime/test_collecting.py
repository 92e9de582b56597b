"""Garbage collection is held back while models load, and is as it was afterwards; nothing that was garbage stays for ever."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest
from lib.models import hf_models
from lib.waiting import SECONDS

import decgraph
from decgraph.runtime.collecting import uncollected
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.request import Request


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


def test_imported_modules_count_as_old_and_what_was_made_beside_them_can_be_freed() -> None:
    code = (
        "import gc, weakref\nfrom decgraph.runtime.collecting import uncollected\n"
        "class Cycle:\n    def __init__(self): self.itself = self\n"
        "with uncollected():\n    import wave\n    found = weakref.ref(Cycle())\n"
        "gc.collect(1)\nassert found() is not None, 'not among the young ones, which are walked often'\n"
        "gc.collect()\nassert found() is None and not gc.get_freeze_count()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


def test_dropped_cycles_are_found_by_python_itself_however_many_blocks_there_are() -> None:
    """As with sessions: each made in such a block, used, and dropped. Nobody calls gc.collect."""
    code = (
        "from decgraph.runtime.collecting import uncollected\n"
        "class Cycle:\n"
        "    alive = 0\n"
        "    def __init__(self): self.itself, self.more, Cycle.alive = self, [[] for _ in range(1000)], Cycle.alive + 1\n"
        "    def __del__(self): Cycle.alive -= 1\n"
        "for _ in range(200):\n"
        "    with uncollected(): cycle = Cycle()\n"
        "    used = [[] for _ in range(2000)]\n"
        "    del cycle\n"
        "assert Cycle.alive < 100, Cycle.alive"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


@pytest.mark.parametrize("ours", [False, True])
def test_a_process_that_grows_frees_what_was_dropped(ours: bool) -> None:
    """A model of a gigabyte may be two objects: Python's collector does not see that it should look."""
    code = (
        "import gc, sys, weakref; from decgraph.runtime import collecting\n"
        "sys.modules['torch'], held = sys, 0\n"
        "collecting._memory = lambda: held\n"
        f"if {ours}: collecting.process_is_ours()\n"
        "class Cycle:\n    def __init__(self): self.itself = self\n"
        "with collecting.uncollected(): found = weakref.ref(Cycle())\n"
        "held = collecting.GROWTH - 1\n"
        "with collecting.uncollected(): pass\n"
        "assert found() is not None, 'a walk for nothing'\n"
        "held = collecting.GROWTH\n"
        "with collecting.uncollected(): assert found() is None\n"
        f"assert bool(gc.get_freeze_count()) is {ours}"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


def test_what_a_session_held_is_gone_after_it() -> None:
    """No table outside of them keeps a session's models, engines or decoders."""
    session = decgraph.load("autoregressive").session(target=hf_models.llama(1))
    assert session.run(Request(prompt=(1, 2, 3), max_tokens=4)).error is None
    kept = [weakref.ref(x) for m in session.models.values() for x in (m, engine_of(m))]
    kept.append(weakref.ref(session))
    assert len(kept) == 3
    del session
    gc.collect()
    assert [ref() for ref in kept] == [None] * 3


def test_a_process_of_ours_walks_them_no_more() -> None:
    code = (
        "import gc; from decgraph.runtime.collecting import process_is_ours, uncollected; process_is_ours()\n"
        "with uncollected(): kept = [[] for _ in range(1000)]\n"
        "assert gc.isenabled() and gc.get_freeze_count() > 1000"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


def test_what_somebody_froze_stays_frozen() -> None:
    code = (
        "import gc; gc.freeze(); count = gc.get_freeze_count()\n"
        "from decgraph.runtime.collecting import uncollected\n"
        "with uncollected(): pass\n"
        "assert gc.isenabled() and gc.get_freeze_count() >= count - 100 > 0, (count, gc.get_freeze_count())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)
