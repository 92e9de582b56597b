"""The repository form: a folder with `custom_generate/generate.py`, which `generate(custom_generate=FOLDER)` runs."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decgraph import extras
from decgraph.errors import DecError
from decgraph.hf.generate import CustomGenerate, names_of
from decgraph.runtime.arguments import AlgorithmLike
from decgraph.runtime.refused import TRUNCATING, unread
from decgraph.runtime.sources import HEADS, PARTS, main_parameter, wanted_by
from decgraph.runtime.text import reads_text
from decgraph.version import __version__

if TYPE_CHECKING:
    from decgraph.api import Algorithm
    from decgraph.ir.values import Param

_OWN = ("backend", "seed", "externs", "batch")  # keyword arguments of decgraph.hf that generate may be given as well

_AUTO = {"causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM"}
_IS = {
    "causal": "a causal model",
    "masked": "a masked model",
    "features": "a drafting head: its folder, or its module",
    "layers": "an adapter: its folder, or its module",
    "head": "a head with one value: its folder, or its module",
}

_OF_MASKED = """

A masked model of transformers has no `generate`, so `load_custom_generate` gives the folder's function. A model that has one
(a decoder that was trained to fill masks, from `AutoModelForCausalLM`) can also be asked by
`model.generate(**inputs, custom_generate="THIS_REPOSITORY", trust_remote_code=True)`. Models with code of their own, LLaDA and
Dream among them, are loaded by `AutoModel.from_pretrained("MODEL", trust_remote_code=True)`. Where a configuration does not say
which token is the mask, whether scores are shifted and who attends to whom, `mask_token=`, `shift=` and `visibility=` do."""

_OFF = {"temperature": "1.0", "top_k": "0", "top_p": "1.0", "repetition_penalty": "1.0"}
"""What turns off settings that a model's generation_config.json may have, or transformers itself (top_k = 50 for draws)."""

# transformers looks for a package and a version in each line, and reads no address.
_REQUIREMENTS = f"# pip install '{extras.requirement()}'\ndecgraph>={__version__}\n"

_GENERATE = '''\
"""{title}

Written by `decgraph export hf`. The algorithm is the text below; decgraph compiles and runs it.

    {call}
"""

from decgraph.hf import generate_with

NAME = {name!r}
ALGORITHM = {text}


def generate(model, **arguments):
    """What `model.generate` does, decoded by the algorithm; its models and parameters are arguments by its own names."""
    return generate_with(ALGORITHM, model, arguments, name=NAME)
'''

_CARD = """\
---
library_name: transformers
tags:
  - custom_generate
  - decgraph
---

# {name}

{doc}

This folder has no weights. It is a decoding method for {what}:

```python
from transformers import {imports}

{loaded}
tokenizer = AutoTokenizer.from_pretrained("MODEL")
inputs = tokenizer(["def fibonacci(n):"], return_tensors="pt", return_token_type_ids=False)
{call}
print(tokenizer.batch_decode(out)[0])
```

{notes}

## Models and parameters

`model` is the algorithm's `{main}`.

{table}

## What it claims

{claims}

## The algorithm

```
{text}
```
"""


