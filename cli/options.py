"""The options that verbs share, as dataclasses of typer annotations, and the decorator that makes options of their fields.

    @options.grouped
    def command(algorithm: ..., request: options.Request, models: options.Models, output: options.Output) -> None: ...

One definition gives an option one name at every verb; docs/python.md compares it with Python's, the server's and transformers'.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from decgraph.cli import completion, parsing
from decgraph.errors import DecError
from decgraph.runtime.placement import AUTO, Placement
from decgraph.runtime.prompt_files import Text

if TYPE_CHECKING:
    from decgraph.api import Algorithm
    from decgraph.runtime import arguments

DEFAULT_TEMPERATURE = 0.0  # runtime.request.DEFAULT_TEMPERATURE, which needs NumPy; a test compares them
LENIENT = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Click's settings of a verb that takes an algorithm's own parameters as options (`parsing.direct`)."""


def option(*names: str, help: str, **more: Any) -> Any:  # Any: typer's description of an option
    """`typer.Option` without a default, short enough for a line of a command."""
    return typer.Option(*names, help=help, **more)


def algorithm(help: str = "A name that `decgraph list` prints, or a .dec file.") -> Any:  # Any: typer's description of one
    """A verb's argument that is an algorithm: shells complete it."""
    return typer.Argument(help=help, autocompletion=completion.algorithms)


def named(algorithm: str | None, verb: str, hint: str) -> Algorithm:
    """The algorithm of a verb that was given no profile. Raises DecError for none."""
    import decgraph

    if algorithm is None:
        raise DecError(f"{verb} needs an algorithm", hint=f"{hint}, or --tuned FILE that `tune` wrote")
    return decgraph.load(algorithm)


Set = Annotated[
    list[str] | None,
    option("--set", help="A parameter: gamma=4. Also as --gamma 4.", autocompletion=completion.settings),
]
Quiet = Annotated[bool, option("--quiet", "-q", help="The result alone.")]
Json = Annotated[bool, option("--json", help="Print JSON.")]
MaxTokens = Annotated[int, option("--max-tokens", "-n", help="Most new tokens.")]
Temperature = Annotated[float | None, option("--temperature", "-t", help="0 is greedy. Default: the model's own, else 0.")]
Seed = Annotated[int, option("--seed", help="Seed of all noise: the same seed commits the same tokens.")]
Device = Annotated[str, option("--device", help="auto, cpu, cuda or cuda:1. auto: CUDA where there is one.",
                               autocompletion=completion.choice("auto", "cpu", "cuda"))]  # fmt: skip
Dtype = Annotated[
    str,
    option(
        "--dtype",
        help="auto, float32, bfloat16, float16; int8, int4: weights, on a CPU. auto: a model's own on CUDA, float32 on a CPU.",
        autocompletion=completion.choice(AUTO, "float32", "bfloat16", "float16", "int8", "int4"),
    ),
]
Backend = Annotated[
    str | None,
    option("--backend", help="torch, triton or reference.", autocompletion=completion.choice("torch", "triton", "reference")),
]
Drafter = Annotated[
    str | None,
    option("--drafter", help="A small model that drafts: a folder or a name.", autocompletion=completion.models),
]
Model = Annotated[
    list[str] | None,
    option("--model", "-m", help="FOLDER or a name of `decgraph zoo list`; head=FOLDER for another of the algorithm's models.",
           autocompletion=completion.models),
]  # fmt: skip


@dataclass(frozen=True)
class Chat:
    """Whether a prompt is a message."""

    chat: Annotated[bool, option("--chat", help="A prompt is a message: use the model's chat template.")] = False
    system: Annotated[str | None, option("--system", help="With --chat: the system message before it.")] = None

    def check(self) -> None:
        """Raises DecError for a system message without a conversation."""
        if self.system is not None and not self.chat:
            raise DecError("--system goes with --chat", hint='--chat --system "Answer in one sentence."')

    def said(self, text: Text) -> arguments.Prompt:
        """A text as a prompt: itself, or with --chat a user's message, after a system message."""
        return text.prompt(chat=self.chat, system=self.system)


@dataclass(frozen=True)
class PromptOptions(Chat):
    """What is decoded."""

    prompt: Annotated[str | None, option("--prompt", "-p", help="The prompt.")] = None
    prompt_file: Annotated[
        Path | None, option("--prompt-file", help="A file with the prompt, less one line end at its end; - is stdin.")
    ] = None
    ids: Annotated[str | None, option("--ids", help='The prompt as token ids: "1 2 3".')] = None

    def read(self) -> Text:
        """The prompt: given, read from a file, or from stdin where something is piped in. Raises DecError for two prompts, for
        none or an empty one, and for one that does not go with --chat, before models are read."""
        self.check()
        text = parsing.prompt(self.prompt, self.prompt_file, self.ids)
        self.said(text)
        return text


