"""What a shell is offered on TAB: verbs, options, an algorithm's own parameters, models, functions.

It answers before typer is imported, from an index of the verbs' options. The index is kept in the user's cache with a stamp of
this folder's files, and made anew when one of them changes; names and parameters of algorithms are read from their files.
Functions here that are the `autocompletion` of an option are found in the index by their names.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

VARIABLE = "_DECGRAPH_COMPLETE"
HERE = Path(__file__).parent
Offers = list[tuple[str, str]]
"""Words with a help for each, which may be empty."""


def answer(environment: Mapping[str, str]) -> int:
    """Print what completes the line in the environment, as typer's scripts for shells expect it; the exit code."""
    shell = environment[VARIABLE].removeprefix("complete_")
    words, current = line_of(shell, environment)
    found = offered(words, current)
    if shell == "bash":  # readline has broken the word at = and :, and replaces what is behind the last of them
        start = max(current.rfind("="), current.rfind(":")) + 1
        print("\n".join(word[start:] for word, _ in found))
    elif shell == "zsh":
        quoted = [f'"{_escaped(word)}"' + (f':"{_escaped(help)}"' if help else "") for word, help in found]
        print(f"_arguments '*: :(({chr(10).join(quoted)}))'" if found else "_files")
    elif shell == "fish":
        if environment.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
            return 0 if found else 1
        print("\n".join(f"{word}\t{help}" if help else word for word, help in found))
    else:
        print("\n".join(f"{word}:::{help or ' '}" for word, help in found))
    return 0


def _escaped(text: str) -> str:
    """A text between double quotes, within single quotes, for zsh's `_arguments`."""
    for old, new in (('"', '""'), ("'", "''"), ("$", r"\$"), ("`", r"\`"), (":", r"\\:")):
        text = text.replace(old, new)
    return text


def line_of(shell: str, environment: Mapping[str, str]) -> tuple[list[str], str]:
    """The words before the one that is completed, without the command itself, and that word as far as it is written."""
    if shell == "bash":
        words = environment.get("COMP_WORDS", "").split("\n")
        count = int(environment.get("COMP_CWORD", "0"))
        if len(words) == 1:  # another separator than typer's script sets
            words = words[0].split(" ")
        words = [*words[1 : count + 1], *[""] * (count + 1 - len(words))]
        joined: list[str] = []
        for word in words:
            sticks = joined and (word in ("=", ":") or (joined[-1][-1:] in ("=", ":") and len(joined) > 1))
            joined[-1:] = [joined[-1] + word] if sticks else [*joined[-1:], word]
        return joined[:-1], joined[-1] if joined else ""
    line = environment.get("_TYPER_COMPLETE_ARGS", "")
    try:
        words = shlex.split(line)[1:]
    except ValueError:  # a quote that is still open
        words = line.split()[1:]
    return (words, "") if line.endswith(" ") or not words else (words[:-1], words[-1])


def offered(words: Sequence[str], current: str) -> Offers:
    """What may stand in the place of `current` after these words."""
    node: Any = {"verbs": index(), "options": {}, "arguments": []}
    rest, before = list(words), ""
    while rest and "verbs" in node:
        node = node["verbs"].get(rest.pop(0), {"options": {}, "arguments": []})
    options = node["options"]
    placed = 0
    for word in rest:
        takes = before.startswith("-") and "=" not in before and options.get(before, {}).get("value") is not None
        placed += not takes and not word.startswith("-")
        before = "" if takes else word
    if current.startswith("--") and "=" in current:
        name, _, value = current.partition("=")
        return [(f"{name}={word}", help) for word, help in values(options.get(name, {}).get("value"), words, value)]
    if before.startswith("-") and options.get(before, {}).get("value") is not None:
        return values(options[before]["value"], words, current)
    if "verbs" in node:
        found = [(verb, one["help"]) for verb, one in node["verbs"].items()]
    elif current.startswith("-"):
        found = [(name, one["help"]) for name, one in options.items()]
        if "--set" in options:
            own = {name: kind for path in algorithms_in(words) for name, kind in parameters(path).items() if not is_model(kind)}
            found += [(f"--{name.replace('_', '-')}", kind) for name, kind in own.items()]
    else:
        arguments = node["arguments"]
        return values(arguments[min(placed, len(arguments) - 1)], words, current) if arguments else []
    return [one for one in found if one[0].startswith(current)]


def values(kind: str | list[str] | None, words: Sequence[str], current: str) -> Offers:
    """The values of an option or argument: of a fixed list, or of the function of this file that is named."""
    found = kind if isinstance(kind, list) else globals()[kind](list(words), current) if kind else []
    return [(one, "") for one in found if one.startswith(current)]


# -- the index


