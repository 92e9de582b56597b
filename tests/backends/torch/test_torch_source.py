"""The generated Python: what it looks like, that it is a module of its own, that errors, debuggers and profiles find their
way in it, and that segments are fx graphs."""

from __future__ import annotations

import ast
import cProfile
import importlib.util
import json
import linecache
import pstats
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lib.stdlib.requests import WORLDS, world
from lib.stdlib.table_models import NAMES, module, parameters, tables
from lib.waiting import SECONDS
from torch import fx

from decgraph.api import load as load_algorithm
from decgraph.backends.registry import machine
from decgraph.backends.torch.driver import Driver
from decgraph.backends.torch.generated import driven_by
from decgraph.backends.torch.program import printed, program_of
from decgraph.backends.torch.segments import graphs_of
from decgraph.backends.torch.texts import negated, summary
from decgraph.cli.main import main
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.walk import functions_of
from decgraph.passes.plan import Plan
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

GOLDEN = ["speculative", "eagle2", "fast_dllm", "prompt_lookup"]


@pytest.mark.parametrize("name", GOLDEN)
def test_emit_python(name: str, golden: Callable[[str, str], None], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", name, "--emit", "python"]) == 0
    golden(f"{name}.py", capsys.readouterr().out)


@pytest.mark.parametrize("passes", [False, True], ids=["plain", "passes"])
@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_python_that_says_where_it_comes_from(name: str, passes: bool) -> None:
    p = compiled(name, passes)
    tree = ast.parse(p.source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    others = {type(node) for node in tree.body} - {ast.FunctionDef}
    assert others <= {ast.Expr, ast.Import, ast.ImportFrom, ast.Assign} and name in {f.name for f in functions}
    driver = next(f for f in functions if f.name == name)
    doc = ast.get_docstring(driver) or ""
    assert doc.endswith(".") and doc.split("\n")[0] in " ".join(module(name).entry.doc.split())
    marked = {int(line.rsplit(":", 1)[1]) for line in p.source.splitlines() if f"  # {name}.dec:" in line}
    assert len(marked) >= 2
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            taken = [a.arg for a in function.args.args]
            assert len(set(taken)) == len(taken)
    for line in p.source.splitlines():
        code = line.split("  #")[0]
        assert "__" not in code and not code.endswith(" ") and "not not" not in code, line


def compiled(name: str, passes: bool = True) -> Driver:
    m = load_algorithm(name).optimised() if passes else module(name)
    return program_of(m, m.main)


def imported(text: str, folder: Path, name: str) -> ModuleType:
    """A printed text as a module: written to a file and imported as any other."""
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.quick("passes")
@pytest.mark.parametrize("passes", [False, True], ids=["plain", "passes"])
@pytest.mark.parametrize("name", NAMES)
def test_a_printed_file_decodes(name: str, passes: bool, tmp_path: Path) -> None:
    """Imported from a file, with nothing of the program that printed it, alone and in a ragged batch."""
    w = world(name, *WORLDS[0])
    plan = Plan() if passes else Plan(passes=())
    session = w.session("torch", plan)
    module = imported(printed(session.module), tmp_path, f"printed_{name}")
    drivers = [getattr(module, f.name) for f in functions_of(session.module)]
    called: set[str] = set()
    for driver in drivers:
        setattr(module, driver.__name__, heard(driver, called))
    alone = [driven_by(module, w.session("torch", plan)).run(r) for r in w.requests]
    w.compare(alone, "printed", passes=passes)
    together = driven_by(module, w.session("torch", plan)).generate(w.requests, batch=3, keep_events=True)
    w.compare(together, "printed, three at a time", passes=passes, together=True)
    assert name in called


def heard(driver: Callable[..., Any], called: set[str]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        called.add(driver.__name__)
        return driver(*args)

    return run


def test_a_printed_file_without_the_algorithm_is_refused(tmp_path: Path) -> None:
    w = world("speculative", *WORLDS[0])
    other = imported(printed(load_algorithm("autoregressive").optimised()), tmp_path, "other")
    with pytest.raises(DecError, match="has no function speculative"):
        driven_by(other, w.session("torch", Plan())).run(w.requests[0])


def test_a_printed_file_can_be_edited(tmp_path: Path) -> None:
    """A drafter that is never believed: the same tokens, none of them drafted."""
    w = world("speculative", *WORLDS[0])
    session = w.session("torch", Plan())
    text = printed(session.module)
    edited, times = re.subn(r"drafter, t, 0, \w+, ", "drafter, t, 0, 0, ", text)
    assert times == 1
    module = imported(edited, tmp_path, "edited")
    got = driven_by(module, session).run(w.requests[0])
    assert got.tokens and not got.stats.drafted and w.wanted[0].stats.drafted


@pytest.mark.parametrize("name", NAMES)
def test_segments_are_fx_graphs(name: str) -> None:
    graphs = graphs_of(load_algorithm(name).optimised())
    assert graphs or name == "autoregressive"
    for graph in graphs.values():
        graph.lint()
        assert isinstance(fx.GraphModule({}, graph), fx.GraphModule)


def test_a_graph_computes_what_a_rule_takes_its_residual_from() -> None:
    import numpy as np
    import torch

    from decgraph.backends.torch.machine import TorchMachine
    from decgraph.backends.torch.rows import TorchDist, TorchVectors

    m = load_algorithm("speculative").optimised()
    models = {k: v for k, v in tables().items() if k in ("target", "drafter")}
    request = Request(prompt=(0, 1))
    run = TorchMachine(m, m.main, models, {"gamma": 2}, request)
    a, b = (
        TorchDist(TorchVectors(torch.tensor([w], dtype=torch.float64), request), np.asarray(0))
        for w in ([0.1, 0.2, 0.3, 0.4], [0.4, 0.3, 0.2, 0.1])
    )
    name = next(name for name in graphs_of(m) if name.startswith("p_at_"))
    by_graph = fx.GraphModule({}, graphs_of(m)[name])(run, a, b)
    assert by_graph.vector().tolist() == pytest.approx([0, 0, 0.25, 0.75])


def run_program(text: str, **more: Any) -> Any:
    session = Session(load_text(text, "mine.dec"), {"target": TableModel(4, 1, name="target")}, machine=machine("torch"))
    return session.run(Request(prompt=(0, 1), max_tokens=6, **more))


FAILS = '''algorithm fails(target: causal):
    """A node that is not there."""
    while not done:
        draft t:
            x ~ target(t.leaves)
            grow x
        p = target(t)
        n = count(t.depth == 9)
        y ~ p[t.drafted[n + 5]]
        commit y
'''


def test_errors_name_the_line() -> None:
    error = run_program(FAILS).error
    assert error is not None and str(error).startswith("error: mine.dec:9:"), error


def test_errors_in_segments_name_their_own_line() -> None:
    m = load_text(FAILS, "mine.dec")
    from decgraph.passes.manager import optimise

    made = optimise(m)[0]
    assert graphs_of(made)
    error = Session(made, {"target": TableModel(4, 1)}, machine=machine("torch")).run(Request(prompt=(0, 1))).error
    assert error is not None and str(error).startswith("error: mine.dec:9:") and "segment" not in str(error), error


SHADOWS = '''algorithm draw(target: causal):
    """Every name is one that the generated text has a use for."""
    while not done:
        draft tree_new:
            walk ~ target(tree_new.leaves)
            grow walk
        noise = target(tree_new)
        len = count(tree_new.depth == 1)
        m = len + 1
        verify tree_new by match against noise
        if m > 3:
            m = len
        commit tree_new.accepted

rule match(p: dist, children: draws):
    y ~ p as output
    for x in children:
        if x == y:
            accept x
    emit y
'''


def test_names_of_the_author_hide_nothing() -> None:
    result = run_program(SHADOWS)
    assert result.error is None and len(result.tokens) == 6
    reference = Session(load_text(SHADOWS), {"target": TableModel(4, 1, name="target")}, machine=machine("reference"))
    assert result.tokens == reference.run(Request(prompt=(0, 1), max_tokens=6)).tokens


def test_a_program_that_asks_no_model_runs() -> None:
    result = run_program('algorithm still(target: causal):\n    """No call."""\n    while not done:\n        commit point(2)\n')
    assert result.error is None and result.tokens == (2,) * 6


def test_the_driver_is_seen_by_profiles_debuggers_and_tracebacks() -> None:
    models = {k: v for k, v in tables().items() if k in ("target", "drafter")}
    session = Session(load_algorithm("speculative").optimised(), models, parameters("speculative"), machine=machine("torch"))
    p = program_of(session.module, "speculative")
    profile = cProfile.Profile()
    profile.runcall(session.run, Request(prompt=(0, 1), max_tokens=8))
    seen = {(file, name) for file, _, name in pstats.Stats(profile).stats}  # type: ignore[attr-defined]
    assert (p.filename, "speculative") in seen and (p.filename, "rejection") in seen

    stepped: list[str] = []

    def trace(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != p.filename:
            return None
        if event == "line":
            stepped.append(linecache.getline(p.filename, frame.f_lineno).strip())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        session.run(Request(prompt=(0, 1), max_tokens=4))
    finally:
        sys.settrace(before)
    assert any(line.startswith("p_target = yield") for line in stepped) and any("commit(" in line for line in stepped)

    class Broken(TableModel):
        def eval(self, paths: Any, memory: Any = None) -> Any:
            raise MemoryError("none left")

    broken = Session(load_algorithm("autoregressive").optimised(), {"target": Broken(4, 1)}, machine=machine("torch"))
    failed = broken.run(Request(prompt=(0, 1))).error
    assert failed is not None and isinstance(failed.__cause__, MemoryError)
    error = run_program(FAILS).error
    assert error is not None and error.__cause__ is not None
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    assert any(f.name == "fails" and "gather" in (f.line or "") for f in frames)


def test_emit_segments_prints_the_graphs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "speculative", "--emit", "segments"]) == 0
    text = capsys.readouterr().out
    assert text.count("graph():") == len(graphs_of(load_algorithm("speculative").optimised())) and "call_function" in text
    assert main(["compile", "speculative", "--emit", "segments", "--json"]) == 0
    assert '"segments"' in capsys.readouterr().out


def test_functions_run_inside_another_are_printed_first() -> None:
    from lib.programs.corpus import program

    m = load_text(program("cntp"), "cntp.dec")
    text = printed(m)
    assert 0 < text.index("def autoregressive(") < text.index(f"def {m.main}(")


@pytest.mark.parametrize(
    ("doc", "wanted"),
    [
        ('One (A. et al., 2020: "T. Two"). Then more.', 'One (A. et al., 2020: "T. Two"). Then more.'),
        ("no full stop", "no full stop"),
        ("First! " + "x" * 400 + ". Third.", "First!"),
    ],
)
def test_docstrings_end_with_a_sentence(doc: str, wanted: str) -> None:
    assert summary(doc) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a", "not a"),
        ("not a", "a"),
        ("a == b", "a != b"),
        ("a < b", "not (a < b)"),
        ("not a and b", "not (not a and b)"),
        ("f(m, x)", "not f(m, x)"),
        ("not f(m)", "f(m)"),
    ],
)
def test_negated(text: str, wanted: str) -> None:
    assert negated(text) == wanted


FRESH = """
import json, sys
from decgraph.api import load
from decgraph.backends.torch.program import printed
print(json.dumps({name: printed(load(name).optimised()) for name in sys.argv[1:]}))
"""


def test_the_text_does_not_depend_on_what_ran_before() -> None:
    """Tables that fill when they are first used must not decide which names are free."""
    done = subprocess.run([sys.executable, "-c", FRESH, *NAMES], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert json.loads(done.stdout) == {name: printed(load_algorithm(name).optimised()) for name in NAMES}


def test_names_of_lowerings_are_reserved_before_any_is_loaded() -> None:
    """Else a variable that is named for its op (`entropy = entropy(m, ...)`) is read before it is assigned."""
    code = """
from decgraph.backends.torch.header import reserved
from decgraph.ir.values import Op
print(sorted({"commit", "normalize"} & reserved([Op("normalize", (), {}, (), ()), Op("commit", (), {}, (), ())])))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=SECONDS)
    assert done.stdout.strip() == "['commit', 'normalize']"
