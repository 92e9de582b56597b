"""What SmolLM2 takes of memory in float32: its weights, mapped, and little else; a second session takes next to nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from lib.repository import python

MEASURED = """
import os, re
import torch
torch.set_num_threads(1)

def used():
    text = open("/proc/self/smaps_rollup").read()
    return int(re.search(r"^Rss:\\s+(\\d+)", text, re.M)[1]) << 10

before = used()
import decgraph

def answers(name):
    session = decgraph.load(name).session(target=FOLDER)
    return session, session.run(decgraph.models.request_for(session, "The capital of France is", max_tokens=8)).text

one = answers("autoregressive")
first = used() - before
two, three = answers("autoregressive"), answers("prompt_lookup")
assert one[1] == two[1] == three[1], (one, two, three)
print(os.path.getsize(FOLDER + "/model.safetensors"), first, used() - before - first)
"""


@pytest.mark.budget(12)
def test_memory_of_one_session_and_of_more(smollm2: Path) -> None:
    weights, first, more = map(int, python(MEASURED.replace("FOLDER", repr(str(smollm2)))).split())
    keys = 30 * 2 * 3 * 64 * 4 * 256  # layers, keys and values, heads, size, bytes, rows
    assert first <= 1.15 * weights + keys, f"{first / weights:.3f} of the weights"
    assert more <= 30 << 20
