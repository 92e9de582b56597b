"""What command lines say, parsed: parameters, models, functions, prompts, tokens."""

from __future__ import annotations

import difflib
import importlib.util
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from decgraph import extras
from decgraph.errors import DecError
from decgraph.ir.values import Function
from decgraph.runtime import prompt_files
from decgraph.runtime.prompt_files import Text

if TYPE_CHECKING:
    from decgraph.api import Algorithm
    from decgraph.runtime.arguments import Tokenizing
    from decgraph.runtime.grammars import Grammar


def grammar(regex: str | None, json_schema: Path | None, lark: Path | None) -> Grammar | None:
    """The grammar of a run. Raises DecError for more than one, and for a file that cannot be read."""
    from decgraph.runtime.grammars import Grammar

    options = {"--regex": regex, "--json-schema": json_schema, "--grammar": lark}
    several = [name for name, value in options.items() if value is not None]
    if len(several) > 1:
        raise DecError(f"{' and '.join(several)} do not go together", hint="one grammar a run")
    if several:
        extras.check("models", what="grammars and regular expressions need")
    if regex is not None:
        return Grammar.regex(regex)
    if json_schema is not None:
        return Grammar.read(json_schema, "json_schema")
    return Grammar.read(lark, "lark") if lark is not None else None


def keys(items: Iterable[str], file: Path | None) -> list[str]:
    """API keys: given, and those of a file, one a line. Raises DecError for a file that cannot be read or has none."""
    found = [key for key in items if key]
    if file is not None:
        try:
            lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise DecError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from None
        if not any(lines):
            raise DecError(f"{file} has no API key", hint="one a line")
        found += [line for line in lines if line]
    return found


def one_of(what: str, value: str | None, known: Iterable[str]) -> None:
    """Raises DecError for a word that is given and is not one of those that are known."""
    if value is not None and value not in known:
        raise DecError(f"there is no {what} {value!r}", hint=f"one of {', '.join(known)}")


def pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` items as a dict. Raises DecError for an item without `=` and a name given twice."""
    out: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name or (option == "--model" and not value):
            hint = f"{option} {name or 'target'}=FOLDER" if option == "--model" else f"{option} name=value"
            raise DecError(f"{option} {item} has no value", hint=hint)
        if name in out:
            raise DecError(f"{option} gives {name} twice")
        out[name] = value
    return out


def folders(items: Iterable[str], models: Mapping[str, str], drafter: str | None = None) -> dict[str, str]:
    """The folders or names of models by parameter: `--model drafter=FOLDER`, and `--model FOLDER` for the first of `models`, an
    algorithm's models with their kinds; `drafter` for every further causal one. Raises DecError as `pairs` does, and for what
    is no folder, before torch is imported."""
    from decgraph import zoo

    first = next(iter(models), "target")
    found = pairs([item if "=" in item else f"{first}={item}" for item in items], "--model")
    if drafter is not None:
        small = [name for name, kind in models.items() if kind == "causal"][1:]
        if not small or any(name in found for name in small):
            why = "is given twice" if small else "is for a second causal model, and there is none"
            raise DecError(f"--drafter {why}", hint=f"the models: {', '.join(models)}")
        found |= dict.fromkeys(small, drafter)
    for name, value in found.items():
        # With a dot it is a setting of a model; a name that no parameter has is refused as such.
        if "." not in name and (name in models or not models):
            zoo.known().check(value)
    return found


def known(function: Function, values: Mapping[str, str]) -> dict[str, Any]:
    """Parameters by name, converted to their types. Raises DecError for unknown names and values outside their range."""
    from decgraph.runtime.session import check_value

    params = {p.name: p for p in function.params if p.value.type.elem != "model"}
    for name in values:
        if name not in params:
            near = difflib.get_close_matches(name, params, 1, 0.5)
            hint = f"did you mean {near[0]}?" if near else f"parameters: {', '.join(params) or 'none'}"
            raise DecError(f"{function.name} has no parameter `{name}`", hint=hint)
    return {name: check_value(function.name, params[name], value) for name, value in values.items()}


FORMER = {
    "--max-tokens": ("--max-new", "--limit", "--max-new-tokens", "--max-length", "--n-predict", "--predict", "--num-predict"),
    "--temperature": ("--temp",),
    "--repetition-penalty": ("--repeat-penalty",),
    "--drafter": ("--assistant-model", "--draft-model", "--model-draft", "--speculative-model"),
    "--out": ("--output", "--output-file"),
    "--search": ("--param",),
    "--set": ("--param", "--params"),
    "--seconds": ("--time",),
    "--events": ("--trace",),
    "--tuned": ("--profile",),
    "--results": ("--json",),
    "--api-key": ("--api-keys",),
}
"""Names that options had before, or have at other programs, by the one that they have here; docs/python.md."""


def unknown(what: str, word: str, known: Sequence[str], options: Sequence[str], hint: str) -> DecError:
    """What to say of an option or an argument that a verb does not have: its name here, the nearest of the algorithm's
    parameters (`known`) and of the verb's options, or `hint`."""
    name = word.partition("=")[0]
    if new := next((one for one in FORMER if one in options and name in FORMER[one]), None):
        return DecError(f"there is no option {name}; it is {new} here", hint=new)
    names = [*known, *(one[2:].replace("-", "_") for one in options)]
    near = difflib.get_close_matches(name.lstrip("-").replace("-", "_"), names, 1, 0.5)
    if what == "argument" and "--prompt" in options and not near and "=" not in word:
        hint = f"a prompt is an option: --prompt {shlex.quote(word)}"
    return DecError(f"there is no {what} {word}", hint=f"did you mean --{near[0].replace('_', '-')}?" if near else hint)


def options_of(context: Any) -> list[str]:  # Any: click's context, which typer may bring itself
    """The long names of a verb's options."""
    return [name for one in context.command.params for name in one.opts if name.startswith("--")]


def direct(words: Sequence[str], known: Iterable[str], context: typer.Context) -> dict[str, str]:
    """Parameters written as options: `--gamma 4` or `--gamma=4`.

    `known` are the algorithm's parameters; the verb's own options are suggested too. Raises DecError for others.
    """
    out: dict[str, str] = {}
    rest, known = list(words), list(known)
    for name in known:  # an option of the verb goes before a parameter of the same name
        given = context.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE":
            option = f"--{name.replace('_', '-')}"
            warnings.warn(f"{option} is an option of {context.command_path}; the parameter is --set {name}=...")
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not word.startswith("--") or name not in known:
            what = "option" if word.startswith("-") else "argument"
            raise unknown(what, word, known, options_of(context), f"parameters: {', '.join(known) or 'none'}")
        if not equals:
            if not rest:
                raise DecError(f"{word} has no value", hint=f"{word} 4")
            value = rest.pop(0)
        out[name] = value
    return out


def functions(items: Iterable[str]) -> dict[str, Callable[..., Any]]:
    """Externs from `file.py:function` or `name=file.py:function`; `demo:function` is a stand-in of `zoo/stand_ins.py`.

    Raises DecError for a file that cannot be read or run, and one without that function.
    """
    from decgraph.zoo import stand_ins

    out: dict[str, Callable[..., Any]] = {}
    for item in items:
        name, _, place = item.rpartition("=")
        file, colon, function = place.rpartition(":")
        if not colon:
            raise DecError(f"--extern {item} names no function", hint="--extern judge.py:same_meaning")
        found = getattr(stand_ins if file == "demo" else _module(Path(file)), function, None)
        if not callable(found):
            raise DecError(f"{file} has no function {function}")
        out[name or function] = found
    return out


def check_functions(chosen: Algorithm, functions: Mapping[str, object]) -> None:
    """Raises DecError for a function that an algorithm calls and that was not handed over, before models are read."""
    from decgraph.runtime.session import check_externs
    from decgraph.zoo import stand_ins

    check_externs(chosen.module, chosen.name, functions, stand_ins.__all__)


def _module(file: Path) -> Any:  # Any: whatever the caller's file holds
    if not file.is_file():
        raise DecError(f"cannot read {file}: no such file")
    spec = importlib.util.spec_from_file_location(f"decgraph_extern_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise DecError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the caller's code, which may end in a `sys.exit(main())`
        del sys.modules[spec.name]
        raise DecError(f"{file} raised {type(error).__name__}: {error}") from error
    return module


PROMPTS = '--prompt "def f(x):", --prompt-file FILE, --prompts FILE, --ids "1 2 3", or text on stdin'


def prompt(text: str | None, file: Path | None, ids: str | None = None) -> Text:
    """The prompt: given, read from a file, or from stdin where something is piped in.

    One line end at the end of a file or of stdin is not part of the prompt. Raises DecError for two prompts, for none or an
    empty one, and for a file that cannot be read.
    """
    if sum(given is not None for given in (text, file, ids)) > 1:
        raise DecError("there are two prompts", hint="one of --prompt, --prompt-file and --ids")
    if ids is not None:
        return prompt_files.of_ids(ids, "--ids")
    found = _read(file) if text is None else text
    if not found:
        what = "there is no prompt" if text is None and file is None else "the prompt is empty"
        raise DecError(f"{what}: a request needs at least one token to read", hint=PROMPTS)
    return Text("prompts", found)


def _read(file: Path | None) -> str:
    """The text of a file; of stdin, for none or `-`."""
    if file is None and sys.stdin.isatty():
        return ""
    try:
        if file is None or str(file) == "-":
            return _without_line_end(sys.stdin.read())
        return _without_line_end(file.read_bytes().decode("utf-8"))
    except OSError as error:
        raise DecError(f"cannot read {file}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise DecError(f"{file or 'stdin'} is not UTF-8 text (byte {error.start})") from None


def _without_line_end(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r")


def tokens(items: Iterable[str], option: str, tokenizer: Tokenizing | None) -> frozenset[int]:
    """Token ids from ids or texts; a text must be one token. Raises DecError for others."""
    from decgraph.runtime.text import Tokenizer

    out = set()
    for item in items:
        if item.isascii() and item.isdigit():
            out.add(int(item))
            continue
        ids: Sequence[int] = ()
        if tokenizer is not None:
            special = tokenizer.token(item) if isinstance(tokenizer, Tokenizer) else None
            ids = (special,) if special is not None else tokenizer.encode(item)
        if len(ids) != 1:
            raise DecError(f"{option} {item!r} is {len(ids)} tokens, not one", hint="give token ids")
        out.add(ids[0])
    return frozenset(out)


def listed(values: Mapping[str, Any]) -> str:
    """`name=value` for a line of the summary."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
