"""The shelf as files: they format to themselves, say where they come from, and state a claim that is meant."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lib.stdlib.table_models import SHELF, module, parameters
from lib.waiting import SECONDS

from decgraph import stdlib
from decgraph.dsl import syntax as s
from decgraph.dsl.format import format_source
from decgraph.dsl.parse import parse_text
from decgraph.errors import DecError
from decgraph.runtime.session import check_params

FILES = sorted(stdlib.FOLDER.glob("*.dec"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_formats_to_itself(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert format_source(text) == text


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_everything_says_what_it_is(file: Path) -> None:
    for item in parse_text(file.read_text(encoding="utf-8"), str(file)).items:
        if isinstance(item, s.Import | s.Extern):  # the algorithm says what a function of the caller is
            continue
        assert isinstance(item, s.Algorithm | s.Rule | s.Def | s.Policy)
        assert item.doc, item.name


@pytest.mark.parametrize("name", SHELF)
def test_entry(name: str) -> None:
    entry = stdlib.entry(name)
    assert entry.name == name
    assert entry.file.name == f"{name}.dec"
    assert entry.wave in ((1, 2, 3, 4, 6) if name in stdlib.catalogue() else (0,))
    if name == "autoregressive":
        assert (entry.family, entry.source, entry.title, entry.claim) == ("baseline", "", "", "")
        return
    assert entry.source, 'cite it: (Author et al., year: "Title")'
    doc = " ".join(stdlib.text(name).split())
    for title in entry.title.split("; "):
        assert f'"{title}"' in doc


@pytest.mark.budget()
@pytest.mark.parametrize("name", SHELF)
def test_the_claim_is_the_texts(name: str) -> None:
    assert stdlib.entry(name).claim == "; ".join(c.text for c in module(name).entry.claims)


@pytest.mark.parametrize("name", SHELF)
def test_main_is_named_for_its_file_and_its_defaults_are_in_range(name: str) -> None:
    function = module(name).entry
    assert function.name == name
    defaults = {p.name for p in function.params if p.has_default}
    assert defaults == {p.name for p in function.params if p.value.type.elem != "model"}
    assert set(check_params(function, {})) == defaults
    assert check_params(function, parameters(name)).keys() == defaults


@pytest.mark.parametrize("name", SHELF)
def test_no_word_of_the_language_is_an_algorithm(name: str) -> None:
    """What an algorithm does is written out: nothing that it calls is an algorithm, but where it says `run`."""
    item = parse_text(stdlib.text(name), name).named(name)
    called = {c.func.name for c in s.walk(item) if isinstance(c, s.Call) and isinstance(c.func, s.Name | s.Attr)}
    claimed = {c.spec.func.name for c in s.walk(item) if isinstance(c, s.Refines)}
    begun = {r.call.func.name for r in s.walk(item) if isinstance(r, s.Run) and isinstance(r.call.func, s.Name)}
    assert not (called - claimed - begun) & set(SHELF)


def test_unknown_names_are_refused_with_a_suggestion() -> None:
    with pytest.raises(DecError, match="medusa"):
        stdlib.entry("medsua")


def test_wave_one_is_there() -> None:
    assert set(SHELF) >= {
        "autoregressive",
        "speculative",
        "recursive_sd",
        "medusa",
        "eagle2",
        "kangaroo",
        "prompt_lookup",
        "token_recycling",
        "lookahead",
        "jacobi",
        "beam_patience",
        "llada",
        "dream",
        "fast_dllm",
        "prophet",
        "freedave",
    }


def test_reading_the_shelf_is_light() -> None:
    code = (
        "import sys; from decgraph import stdlib; [stdlib.entry(n) for n in stdlib.names()]; "
        "assert not {'torch', 'transformers', 'typer', 'rich', 'numpy', 'networkx'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


def test_all_entries_come_from_the_cache_and_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECGRAPH_CACHE", str(tmp_path))
    read = tuple(map(stdlib.entry, stdlib.names()))
    assert stdlib.entries() == read
    monkeypatch.setattr(stdlib, "entry", None)
    assert stdlib.entries() == read, "the second time no file is read"
    monkeypatch.undo()
    monkeypatch.setenv("DECGRAPH_CACHE", "/dev/null/nowhere")
    assert stdlib.entries() == read, "without a cache all are"
