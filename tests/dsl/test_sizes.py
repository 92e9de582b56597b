"""Nothing that loads runs for ever or takes all memory: what is too much is an error that names the expression.

Every case runs in a process of its own with a time limit and an address space, as a net: a case that falls into it has failed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from lib.waiting import SECONDS

from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

HEAD = "algorithm a(target: causal, big: int = 4):\n    while not done:\n"
TAIL = "        x ~ target(ctx) as output\n        commit x\n"


def program(*lines: str) -> str:
    return HEAD + "".join(f"        {line}\n" for line in lines) + TAIL


CONSTANT = [
    ("n = 2 ^ 1000000000",),
    ("n = 10 ^ 3000",),
    ("n = (0.5 + big) ^ 123456789123",),
    ("n = max(target(ctx) ^ 10000000)",),
    ("repeat 1000000000000:", "    n = 1"),
    ("for i in 0..10000000000:", "    n = 1"),
    ("xs = tile(pad, 100000000000)",),
    ("xs = range_(10000000000)",),
    ("xs = cycle([1, 2], 10000000000)",),
    ("xs = sample(target(ctx), 10000000000)",),
    ("xs = zeros(10000000000)",),
    ("n = 0", "while n < 3 at most 10000000000:", "    n += 1"),
    ("n = 0", "loop at most 10000000000:", "    n += 1", "    break if n > 3"),
    ("draft t:", "    repeat 12:", "        grow topk(target(t.leaves).raw, 12)"),
    ("draft t:", "    repeat 100000:", "        grow point(0)"),
]


@pytest.mark.parametrize("lines", CONSTANT, ids=lambda lines: lines[0])
def test_a_constant_is_refused_where_it_stands(lines: tuple[str, ...]) -> None:
    with pytest.raises(DecError) as caught:
        load_text(program(*lines), "a.dec")
    assert caught.value.codes == ("E430",)
    assert any(d.span.line >= 3 for d in caught.value.diagnostics if not isinstance(d, str))


@pytest.mark.parametrize(
    "lines",
    [
        ("n = 2 ^ 100",),
        ("n = 2.0 ^ 1000",),
        ("repeat 1000:", "    n = 1"),
        ("draft t:", "    repeat 4:", "        grow topk(target(t.leaves).raw, 12)"),
    ],
)
def test_what_is_possible_loads(lines: tuple[str, ...]) -> None:
    load_text(program(*lines))


def test_a_range_from_below_zero_bounds_a_tree() -> None:
    text = program("draft t:", "    repeat big + 1:", "        x ~ target(t.leaves)", "        grow x")
    load_text(text.replace("big: int", "big: int in -3..4"))
    with pytest.raises(DecError, match="65,536"):
        load_text(text.replace("big: int", f"big: int in -3..{10**9}"))


GIVEN = [
    ("xs = tile(pad, big)", "commit xs[0]"),
    ("n = 0", "repeat big:", "    n += 1", "commit 1 if n > 3 else 0"),
    ("n = 2 ^ big", "commit 1 if n > 3 else 0"),
    ("xs = range_(big)", "commit xs[0]"),
    ("xs = zeros(100000, 100000)", "commit int(xs[0, 0])"),
    ("xs = [1]", "repeat 60:", "    xs = xs ++ xs", "commit xs[0]"),
    ("xs = sample(target(ctx), big)", "commit xs[0]"),
    ("n = 0", "for i in 0..big:", "    n += 1", "commit 1 if n > 3 else 0"),
]
RUN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (12 << 30, 12 << 30))
from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session
text, backend = sys.argv[1], sys.argv[2]
module = load_text(text, "a.dec")
if backend != "reference":
    module = optimise(module)[0]
result = Session(module, models_for(module.entry, 4, 1), {"big": 10 ** 12}, machine=machine(backend)).run(
    Request(prompt=(0, 1), max_tokens=2, seed=1))
print(result.error)
"""


@pytest.mark.quick(first=3)
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("lines", GIVEN, ids=lambda lines: lines[0])
def test_what_a_parameter_makes_too_large_ends_the_request(lines: tuple[str, ...], backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, program(*lines), backend],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        cwd=Path(__file__).parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "a.dec:" in done.stdout and "cannot go on" in done.stdout and "Error" not in done.stdout, done.stdout


@pytest.mark.parametrize("line", ["n = n * n", "n = n + n * 3", "n = 2 * n", "n = n * 7 - 1"])
def test_a_product_that_outgrows_64_bits_is_an_error_on_every_backend(line: str) -> None:
    """It began again at the other end on the reference, and was an error on torch."""
    module = load_text(
        "algorithm a(target: causal):\n    n = 3\n    while not done:\n        repeat 9:\n"
        f"            {line}\n        x ~ target(ctx)\n        commit x if n % 2 == 0 else pad\n"
    )
    found = []
    for backend in ("reference", "torch"):
        session = Session(module, models_for(module.entry, 4, 3), {}, machine=machine(backend))
        found.append(session.run(Request(prompt=(1, 2), max_tokens=30, seed=1)))
    want, got = found
    assert want.error is not None and "this whole number is a number of" in str(want.error)
    assert (str(got.error), got.tokens) == (str(want.error), want.tokens)
