"""What a program can name without importing it: the rules, policies, helpers and algorithms of stdlib/."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import resources

from decgraph.dsl import syntax as S
from decgraph.dsl.diagnostics import did_you_mean, failure
from decgraph.dsl.parse import parse_text
from decgraph.dsl.source import Source

SHELVES = ("rules", "policies", "helpers")


@cache
def stdlib_file(name: str) -> tuple[S.File, Source] | None:
    """A file of stdlib/ by its name, parsed once; None if there is none."""
    if not name.isidentifier():
        return None
    path = resources.files("decgraph.stdlib") / f"{name}.dec"
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, OSError):
        return None
    where = f"stdlib/{name}.dec"
    return parse_text(text, where), Source(text, where)


def stdlib_source(path: str) -> Source | None:
    """The text of a file of stdlib/ by its path in messages, `stdlib/name.dec`."""
    found = stdlib_file(path.removeprefix("stdlib/").removesuffix(".dec")) if path.startswith("stdlib/") else None
    return found[1] if found else None


@lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Every file of stdlib/, by name."""
    return tuple(sorted(p.name[:-4] for p in resources.files("decgraph.stdlib").iterdir() if p.name.endswith(".dec")))


@lru_cache(maxsize=1)
def _ambient() -> dict[str, tuple[S.Item, Source]]:
    out: dict[str, tuple[S.Item, Source]] = {}
    for s in SHELVES:
        found = stdlib_file(s)
        if found is not None:
            file, source = found
            out.update({i.name: (i, source) for i in file.items if isinstance(i, S.Item)})
    return out


def _home(name: str, kind: type[S.Item]) -> str | None:
    """The file of stdlib/ that defines an item of a kind under a name which no program has without importing it."""
    for module in names() if name else ():
        text = (resources.files("decgraph.stdlib") / f"{module}.dec").read_text(encoding="utf-8")
        if f" {name}(" in text and (found := stdlib_file(module)) and isinstance(found[0].named(name), kind):
            return module
    return None


class ItemsInReach:
    """Items in reach of a file: its own, what it imports, then stdlib's."""

    def __init__(self, file: S.File, source: Source, folder: dict[str, str] | None = None) -> None:
        self.definitions: dict[str, tuple[S.Item, Source]] = {}
        for item in file.items:
            if isinstance(item, S.Import):
                self._import(item, source)
            else:
                if item.name in self.definitions and self.definitions[item.name][1] is source:
                    span = item.name_span or item.span
                    raise failure(source, span, f"`{item.name}` is defined twice", "give one of them another name", "E360")
                self.definitions[item.name] = (item, source)

    def _import(self, item: S.Import, source: Source) -> None:
        module = item.module.removeprefix("stdlib.")
        found = stdlib_file(module)
        if found is None:
            advice = did_you_mean(module, names(), "modules are the files of stdlib/: " + ", ".join(names()[:12]))
            raise failure(source, item.span, f"there is no module `{item.module}`", advice, "E230")
        for n in item.names:
            inner = found[0].named(n.name)
            if inner is None:
                have = ", ".join(i.name for i in found[0].items if isinstance(i, S.Item))
                raise failure(source, n.span, f"`{item.module}` has nothing called `{n.name}`", f"it has {have}", "E230")
            self.definitions[n.name] = (inner, found[1])

    def _find(self, name: str) -> tuple[S.Item, Source] | None:
        if name in self.definitions:
            return self.definitions[name]
        if name in _ambient():
            return _ambient()[name]
        found = stdlib_file(name) if name in names() else None
        if found is not None:
            inner = found[0].named(name)
            if inner is not None:
                return inner, found[1]
            # helpers that stand beside an algorithm are its own
        return None

    def get(self, name: str, default: S.Item | None = None) -> S.Item | None:
        found = self._find(name)
        return found[0] if found else default

    def source(self, name: str) -> Source | None:
        found = self._find(name)
        return found[1] if found else None

    def near(self, name: str, kind: type[S.Item], otherwise: str) -> str:
        """Advice: what of a kind is called almost so, else the given one."""
        if (module := _home(name, kind)) is not None:
            return f"from {module} import {name}"
        known = sorted(n for n in {*self.definitions, *_ambient(), *names()} if isinstance(self.get(n), kind))
        return did_you_mean(name, known, otherwise)

    def __contains__(self, name: str) -> bool:
        return self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return iter({**_ambient(), **self.definitions})
