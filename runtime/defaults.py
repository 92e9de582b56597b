"""Defaults of a request's fields: the model's generation settings, as transformers' `generate` reads them.

One rule holds wherever a prompt is decoded (`decgraph run`, `map`, `trace`, `serve`, `decgraph.run`, sessions; transformers
itself passes the settings to `decgraph.hf`): the caller's value, else that of the model's generation_config.json, else greedy
decoding without filters and penalties.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from decgraph.errors import DecError
from decgraph.runtime.bound import BoundProgram
from decgraph.runtime.models.folders import adapted_from, settings
from decgraph.runtime.models.interface import folder_of
from decgraph.runtime.request import DEFAULT_TEMPERATURE, RequestFields

OFF: dict[str, float] = {"top_k": 0, "top_p": 1, "min_p": 0}
"""The values by which generation settings turn a filter off."""


def defaults(session: BoundProgram) -> RequestFields:
    """Defaults of the sampling fields of a session's requests: its own (`Session.defaults`), else its first model's settings,
    without the fields that its algorithm never reads. Raises DecError for settings that cannot be read."""
    fields = session.defaults
    if fields is None:
        model = next(iter(session.models.values()), None)
        at = None if model is None else folder_of(model)
        given = (of_folder(at) if at is not None else {}) if model is None or model.generation is None else model.generation
        fields = sampling(given, "the model's generation settings")
    return {name: value for name, value in fields.items() if name not in session.unread}  # type: ignore[return-value]


def of_folder(at: Path) -> dict[str, object]:
    """The generation settings in a model's folder; none where there is no such file."""
    file = (adapted_from(at) or at) / "generation_config.json"
    return settings(file) if file.is_file() else {}


def sampling(given: Mapping[str, object], place: str) -> RequestFields:
    """The sampling fields of generation settings; without `do_sample` they are greedy. place: names the settings in errors.
    Raises DecError for a value that is no number."""
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