def export(algorithm: AlgorithmLike, folder: str | Path, *, force: bool = False) -> list[Path]:
    """Write an algorithm as a repository for `custom_generate`; returns the files written.

    algorithm: as in `decgraph.hf`. folder: made if need be. Writes custom_generate/generate.py (which carries the text),
    custom_generate/requirements.txt, README.md (a model card) and the .dec file. Raises DecError for an algorithm
    without text or without a model that generate could be called on, for files that exist (but with `force`) and for
    what the system refuses.
    """
    from decgraph import api

    chosen = api.of(algorithm)
    main = main_parameter(chosen.function)
    if not chosen.text:
        raise DecError(f"there is no text of {chosen.name} to export", hint="load it from a .dec file or from stdlib/")
    if chosen.module.externs:
        raise DecError(
            f"{chosen.name} calls {', '.join(chosen.module.externs)}, which a folder cannot carry",
            hint="use decgraph.hf(..., externs={...}) in Python",
        )
    wanted = wanted_by(chosen.function)
    masked = wanted[main].kind == "masked"
    first = chosen.doc.split(". ")[0].split("\n\n")[0].replace("\n", " ").strip()
    fields = {"name": chosen.name, "title": _title(chosen.name, first), "text": _literal(chosen.text.rstrip() + "\n"),
              "call": call(chosen, "FOLDER").replace("\n", "\n    ")}  # fmt: skip
    autos = {name: _AUTO[one.kind] for name, one in wanted.items() if one.kind in _AUTO}
    card = {
        **fields,
        "text": chosen.text.rstrip(),
        "doc": " ".join(chosen.doc.split()),
        "what": f"{'masked models' if masked else '`generate`'} of transformers, with your own model",
        "imports": ", ".join(sorted({*autos.values(), "AutoTokenizer", *(["GenerationMixin"] if masked else [])})),
        "loaded": "\n".join(
            [
                *(
                    f'{_variable(name, main)} = {auto}.from_pretrained("{"MODEL" if name == main else name.upper()}")'
                    for name, auto in autos.items()
                ),
                *(f"{_variable(name, main)} = ...  # {what}" for name, what in _own_modules(chosen).items()),
            ]
        ),
        "call": call(chosen, "THIS_REPOSITORY", "max_new_tokens=64"),
        "notes": _notes(chosen, masked),
        "main": main,
        "table": _table(chosen, main),
        "claims": _claims(chosen),
    }
    root = Path(folder)
    files = {
        root / "custom_generate" / "generate.py": _GENERATE.format(**fields),
        root / "custom_generate" / "requirements.txt": _REQUIREMENTS,
        root / "README.md": _CARD.format(**card),
        root / f"{chosen.name}.dec": chosen.text.rstrip() + "\n",
    }
    there = [path for path in files if path.exists()]
    if there and not force:
        raise DecError(f"{there[0]} exists", hint="another folder, or --force to overwrite it")
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DecError(f"cannot write {root}: {error.strerror or error}") from None
    return list(files)


def call(algorithm: Algorithm, folder: str, *more: str) -> str:
    """The lines that decode `inputs` by an exported folder with `model`, and with the algorithm's other models under their own
    names. more: further arguments, as texts. Raises DecError for an algorithm without a model to call generate on."""
    main = main_parameter(algorithm.function)
    arguments = []
    for name, one in wanted_by(algorithm.function).items():
        if one.kind in PARTS and name not in _own_modules(algorithm):
            arguments.append(f'{name}="{name.upper()}"')
        elif name != main:
            arguments.append(f"{name}={_variable(name, main)}")
        if one.gives == HEADS:
            arguments.append('heads="HEADS"' if name == main else f'**{{"{name}.heads": "HEADS"}}')
    arguments += [f"{n}={p.default}" for n, p in _shown(algorithm)[:2]]
    arguments += [f"{name}={off}" for name, off in _OFF.items() if name in unread(algorithm.function)]
    arguments += ["tokenizer=tokenizer"] if reads_text(algorithm.module) else []
    if wanted_by(algorithm.function)[main].kind != "masked":
        return _call("model.generate", ["**inputs", f'custom_generate="{folder}"', "trust_remote_code=True", *arguments, *more])
    loading = f'generate = GenerationMixin.load_custom_generate(model, "{folder}", trust_remote_code=True)\n'
    return loading + _call("generate", ["model", "**inputs", *arguments, *more])


def generate_with(text: str, model: Any, arguments: Mapping[str, Any], *, name: str = "") -> Any:
    """What an exported folder's `generate` does: `model.generate(**arguments)` decoded by the algorithm in `text`.

    arguments: what generate was given; models and parameters of the algorithm among them by their own names. Stop strings
    and the streamer are handed over here, since generate does not pass them on to a callable. Returns what generate does.
    Raises DecError as `decgraph.hf` does.
    """
    import copy

    from transformers import GenerationMixin

    from decgraph import api
    from decgraph.hf import settings

    algorithm = api.parse(text, path=f"{name or 'algorithm'}.dec", main=name)
    known, rest = set(names_of(algorithm)), dict(arguments)
    given = {key: rest.pop(key) for key in list(rest) if key in known}
    own = {key: rest.pop(key) for key in _OWN if key in rest}
    config = rest.get("generation_config")
    strings = rest.pop("stop_strings", None) or getattr(config, "stop_strings", None)
    strings = strings or getattr(getattr(model, "generation_config", None), "stop_strings", None)
    tokenizer = rest.pop("tokenizer", None)
    custom = CustomGenerate(
        algorithm,
        given,
        backend=own.get("backend"),
        seed=own.get("seed"),
        tokenizer=tokenizer,
        stop_strings=strings,
        streamer=rest.get("streamer"),
        externs=own.get("externs"),
        batch=own.get("batch", 8),
    )
    if strings and config is not None:
        rest["generation_config"] = copy.deepcopy(config)
        rest["generation_config"].stop_strings = None
    masked = wanted_by(algorithm.function)[main_parameter(algorithm.function)].kind == "masked"
    if masked and not isinstance(model, GenerationMixin):
        return custom(model, **settings.alone(model, rest))
    # The class's own method, since `model.generate` may be this very folder. Masked models with code of their own (LLaDA 2)
    # have another `generate` there, which takes no custom one.
    generate = GenerationMixin.generate if masked else type(model).generate
    return generate(model, custom_generate=custom, **rest)