def index() -> dict[str, Any]:
    """The verbs with their options, from the cache where that is of these files."""
    import decgraph
    from decgraph import cache

    files = sorted((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in HERE.glob("*.py"))
    stamp = f"{decgraph.__version__} {HERE} {files}"
    path = cache.folder() / "completion.json"
    cached = cache.read(path)
    if cached.get("stamp") != stamp:
        cached = {"stamp": stamp, "verbs": described()}
        cache.replace(path, cached)
    verbs: dict[str, Any] = cached["verbs"]
    return verbs


def described() -> dict[str, Any]:
    """Every verb with its help, its options (help, and how its value is completed) and its arguments."""
    from decgraph.cli.verbs import verbs

    out: dict[str, Any] = {}
    for verb, help in verbs().items():
        module = import_module(f"decgraph.cli.{verb}")
        if hasattr(module, "app"):
            below = {str(one.name): of_command(one.callback) for one in module.app.registered_commands}
            out[verb] = {"help": help, "options": {}, "arguments": [], "verbs": below}
        else:
            out[verb] = {**of_command(module.command), "help": help}
    return out


def of_command(command: Any) -> dict[str, Any]:
    """The options and arguments of a function with typer's annotations."""
    options: dict[str, Any] = {"--help": {"help": "Show what it does.", "value": None}}
    arguments: list[Any] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if not hasattr(parameter.annotation, "__metadata__"):  # typer's context
            continue
        kind, described = get_args(parameter.annotation)
        kinds = (kind, *get_args(kind))
        choices = next((k for k in kinds if isinstance(k, type) and issubclass(k, Enum)), None)
        completer: Any = described.autocompletion
        words = [str(c.value) for c in choices or ()] or list(getattr(completer, "words", ()))
        value: Any = words or getattr(completer, "__name__", "")
        if type(described).__name__ == "ArgumentInfo":
            arguments.append(value)
            continue
        flag = bool in kinds
        written = [one for one in (described.default, *(described.param_decls or ())) if isinstance(one, str)]
        for name in "/".join(written).split("/"):
            options[name] = {"help": described.help or "", "value": None if flag else value}
    return {"help": (command.__doc__ or "").partition("\n")[0], "options": options, "arguments": arguments}


# -- algorithms, read from their files


def algorithms(args: list[str], incomplete: str) -> list[str]:
    """Names of the standard library; files are the shell's own affair."""
    from decgraph import stdlib

    return list(stdlib.names())


def algorithms_in(words: Sequence[str]) -> list[Path]:
    """The files of the algorithms among the words of a line."""
    shelf = HERE.parent / "stdlib"
    found = []
    for word in words:
        name = re.sub(r":.*", "", word)
        path = Path(name) if name.endswith(".dec") else shelf / f"{name}.dec" if name.isidentifier() else None
        if path is not None and path.is_file():
            found.append(path)
    return found


_SIGNATURE = re.compile(r"^algorithm[ \t]+(\w+)[ \t]*\(", re.M)
_TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|#[^\n]*|\s+|.')


def parameters(path: Path) -> dict[str, str]:
    """The parameters of a file's algorithm, models among them, with their types as written: what the parser finds, in a
    tenth of its time. Empty where the file has no such text."""
    text = path.read_text(encoding="utf-8", errors="replace")
    heads = list(_SIGNATURE.finditer(text))
    head = next((one for one in heads if one[1] == path.stem), heads[-1] if heads else None)
    if head is None:
        return {}
    parts, depth = [""], 1
    for token in _TOKEN.finditer(text, head.end()):
        depth += (token[0] in "([") - (token[0] in ")]")
        if depth == 0:
            break
        if token[0] == "," and depth == 1:
            parts.append("")
        elif not token[0].startswith("#"):
            parts[-1] += " " if token[0].isspace() else token[0]
    pairs = [part.partition(":") for part in parts if part.strip()]
    return {name.strip(): " ".join(kind.split()) for name, _, kind in pairs}


def is_model(kind: str) -> bool:
    """Whether a parameter of this type is a model."""
    return re.match(r"(causal|masked|features|layers|head)\b", kind) is not None


# -- values of options


def models(args: list[str], incomplete: str) -> list[str]:
    """Names of models, and behind `name=` those for the algorithm's model of that name."""
    from decgraph import zoo

    names = [name for name in (*zoo.names(), *zoo.fetchable()) if name != "tokenizer"]
    own = [name for path in algorithms_in(args) for name, kind in parameters(path).items() if is_model(kind)]
    return [*names, *(f"{name}={model}" for name in own for model in names)]


def fetchable(args: list[str], incomplete: str) -> list[str]:
    """Names of models that can be fetched."""
    from decgraph import zoo

    return zoo.fetchable()


def settings(args: list[str], incomplete: str) -> list[str]:
    """The algorithm's parameters with their defaults."""
    own = [pair for path in algorithms_in(args) for pair in parameters(path).items() if not is_model(pair[1])]
    return [f"{name}={kind.rpartition(' = ')[2] if ' = ' in kind else ''}" for name, kind in own]


def externs(args: list[str], incomplete: str) -> list[str]:
    """Stand-ins for the functions that the algorithm calls."""
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in algorithms_in(args)]
    return [f"demo:{name}" for text in texts for name in re.findall(r"^extern[ \t]+(\w+)", text, re.M)]


def choice(*words: str) -> Callable[[list[str], str], list[str]]:
    """What completes a value that is one of some words: they stand in the index themselves."""

    def offer(args: list[str], incomplete: str) -> list[str]:
        return list(words)

    vars(offer)["words"] = words
    return offer


def families(args: list[str], incomplete: str) -> list[str]:
    """The families of the standard library, which `list --family` filters by."""
    from decgraph import stdlib

    return sorted({row.family for row in stdlib.catalogue().values()})
