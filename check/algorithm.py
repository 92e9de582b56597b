"""`decgraph check`: an algorithm by name, path or module."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, Unpack

from decgraph.check.report import Progress, Report, check_module
from decgraph.dsl import syntax as S
from decgraph.dsl.lower import load_text, refuse_settings
from decgraph.dsl.lower.library import names, stdlib_file
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.arguments import AlgorithmLike, Externs, ParamValue
from decgraph.runtime.parameters import check_value
from decgraph.stdlib import missing


class CheckOptions(TypedDict, total=False):
    """The keyword arguments of `check_algorithm`, for those that hand them on."""

    vocab: int
    models: int
    params: Mapping[str, ParamValue] | None
    externs: Externs | None
    seconds: float | None
    progress: Progress | None
    derive: bool
    compare: bool
    derived_first: Callable[[Report], None] | None


def find(algorithm: AlgorithmLike) -> tuple[Module, str]:
    """The module of an algorithm, and its text where there is one: a name in stdlib, a path to a .dec file, a text, a module,
    what `decgraph.load` returns, or a function decorated with `@decgraph.algorithm`. Raises DecError."""
    if isinstance(algorithm, Module):
        return algorithm, _text_at(algorithm.path)
    if not isinstance(algorithm, str | Path):
        module = getattr(algorithm, "module", None)
        if isinstance(module, Module):
            return module, str(getattr(algorithm, "text", "") or "")
        raise DecError(f"{algorithm!r} is no algorithm", hint="give a name in stdlib, a path, a text or a module")
    text = str(algorithm)
    if "\n" in text:
        return load_text(text), text
    found = stdlib_file(text) if text in names() else None
    if found is not None:
        return load_text(found[1].text, found[1].path), found[1].text
    path = Path(text)
    if not path.is_file():
        raise missing(text)
    read = path.read_text(encoding="utf-8", errors="replace")
    return load_text(read, str(path)), read


def _text_at(path: str) -> str:
    """The text of a module's file, if it can be read."""
    found = stdlib_file(Path(path).stem) if path.startswith("stdlib/") else None
    if found is not None:
        return found[1].text
    return Path(path).read_text(encoding="utf-8", errors="replace") if path.endswith(".dec") and Path(path).is_file() else ""


def check_algorithm(
    algorithm: AlgorithmLike,
    *,
    vocab: int = 3,
    models: int = 20,
    params: Mapping[str, ParamValue] | None = None,
    externs: Externs | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
    derive: bool = True,
    compare: bool = False,
    derived_first: Callable[[Report], None] | None = None,
) -> Report:
    """Decide the claims of an algorithm.

    vocab: tokens of the tables (3 or more sees what 2 cannot). models: worlds per claim. params: values to check with, by
    name; what is not given is varied over small values. externs: the functions that the program declares, where they should not
    be any functions of their types. seconds: of processor time, after which to give up; the report says what was known by
    then. progress: called with (what, done, of). derive: look for a derivation of each claim first; without, worlds alone
    decide. What is derived is compared in a dozen worlds, for half a second or with `compare` in all of them. derived_first:
    called with the report so far where each claim is derived, before it is compared. Raises DecError.

    >>> check_algorithm("speculative", models=2).verdict
    'proved'
    """
    module, text = find(algorithm)
    if module.main not in module.functions:
        raise DecError("there is no algorithm in this text", hint="algorithm name(target: causal): ...")
    refuse_settings(module, text)
    f = module.entry
    given = {}
    for name, value in (params or {}).items():
        known = {p.name: p for p in f.params if p.value.type.elem != "model"}
        if name not in known:
            raise DecError(f"{f.name} has no parameter `{name}`", hint=f"it has {', '.join(known) or 'none'}")
        given[name] = check_value(f.name, known[name], value)
    if vocab < 2 or models < 1:
        raise DecError("a check needs at least 2 tokens and 1 model", hint="vocab=3, models=20")
    report = check_module(
        module,
        vocab=vocab,
        models=models,
        params=given,
        progress=progress,
        externs=externs,
        seconds=seconds,
        derive=derive,
        compare=compare,
        derived_first=derived_first,
    )
    report.text = text
    return report


def check_all(algorithms: Sequence[AlgorithmLike] = (), *, jobs: int = 1, **options: Unpack[CheckOptions]) -> Iterator[Report]:
    """The reports of several algorithms (by default every one of stdlib that claims something), in order, worked out by
    `jobs` processes. Options are those of `check_algorithm`."""
    todo: list[AlgorithmLike] = list(algorithms) or [n for n in names() if _claims(n)]
    if jobs <= 1:
        yield from map(_Job(options), todo)
        return
    import multiprocessing

    main = sys.modules["__main__"]
    if not hasattr(main, "__spec__"):  # a notebook's after %reset: multiprocessing reads it
        main.__spec__ = None
    with multiprocessing.get_context("spawn").Pool(min(jobs, len(todo))) as pool:
        yield from pool.imap(_Job(options), todo)


def _claims(name: str) -> bool:
    found = stdlib_file(name)
    if found is None or not any(isinstance(i, S.Algorithm) for i in found[0].items):
        return False
    entry = next(i for i in reversed(found[0].items) if isinstance(i, S.Algorithm))
    return any(isinstance(s, S.Claim) for s in entry.body)


class _Job:
    """One algorithm of several: an error of ours is the line of that one."""

    def __init__(self, options: CheckOptions) -> None:
        self.options = options

    def __call__(self, algorithm: AlgorithmLike) -> Report:
        try:
            report = check_algorithm(algorithm, **self.options)
        except DecError:
            raise
        except Exception as error:
            fault = f"a fault of decgraph itself, please report it: {type(error).__name__}: {error}"
            return Report(str(algorithm), "undecided", [], 0, 0, 0.0, reasons=[fault], faults=[fault])
        report.ran, report.harmless, report.module = None, set(), None  # ids of ops mean nothing in another process
        report.missing = []
        return report
