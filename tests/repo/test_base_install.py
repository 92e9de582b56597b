"""A base install, without torch and its family: what needs them says how to get them, and everything else works."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lib.repository import ROOT, python

from decgraph import extras
from decgraph.cli.verbs import verbs
from decgraph.extras import MODELS

HINT = f"pip install -e '{ROOT}[models]'"

# Every finder is asked through one that knows nothing of some libraries.
HIDING = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in HIDDEN else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
"""
HIDE = f"HIDDEN = {MODELS!r}{HIDING}"

# command line -> whether it needs the models
COMMANDS = {
    "bench speculative --quick": True,
    "check speculative --models 2": False,
    "compile speculative --emit cost": False,
    "compile speculative --emit triton": True,
    "compile speculative --emit python": True,
    "explain speculative": False,
    "explain E031": False,
    "convert OUT": True,
    "export hf speculative --out OUT/exported": False,
    "fmt --check OUT/mine.dec": False,
    "list": False,
    "lsp --help": False,
    "map OUT/mine.dec -a speculative -o OUT/rows.jsonl": True,
    "new OUT/mine.dec": False,
    "profile speculative --prompt hi": True,
    "repl speculative -n 4": True,
    "run speculative --prompt hi -n 4": True,
    "run speculative --prompt hi -n 4 --backend reference": True,
    "run speculative --prompt hi -n 4 --backend torch": True,
    "serve --port 0 --model target": True,
    "trace speculative --prompt hi --show": True,
    "tune speculative --prompts OUT/mine.dec --seconds 1 --out OUT/p.toml": True,
    "zoo list": False,
}

# Python functions that read models
CALLS = {
    "run": "decgraph.run('speculative', 'hi', max_tokens=4)",
    "method": "decgraph.load('speculative').run('hi', max_tokens=4)",
    "session": "decgraph.load('autoregressive').session()",
    "folder": "decgraph.load('autoregressive').session({'target': decgraph.zoo.path('target')})",
    "reference": "decgraph.load('fast_dllm').session(backend='reference')",
    "torch": "decgraph.load('autoregressive').session(backend='torch')",
    "triton": "decgraph.load('autoregressive').session(backend='triton')",
    "bind": "decgraph.models.bind(decgraph.load('eagle2').function, {})",
    "door": "decgraph.hf('autoregressive', backend='torch')",
}


def test_every_verb_has_an_example_here() -> None:
    assert {command.split()[0] for command in COMMANDS} == set(verbs())


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    """command line -> (exit code, stdout, stderr), all in one interpreter; `new` goes first: others read what it wrote."""
    folder = str(tmp_path_factory.mktemp("base"))
    commands = sorted(COMMANDS, key=lambda command: not command.startswith("new"))
    code = f"""{HIDE}
import contextlib, io, json
from decgraph.cli.main import main

told = {{}}
for command in {commands!r}:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command.replace("OUT", {folder!r}).split())
    told[command] = (code, out.getvalue(), err.getvalue())
print(json.dumps(told))
"""
    return {command: tuple(found) for command, found in json.loads(python(code)).items()}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_or_says_what_to_install(command: str, said: dict[str, tuple[int, str, str]]) -> None:
    code, out, err = said[command]
    if COMMANDS[command]:
        assert (code, out) == (2, "")
        assert "internal error" not in err
        assert err.splitlines()[-2].startswith("error: ")
        assert HINT in err.splitlines()[-1]
    else:
        assert (code, HINT in err) == (0, False), err


def test_python_functions_say_what_to_install() -> None:
    code = f"""{HIDE}
import json
import decgraph

told = {{}}
for name, text in {CALLS!r}.items():
    try:
        eval(text)
        told[name] = "nothing was raised"
    except decgraph.DecError as error:
        told[name] = error.hint
    except BaseException as error:
        told[name] = repr(error)
print(json.dumps(told))
"""
    told = json.loads(python(code))
    assert {name: hint for name, hint in told.items() if not hint.startswith(HINT)} == {}


# command line -> the extras that it needs
MORE = {
    "serve --port 0": "models,serve",
    "map OUT/mine.dec -a speculative -o OUT/rows.jsonl --ray": "models,ray",
    "bench speculative --quick --plot OUT/plots": "models,plots",
    "run speculative --prompt hi --json-schema OUT/mine.dec": "models",
    "zoo fetch smollm2": "models,gguf",
    "lsp": "editor",
}


def test_missing_extras_are_told_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "mine.dec").write_text("{}")
    commands = {command.replace("OUT", str(tmp_path)): wanted for command, wanted in MORE.items()}
    hidden = {*MODELS, "starlette", *(name for names in extras.PACKAGES.values() for name in names)} - {"pydantic"}
    code = f"""HIDDEN = {hidden!r}{HIDING}
import contextlib, io, json
from decgraph.cli.main import main

told = {{}}
for command in {list(commands)!r}:
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        main(command.split())
    told[command] = err.getvalue()
print(json.dumps(told))
"""
    told = json.loads(python(code))
    assert {c: said for c, said in told.items() if f"pip install -e '{ROOT}[{commands[c]}]'" not in said} == {}
    (serve,) = (said for command, said in told.items() if command.startswith("serve"))
    assert all(name in serve for name in ("torch", "transformers", "uvicorn")) and "are not installed" in serve


def test_what_needs_no_torch_works_without_it() -> None:
    code = f"""{HIDE}
import decgraph
from decgraph.runtime.models.table import TableModel

result = decgraph.run("autoregressive", (0, 1), {{"target": TableModel(4, seed=1)}}, max_tokens=5)
print(len(result.tokens), decgraph.check("speculative", models=2).verdict)
"""
    assert python(code).split() == ["5", "proved"]


def test_other_missing_modules_are_still_bugs(tmp_path: Path) -> None:
    from decgraph.extras import lacking, needs_models

    assert lacking(ModuleNotFoundError("no", name="torchvision_of_mine")) is None
    with pytest.raises(ModuleNotFoundError), needs_models():
        raise ModuleNotFoundError("no", name="lark")
