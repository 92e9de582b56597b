"""Grammars over tokens: regular expressions against Python's own `re`, schemas and Lark grammars against what they mean, and
both as what a request allows and as a parameter."""

from __future__ import annotations

import itertools
import json
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from fidelity.entry import recording

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.grammars import LIMITS, Grammar, Parsed
from decgraph.runtime.text import Detokenizer, detokenizer_of

PIECES = [b"", b"a", b"b", b"ab", b"1", b"12", b":", b"\xff", b"abb", b"\n", b"\xc3", b"\xa9", b"a\xc3"]
END = 0


class Pieces:
    """A tokenizer of these; a character may be two tokens."""

    detokenizer = detokenizer_of(PIECES)


class Letters:
    """A tokenizer of the printable characters and some longer tokens; token 0 is the end."""

    detokenizer = detokenizer_of([b"", *(bytes([c]) for c in range(32, 127)), b'{"', b'":', b"true"])

    def ids(self, text: str) -> list[int]:
        return [self.detokenizer.pieces.index(bytes([c])) for c in text.encode()]

    def texts(self, tokens: Any) -> set[str]:
        return {self.detokenizer.pieces[t].decode() for t in tokens}


SIZE = len(Letters.detokenizer.pieces)


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize(
    "pattern",
    ["(ab|abb)+:[0-9]{2,3}", "a*", "[^a]+", r"\d?b", "a{2,}(?:b|1)?", r"(a|b)*?1\w", ".{1,3}", "", "[^b]*é.?", "é|éa", r"\w+"],
)
def test_a_regular_expression_allows_what_re_matches(pattern: str, table: bool) -> None:
    """Every text of at most four tokens: whole if `re` matches it, allowed if the module `regex` knows a longer one that
    matches, where the last character may be written in part."""
    grammar = Grammar.regex(pattern)
    g: Automaton = (grammar.table if table else grammar.over)(Pieces(), {END}, len(PIECES))
    states = [(b"", g.start)]
    for _ in range(4):
        for written, state in states:
            text, left = written.decode("utf-8", "replace"), b""
            if text.endswith("\ufffd") and written[-1:] == b"\xc3":  # of the characters that begin so, é is the only one below
                text, left = text[:-1] + "é", b"\xa9"
            possible = "\ufffd" not in text and regex.fullmatch(pattern, text, partial=True) is not None
            if not left:
                whole = "\ufffd" not in text and re.fullmatch(pattern, text) is not None
                assert (state >= 0 and END in g.allowed(state)) == whole, written
                assert (state in g.live if table else state >= 0) == possible, written
            elif possible:
                assert state >= 0, written
        states = [(w + PIECES[t], g.step(s, t)) for w, s in states if s >= 0 for t in range(1, len(PIECES))]
    assert all(g.allowed(g.step(s, END)) <= {END} for _, s in states if s >= 0 and END in g.allowed(s))


@pytest.mark.parametrize("pattern", ["^(a|b)$", "^a|b$", "(^a$)"])
def test_anchors_at_the_ends_say_what_is_so_anyway(pattern: str) -> None:
    g = Grammar.regex(pattern).over(Pieces(), {END}, len(PIECES))
    assert END in g.allowed(g.run([1]))


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("a(", "unclosed group"),
        (r"(a)\1", "backreferences"),
        ("a(?=b)", "look-ahead"),
        ("a^b", "lookaround"),
        ("x" * 9000 + "(", "unclosed"),
    ],
)
def test_what_is_not_regular_is_refused(pattern: str, says: str) -> None:
    """In a sentence that does not repeat the pattern."""
    with pytest.raises(DecError, match=says) as error:
        Grammar.regex(pattern).check()
    assert len(str(error.value)) < 200


def test_a_schema_and_a_lark_grammar() -> None:
    letters = Letters()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    g = Grammar.json_schema(schema).over(letters, {END}, SIZE)
    assert letters.texts(g.allowed(g.run(letters.ids('{"a": 12')))) >= {*"0123456789}"} - {","}
    assert g.allowed(g.run(letters.ids('{"a": 12}'))) == {END}
    assert g.run(letters.ids('{"b')) == -1
    lark = Grammar.lark('start: "a"+ ("b" | "c")').over(letters, {END}, SIZE)
    assert letters.texts(lark.allowed(lark.run(letters.ids("aa")))) == {"a", "b", "c"}
    assert lark.run([*letters.ids("ab"), END]) >= 0 > lark.run([*letters.ids("a"), END])
    with pytest.raises(DecError, match="cannot be read"):
        Grammar.lark("start: x y").over(letters, {END}, SIZE)


def test_a_schema_of_a_thousand_properties_holds() -> None:
    """With llguidance's own limits its parser fails at the first letter, and a parser that has failed forbids nothing."""
    letters = Letters()
    schema = {
        "type": "object",
        "properties": {f"p{n}": {"type": "integer"} for n in range(1000)},
        "additionalProperties": False,
    }
    g = Grammar.json_schema(schema).over(letters, {END}, SIZE)
    assert letters.texts(g.allowed(g.run(letters.ids('{"')))) == {"p"}
    assert g.run(letters.ids('{"x')) == -1


