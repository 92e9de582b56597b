"""The typer application: the chosen verb, the others by name only, and help that fits 80 columns."""

from __future__ import annotations

import difflib
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

import decgraph
from decgraph.cli import completion, output, parsing
from decgraph.cli.verbs import GROUPS
from decgraph.errors import DecError

NAMES = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
WIDE = 30
"""Columns of an option's name beside its help; a longer name has a line of its own."""


class Verb(TyperCommand):
    """A command whose help has the parameters of the algorithm that is named beside `--help`."""

    words: Sequence[str] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # Any: click's context, which typer may bring itself
        self.words = tuple(args)
        rest = super().parse_args(ctx, args)
        first = ctx.params.get("algorithm")
        if isinstance(first, str) and first.startswith("-"):  # of a verb that takes an algorithm's parameters as options
            if not ctx.params.get("tuned", ctx.command.name == "tune"):
                hint = f"{ctx.command_path} ALGORITHM first, and its parameters behind it"
                raise parsing.unknown("option", first, (), parsing.options_of(ctx), hint)
            ctx.params["algorithm"] = None  # a profile has the algorithm, or `tune` looks for it
            ctx.args.insert(0, first)
        return rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records = [(p, p.get_help_record(ctx)) for p in self.get_params(ctx)]
        for title, kind in (("Arguments", "argument"), ("Options", "option")):
            rows = [shown(record) for p, record in records if p.param_type_name == kind and record]
            if kind == "argument":
                rows = [(re.sub(r"\W.*", "", name).upper(), help) for name, help in rows]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows, col_max=WIDE)
        if "--set" in {name for p in self.params for name in p.opts}:
            for path in completion.algorithms_in(self.words)[:1]:
                write_algorithm(path, formatter)


