"""What every test gets: golden files, a quiet offline environment, and hypothesis without deadlines."""

from __future__ import annotations

import atexit
import difflib
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from selection import cut, mark_cases

# Before anything imports torch or transformers: no network, no thread contention on small machines.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # pytest-xdist gives every core a worker

# A deadline measures the machine, not the code. In CI the examples are fixed: a red run is about the change.
settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", parent=settings.get_profile("local"), derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

IDLE = pytest.StashKey[dict[str, str]]()
"""By test: what is wrong with its mark `quick`."""

GOLDEN = Path(__file__).parent / "golden"
_read: set[str] = set()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.hasplugin("timeout"):  # a machine that is lent has what it has
        for name in ("timeout", "timeout_method"):
            parser.addini(name, "of pytest-timeout, which is not installed: tests have no limit")
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the tests produce; read the diff before you commit it",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tests run on the CPU and kernels in Triton's interpreter, whatever the machine has; those marked `gpu` run alone, by
    `pytest -m gpu`, on a device. Some of transformers' models import triton, which looks at this once."""
    config.stash[IDLE] = {}
    if config.option.markexpr != "gpu":
        os.environ.update(CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="1")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """What is collected stays until the end, with torch and every module: the garbage collector need not look at it again and
    again, which takes a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # modules are freed at the end of the process; nanobind prints what it does not see freed


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """What `-m` does not select of a test's cases does not become items."""
    yield
    if why := cut(metafunc):
        metafunc.config.stash[IDLE][metafunc.definition.nodeid] = why


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.markexpr != "gpu":
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("gpu")])
        items[:] = [item for item in items if not item.get_closest_marker("gpu")]
    mark_cases(config, [item for item in items if not hasattr(item, "callspec")])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A mark that is wrong fails its test and no other one."""
    if why := item.config.stash[IDLE].get(item.nodeid.split("[")[0]):
        pytest.fail(why, pytrace=False)


@pytest.fixture(autouse=True, scope="session")
def _measurements(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was measured on this machine is neither read nor written: kernels have the same sizes everywhere.

    The compiled library of runtime/native is shared: building it takes half a minute, and its file is named by its sources.
    """
    from decgraph import cache

    compiled, folder = cache.folder() / "native", tmp_path_factory.mktemp("measurements")
    os.environ["DECGRAPH_CACHE"] = str(folder)
    compiled.mkdir(parents=True, exist_ok=True)
    (folder / "native").symlink_to(compiled, target_is_directory=True)


@pytest.fixture(autouse=True)
def _models_of_one_test() -> None:
    """A test reads its models itself: what another one left of a folder is not shared with it."""
    from decgraph.runtime.models import sharing

    sharing.forget()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("eagle2.txt", text)`: text equals tests/golden/<test file without test_>/eagle2.txt.

    `pytest --update-golden` writes the file; a golden that no test reads fails a full run.
    """
    folder = GOLDEN / request.path.stem.removeprefix("test_")

    def check(name: str, text: str) -> None:
        path = folder / name
        _read.add(str(path))
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        if path.exists() and old == text:
            return
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        lines = difflib.unified_diff(old.splitlines(True), text.splitlines(True), f"golden/{name}", "now")
        where = path.relative_to(GOLDEN.parent)
        hint = "if the new text is right: pytest --update-golden"
        pytest.fail(f"{where} differs; {hint}\n{''.join(lines)}", pytrace=False)

    return check


def _is_full_run(config: pytest.Config) -> bool:
    option = config.option
    return (
        not option.keyword
        and option.markexpr == "not slow and not nightly"
        and not option.collectonly
        and not getattr(option, "lf", False)
        and not option.deselect
        and list(config.args) == list(config.getini("testpaths"))
    )


@pytest.hookimpl(optionalhook=True)  # pytest-xdist's, which may be absent
def pytest_testnodedown(node: object, error: object) -> None:
    """With `-n`, the workers read the goldens: gather what each one read."""
    _read.update(getattr(node, "workeroutput", {}).get("golden_read", ()))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    workeroutput = getattr(session.config, "workeroutput", None)
    if workeroutput is not None:
        workeroutput["golden_read"] = sorted(_read)
        return
    if exitstatus != 0 or not _is_full_run(session.config):
        return
    orphans = [path for path in sorted(GOLDEN.rglob("*")) if path.is_file() and str(path) not in _read]
    if orphans:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        names = ", ".join(str(path.relative_to(GOLDEN)) for path in orphans)
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.write_line(f"\ngolden files that no test reads: {names}", red=True)
