"""Public types, as a user's own checker sees them: right code passes, planted mistakes are found, nothing public is Any.

mypy --strict and pyright run on a file outside of the repository, against the package that this process imports. Libraries that
a base install lacks are skipped, so what is tested is what decgraph itself says.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from lib.waiting import SECONDS

import decgraph
from decgraph.check.algorithm import CheckOptions, check_algorithm
from decgraph.runtime.request import Request, RequestFields

HERE = Path(decgraph.__file__).resolve().parent.parent
MYPY = """[mypy]
strict = True
[mypy-torch.*,transformers.*,tokenizers.*,safetensors.*,triton.*,networkx.*]
follow_imports = skip
ignore_missing_imports = True
"""

RIGHT = '''"""What a user writes."""

from collections.abc import Iterator
from pathlib import Path

import decgraph
from decgraph.check import CheckOptions
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.trace import Committed, Event


class Wrapped:
    """As torch modules look from afar."""

    def parameters(self, recurse: bool = True) -> Iterator[object]:
        return iter(())

    def state_dict(self) -> dict[str, object]:
        return {}


def heard(event: Event) -> None:
    if isinstance(event, Committed):
        print(event.tokens)


algorithm: decgraph.Algorithm = decgraph.load("speculative")
other = decgraph.parse("...", path="mine.dec", main="mine")
models: dict[str, Model | str | Path | Wrapped] = {"target": TableModel(4, seed=1), "drafter": "folder"}
result: decgraph.Result = decgraph.run(
    algorithm, "hi", models, params={"gamma": 3}, max_tokens=4, temperature=1, stop="x", eos=1, bias={3: 1.0}, listener=heard
)
session: decgraph.Session = algorithm.session({"target": Wrapped(), "drafter": Path("x")}, gamma=3, backend="torch")
results: list[decgraph.Result] = session.generate(["a", (1, 2)], max_tokens=3, seed=1, top_k=5)
again = session.run(decgraph.models.request_for(session, "hi", max_tokens=3))
request = decgraph.Request((1, 2), max_tokens=3)
plan = decgraph.Plan(passes=("simplify",), batch=2)
report: decgraph.Report = decgraph.check("speculative", models=3, params={"gamma": 2}, seconds=5.0)
options: CheckOptions = {"models": 3}
more: decgraph.Report = algorithm.check(**options)
tokens: tuple[int, ...] = result.tokens
rate: float = result.stats.tokens_per_call
door = decgraph.hf("speculative", drafter=Wrapped(), gamma=5, seed=1)
names: tuple[str, ...] = decgraph.stdlib.names()
where: Path = decgraph.zoo.path("target")
for one in decgraph.check.check_all(["speculative"], jobs=2, vocab=3):
    print(one.verdict, one.counterexample)
try:
    decgraph.testing.assert_refines("speculative", "autoregressive", mode="tokens", models=2)
except decgraph.DecError as error:
    print(error.codes, error.hint)
print(algorithm.cost().calls[0].model, algorithm.params["gamma"].low, algorithm.claims[0].text, algorithm.explain())
'''

MISTAKES = {
    'decgraph.run("speculative", (1, 2), limt=4)': "limt",
    'decgraph.run("speculative", 3)': "int|Literal",
    'decgraph.run("speculative", (1, 2), temperature="hot")': "str|Literal",
    'decgraph.run("speculative", (1, 2), {"target": 3})': "int|Literal",
    'decgraph.run("speculative", (1, 2), plan="fast")': "str|Literal",
    "decgraph.nonsense": "nonsense",
    "decgraph.load(3)": "int|Literal",
    'decgraph.load("speculative").nmae': "nmae",
    'decgraph.load("speculative").session(backend=3)': "int|Literal",
    'decgraph.load("speculative").check(modles=3)': "modles",
    'decgraph.load("speculative").run("x", limt=3)': "limt",
    'decgraph.load("speculative").cost().cals': "cals",
    'decgraph.check("speculative", vocab="3")': "str|Literal",
    'decgraph.check("speculative", modles=3)': "modles",
    'decgraph.check("speculative").verdit': "verdit",
    "decgraph.check.check_al": "check_al",
    'decgraph.hf("speculative", batch="8")': "str|Literal",
    'decgraph.hf("speculative").lst': "lst",
    'decgraph.Request((1,), max_tokens="3")': "str|Literal",
    "decgraph.Plan(bach=3)": "bach",
    'decgraph.zoo.paht("target")': "paht",
    "decgraph.stdlib.text(3)": "int|Literal",
    'decgraph.testing.assert_claims("speculative", vocab="3")': "str|Literal",
    'decgraph.testing.assert_refines("speculative", mode="token")': "token",
    'decgraph.models.shipped("speculative")': "str|Literal",
    'raise decgraph.DecError("x", hint=3)': "int|Literal",
}

# An expression that uses each public name, whose type must be known
REVEALED = {
    "Algorithm": "decgraph.Algorithm(module=decgraph.load('x').module).name",
    "DecError": "decgraph.DecError('x').codes",
    "InternalError": "decgraph.InternalError('x').reproducer",
    "Plan": "decgraph.Plan().passes",
    "Grammar": "decgraph.Grammar",
    "Report": "decgraph.Report",
    "Request": "decgraph.Request((1,)).max_tokens",
    "Result": "decgraph.Result",
    "Session": "decgraph.Session.generate",
    "algorithm": "decgraph.algorithm",
    "check": "decgraph.check('x')",
    "hf": "decgraph.hf('x')",
    "load": "decgraph.load('x')",
    "masked": "decgraph.masked('masked', shift=False)",
    "models": "decgraph.models.bind",
    "parse": "decgraph.parse('x')",
    "run": "decgraph.run('x', 'y')",
    "stdlib": "decgraph.stdlib.entry('x')",
    "testing": "decgraph.testing.assert_claims('x')",
    "zoo": "decgraph.zoo.names()",
}


@dataclass(frozen=True)
class Found:
    """What a checker said: (line, message) of errors, and the revealed types by line."""

    errors: list[tuple[int, str]]
    types: dict[int, str]

    def at(self, line: int) -> str:
        return "\n".join(message for where, message in self.errors if where == line)


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "mypy.ini").write_text(MYPY)
    return request.param, folder


def checked(checker: tuple[str, Path], text: str) -> Found:
    """What a checker says of a user's file, in a folder of its own; its cache is kept between the tests of this file."""
    name, folder = checker
    (folder / "mine.py").write_text(text)
    environment = {k: v for k, v in os.environ.items() if k not in ("MYPYPATH", "PYTHONPATH", "PYTHONSAFEPATH")}
    if name == "mypy":
        words = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--no-error-summary", "mine.py"]
        environment["MYPYPATH"] = str(HERE)
    else:
        settings = {"include": ["mine.py"], "extraPaths": [str(HERE)], "typeCheckingMode": "strict"}
        # of libraries that have no types of their own, and of expressions that only stand there to be looked at
        settings |= {"reportMissingModuleSource": "none", "reportUnusedExpression": "none"}
        (folder / "pyrightconfig.json").write_text(json.dumps(settings))
        words = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"]
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    if name == "mypy":
        lines = [re.match(r"mine\.py:(\d+): (error|note): (.*)", line) for line in done.stdout.splitlines()]
        said = [(int(m[1]), m[2], m[3]) for m in lines if m]
    else:
        said = [
            (d["range"]["start"]["line"] + 1, d["severity"], d["message"])
            for d in json.loads(done.stdout)["generalDiagnostics"]
        ]
    errors = [(line, message) for line, severity, message in said if severity == "error"]
    pattern = r'Revealed type is "(.*)"' if name == "mypy" else r'Type of ".*" is "(.*)"'
    types = {line: m[1] for line, _, message in said if (m := re.search(pattern, message, re.S))}
    return Found(errors, types)


