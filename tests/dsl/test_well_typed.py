"""What passes the type check runs, or ends with an error that says what is wrong: no builtin leaks an error of Python's.

Programs over every builtin (tests/lib/programs/call_forms.py) on the reference and on torch: the same tokens, or an
error on both.
"""

from __future__ import annotations

import re
from collections import Counter
from itertools import islice

import pytest
from lib.programs.call_forms import drawn
from lib.stdlib.letters import Letters

from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

LEAK = re.compile(r"cannot go on: ([A-Z]\w*(?:Error|Exception)): (.*)")


def loaded(texts: list[str]) -> tuple[str, Module] | None:
    """The first of the texts that passes the front end; whatever else it says of one must be a DecError."""
    for text in texts:
        try:
            return text, load_text(text, "fuzzed.dec", check_labels=False)
        except DecError:
            continue
        except Exception as error:
            raise AssertionError(f"the front end raised {type(error).__name__} at\n{text}") from error
    return None


def run(module: Module, backend: str) -> Result:
    session = Session(module, models_for(module.entry, 4, 3), {}, machine=machine(backend), tokenizer=Letters())
    return session.run(Request(prompt=(0, 1, 2), max_tokens=2, seed=1))


def judged(text: str, module: Module) -> str:
    """What is wrong with the runs of a program; empty where nothing is."""
    try:
        results = {b: run(module, b) for b in ("reference", "torch")}
    except Exception as error:  # whatever gets out is the finding
        return f"raised {type(error).__name__}: {str(error)[:90]}"
    for backend, result in results.items():
        if result.error is not None and (hit := LEAK.search(str(result.error))):
            return f"{backend}: {hit[1]}: {hit[2][:90]}"
        if result.error is not None and "fuzzed.dec:" not in str(result.error):
            return f"{backend}: no place: {str(result.error)[:90]}"
    want, got = results.values()
    if "the torch backend cannot read" in str(got.error):  # a part of a model that is refused by name
        return ""
    if (want.error is None) != (got.error is None):
        return f"one backend runs: {want.error} | {got.error}"[:200]
    return "" if want.tokens == got.tokens else f"other tokens: {want.tokens} {got.tokens}"


def fuzz(seed: int, tries: int) -> tuple[int, dict[str, str]]:
    """(Programs run, the kinds of fault with a program that shows each)."""
    found: dict[str, str] = {}
    ran: Counter[str] = Counter()
    for texts in islice(drawn(seed), tries):
        if (program := loaded(texts)) is None:
            continue
        ran["programs"] += 1
        wrong = judged(*program)
        if wrong:
            found.setdefault(wrong, program[0].split("        v = ")[1].split("        commit x")[0])
    return ran["programs"], found


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_a_sample_of_programs() -> None:
    ran, found = fuzz(1, 700)
    assert ran > 40
    assert not found, found


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(2, 6))
def test_many_programs(seed: int) -> None:
    ran, found = fuzz(seed, 1500)
    assert ran > 200
    assert not found, found