class Verbs(TyperGroup):
    """The verbs in groups, and those of a verb in one; without one, their help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args or ["--help"])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:  # typer ends without a word
            raise typer.Exit(output.report(stop)) from None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        groups = GROUPS if "run" in self.commands else {}
        grouped = {name for group in groups.values() for name in group}
        others = [name for name in self.list_commands(ctx) if name not in grouped]
        for title, group in (*groups.items(), ("Others" if groups else "Commands", others)):
            rows = [(name, self.commands[name].help or "") for name in group if name in self.commands]
            if rows:
                with formatter.section(title):
                    formatter.write_dl([(name, help.partition("\n")[0]) for name, help in rows])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.format_commands(ctx, formatter)
        with formatter.section("Options"):
            formatter.write_dl([shown(r) for p in self.get_params(ctx) if (r := p.get_help_record(ctx))])


_KINDS = {"int": "N", "integer": "N", "float": "X", "path": "FILE", "filename": "FILE", "str": "TEXT"}


def shown(record: tuple[str, str]) -> tuple[str, str]:
    """An option's names with a letter for what its value is, and its help without the range of its values: a value beyond it is
    refused with it."""
    names = re.sub(r" *\[[^\]]*[<>][^\]]*\]", "", record[0])
    names = re.sub(
        r" <?(?:list\[)?(\w+)\]?(?: range)?>?$", lambda found: f" {_KINDS.get(found[1].lower(), found[1])}", names, flags=re.I
    )
    help = re.sub(r" *\[(?:default: )?(?:auto|0|required)\]", "", record[1])
    return names, re.sub(r"; [^\[\];]*[<>]=?[^\[\];]*(?=[\];])", "", re.sub(r" *\[(?:x|[\d.]+)[<>]=?[^\[\];]*\]", "", help))


def meaning(name: str, doc: str, text: str) -> str:
    """The help for a parameter: the clause of the docstring that names it, a comment, or a line that has it."""
    uses = re.compile(rf"`{name}`|(?<![\w`]){name}\b(?!`)")
    clauses = [one for one in re.split(r"(?<=[.;:,])\s+", " ".join(doc.split())) if f"`{name}`" in one]
    if clauses:
        return clauses[0].rstrip(".;:,")
    body = text.partition(doc)[2].splitlines() if doc else text.splitlines()
    lines = [line.strip() for line in body if uses.search(line)]
    commented = [line.partition("#")[2].strip() for line in lines if "#" in line]
    return commented[0] if commented else f"`{lines[0]}`" if lines else ""


def write_algorithm(path: Path, formatter: Any) -> None:
    """What the algorithm of a file is, its models, the functions that it calls and its parameters; parsed, and nothing more."""
    from decgraph.dsl.explain import explain

    text = path.read_text(encoding="utf-8")
    found = explain(text, str(path), path.stem)
    described = [(f"--{name.replace('_', '-')}", [words, meaning(name, found.doc, text)]) for name, words in found.params]
    with formatter.section(f"{found.name}"):
        for line in textwrap.wrap(" ".join(found.doc.split()), formatter.width - 4):
            formatter.write_text(line)
    for title, rows in (("Models (--model NAME=FOLDER)", found.models),
                        ("Functions that it calls (--extern FILE.py:NAME)", found.externs),
                        ("Parameters", [(name, ": ".join(filter(None, words))) for name, words in described])):  # fmt: skip
        if rows:
            with formatter.section(title):
                formatter.write_dl([(name, words) for name, words in rows], col_max=WIDE)


def of(arguments: Iterable[str], verbs: Mapping[str, str]) -> typer.Typer:
    """The typer application with the verb that the arguments name; the other verbs are there by name and help only."""
    app = typer.Typer(
        help="A compiler for decoding algorithms: run them on real models, prove what they claim.",
        cls=Verbs,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings=NAMES,
    )
    app.callback()(options)
    named = next((word for word in arguments if not word.startswith("-")), None)
    for verb, line in verbs.items():
        if verb != named:
            app.command(verb, help=line)(elsewhere)
            continue
        module = import_module(f"decgraph.cli.{verb}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=verb, help=line, cls=Verbs)
            for command in module.app.registered_commands:
                command.cls = Verb
        else:
            words = module.command.__doc__ or line  # python -OO leaves docstrings out
            settings = getattr(module, "settings", None)
            app.command(verb, help=words, context_settings=settings, cls=Verb)(module.command)
    return app


def refused(error: BaseException, arguments: Sequence[str]) -> BaseException:
    """What click raises about a command line, as a DecError; Ctrl-C, which typer makes an end of its own; others as they are.
    Classes are known by what they have: they are click's, or of a copy that typer brings."""
    if isinstance(error, typer.Abort):
        return error.__cause__ or KeyboardInterrupt()
    if not hasattr(error, "format_message"):
        return error
    context: Any = getattr(error, "ctx", None)
    parameter: Any = getattr(error, "param", None)
    path = context.command_path if context else " ".join(["decgraph", *arguments[:1]])
    hint = f"{path} --help"
    if hasattr(error, "possibilities"):
        return parsing.unknown("option", getattr(error, "option_name", ""), (), parsing.options_of(context), hint)
    message = str(getattr(error, "message", "")).rstrip(".").removeprefix("Input ")
    if parameter is not None:
        name = parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.name.upper()
        words = [part for word in arguments for part in word.split("=", 1)]
        given = next((f" {value}" for word, value in pairwise(words) if word in parameter.opts), "")
        return DecError(f"{name}{given}: {message.partition(',')[0]}" if message else f"{name} is missing", hint=hint)
    verb = re.search(r"command '?([^'. ]*)", message)
    if verb and isinstance(context.command, Verbs):
        near = difflib.get_close_matches(verb[1], context.command.commands, 1, 0.5)
        return DecError(f"there is no verb {verb[1]}", hint=f"{path} {near[0]}" if near else hint)
    return DecError(message[:1].lower() + message[1:], hint=hint)


def elsewhere() -> None:
    """Holds a verb's place in the help."""


def show_version(wanted: bool) -> None:
    """What `--version` does."""
    if wanted:
        print(f"decgraph {decgraph.__version__}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the command itself."""