@dataclass(frozen=True)
class Models:
    """By what is decoded, and where."""

    model: Model = None
    drafter: Drafter = None
    device: Device = AUTO
    dtype: Dtype = AUTO

    def placed(self) -> Placement:
        """Where models are to lie. Raises DecError for a device or dtype that there is not."""
        return Placement.of(self.device, self.dtype)

    def folders(self, models: Mapping[str, str]) -> dict[str, str]:
        """Folders or names of models by parameter, of an algorithm's models and their kinds. Raises DecError for what is no
        folder, before torch is imported."""
        return parsing.folders(self.model or (), models, self.drafter)

    def shared(self) -> tuple[str | None, dict[str, str]]:
        """The first model of several algorithms, and those that were given by a parameter's name. Raises DecError for two first
        ones, and for what is no model."""
        from decgraph import zoo

        plain = [one for one in self.model or () if "=" not in one]
        if len(plain) > 1:
            raise DecError("there is one first model", hint="the others by parameter: --model name=FOLDER")
        for one in (*plain, *([self.drafter] if self.drafter else [])):
            zoo.known().check(one)
        return next(iter(plain), None), parsing.folders([one for one in self.model or () if "=" in one], {})


@dataclass(frozen=True)
class AlgorithmOptions(Models):
    """The same, with the algorithm's own parameters and the functions that it calls."""

    set_: Set = None
    extern: Annotated[
        list[str] | None, option("--extern", help="A function it calls: file.py:name.", autocompletion=completion.externs)
    ] = None
    backend: Backend = None

    def params(self, context: typer.Context, known: Sequence[str] | Mapping[str, object]) -> dict[str, Any]:
        """Values of the algorithm's parameters as they were written, by --set and by their own names. Raises DecError for other
        options."""
        return {**parsing.pairs(self.set_ or (), "--set"), **parsing.direct(context.args, known, context)}

    def functions(self, chosen: Algorithm) -> dict[str, Callable[..., Any]]:
        """The functions of --extern by name. Raises DecError where one cannot be read, and for one that is missing."""
        found = parsing.functions(self.extern or ())
        parsing.check_functions(chosen, found)
        return found


@dataclass(frozen=True)
class RequestOptions:
    """How it is decoded."""

    max_tokens: Annotated[
        int | None, option("--max-tokens", "-n", help="Most new tokens. Default: the model's own limit, else 64.")
    ] = None
    temperature: Temperature = None
    top_k: Annotated[int | None, option("--top-k", help="Keep the k likeliest tokens.")] = None
    top_p: Annotated[float | None, option("--top-p", help="Keep the likeliest tokens whose probabilities add up to p.")] = None
    min_p: Annotated[float | None, option("--min-p", help="Keep tokens above p times the likeliest's.")] = None
    repetition_penalty: Annotated[float | None, option("--repetition-penalty", help="1 is off.")] = None
    seed: Seed = 0
    strict: Annotated[bool, option("--strict", help="An error in a draft ends the run; else it ends that draft.")] = False
    stop: Annotated[list[str] | None, option("--stop", help="Text that ends the run.")] = None
    regex: Annotated[str | None, option("--regex", help="The new text must match this regular expression.")] = None
    json_schema: Annotated[Path | None, option("--json-schema", help="It must be JSON that this schema describes.")] = None
    grammar: Annotated[Path | None, option("--grammar", help="It must be a text of this Lark grammar.")] = None

    def fields(self, chosen: Algorithm, **more: Any) -> dict[str, Any]:
        """The fields of the runtime's `Request`. Raises DecError, before models are read, for what is out of range, what the
        algorithm does not read, and a grammar that cannot be used."""
        from decgraph.runtime.refused import refuse_unread, unread
        from decgraph.runtime.request import Request as Checked

        grammars = ("regex", "json_schema", "grammar")
        out = {name: value for name, value in vars(self).items() if name not in grammars and value is not None} | more
        refuse_unread(chosen.function, Checked((0,), **out), unread(chosen.function))
        allow = parsing.grammar(self.regex, self.json_schema, self.grammar)
        return out if allow is None else {**out, "allow": allow}


@dataclass(frozen=True)
class OutputOptions:
    """What is printed."""

    quiet: Quiet = False
    json: Json = False


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A verb as typer reads it: parameters that are dataclasses become options, one for each of their fields."""
    hints = get_type_hints(command, include_extras=True)
    plain: list[inspect.Parameter] = []
    parts: dict[str, tuple[Any, dict[str, Any]]] = {}
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if not dataclasses.is_dataclass(kind):
            plain.append(parameter.replace(annotation=kind, kind=parameter.KEYWORD_ONLY))
            continue
        fields = get_type_hints(kind, include_extras=True)
        own = {field.name: field.default for field in dataclasses.fields(kind)}
        parts[parameter.name] = kind, own
        plain += [inspect.Parameter(name, parameter.KEYWORD_ONLY, default=default, annotation=fields[name])
                  for name, default in own.items()]  # fmt: skip

    def verb(**values: Any) -> None:
        made = {name: kind(**{field: values.pop(field) for field in fields}) for name, (kind, fields) in parts.items()}
        command(**values, **made)

    verb.__doc__ = command.__doc__
    verb.__signature__ = inspect.Signature(plain)  # type: ignore[attr-defined]
    verb.__annotations__ = {parameter.name: parameter.annotation for parameter in plain}
    return verb
