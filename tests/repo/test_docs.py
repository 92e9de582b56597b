"""What the documentation shows is run: README.md, CONTRIBUTING.md, docs/**/*.md, and docstrings' examples.

A fenced block's first word is its language; the words after it say how to treat it:

    python                  the blocks of a page are one script; a block that starts with >>> is a doctest
    dec                     goes through decgraph.parse; `file=my.dec` also writes it, for later blocks
    dec broken E031         must be refused, with this code
    console                 lines that start with `$ decgraph` run in this process and must succeed
    console exit=1          ... must end with this code
    console output          ... and must print what follows; `...` stands for anything
    no-run, slow            anywhere: not run, or run only by `make nightly` (of the pages in REAL: by tests/real)
"""

from __future__ import annotations

import doctest
import importlib
import linecache
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from lib.repository import LANDED, ROOT, may_be_heavy, module_name, room_files

import decgraph

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```[ \t]*$", re.M | re.S)
COMMAND = re.compile(r"^\$ (decgraph[^\n]*)\n((?:(?!\$ ).*\n)*)", re.M)
PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.exists() and not {"internals", "recipes"} & set(page.parts)  # test_recipes.py follows those of recipes/
]


REAL = ["docs/tutorial.md", "docs/your-model.md"]
"""Pages about a fetched model: tests/real runs their slow blocks, `make slow` with it."""

QUICK = [page for page in PAGES if page.startswith(("README", "docs/tutorial", "docs/errors"))]
"""The pages that `make test` runs; `make slow` runs the others."""

GALLERY = [page for page in PAGES if page.startswith("docs/gallery/")]
CASES = [pytest.param(page, marks=pytest.mark.nightly) if page in set(GALLERY) - set(GALLERY[::10]) else page for page in PAGES]
"""lab/gallery.py writes all pages of the gallery in one way, of programs that other tests run: CI runs every tenth of them."""


@dataclass(frozen=True)
class Block:
    page: str
    line: int  # of the first line of the body
    language: str
    marks: tuple[str, ...]
    body: str

    def mark(self, key: str) -> str | None:
        """The value of `key=value` among the marks."""
        return next((m.split("=", 1)[1] for m in self.marks if m.startswith(f"{key}=")), None)

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: str, text: str) -> list[Block]:
    found = []
    for match in FENCE.finditer(text):
        words = match["info"].split()
        body = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.M)
        line = text.count("\n", 0, match.start("body")) + 1
        found.append(Block(page, line, words[0] if words else "", tuple(words[1:]), body))
    return found


def blocks(page: str, *languages: str, slow: bool = False) -> list[Block]:
    every = blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))
    chosen = [b for b in every if b.language in languages and "no-run" not in b.marks]
    return [b for b in chosen if ("slow" in b.marks) is slow] if LANDED else []


def write_files(page: str, before: int, folder: Path) -> None:
    """The files that this page's `file=` blocks define above a line."""
    for block in blocks_of(page, (ROOT / page).read_text(encoding="utf-8")):
        if (name := block.mark("file")) and block.line <= before:
            (folder / name).write_text(block.body, encoding="utf-8")


def run_script(page: str, chosen: list[Block], folder: Path) -> None:
    names: dict[str, object] = {"__name__": f"docs.{Path(page).stem}"}
    lines: list[str] = []
    for block in chosen:
        write_files(page, block.line, folder)
        if block.body.lstrip().startswith(">>>"):
            parser = doctest.DocTestParser()
            example = parser.get_doctest(block.body, {}, block.where, page, block.line - 1)
            example.globs = names
            report: list[str] = []
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            runner.run(example, out=report.append, clear_globs=False)
            assert not report, "".join(report)
            continue
        # The code keeps the page's line numbers, and linecache holds it: @decgraph.algorithm reads source.
        lines += [""] * (block.line - 1 - len(lines)) + block.body.splitlines()
        source = "\n" * (block.line - 1) + block.body
        linecache.cache[f"<{page}>"] = (len(source), None, [f"{text}\n" for text in lines], f"<{page}>")
        exec(compile(source, f"<{page}>", "exec"), names)


def run_console(block: Block, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """What went wrong, a line each."""
    from decgraph.cli.main import main

    write_files(block.page, block.line, folder)
    faults = []
    for command, expected in COMMAND.findall(block.body):
        code = main(shlex.split(command, comments=True)[1:])
        out, err = capsys.readouterr()
        if code != int(block.mark("exit") or 0):
            faults.append(f"{block.where}: `{command}` exits {code}\n{err}")
        elif "output" in block.marks and not same_text(expected, out + err):
            faults.append(f"{block.where}: `{command}` prints\n{out + err}")
    return faults


def run_slow_blocks(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The blocks of a page that are marked slow: commands first, which may write what its script reads."""
    slow = blocks(page, "console", "sh", "bash", slow=True)
    faults = [f for block in slow for f in run_console(block, folder, capsys)]
    assert not faults, "\n".join(faults)
    run_script(page, blocks(page, "python", "py", slow=True), folder)


PROGRESS = re.compile(r", \d+% after \d+ s, about \d+ s left$")
"""Lines that long work prints every ten seconds; how many there are depends on the machine."""


def same_text(expected: str, got: str) -> bool:
    def bare(text: str) -> str:
        lines = [line.rstrip() for line in text.strip().splitlines() if not PROGRESS.search(line)]
        return "\n".join(lines) + "\n"

    return doctest.OutputChecker().check_output(bare(expected), bare(got), doctest.ELLIPSIS)


@pytest.mark.budget()
@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("page", CASES)
def test_python_blocks(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_script(page, blocks(page, "python", "py"), tmp_path)


@pytest.mark.budget()
@pytest.mark.parametrize("page", CASES)
def test_dec_blocks(page: str) -> None:
    for block in blocks(page, "dec"):
        if "broken" not in block.marks:
            try:
                decgraph.parse(block.body)
            except decgraph.DecError as error:
                pytest.fail(f"{block.where}: {error}", pytrace=False)
            continue
        with pytest.raises(decgraph.DecError) as caught:
            decgraph.parse(block.body)
        codes = [mark for mark in block.marks if re.fullmatch(r"[EW]\d+", mark)]
        assert set(codes) <= set(caught.value.codes), f"{block.where}: refused with {caught.value.codes}"


@pytest.mark.budget()
@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("page", CASES)
def test_console_blocks(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    shown = blocks(page, "console", "sh", "bash")
    faults = [fault for block in shown for fault in run_console(block, tmp_path, capsys)]
    assert not faults, "\n".join(faults)


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in PAGES if page not in REAL])
def test_slow_blocks(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run_slow_blocks(page, tmp_path, capsys)


def test_examples_in_docstrings() -> None:
    """From one place: `pytest --doctest-modules` would load every room twice, under two names."""
    failed, attempted = 0, 0
    report: list[str] = []
    for path in room_files():
        if may_be_heavy(path):
            continue
        module = importlib.import_module(module_name(path))
        for example in doctest.DocTestFinder(exclude_empty=True).find(module, module.__name__):
            runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
            result = runner.run(example, out=report.append)
            failed, attempted = failed + result.failed, attempted + result.attempted
    assert attempted > 0
    assert failed == 0, "".join(report)


PAGE = """text
```python
x = 1
```
 - in a list

   ```console exit=1 output
   $ decgraph zoo
   a
   $ decgraph list
   ```
```dec broken E031 file=bad.dec
nonsense
```
"""


def test_blocks_are_found_with_their_lines_and_marks() -> None:
    first, second, third = blocks_of("p.md", PAGE)
    assert (first.language, first.line, first.body) == ("python", 3, "x = 1\n")
    assert (second.mark("exit"), second.line) == ("1", 8)
    assert second.body == "$ decgraph zoo\na\n$ decgraph list\n"
    assert (third.marks, third.mark("file")) == (("broken", "E031", "file=bad.dec"), "bad.dec")


def test_a_failing_block_names_its_page_and_line(tmp_path: Path) -> None:
    block = Block("p.md", 7, "python", (), "x = 1\n1 / 0\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run_script("README.md", [block], tmp_path)
    assert (caught.traceback[-1].lineno, str(caught.traceback[-1].path)) == (7, "<README.md>")


def test_blocks_share_names_and_show_their_source(tmp_path: Path) -> None:
    first = Block("p.md", 3, "python", (), "def f():\n    return 2\n")
    reads = "import inspect\nassert inspect.getsource(f) == 'def f():\\n    return 2\\n'\n"
    second = Block("p.md", 9, "python", (), reads)
    third = Block("p.md", 14, "python", (), ">>> f()\n3\n")
    run_script("README.md", [first, second], tmp_path)
    with pytest.raises(AssertionError, match="Expected"):
        run_script("README.md", [first, third], tmp_path)


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [("a ... c\n", "a b c", True), ("a\n", "b\n", False), ("a\n...\nd", "a\nb\nc\nd\n", True)],
)
def test_output_is_compared(expected: str, got: str, same: bool) -> None:
    assert same_text(expected, got) is same


def test_every_error_code_has_a_page() -> None:
    """Diagnostics are raised with their code as a literal: each has docs/errors/<code>.md."""
    codes: set[str] = set()
    pattern: Callable[[str], list[str]] = re.compile(r"""["'](E\d{3})["']""").findall
    for path in room_files():
        codes.update(pattern(path.read_text(encoding="utf-8")))
    lacking = sorted(code for code in codes if not (ROOT / "docs" / "errors" / f"{code}.md").exists())
    assert not lacking or not LANDED, f"no page in docs/errors for {lacking}"
