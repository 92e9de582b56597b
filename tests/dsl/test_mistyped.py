"""What is said of programs that read and mean nothing; and that nothing worse than a DecError happens to any text.

A program is a file of tests/golden/mistyped/: below it stands what is said of it, in lines `# expect:`, which
`pytest --update-golden` writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from conftest import GOLDEN
from lib.programs.mutated import mutants

from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.ir.verify import verify

MISTYPED = {path.stem: path.read_text(encoding="utf-8") for path in sorted((GOLDEN / "mistyped").glob("*.dec"))}


@pytest.mark.parametrize("name", MISTYPED)
def test_mistake_is_named(name: str, golden: Callable[[str, str], None]) -> None:
    with pytest.raises(DecError) as caught:
        load_text(MISTYPED[name], f"{name}.dec")
    text = str(caught.value)
    assert len(caught.value.codes) == (2 if name == "two_mistakes" else 1)
    assert f"{name}.dec:" in text and "^" in text
    assert not re.search(r"<[A-Z]|Error\b|%|InternalError", text), "words of ours, not the author's"
    program = [line for line in MISTYPED[name].splitlines() if not line.startswith("# expect:")]
    golden(f"{name}.dec", "\n".join([*program, *(f"# expect: {line}".rstrip() for line in text.splitlines())]) + "\n")


@pytest.mark.slow
def test_a_thousand_early_exits_are_refused_with_a_place() -> None:
    exits = "".join(f"            break if k > {i}\n            y = y + 1\n" for i in range(2_000))
    head = "algorithm a(target: causal, k: int in 1..8 = 4):\n    y = 0\n    while not done:\n        repeat k:\n"
    text = head + exits + "        commit argmax(target(ctx))\n"
    with pytest.raises(DecError, match="nested too deeply") as caught:
        load_text(text, "deep.dec")
    assert "deep.dec:1:11" in str(caught.value)


def test_most_messages_say_what_to_try() -> None:
    helped = 0
    for name, text in MISTYPED.items():
        with pytest.raises(DecError) as caught:
            load_text(text, name)
        helped += "= try:" in str(caught.value)
    assert helped >= 0.7 * len(MISTYPED)


@pytest.mark.quick("5")
@pytest.mark.parametrize("seed", (5, 6, 7, 8))
def test_mutated_programs_lower_or_are_refused(seed: int) -> None:
    lowered, refused, count = 0, 0, 500
    for text in mutants(seed=seed, count=count):
        try:
            module = load_text(text, "mutant.dec")
        except DecError as error:
            assert error.codes and "mutant.dec" in str(error) or "stdlib/" in str(error)
            refused += 1
        else:
            verify(module)
            lowered += 1
    assert lowered > count / 20 and refused > count / 2
