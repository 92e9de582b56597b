"""What every verb shares: JSON or rich output, and errors that end in an exit code instead of a traceback."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decgraph.errors import DecError, InternalError
from decgraph.extras import lacking

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

FAILED = 1  # it was done, and the answer is no: a claim is refuted, a run ended in an error, a file would change
REFUSED = 2  # it cannot be done as it was asked: a DecError about the command line, a program, a model or a file
UNDECIDED = 3  # of a check: a claim is neither proved nor refuted
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h: a bug of ours
INTERRUPTED = 130  # 128 + SIGINT
TRACEBACK = "DECGRAPH_TRACEBACK"  # set to 1: bugs of ours, and what ends a run, show where they happened


def emit_json(value: Any) -> None:
    """One JSON document on stdout. NaN and infinities become null, exact fractions strings such as "1/3"."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False))


def check_writable(path: Path | None, *endings: str, what: str = "JSON", instead: str = "", but: Path | None = None) -> None:
    """To be called before what takes seconds or minutes. Raises DecError for a file that could not be written, and for a name
    that ends as files of another format do. endings: of the format that is written, which is called `what`; a name without an
    ending fits all. instead: how the format that the name asks for is written, where it can be. but: a file that is read, and
    is no hint."""
    if path is None:
        return
    if endings and path.suffix and path.suffix.lower() not in endings:
        named = path.with_suffix(endings[0])
        named = path.with_name(path.name + endings[0]) if named == but or named.exists() else named
        hint = f"{named}{'; ' * bool(instead)}{instead}"
        raise DecError(f"{path} does not end as {what} does, which is written there", hint=hint)
    if path.is_dir() or not path.absolute().parent.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise DecError(f"cannot write {path}", hint="a file in a folder that is there")


def write(path: Path, text: str) -> None:
    """Write a text file as UTF-8, with the line ends that the text has. Raises DecError where the system refuses it."""
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise DecError(f"cannot write {path}: {error.strerror or error}") from None


_OF_FILES = re.compile(
    r"\.(html?|pdf|png|svg|jpe?g|json|jsonl|csv|md|txt|tex|toml|ya?ml|py|dec|gguf|safetensors|bin|pt|zip)", re.I
)


def check_folder(path: Path | None) -> None:
    """The same for a folder, which may be there or not. Raises DecError for a name that ends as a file's does."""
    if path is not None and _OF_FILES.fullmatch(path.suffix) and not path.is_dir():
        raise DecError(f"{path} ends as a file does, and a folder is written there", hint=f"{path.with_suffix('')}")


def plain(value: Any) -> Any:
    """The value as JSON knows it: dicts, lists, strings, numbers, booleans, null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [plain(item) for item in sorted(value, key=str)]
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, without importing NumPy
        return plain(value.tolist())
    return str(value)


def console(*, stderr: bool = False) -> Console:
    """A rich console; colours go away by themselves in a pipe, under NO_COLOR and in a dumb terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


GAP = 2  # spaces between columns


def print_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Aligned columns for people, without a word broken; in a pipe the heading and the rows, separated by tabs.

    What does not fit into the terminal's width even with every cell wrapped at its spaces becomes a paragraph a row.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in [list(columns), *cells]:
            print("\t".join(row))
        return
    screen = console()
    widths = fitted(columns, cells, screen.width)
    if widths is None:
        paragraphs(screen, columns, cells)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, width=width)
    for row in cells:
        table.add_row(*map(Text, row))  # Text: `p[x]` is no markup
    screen.print(table)


def fitted(columns: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """A width for every column: as wide as its widest cell, or less where the table would not fit, but never less than its
    longest word. None where even that does not fit."""
    texts = [[column, *(row[n] for row in cells)] for n, column in enumerate(columns)]
    widths = [max(map(len, column)) for column in texts]
    least = [max((len(word) for text in column for word in text.split()), default=0) for column in texts]
    room = width - GAP * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=lambda n: widths[n])
        widths[widest] -= 1
    return widths