@pytest.mark.quick("pyright")
def test_right_code_has_no_error(checker: tuple[str, Path]) -> None:
    assert checked(checker, RIGHT).errors == []


@pytest.mark.quick("pyright")
def test_planted_mistakes_are_found(checker: tuple[str, Path]) -> None:
    found = checked(checker, "import decgraph\n" + "".join(f"{line}\n" for line in MISTAKES))
    missed = [line for number, (line, word) in enumerate(MISTAKES.items(), start=2) if not re.search(word, found.at(number))]
    assert not missed, found.errors


def test_no_public_name_is_any(checker: tuple[str, Path]) -> None:
    assert set(REVEALED) == set(decgraph.__all__)
    found = checked(checker, "import decgraph\n" + "".join(f"reveal_type({expression})\n" for expression in REVEALED.values()))
    assert found.errors == []
    types = {name: found.types.get(number, "") for number, name in enumerate(REVEALED, start=2)}
    assert not {name: said for name, said in types.items() if said in ("", "Any", "Unknown", "builtins.object", "object")}
    # What a name gives: a class of ours, or a function that gives one
    assert not {name: said for name, said in types.items() if re.search(r"-> (Any|Unknown|object)$", said)}, types


def test_names_for_checkers_and_for_python_are_the_same() -> None:
    """The block under `TYPE_CHECKING` imports what `_LAZY` finds."""
    text = Path(decgraph.__file__).read_text(encoding="utf-8")
    block = text.split("if TYPE_CHECKING:")[1].split("\n\n__version__")[0]
    namespace: dict[str, object] = {}
    exec("\n".join(line.strip() for line in block.splitlines()[1:] if line.strip().startswith(("from", "import"))), namespace)
    for name in decgraph._LAZY:
        seen = namespace.get(name, namespace.get(f"_{name}"))
        assert seen is getattr(decgraph, name), name


def test_typed_dicts_name_what_is_taken() -> None:
    import inspect

    # `prompt_length` is of sub-runs alone
    assert set(RequestFields.__annotations__) | {"prompt", "prompt_length"} == set(Request.__dataclass_fields__)
    options = set(inspect.signature(check_algorithm).parameters) - {"algorithm"}
    assert set(CheckOptions.__annotations__) == options
