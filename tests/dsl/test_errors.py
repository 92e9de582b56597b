"""What a broken program is told: the whole text of every message, by golden file."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from decgraph.dsl.mistakes import known
from decgraph.dsl.parse import MAX_CHARACTERS, parse_text
from decgraph.errors import DecError

Golden = Callable[[str, str], None]

_F = "algorithm f(target: causal):\n    "

BROKEN = {
    "misspelt item": "algoritm f():\n    commit x\n",
    "misspelt statement": _F + "whlie not done:\n        commit x\n",
    "misspelt joint": _F + "draft t ovr steps:\n        grow x\n",
    "misspelt mode": _F + "refines autoregressive(target) in token\n",
    "misspelt scope": _F + "state n: int per sesion = 0\n",
    "misspelt event": "policy p(b: span):\n    on entr b: recompute all\n",
    "unknown event": "policy p(b: span):\n    on commit b: recompute all\n",
    "missing comma": _F + "x = f(a b)\n",
    "missing operand": _F + "x = a + \n",
    "missing expression": _F + "commit\n",
    "missing name": "from rules import\n",
    "missing action": "policy p(b: span):\n    on enter b: reuse\n",
    "keyword as name": "algorithm f(in: int):\n    commit x\n",
    "keyword as value": _F + "x = while\n",
    "operator twice": _F + "x = a + * b\n",
    "string never closed": _F + 'x = "abc\n    commit x\n',
    "docstring never closed": 'algorithm f():\n    """abc\n    x = 3\n',
    "unknown escape": _F + 'x = "a\\q"\n',
    "bracket never closed": _F + "x = (3 + 4\n    commit x\n",
    "bracket never closed at the end": "algorithm f(a: int,\n",
    "bracket never opened": _F + "x = 3)\n",
    "brackets crossed": _F + "x = f([3)\n",
    "tabs and spaces": "algorithm f():\n\tx = 3\n        y = 4\n",
    "bad dedent": "algorithm f():\n        x = 3\n    y = 4\n",
    "indented too far": _F + "x = 3\n      y = 4\n",
    "letter of another alphabet": _F + "größe = 4\n",
    "symbol of mathematics": _F + "x = a ≤ b\n",
    "typographic quotes": _F + "x = “a”\n",
    "no-break space": _F + "x =\u00a03\n",
    "single quotes": _F + "x = 'a'\n",
    "semicolon": _F + "x = 3; y = 4\n",
    "name of other letters": "algorithm é(target: causal):\n    commit 1\n",
    "name that begins with a digit": "rule 2nd(p: dist, children: draws):\n    emit 1\n",
    "ampersand": _F + "x = a && b\n",
    "braces": _F + "x = {}\n",
    "backslash": _F + "x = a \\\n    + b\n",
    "control character": _F + "x = 3\x00\n",
    "reversed text": _F + "x = 3  # \u202e4\n",
    "half a character": _F + 'x = "\ud800"\n',
    "number and letters": _F + "x = 2x\n",
    "number too long": _F + "x = 1e999\n",
    "string as statement": _F + 'x = 3\n    "note"\n',
    "assignment to a call": _F + "f(x) = 3\n",
    "too many values": _F + "x, y = 1, 2, 3\n",
    "two targets of +=": _F + "x, y += 1\n",
    "parameter twice": "algorithm f(a, a):\n    commit a\n",
    "argument twice": _F + "x = f(a = 1, a = 2)\n",
    "argument after named": _F + "x = f(a = 1, 2)\n",
    "name twice": "rule f():\n    emit x\n\nfrom rules import f\n",
    "endless loop": _F + "while true:\n        commit x\n",
    "python range": _F + "for i in range(4):\n        commit x\n",
    "rule by expression": _F + "verify t by a + b against p\n",
    "rule by index": _F + "verify t by rules[0] against p\n",
    "across what": _F + "across lanes:\n        x = 3\n",
    "wide characters and tabs": '\n\nalgorithm f():\n\tx = "漢字\t" 3\n',
    "long line": _F + "x = [" + ", ".join(f"name_{i}" for i in range(60)) + "; 3]\n",
    "three mistakes": "algorithm f():\n    commit 3 +\n\nrule g(:\n    emit x\n\nrule h():\n    emit [\n",
}