def paragraphs(screen: Console, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """A row as its first cell and a line for every other one that is not empty."""
    from rich.text import Text

    indent = max(map(len, columns[1:]), default=0) + 2
    for row in cells:
        screen.print(Text(row[0], "bold"))
        for column, cell in zip(columns[1:], row[1:], strict=True):
            if cell:
                print_hanging(screen, Text(f"  {column:<{indent}}"), Text(cell))


def print_hanging(screen: Console, head: Text, body: Text) -> None:
    """A head and a text beside it: on a terminal wrapped at its spaces and indented as the head is wide, else one line."""
    from rich.text import Text

    lines = list(body.wrap(screen, max(20, screen.width - len(head)))) if screen.is_terminal else [body]
    for line in lines or [body]:
        screen.print(Text.assemble(head, line))
        head = Text(" " * len(head))


COLUMN = re.compile(r" *(?:\S+ {2,}(?=\S))?")  # an indent, with a word of a first column where there is one


def print_folded(text: str) -> None:
    """A text of aligned lines: on a terminal the long ones are wrapped at their spaces, below the column that they stand in."""
    screen = console()
    for line in text.splitlines():
        head = COLUMN.match(line)
        at = head.end() if screen.is_terminal and head is not None and len(line) > screen.width else 0
        if not at or screen.width - at < 20:
            print(line)
            continue
        for part in textwrap.wrap(line[at:], screen.width - at, break_long_words=False, break_on_hyphens=False):
            print(line[:at] + part)
            line = " " * at


def print_markdown(text: str) -> None:
    """A page of Markdown, laid out for the terminal; elsewhere as it is."""
    screen = console()
    if not screen.is_terminal:
        print(text)
        return
    from rich.markdown import Markdown

    screen.print(Markdown(text, code_theme="ansi_dark"), soft_wrap=False)


def report(error: BaseException, arguments: Sequence[str] = ()) -> int:
    """Say on stderr what went wrong, and return the exit code.

    What is refused (`DecError`) is with `--json` among the arguments a JSON document on stdout as well; a bug in decgraph is
    said with how to see it again.
    """
    if isinstance(error, KeyboardInterrupt):
        print(": ".join(["interrupted", *map(str, error.args)]), file=sys.stderr)
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        silence_stdout()
        return FAILED
    if (known := lacking(error)) is not None:
        known.__cause__, error = error, known
    if isinstance(error, DecError):
        show_user_error(error)
        if error.__cause__ is not None and os.environ.get(TRACEBACK):  # the original exception
            traceback.print_exception(error.__cause__)
        if "--json" in arguments:
            emit_json({"error": str(error), "codes": list(error.codes)})
        return REFUSED
    show_internal_error(error, arguments)
    return INTERNAL_ERROR


def warn(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
) -> None:
    """A warning on stderr as a sentence: the place in our code that Python would name is of no use to a user."""
    print(f"warning: {message}", file=sys.stderr)


def show_user_error(error: DecError) -> None:
    """The error on stderr; at a terminal its head, carets and notes in colour."""
    text = str(error)
    if not sys.stderr.isatty() or "NO_COLOR" in os.environ:
        print(text, file=sys.stderr)
        return
    from rich.text import Text

    shown = Text(text)
    shown.highlight_regex(r"(?m)^error(\[\w+\])?:.*$", "bold")
    shown.highlight_regex(r"(?m)^error(\[\w+\])?", "red")
    shown.highlight_regex(r"\^+", "red")
    shown.highlight_regex(r"(?m)^ *= \w+:", "cyan")
    console(stderr=True).print(shown)


def show_internal_error(error: BaseException, arguments: Sequence[str]) -> None:
    """Our bug: what, where in decgraph, and the command that shows it again."""
    import shlex

    if isinstance(error, InternalError):
        print(error, file=sys.stderr)
    else:
        print(f"internal error: {type(error).__name__}: {error}", file=sys.stderr)
    frames = traceback.extract_tb(error.__traceback__)
    if frames:
        print(f"  = at: {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}", file=sys.stderr)
    print(f"  = reproduce: {TRACEBACK}=1 {shlex.join(['decgraph', *arguments])}", file=sys.stderr)
    print("  = a bug in decgraph, not in your program; please report it with these lines", file=sys.stderr)
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error)


def silence_stdout() -> None:
    """The reader of our output has gone: nothing more is written, not even at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
