"""The repository form: a folder with `custom_generate/generate.py`, which `generate(custom_generate=FOLDER)` runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from decgraph import extras
from decgraph.errors import DecError
from decgraph.hf.generate import CustomGenerate, names_of
from decgraph.runtime.arguments import AlgorithmLike
from decgraph.version import __version__

if TYPE_CHECKING:
    from decgraph.api import Algorithm
    from decgraph.ir.values import Param

_OWN = ("backend", "seed", "externs", "batch")  # keyword arguments of decgraph.hf that generate may be given as well

# transformers looks for a package and a version in each line, and reads no address.
_REQUIREMENTS = f"# pip install '{extras.requirement()}'\ndecgraph>={__version__}\n"

_GENERATE = '''\
"""{title}

Written by `decgraph export hf`. The algorithm is the text below; decgraph compiles and runs it.

    model.generate(**inputs, custom_generate=FOLDER, trust_remote_code=True{example})
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

This folder has no weights. It is a decoding method for `generate` of transformers, with your own model:

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("MODEL")
tokenizer = AutoTokenizer.from_pretrained("MODEL")
inputs = tokenizer(["def fibonacci(n):"], return_tensors="pt")
out = model.generate(**inputs, custom_generate="THIS_REPOSITORY", trust_remote_code=True{example}, max_new_tokens=64)
print(tokenizer.batch_decode(out)[0])
```

It needs `decgraph` (see `custom_generate/requirements.txt`), which compiles the algorithm. It supports `generate`'s own
settings: `do_sample`, `temperature`, `top_k`, `top_p`, `min_p`, `repetition_penalty`, lengths, bans, `eos_token_id`,
`stop_strings` (with `tokenizer=`), logits processors and stopping criteria without state, a streamer, batches padded on the
left. Other settings are refused by name.

## Models and parameters

The model on which `generate` is called is `{main}`.

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
    from decgraph.runtime.sources import main_parameter

    chosen = api.of(algorithm)
    main = main_parameter(chosen.function)
    if not chosen.text:
        raise DecError(f"there is no text of {chosen.name} to export", hint="load it from a .dec file or from stdlib/")
    if chosen.module.externs:
        raise DecError(
            f"{chosen.name} calls {', '.join(chosen.module.externs)}, which a folder cannot carry",
            hint="use decgraph.hf(..., externs={...}) in Python",
        )
    others = [name for name in chosen.models if name != main]
    example = "".join([*(f", {name}={name}" for name in others), *(f", {n}={p.default}" for n, p in _shown(chosen)[:2])])
    first = chosen.doc.split(". ")[0].split("\n\n")[0].replace("\n", " ").strip()
    fields = {"name": chosen.name, "title": _title(chosen.name, first), "text": _literal(chosen.text.rstrip() + "\n"),
              "example": example}  # fmt: skip
    card = {**fields, "text": chosen.text.rstrip(), "doc": " ".join(chosen.doc.split()), "main": main,
            "table": _table(chosen, others), "claims": _claims(chosen)}  # fmt: skip
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


def generate_with(text: str, model: Any, arguments: Mapping[str, Any], *, name: str = "") -> Any:
    """What an exported folder's `generate` does: `model.generate(**arguments)` decoded by the algorithm in `text`.

    arguments: what generate was given; models and parameters of the algorithm among them by their own names. Stop strings
    and the streamer are handed over here, since generate does not pass them on to a callable. Returns what generate does.
    Raises DecError as `decgraph.hf` does.
    """
    from decgraph import api

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
        import copy

        rest["generation_config"] = copy.deepcopy(config)
        rest["generation_config"].stop_strings = None
    # The class's own method: `model.generate` may be this very folder.
    return type(model).generate(model, custom_generate=custom, **rest)


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


def _table(algorithm: Algorithm, others: list[str]) -> str:
    lines = ["| argument | what it is | default |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | a {algorithm.models[name]} model | needed |" for name in others]
    for name, p in algorithm.params.items():
        inside = f", {p.low} to {p.high}" if p.low is not None and p.high is not None else ""
        lines.append(f"| `{name}` | {p.value.type}{inside} | {p.default if p.has_default else 'needed'} |")
    return "\n".join(lines) if len(lines) > 2 else "It has none but that."


def _claims(algorithm: Algorithm) -> str:
    lines = [f"- `{claim.text}`" for claim in algorithm.claims]
    return "\n".join(lines) + "\n\n`decgraph check` decides these." if lines else "It makes no claim."