def _broken(text: str) -> DecError:
    with pytest.raises(DecError) as caught:
        parse_text(text, "broken.dec")
    return caught.value


def _page(text: str, error: DecError) -> str:
    shown = "".join(c if c.isprintable() or c in "\n\t" else f"<U+{ord(c):04X}>" for c in text)
    return f"{shown}{'-' * 20}\n{error}\n"


@pytest.mark.parametrize("name", BROKEN)
def test_message(name: str, golden: Golden) -> None:
    error = _broken(BROKEN[name])
    golden(f"{name.replace(' ', '_')}.txt", _page(BROKEN[name], error))
    assert all(d.code and d.span for d in error.diagnostics)


@pytest.mark.parametrize("mistake", known(), ids=lambda m: m.name)
def test_mistake_is_known_by_its_name(mistake: object, golden: Golden) -> None:
    found = next(m for m in known() if m is mistake)
    error = _broken(found.example)
    assert error.codes == (found.code,)
    assert error.diagnostics[0].message == found.message
    assert error.diagnostics[0].help == found.help
    slug = "".join(c if c.isalnum() else "_" if c == " " else f"x{ord(c):x}" for c in found.name)
    golden(f"mistake_{slug}.txt", _page(found.example, error))


def test_mistakes_have_names_of_their_own() -> None:
    assert len({m.name for m in known()}) == len(known()) >= 45


def test_at_most_twenty_diagnostics_in_the_order_of_the_text() -> None:
    error = _broken("".join(f"rule r{i}():\n    emit +\n\n" for i in range(40)))
    shown = [d for d in error.diagnostics if not isinstance(d, str)]
    assert [d.span.line for d in shown] == [2 + 3 * i for i in range(20)]
    assert str(error).endswith("the first ones usually cause the rest")


def test_too_long_a_text_is_refused_at_once() -> None:
    error = _broken("#" * (MAX_CHARACTERS + 1))
    assert error.codes == ("E001",)
    assert "4 000 000" in str(error)


@pytest.mark.parametrize(("text", "line"), [
    (_F + "v = [" + "1, " * 1_000_000 + "1]\n", 2),
    (_F + "n = 1\n" + "    n = n + 1\n" * 100_000, 16_667),
    ("".join(f"algorithm a{i}():\n    loop:\n        x = 1\n" for i in range(25_000)), 17_648),
])  # fmt: skip
def test_too_many_words_are_refused_where_the_first_stands(text: str, line: int) -> None:
    error = _broken(text)
    (found,) = error.diagnostics
    assert error.codes == ("E001",) and not isinstance(found, str)
    assert found.span.line == line and "100 000 words" in str(error)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (_F + "x = " + "(" * 101 + ")" * 101, "E007"),
        (_F + "x = " + "[" * 5000, "E007"),
        (_F + "x = " + "f(" * 20_000, "E007"),
        (_F + "x = " + "-" * 151 + "a", "E007"),
        (_F + "x = a" + " + a" * 151, "E007"),
        (_F + "x = a" + ".b" * 100_000, "E007"),
        (_F + "x = " + "not " * 100_000 + "a", "E007"),
        (_F + "x = " + "a if b else " * 100_000 + "a", "E007"),
        (_F + "x = a" + "[0]" * 1000, "E007"),
        ("algorithm f():\n" + "".join(" " * i + "loop:\n" for i in range(1, 103)), "E007"),
    ],
)
def test_nesting_is_bounded(text: str, code: str) -> None:
    assert _broken(text).codes[0] == code


def test_the_deepest_text_is_read_printed_and_compared() -> None:
    from decgraph.dsl.format import format_source, format_tree

    deep = "f(-" * 49 + "x" + ")" * 49
    blocks = "".join("    " * i + "loop:\n" for i in range(1, 100))
    text = f"algorithm f():\n{blocks}{'    ' * 100}x = {deep}\n"
    file = parse_text(text)
    assert parse_text(format_tree(file)) == file
    assert format_source(format_source(text)) == format_source(text)
    assert len(repr(file)) > 1000
    assert hash(file) == hash(parse_text(text))
