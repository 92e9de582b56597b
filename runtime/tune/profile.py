"""Profiles: what tuning chose, in a TOML file that `decgraph run --tuned` reads. docs/tune.md describes its keys."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from decgraph.errors import DecError
from decgraph.ir.values import Function
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.session import check_value

FORMAT = 1
TABLES = ("params", "plan", "models", "request", "device", "figures", "search")


@dataclass
class Profile:
    """algorithm, program: its name, and the digest of its text. params: by name, as text that a command line would take.
    plan: the plan's text form. models: by parameter, `source` as it was given and `content`, a fingerprint. request: what
    was tuned for. device, figures, search: facts for people; of them `device` and `request` are compared.
    """

    algorithm: str
    program: str = ""
    params: dict[str, str] = field(default_factory=dict)
    plan: str = ""
    models: dict[str, dict[str, object]] = field(default_factory=dict)
    request: dict[str, object] = field(default_factory=dict)
    device: dict[str, object] = field(default_factory=dict)
    figures: dict[str, object] = field(default_factory=dict)
    search: dict[str, object] = field(default_factory=dict)
    path: str = ""
    source: str = field(default="", repr=False, compare=False)

    def text(self) -> str:
        """The file."""
        import tomli_w  # written by `tune` only, and reading one needs nothing

        tables = {name: getattr(self, name) for name in TABLES} | {"plan": {"text": self.plan} if self.plan else {}}
        head = {"format": FORMAT, "algorithm": self.algorithm, "program": self.program}
        title = f"# Written by `decgraph tune`; read by `decgraph run {self.algorithm} --tuned FILE`. See docs/tune.md.\n"
        return title + tomli_w.dumps({**head, **tables})

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
        try:
            held = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            at = re.search(r"line (\d+)", str(error))
            line = at[1] if at else str(len(text.splitlines()) or 1)
            raise DecError(f"{path}:{line}: this is no profile: {error}", hint=AGAIN) from None
        if held.get("format") != FORMAT:
            said = held.get("format", "none")
            raise DecError(
                f"{path}:{_line(text, '', 'format') or 1}: a profile of format {said}; this decgraph reads {FORMAT}", hint=AGAIN
            )
        algorithm = held.get("algorithm")
        if not isinstance(algorithm, str) or not algorithm:
            raise DecError(f"{path}:{_line(text, '', 'algorithm') or 1}: the profile names no algorithm", hint=AGAIN)
        for name in held:
            if name not in (*TABLES, "format", "algorithm", "program"):
                place = _line(text, name, "") or _line(text, "", name) or 1
                raise DecError(f"{path}:{place}: a profile has no `{name}`", hint=AGAIN)
        for name in TABLES:
            if not isinstance(held.get(name, {}), dict):
                raise DecError(f"{path}:{_line(text, '', name)}: `{name}` is a table: [{name}]", hint=AGAIN)
        for name, value in held.get("params", {}).items():
            if not isinstance(value, str | int | float):
                raise DecError(f"{path}:{_line(text, 'params', name)}: `{name}` is a word or a number", hint=AGAIN)
        for name, value in held.get("models", {}).items():
            if not isinstance(value, dict) or not all(isinstance(value.get(k, ""), str) for k in ("source", "content")):
                place = _line(text, f"models.{name}", "") or _line(text, "models", name) or 1
                raise DecError(f"{path}:{place}: `models.{name}` holds source and content", hint=AGAIN)
        plan = held.get("plan", {}).get("text", "")
        if not isinstance(plan, str):
            raise DecError(f"{path}:{_line(text, 'plan', 'text')}: `text` is a plan's text", hint=AGAIN)
        params = {
            n: v if isinstance(v, str) else ("yes" if v else "no") if isinstance(v, bool) else str(v)
            for n, v in held.get("params", {}).items()
        }
        others = {name: held.get(name, {}) for name in ("models", "request", "device", "figures", "search")}
        return Profile(algorithm, str(held.get("program", "")), params, plan, path=path, source=text, **others)

    def line(self, table: str, key: str = "") -> int:
        """The line of a key of the file it was read from; 1 where it was not read from one."""
        return _line(self.source, table, key) or 1

    def check(self, function: Function) -> dict[str, ParamValue]:
        """The parameters as values. Raises DecError, with the line, for another algorithm's profile, an unknown
        parameter and a value outside its range."""
        if self.algorithm != function.name:
            raise DecError(
                f"{self.path}:{self.line('', 'algorithm')}: a profile of {self.algorithm}, not of {function.name}",
                hint=f"decgraph run {self.algorithm} --tuned {self.path}, or tune {function.name}",
            )
        known = {p.name: p for p in function.params if p.value.type.elem != "model"}
        out = {}
        for name, value in self.params.items():
            where = f"{self.path}:{self.line('params', name)}"
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
        self, *, program: str, models: Mapping[str, str], device: Mapping[str, object], temperature: float, batch: int = 1
    ) -> list[str]:
        """What is not as it was tuned, a sentence each. `models`: fingerprints by parameter ("": unknown). batch: how many
        prompts are decoded together."""
        out = []
        if self.program and program and self.program != program:
            out.append(f"the text of {self.algorithm} has changed")
        others = [
            name
            for name, content in models.items()
            if content and (held := self.models.get(name, {}).get("content")) and held != content
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
        tuned_for = self.request.get("batch", 1)
        if isinstance(tuned_for, int) and (tuned_for > 1) != (batch > 1):
            of, this = (f"{n} prompts at a time" if n > 1 else "single prompts" for n in (tuned_for, batch))
            out.append(f"it was tuned for {of}, and this run decodes {this}")
        return out


AGAIN = "write it again: decgraph tune ALGORITHM --prompts FILE"


def _and(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _line(text: str, table: str, key: str) -> int:
    """The line of `key = ...` in a table ("": before the first), or of the table's heading; 0 where it is not there."""
    now = ""
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if bare.startswith("[") and bare.endswith("]") and "=" not in bare:
            now = bare.strip("[]").strip()
            if now == table and not key:
                return number
        elif now == table and key and re.match(rf'"?{re.escape(key)}"?\s*=', bare):
            return number
    return 0