def _call(function: str, arguments: list[str]) -> str:
    line = f"out = {function}({', '.join(arguments)})"
    return line if len(line) <= 100 else f"out = {function}(\n    " + ",\n    ".join(arguments) + ",\n)"


def _own_modules(algorithm: Algorithm) -> dict[str, str]:
    """The heads that are in no folder, since a program gives them more than states, by name, with what a module has to be."""
    names = {p.value: p.name for p in algorithm.function.params}
    found: dict[str, str] = {}
    for op in algorithm.function.body.walk():
        if op.opcode in ("head.read", "head.score") and op.operands[0] in names:
            to = "logits [n, vocabulary]" if op.opcode == "head.score" else "[n, outputs]"
            if "token" in op.attrs.get("named", ()):
                found[names[op.operands[0]]] = f"your module: from hidden states [n, width] and tokens [n] to {to}"
            elif "layer" in op.attrs.get("named", ()):
                found[names[op.operands[0]]] = f"your ModuleList, a part for each layer: from hidden states [n, width] to {to}"
    return found


def _variable(name: str, main: str) -> str:
    """What a model is called in the lines of the card."""
    return "model" if name == main else f"{name}_" if name in ("model", "tokenizer", "inputs", "generate", "out") else name


def _shown(algorithm: Algorithm) -> list[tuple[str, Param]]:
    return [(name, p) for name, p in algorithm.params.items() if p.has_default and not isinstance(p.default, str)]


def _title(name: str, first: str) -> str:
    line = f"{name}: {first}".replace("\\", "").replace('"', "'")
    return line if len(line) <= 118 else line[:115].rstrip() + "..."


def _literal(text: str) -> str:
    """A Python literal of a text that a person can read: raw and in triple quotes where that is possible."""
    if "'''" not in text and not text.rstrip("\n").endswith(("\\", "'")):
        return f"r'''\n{text}'''"
    return json.dumps(text, ensure_ascii=False)


def _table(algorithm: Algorithm, main: str) -> str:
    lines = ["| argument | what it is | default |", "| --- | --- | --- |"]
    for name, one in wanted_by(algorithm.function).items():
        heads = "heads" if name == main else f"{name}.heads"
        if name != main:
            what = _own_modules(algorithm).get(name, _IS[one.kind])
            lines.append(f"| `{name}` | {what} | needed |")
        if one.gives == HEADS:
            lines.append(f"| `{heads}` | Medusa heads of `{name}`: their folder, or their module | needed |")
    for name, p in algorithm.params.items():
        inside = f", {p.low} to {p.high}" if p.low is not None and p.high is not None else ""
        lines.append(f"| `{name}` | {p.value.type}{inside} | {p.default if p.has_default else 'needed'} |")
    return "\n".join(lines) if len(lines) > 2 else "It has none but that."


def _notes(algorithm: Algorithm, masked: bool) -> str:
    """Which settings of `generate` the card promises: those that the call takes, without those that the algorithm refuses."""
    no = unread(algorithm.function)
    asked = (*TRUNCATING, "repetition_penalty")
    listed = [f"`{name}`" for name in asked if name not in no]
    listed += ["logits processors without state"] if "processors" not in no else []
    listed += [f"`{name}`" for name in ("suppress_tokens", "max_new_tokens", "min_new_tokens", "eos_token_id")]
    refused = ", ".join(f"`{name}`" for name in asked if name in no)
    said = [
        "It needs `decgraph` (see `custom_generate/requirements.txt`), which compiles the algorithm.",
        f"It supports `generate`'s own settings: `do_sample`, {', '.join(listed)}, `stop_strings` (with `tokenizer=`),",
        "stopping criteria without state, a streamer, batches padded on the left.",
        f"It refuses {refused}, since the algorithm reads nothing that they change; the values above are off." if no else "",
        "Other settings are refused by name.",
    ]
    text = textwrap.fill(" ".join(filter(None, said)), 120, break_long_words=False, break_on_hyphens=False)
    return text + _OF_MASKED if masked else text


def _claims(algorithm: Algorithm) -> str:
    lines = [f"- `{claim.text}`" for claim in algorithm.claims]
    return "\n".join(lines) + "\n\n`decgraph check` decides these." if lines else "It makes no claim."