def test_a_parser_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIMITS, "max_items_in_row", 20)
    many = Grammar.lark(
        "start: (" + " | ".join(f'"a" B{n}' for n in range(99)) + ")\n" + "".join(f"B{n}: /b{{{n + 1}}}/\n" for n in range(99))
    )
    with pytest.raises(DecError, match="cannot be followed"):
        g = many.over(Letters(), {END}, SIZE)
        g.allowed(g.run(Letters().ids("ab")))
    with pytest.raises(DecError, match="no text fits it"):
        Grammar.json_schema({"$ref": "#"}).check()


def test_masks_are_xgrammars() -> None:
    """The recorded masks of a grammar that is a regular expression: equal, token by token."""
    file = recording("logits/grammar_constrained")
    case = next(c for c in file["cases"] if c["parameters"]["grammar"] == "regex_like")
    words = [w if isinstance(w, str) else "" for w in vocabulary(file)]
    pieces = [b"" if t in (0, 1, 2, 3) else words[t].encode() for t in range(len(words))]
    Recorded = type("Recorded", (), {"detokenizer": detokenizer_of(pieces)})
    g = Grammar.regex("(ab|abb)+:[0-9]{2,3}").over(Recorded(), {2}, len(pieces))
    state = g.start
    for step in case["steps"]:
        assert sorted(g.allowed(state)) == step["allowed"]
        state = g.step(state, step["token"])


def vocabulary(file: dict[str, Any]) -> list[str]:
    found = file["vocabulary"]
    return [found[str(t)] for t in range(len(found))] if isinstance(found, dict) else found


@pytest.mark.parametrize("name", ["autoregressive", "speculative", "prompt_lookup", "recursive_sd", "medusa"])
def test_every_drafter_writes_the_grammars_texts(name: str) -> None:
    """Drawn and greedy, chains and trees."""
    pattern = r" *return [a-z]{1,9}\([a-z]{1,9}\)"
    for temperature in (0, 1):
        done = decgraph.run(
            name, "def mean(values):", max_tokens=24, temperature=temperature, allow=decgraph.Grammar.regex(pattern), seed=1
        )
        assert done.error is None, done.error
        assert re.fullmatch(pattern, done.text or ""), done.text


def test_drafted_texts_are_those_of_one_token_at_a_time() -> None:
    allow = decgraph.Grammar.regex(r"(yes|no|perhaps)( (yes|no|perhaps)){4}")
    texts = {
        n: decgraph.run(n, "Is it", max_tokens=24, allow=allow).text for n in ("autoregressive", "speculative", "prompt_lookup")
    }
    assert len(set(texts.values())) == 1


@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_rules_over_trees_read_below_what_a_table_forbids(backend: str) -> None:
    """The drafts of lookahead are whatever it guesses; an automaton of 80 tokens has no entry for most of them."""
    digits = Automaton((tuple(0 if 60 <= x < 70 else -1 for x in range(80)),), frozenset({0}))
    texts = {
        name: decgraph.run(name, "def main():\n", max_tokens=6, allow=digits, eos=(), backend=backend).tokens
        for name in ("autoregressive", "lookahead")
    }
    assert texts["lookahead"] == texts["autoregressive"] and len(texts["lookahead"]) == 6


def test_a_token_that_a_table_lacks_is_forbidden() -> None:
    """-1 is a masked position; Python would read it as the last entry."""
    table = Automaton(((0, 0),), frozenset({0}))
    assert [table.step(0, token) for token in (-1, 0, 1, 2)] == [-1, 0, 0, -1]
    dead = Automaton(((1, -1), (1, 1)), frozenset({0}), start=1)
    assert not dead(()) and not dead((0,))  # no text at all fits it


def test_a_parameter(tmp_path: Path) -> None:
    """An automaton is handed over as a pattern, or as a file; JSON is a table or a schema."""
    done = decgraph.run("grammar", "x = ", params={"g": "[0-9]{3}"}, max_tokens=8)
    assert re.fullmatch("[0-9]{3}", done.text or "")
    file = tmp_path / "pattern.regex"
    file.write_text("[0-9]{3}\n", encoding="utf-8")
    assert decgraph.run("grammar", "x = ", params={"g": str(file)}, max_tokens=8).tokens == done.tokens
    masked = decgraph.run("dingo", "3+4=", params={"g": "[0-9]{2}[a-z]*", "length": 6}, max_tokens=6)
    assert re.match("[0-9]{2}[a-z]*$", masked.text or ""), masked.text


def test_a_schema_needs_llguidance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(DecError, match="llguidance"):
        Grammar.json_schema(json.dumps({"type": "boolean"})).over(Letters(), {END}, SIZE)


