"""decgraph explain: Say what an algorithm does, in words and as a drawing of its step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

import decgraph
from decgraph import stdlib
from decgraph.cli import completion, options, output, parsing, words
from decgraph.dsl.diagnostics import did_you_mean
from decgraph.dsl.explain import MARGIN, WIDTH

COST = "Each model call of a step: why it is there, what it computes, fused or reused or why not, what a change would save."
CODE = re.compile(r"[EW]\d{3}")


def command(
    algorithm: Annotated[
        list[str],
        typer.Argument(
            help="A name that `decgraph list` prints, a .dec file, a word of the language, or an error's code.",
            metavar="ALGORITHM",
            autocompletion=completion.algorithms,
        ),
    ],
    cost: Annotated[bool, typer.Option("--cost", help=COST)] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="With --cost: a parameter's value: gamma=4.")] = None,
    json: options.Json = False,
) -> None:
    """Say what an algorithm does, in words and as a drawing of its step; or what a word or an error's code means."""
    name = " ".join(algorithm)
    if set_ and not cost:
        raise decgraph.DecError("--set is for --cost", hint="decgraph explain speculative --cost --set gamma=4")
    if CODE.fullmatch(name):
        text = page(name)
        output.emit_json({"code": name, "text": text}) if json else output.print_markdown(text)
        return
    if not cost and name not in stdlib.names() and (found := words.word(name)) is not None:
        output.emit_json(asdict(found)) if json else show(found.text)
        return
    named = re.fullmatch(r"[\w. ]+", name) and not Path(name).exists() and not name.endswith((".dec", ".py"))
    if named and name not in stdlib.catalogue() and not cost:
        raise unknown(name)
    chosen = decgraph.load(name)
    if cost:
        from decgraph.passes.calls import calls_of

        params = parsing.known(chosen.function, parsing.pairs(set_ or (), "--set"))
        report = calls_of(chosen.module, params, text_of=texts(chosen))
        output.emit_json(report.to_json()) if json else output.print_folded(report.text())
        return
    explanation = chosen.explanation()
    if json:
        output.emit_json({**asdict(explanation), "file": chosen.path, "source": chosen.source})
        return
    show(explanation.text)


def unknown(name: str) -> decgraph.DecError:
    """What to say of a name that is neither an algorithm's nor a word of the language's."""
    first, *more = name.split()
    if more:
        return decgraph.DecError("explain takes one word", hint=f"decgraph explain {first}")
    advice = "algorithms, functions, statements, values and types can be explained: explain entropy, explain commit"
    last, known = name.rpartition(".")[2], {*stdlib.names(), *words.known()}
    hint = f"decgraph explain {last}" if last in known else did_you_mean(last, known, advice)
    return decgraph.DecError(f"there is no algorithm called {name!r}, and no such word of the language", hint=hint)


def show(text: Callable[[int], str]) -> None:
    """A text for a width, its headings in bold."""
    from rich.text import Text

    screen = output.console()
    shown = Text(text(screen.width if screen.is_terminal else WIDTH + MARGIN))
    shown.highlight_regex(r"(?m)^[a-z]\w*( \w+)*(, drawn)?$", "bold")
    shown.highlight_regex(r"(?m)^ {1,4}\d+  ", "dim")
    screen.print(shown)


def texts(algorithm: decgraph.Algorithm) -> Callable[[str], str]:
    """The text of a file by the path that places name: the algorithm's own, or one of the standard library; "" for others."""
    shelf = Path(stdlib.__file__).parent

    def text_of(path: str) -> str:
        if path == algorithm.path:
            return algorithm.text
        file = shelf / Path(path).name
        return file.read_text(encoding="utf-8") if path.startswith("stdlib/") and file.is_file() else ""

    return text_of


def page(code: str) -> str:
    """The page of a code: docs/errors, which the package carries as `error_pages`. Raises DecError where there is none."""
    path = files("decgraph") / "error_pages" / f"{code}.md"
    if not path.is_file():
        raise decgraph.DecError(f"there is no page about {code}", hint="codes look like E031; docs/errors lists them")
    return re.sub(r"(?m)^(```\w+) .*$", r"\1", path.read_text(encoding="utf-8").rstrip())  # without what the tests read
