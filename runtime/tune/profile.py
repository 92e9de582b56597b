"""Profiles: what tuning chose at each load, in a TOML file that `run`, `map` and `serve` read. docs/tune.md has its keys."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from decgraph.errors import DecError
from decgraph.ir.values import Function
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.session import check_value

FORMAT = 2
TABLES = ("plan", "request", "device", "search")
OF_LOADS = ("params", "models", "figures")


@dataclass
class TunedLoad:
    """What was chosen where so many requests are decoded together. algorithm, program: its name, and the digest of its text;
    file: where that is, if it is none of the standard library's. params: by name, as text that a command line would take.
    models: by parameter, `source` as it was given and `content`, a fingerprint. figures: facts for people."""

    batch: int
    algorithm: str
    file: str = ""
    program: str = ""
    params: dict[str, str] = field(default_factory=dict)
    models: dict[str, dict[str, object]] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)


@dataclass
class Profile:
    """loads: what was chosen, by load. plan: the plan's text form. request: what was tuned for. device, search: facts for
    people; of them `device` and `request` are compared."""

    loads: list[TunedLoad]
    plan: str = ""
    request: dict[str, object] = field(default_factory=dict)
    device: dict[str, object] = field(default_factory=dict)
    search: dict[str, object] = field(default_factory=dict)
    path: str = ""
    source: str = field(default="", repr=False, compare=False)

    def text(self) -> str:
        """The file."""
        import tomli_w  # written by `tune` only, and reading one needs nothing

        tables = {name: getattr(self, name) for name in TABLES} | {"plan": {"text": self.plan} if self.plan else {}}
        title = "# Written by `decgraph tune`; `run`, `map` and `serve` read it with --tuned FILE. See docs/tune.md.\n"
        return title + tomli_w.dumps({"format": FORMAT, **tables, "loads": [asdict(load) for load in self.loads]})

    def write(self, path: Path) -> None:
        """Write the file whole or not at all. Raises DecError where it cannot be written."""
        part = path.with_name(f"{path.name}.part")
        try:
            part.write_text(self.text(), encoding="utf-8")
            part.replace(path)
        except OSError as error:
            raise DecError(f"cannot write {path}: {error.strerror or error}") from None

    @staticmethod
    def read(path: Path) -> Profile:
        """A profile's file. Raises DecError for one that cannot be read or is no profile, with the line."""
        try:
            text = path.read_bytes().decode("utf-8")
        except OSError as error:
            raise DecError(f"cannot read {path}: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise DecError(f"{path} is not UTF-8 text (byte {error.start})") from None
        return Profile.parse(text, str(path))

    @staticmethod
    def parse(text: str, path: str = "<text>") -> Profile:
        """A profile's text. Raises DecError for one that is no profile, with the line."""

        def wrong(line: int | str, what: str) -> DecError:
            return DecError(f"{path}:{line or 1}: {what}", hint=AGAIN)

        try:
            held = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r"line (\d+)", str(error))
            raise wrong(at[1] if at else len(text.splitlines()), f"this is no profile: {error}") from None
        if held.get("format") != FORMAT:
            said = held.get("format", "none")
            raise wrong(_line(text, "", "format"), f"a profile of format {said}; this decgraph reads {FORMAT}")
        for name, value in held.items():
            if name not in (*TABLES, "format", "loads"):
                raise wrong(_line(text, name, "") or _line(text, "", name), f"a profile has no `{name}`")
            if name in TABLES and not isinstance(value, dict):
                raise wrong(_line(text, "", name), f"`{name}` is a table: [{name}]")
        found = held.get("loads")
        if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
            raise wrong(_line(text, "loads", "") or _line(text, "", "loads"), "the profile has no [[loads]]")
        plan = held.get("plan", {}).get("text", "")
        if not isinstance(plan, str):
            raise wrong(_line(text, "plan", "text"), "`text` is a plan's text")
        loads = [_load(one, lambda table, key, n=n: _line(text, table, key, n), wrong) for n, one in enumerate(found)]
        others = {name: held.get(name, {}) for name in ("request", "device", "search")}
        return Profile(loads, plan, path=path, source=text, **others)

    def line(self, table: str, key: str = "", of: TunedLoad | None = None) -> int:
        """The line of a key of the file it was read from, or of a load's; 1 where it was not read from one."""
        return _line(self.source, table, key, 0 if of is None else self.loads.index(of)) or 1

    def at(self, batch: int, algorithm: str | None = None) -> TunedLoad:
        """What to take where so many requests are decoded together: the choice at the largest load that is no larger, or at the
        least there is. algorithm: of its choices alone. Raises DecError for one that it does not have."""
        loads = [one for one in self.loads if algorithm in (None, one.algorithm)]
        if not loads:
            names = list(dict.fromkeys(one.algorithm for one in self.loads))
            line = self.line("loads", "algorithm", self.loads[0])
            raise DecError(
                f"{self.path}:{line}: a profile of {_and(names)}, not of {algorithm}",
                hint=f"decgraph run {names[0]} --tuned {self.path}, or tune {algorithm}",
            )
        below = [one for one in loads if one.batch <= batch]
        return max(below, key=lambda one: one.batch) if below else min(loads, key=lambda one: one.batch)

    def check(self, load: TunedLoad, function: Function) -> dict[str, ParamValue]:
        """A load's parameters as values. Raises DecError, with the line, for an unknown parameter and a value outside its
        range."""
        known = {p.name: p for p in function.params if p.value.type.elem != "model"}
        out = {}
        for name, value in load.params.items():
            where = f"{self.path}:{self.line('loads.params', name, load)}"
            if name not in known:
                raise DecError(
                    f"{where}: {function.name} has no parameter `{name}`",
                    hint=f"it has {', '.join(known) or 'none'}; the algorithm has changed: tune it again",
                )
            try:
                out[name] = check_value(function.name, known[name], value)
            except DecError as error:
                message = str(error).splitlines()[0].removeprefix("error: ")
                raise DecError(f"{where}: {message}", hint="tune it again, or correct the line") from None
        return out

    def doubts(
        self,
        load: TunedLoad,
        *,
        program: str,
        models: Mapping[str, str],
        device: Mapping[str, object],
        temperature: float,
        batch: int = 1,
    ) -> list[str]:
        """What is not as it was tuned, a sentence each. `models`: fingerprints by parameter ("": unknown). batch: how many
        prompts are decoded together."""
        out = []
        if load.program and program and load.program != program:
            out.append(f"the text of {load.algorithm} has changed")
        others = [
            name
            for name, content in models.items()
            if content and (held := load.models.get(name, {}).get("content")) and held != content
        ]
        if others:
            out.append(f"{_and(others)} {'is another model' if len(others) == 1 else 'are other models'}")
        changed = [name for name, value in device.items() if name in self.device and str(self.device[name]) != str(value)]
        if "device" in changed:
            out.append(f"it was tuned on {self.device['device']}, this is {device['device']}")
        elif changed:
            out.append(", ".join(f"{name} was {self.device[name]} and is {device[name]}" for name in changed))
        tuned_at = self.request.get("temperature")
        if isinstance(tuned_at, int | float) and bool(tuned_at) != bool(temperature):
            of, this = ("sampled", "greedy") if tuned_at else ("greedy", "sampled")
            out.append(f"it was tuned for {of} requests, and this one is {this}")
        if (load.batch > 1) != (batch > 1):
            of, this = (f"{n} prompts at a time" if n > 1 else "single prompts" for n in (load.batch, batch))
            out.append(f"it was tuned for {of}, and this run decodes {this}")
        return out


