"""Every function, method and statement with arguments of every type: it lowers, or is refused at the program's line; what
lowers runs, or ends with an error at the line. Nothing of Python's gets out
(tests/lib/programs/call_forms.py has the programs)."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from lib.programs.call_forms import FORMS, HEAD, STATEMENTS, texts
from lib.stdlib.letters import Letters

from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import builtins, load_text
from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

ALL = (*FORMS, *STATEMENTS)
LEAK = re.compile(r"cannot go on: ([A-Z]\w*(?:Error|Exception)).*")


def wrong(line: str, text: str) -> str:
    """What is said of a program that should not be; empty where all is well."""
    try:
        module = load_text(text, "called.dec", check_labels=False)
    except DecError as error:
        return "" if "called.dec:" in str(error) else f"{line}: no place: {error}"
    session = Session(module, models_for(module.entry, 4, 3), {}, machine=machine("reference"), tokenizer=Letters())
    error = session.run(Request(prompt=(0, 1, 2), max_tokens=1, seed=1)).error
    leak = LEAK.search(str(error)) if error is not None else None
    return f"{line}: {leak[0]}" if leak else ""


def test_every_function_is_called() -> None:
    called = " ".join(ALL)
    inside = {"settled", "span"}  # of policies; of blocks
    missing = [n for n in builtins.TABLE if not re.search(rf"\b{n}\(", called)]
    assert set(missing) <= inside, missing


@pytest.mark.quick("0")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(4))
def test_a_sample_of_calls(part: int) -> None:
    found = [said for line, text in islice(texts(), part * 41, None, 173) if (said := wrong(line, text))]
    assert found == []


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(8))
def test_all_calls(part: int) -> None:
    found = [said for line, text in texts(ALL[part::8]) if (said := wrong(line, text))]
    assert found == []


@pytest.mark.parametrize("word", ("point", "depth", "law", "children", "accepted"))
def test_a_column_that_would_never_be_read_is_refused(word: str) -> None:
    text = HEAD + f"        draft u:\n            grow x with {word} = 1\n        commit x\n"
    with pytest.raises(DecError, match=f"has a `{word}` of its own"):
        load_text(text, "called.dec", check_labels=False)


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        ("v = prompt + ctx", "joined with \\+\\+"),
        ("v = m.without(argmin(rs))", "m.without\\(\\[i\\]\\)"),
        ("v = [c.all[0], 1]", "a position is no number"),
        ("v = min(c.all[0], 1)", "a position is no number"),
        ("for i in c.masked:\n            c[i] = 0", "unmask c where c.masked with x"),
        ("for i in c.masked:\n            c[i] = c.token[i]", "unmask c where c.masked with x"),
        ("v = g.state(t)", "g.state\\(ctx\\)"),
    ],
)
def test_common_mistakes_have_a_way_out(use: str, hint: str) -> None:
    with pytest.raises(DecError, match=hint):
        load_text(HEAD + f"        {use}\n        commit x\n", "called.dec", check_labels=False)


def test_an_error_inside_a_rule_of_the_library_is_told_at_the_verify_line() -> None:
    text = HEAD + "        verify t by rejection against t.depth\n        commit t.accepted\n"
    with pytest.raises(DecError) as caught:
        load_text(text, "called.dec", check_labels=False)
    said = str(caught.value).splitlines()
    assert "called.dec:" in said[1] and "verify t by rejection" in said[2] and "stdlib/rules.dec" in said[4]