@pytest.mark.parametrize(
    "pattern",
    ["((((a{1,100}){1,100}){1,100}){1,100})", "((a{999}){999}){999}", "a{4294967294}", "(a?){3000}", "((a?){50}){50}",
     "(.*a){20}.{30}", "(" * 3000 + "a" + ")" * 3000, "|".join(f"{n} " + "x" * 250 for n in range(1024))],
)  # fmt: skip
def test_an_expression_that_is_large_costs_little(pattern: str) -> None:
    """A server's client may send one. Its states are found as the text grows; what costs too much then is refused. Time that a
    process has computed, so that other work on the machine does not count."""
    began = time.process_time()
    try:
        g = Grammar.regex(pattern).over(Pieces(), {END}, len(PIECES))
        state = g.start
        for _ in range(50):
            allowed = g.allowed(state) - {END}
            if not allowed:
                break
            state = g.step(state, min(allowed))
    except DecError as error:
        assert len(str(error)) < 300
    assert time.process_time() - began < 2


@pytest.mark.parametrize(("pattern", "says"), [("(.*a){12}.{12}", "more than 4096"), ("^ab", "anchor|leave out")])
def test_a_table_has_bounds(pattern: str, says: str) -> None:
    with pytest.raises(DecError, match=says):
        Grammar.regex(pattern).table(Pieces(), {END}, len(PIECES))


def test_blanks_between_the_parts_of_json_have_a_bound() -> None:
    letters = Letters()
    g = Grammar.json_schema({"type": "array", "items": {"type": "integer"}}).over(letters, {END}, SIZE)
    assert g.run(letters.ids("[ 1, 2 ]")) >= 0 > g.run(letters.ids("[  1"))
    own = Grammar.json_schema({"x-guidance": {"whitespace_flexible": False}, "type": "array"}).over(letters, {END}, SIZE)
    assert own.run(letters.ids("[ ")) < 0


def test_a_vocabulary_is_not_mistaken_for_one_that_is_gone() -> None:
    """Python gives the address of a tokenizer that was freed to the next one."""
    for turn in range(20):
        tokenizer = Letters()
        tokenizer.detokenizer = Detokenizer((b"a", b"b") if turn % 2 else (b"b", b"a"))
        assert Grammar.regex("a").over(tokenizer, (), 2).allowed(0) == {1 - turn % 2}
        del tokenizer


def test_threads_may_share_a_grammar() -> None:
    """Sessions with one tokenizer do; llguidance refuses a second caller, and no two texts share a state."""
    shared = Grammar.lark("start: /[a-z]{0,30}/").over(Letters(), {END}, SIZE)
    assert isinstance(shared, Parsed)
    letters = Letters().ids("abcdefghijklmnopqrstuvwxyz")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(first: int) -> None:
        for a, b in itertools.product(letters[first:], letters):
            assert shared.allowed(shared.run((a, b)))

    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        sys.setswitchinterval(before)
    states = shared._after.values()
    assert len(set(states)) == len(states)


def test_a_grammar_without_a_tokenizer() -> None:
    with pytest.raises(DecError, match="no tokenizer"):
        Grammar.regex("a").over(None, {END}, 4)


@pytest.mark.parametrize("name", ["llada", "fast_dllm", "static_masked"])
def test_a_grammar_is_refused_where_it_would_not_bind(name: str) -> None:
    """A canvas is not decided from left to right."""
    with pytest.raises(DecError, match="does not decide the positions of a canvas from left to right") as error:
        decgraph.run(name, "copy 12 =", max_tokens=8, allow=decgraph.Grammar.regex("[0-9]+"))
    assert "dingo" in str(error.value)


@pytest.mark.quick("speculative")
@pytest.mark.parametrize("name", ["autoregressive", "prompt_lookup", "speculative"])
def test_draws_are_the_targets_own_among_the_tokens_that_lead_to_a_choice(name: str) -> None:
    """Every character here is several tokens. A token is allowed where the bytes so far and its own begin a choice, which needs
    no automaton; the chance of each is that of the target's own scores among the allowed ones."""
    choices = [text.encode() for text in ("été", "日本", "🙂🙃", "ночь")]
    models = {"target": "target", "drafter": "drafter"} if name == "speculative" else {"target": "target"}
    session = decgraph.load(name).session(models)
    pieces, prompt = session.tokenizer.detokenizer.pieces, tuple(session.tokenizer.encode("x = '"))
    seen = set()
    for seed in range(10):
        allow = Grammar.choice([text.decode() for text in choices])
        result = session.run(prompt, allow=allow, max_tokens=24, temperature=1, seed=seed, logprobs=0, shaped=True)
        assert result.text.encode() in choices, result.error
        written = b""
        for n, token in enumerate(result.tokens):
            if written in choices:  # the end of the text, which nothing else may follow
                break
            scores = session.models["target"].eval([prompt + result.tokens[:n]])[0].to_float().logits
            leads = [bool(piece) and any(text.startswith(written + piece) for text in choices) for piece in pieces]
            own = np.where(leads[: len(scores)], scores, -np.inf)
            wanted = own[token] - own.max() - np.log(np.exp(own - own.max()).sum())
            assert abs(result.logprobs.tokens[n] - wanted) < 1e-5
            written += pieces[token]
        seen.add(written)
    assert len(seen) > 1
