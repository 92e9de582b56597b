"""Sessions of one folder share its model: weights are there once, tokens are as in a session alone."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from lib.lazily import transformers
from lib.models.hf_models import llama
from lib.repository import python

import decgraph
from decgraph.runtime.models import sharing
from decgraph.runtime.models.engine.of import engine_of

REQUEST = decgraph.Request((1, 5, 9), max_tokens=12, temperature=0)
MEGABYTE = 1 << 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llama(1).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def session(folder: Path, name: str = "autoregressive", **options: Any) -> Any:
    return decgraph.load(name).session(target=folder, **options)


MEASURED = """
import re
import decgraph

def used():
    text = open("/proc/self/smaps_rollup").read()
    return int(re.search(r"^Rss:\\s+(\\d+)", text, re.M)[1]) << 10

def answers(name):
    made = decgraph.load(name).session(target=FOLDER)
    result = made.run(decgraph.Request((1, 5, 9), max_tokens=8, temperature=0))
    assert result.error is None
    return made, result.tokens

first = answers("autoregressive")
before = used()
second, third = answers("autoregressive"), answers("prompt_lookup")
assert first[1] == second[1] == third[1]
print(used() - before)
"""


@pytest.mark.budget(8)
def test_a_second_session_takes_little_memory(tmp_path: Path) -> None:
    sizes = {"vocab_size": 2000, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8}
    config = transformers.LlamaConfig(**sizes, num_attention_heads=8)
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").stat().st_size > 100 * MEGABYTE
    assert int(python(MEASURED.replace("FOLDER", repr(str(tmp_path))))) < 30 * MEGABYTE


def test_heads_and_adapters_are_shared_as_well() -> None:
    one, two = decgraph.load("eagle2").session(), decgraph.load("eagle1").session()
    assert one.models["head"] is two.models["head"] and one.models["target"] is two.models["target"]
    assert decgraph.load("medusa").session().models["target"] is decgraph.load("medusa").session().models["target"]


def test_one_folder_for_two_models_of_an_algorithm(folder: Path) -> None:
    made = decgraph.load("speculative").session(target=folder, drafter=folder)
    result = made.run(REQUEST)
    assert result.tokens == session(folder).run(REQUEST).tokens
    assert set(result.stats.acceptance) == {1.0}


def test_threads_with_sessions_of_their_own_get_the_same_tokens(folder: Path) -> None:
    expected = session(folder).run(REQUEST).tokens
    names = ["autoregressive", "prompt_lookup", "jacobi", "autoregressive"]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda name: session(folder, name).run(REQUEST).tokens, names))
    assert found == [expected] * len(names)


def test_a_folder_that_has_changed_is_read_anew(folder: Path) -> None:
    old = session(folder)
    before = old.run(REQUEST).tokens
    llama(2).save_pretrained(folder)
    assert session(folder).run(REQUEST).tokens != before
    assert session(folder).models["target"] is not old.models["target"]


def test_precisions_and_compiled_sessions_have_models_of_their_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = session(folder)
    assert session(folder, dtype="bfloat16").models["target"] is not plain.models["target"]
    asked: list[Any] = []
    machine = type("Machine", (plain.machine,), {"compile": classmethod(lambda cls, models, notice: asked.append(models))})
    monkeypatch.setattr("decgraph.backends.registry.machine", lambda name: machine)
    assert session(folder, compile=True).models["target"] is not plain.models["target"]
    assert len(asked) == 1


def test_a_cache_key_is_a_session_s_own(folder: Path) -> None:
    one, two = session(folder), session(folder)
    first = one.run(REQUEST, cache_key="chat")
    two.run(decgraph.Request((7, 8), max_tokens=3, temperature=0), cache_key="chat")
    two.forget("chat")
    counted = engine_of(one.models["target"]).counted
    longer = decgraph.Request((*REQUEST.prompt, *first.tokens, 4), max_tokens=1, temperature=0)
    before = counted.computed
    kept = one.run(longer, cache_key="chat")
    assert counted.computed - before == 2  # the last committed token, which no call had read, and the new one
    assert kept.tokens == session(folder).run(longer).tokens


def test_weights_go_with_the_last_session(folder: Path) -> None:
    one, two = session(folder), session(folder)
    model = weakref.ref(one.models["target"])
    del one
    gc.collect()
    assert model() is two.models["target"]
    del two
    gc.collect()
    assert model() is None


def test_a_folder_without_a_model_is_said_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(decgraph.DecError, match=r"has no config\.json"):
            session(tmp_path)
    assert not sharing._makers