AGAIN = "write it again: decgraph tune --prompts FILE"


def _load(held: dict[str, Any], line: Any, wrong: Any) -> TunedLoad:
    """One of the loads of a file. line(table, key): of a key; wrong(line, what): the error."""
    for name, value in held.items():
        if name not in TunedLoad.__dataclass_fields__:
            raise wrong(line(f"loads.{name}", "") or line("loads", name), f"a load has no `{name}`")
        if name in OF_LOADS and not isinstance(value, dict):
            raise wrong(line("loads", name), f"`{name}` is a table: [loads.{name}]")
    if not isinstance(held.get("algorithm"), str) or not held["algorithm"]:
        raise wrong(line("loads", "algorithm") or line("loads", ""), "the profile names no algorithm")
    batch = held.get("batch")
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise wrong(line("loads", "batch") or line("loads", ""), "`batch` says how many requests are decoded together: 1, 4")
    for name, value in held.get("params", {}).items():
        if not isinstance(value, str | int | float):
            raise wrong(line("loads.params", name), f"`{name}` is a word or a number")
    for name, value in held.get("models", {}).items():
        if not isinstance(value, dict) or not all(isinstance(value.get(k, ""), str) for k in ("source", "content")):
            place = line(f"loads.models.{name}", "") or line("loads.models", name)
            raise wrong(place, f"`models.{name}` holds source and content")
    params = {n: ("yes" if v else "no") if isinstance(v, bool) else str(v) for n, v in held.get("params", {}).items()}
    texts = {name: str(held.get(name, "")) for name in ("algorithm", "file", "program")}
    return TunedLoad(batch, params=params, models=held.get("models", {}), figures=held.get("figures", {}), **texts)


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _line(text: str, table: str, key: str, load: int = 0) -> int:
    """The line of `key = ...` in a table ("": before the first), or of the table's heading; 0 where it is not there. load:
    which of the [[loads]] the table belongs to, from 0."""
    now, at = "", -1
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("[") and bare.endswith("]") and "=" not in bare:
            now = bare.strip("[]").strip()
            at += now == "loads"
            if now == table and not key and at in (-1, load):
                return number
        elif now == table and key and at in (-1, load) and re.match(rf'"?{re.escape(key)}"?\s*=', bare):
            return number
    return 0
