"""What a request is where nobody says: what the model's generation settings say, as transformers' `generate` reads them.

One rule for every door that decodes a prompt (`decgraph run`, `map`, `trace`, `serve`, `decgraph.run`, sessions; `decgraph.hf`
is handed the settings by transformers itself): what the caller says; else what the model's generation_config.json says; else
greedy, without filters and penalties.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from decgraph.errors import DecError
from decgraph.runtime.bound import BoundProgram
from decgraph.runtime.models.folders import adapted_from, settings
from decgraph.runtime.request import DEFAULT_TEMPERATURE, RequestFields

OFF: dict[str, float] = {"top_k": 0, "top_p": 1, "min_p": 0}
"""What generation settings say for no filter."""


def defaults(session: BoundProgram) -> RequestFields:
    """The sampling fields of a session's requests that say nothing themselves: its own (`Session.defaults`), or those of its
    first model's settings. What its algorithm never reads is left out. Raises DecError for settings that cannot be read."""
    fields = session.defaults
    if fields is None:
        model = next(iter(session.models.values()), None)
        given = {} if model is None else of_folder(Path(model.family)) if model.generation is None else model.generation
        fields = sampling(given, "the model's generation settings")
    return {name: value for name, value in fields.items() if name not in session.unread}  # type: ignore[return-value]


def of_folder(at: Path) -> dict[str, object]:
    """The generation settings in a model's folder; none where there is no such file."""
    file = (adapted_from(at) or at) / "generation_config.json"
    return settings(file) if file.is_file() else {}


def sampling(given: Mapping[str, object], place: str) -> RequestFields:
    """The sampling fields that generation settings stand for: without `do_sample` they are greedy. Raises DecError for what is
    no number; place: where they are from."""
    found: dict[str, object] = {"temperature": DEFAULT_TEMPERATURE}
    for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"):
        value = given.get(name)
        if value is None or (name == "temperature" and not given.get("do_sample")):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DecError(f"{place}: {name} is {value!r}", hint="a number")
        found[name] = None if value == OFF.get(name) else value
    if given.get("do_sample") and given.get("temperature") is None:
        found["temperature"] = 1.0
    return found  # type: ignore[return-value]  # by their names
