"""A text where a token is wanted: the token of the tokenizer with that text, on every backend; in a check any token."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import decgraph
from decgraph.backends.registry import machine
from decgraph.check.report import check_module
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError
from decgraph.passes.manager import optimise
from decgraph.runtime.models.spelling import Spelling, spelled
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.text import Detokenizer, detokenizer_of
from decgraph.runtime.words import token_of

PIECES = ["a", " the", "the", "b", "ab"]
HEAD = """def same(x: token, y: token) -> bool:
    return x == y

algorithm a(target: causal, stop: token = 3, gamma: int in 1..4 = 2):
    state last: token = "the"
    while not done:
        p = target(ctx)
        x ~ p as output
"""
USES = (
    'commit x if x != "the" else "ab"',
    'commit argmax(p) if p["the"] > p["a"] else " the"',
    'y = x\n        if x in ["a", " the"]:\n            y = "b"\n        commit y',
    'commit argmax(p) if same(last, "the") else x\n        last = " the" if x == "a" else x',
    'commit ["a", x] where ctx.last(2) != "the" if count(ctx.last(2) == "the") == 1 else ["ab"]',
    'draft t:\n            grow chain([x, "the"])\n        verify t by match against target(t)\n        commit t.accepted',
    'commit x if x != stop else argmax(target(["the", x]))',
    'y = "a"\n        if x == " the":\n            y = "b"\n        commit y if x in ["the" if greedy else "ab", y] else x',
    'commit argmax(p.raw * (1 - counts(["the", "b"])) + 0.01 * onehot("a"))',
)


class Own:
    """A tokenizer of the caller's."""

    def __init__(self, pieces: list[str] = PIECES) -> None:
        self.spelling, self.pieces = spelled(pieces), pieces

    def encode(self, text: str, /) -> tuple[int, ...]:
        return self.spelling.read(text, whole=False)

    def decode(self, tokens: tuple[int, ...], /) -> str:
        return self.spelling.text(tokens)

    @property
    def detokenizer(self) -> Detokenizer:
        return detokenizer_of(self.pieces)


def run(text: str, backend: str, *, seed: int = 0, **params: str | int) -> Result:
    module = load_text(text, "a.dec", check_labels=False)
    module = module if backend == "reference" else optimise(module)[0]
    bound = Session(module, models_for(module.entry, 5, 3), params, machine=machine(backend), tokenizer=Own())
    return bound.run(Request(prompt=(0, 1, 2), max_tokens=6, seed=seed), keep_events=False)


@pytest.mark.parametrize("use", USES)
def test_a_text_is_the_token_with_that_text(use: str) -> None:
    """The same tokens as with its number in its place."""
    numbers = HEAD + f"        {use}\n"
    for token, piece in enumerate(PIECES):
        numbers = numbers.replace(f'"{piece}"', f"token_{token}")
    head = "".join(f", token_{i}: token = {i}" for i in range(len(PIECES)))
    numbers = numbers.replace(", gamma", f"{head}, gamma")
    for seed in range(3):
        results = [run(HEAD + f"        {use}\n", backend, seed=seed) for backend in ("reference", "torch", "triton")]
        expected = run(numbers, "reference", seed=seed)
        assert results[2].mode == "graph mode" or "target([" in use, results[2].mode
        assert expected.error is None and [(r.error, r.tokens) for r in results] == [(None, expected.tokens)] * 3


def test_a_parameter_is_named_by_its_text_too() -> None:
    text = HEAD + "        commit x if x != stop else argmax(p)\n"
    for value, token in ((" the", 1), ("1", 1), ("ab", 4)):
        assert run(text, "reference", stop=value).tokens == run(text, "reference", stop=token).tokens
    with pytest.raises(DecError, match="2 tokens of the tokenizer"):
        run(text, "reference", stop="ba")


@pytest.mark.parametrize("backend", ("reference", "torch"))
def test_defaults_are_texts_too(backend: str) -> None:
    """Also of an algorithm that another one runs; a default is a text where a caller's would be read as a number."""
    inner = HEAD.replace("algorithm a", "algorithm inner").replace("stop: token = 3", 'stop: token = "1"')
    text = f"""{inner}        commit stop

algorithm outer(target: causal, end: token = "1"):
    while not done:
        xs = run inner(target) until done at most 1
        commit [xs.token[0], end]
"""
    module = load_text(text.replace('"1"', '"ab"'), "a.dec", check_labels=False)
    bound = Session(module, models_for(module.entry, 5, 3), {}, machine=machine(backend), tokenizer=Own())
    assert bound.run(Request(prompt=(0,), max_tokens=4)).tokens == (4, 4, 4, 4)
    assert bound.run(Request(prompt=(0,), max_tokens=4)).error is None
    with pytest.raises(DecError, match='"1" is no token'):
        Session(
            load_text(text, check_labels=False), models_for(module.entry, 5, 3), {}, machine=machine(backend), tokenizer=Own()
        )


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("bthe", 'a.dec:9:12: "bthe" is 2 tokens of the tokenizer, "b", "the"', "compare with one of them"),
        ("b ", '"b " is no token', '"b" is one token'),
        ("?", '"?" is no token', "tokenizer=FOLDER"),
        ("", '"" is no token', "tokenizer=FOLDER"),
    ],
)
def test_what_is_not_one_token_is_refused_when_models_are_bound(text: str, said: str, hint: str) -> None:
    with pytest.raises(DecError) as caught:
        run(HEAD + f'        if x == "{text}":\n            x = x\n        commit x\n', "reference")
    assert said in str(caught.value) and hint in str(caught.value)


def test_the_blank_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.dec"
    path.write_text('algorithm a(target: causal):\n    while not done:\n        commit "import" if greedy else "directory"\n')
    with pytest.raises(DecError) as caught:
        decgraph.run(str(path), "import", max_tokens=2)
    assert f"{path}:3:" in str(caught.value) and '" directory" is one token' in str(caught.value)


@given(st.lists(st.sampled_from(["a", "b", "ab", "ba", " a", "é"]), min_size=1, max_size=6), st.text("ab é", max_size=3))
def test_the_token_has_the_text(pieces: list[str], text: str) -> None:
    found = spelled(pieces).token(text)
    assert (found is None) == (text not in pieces) and (found is None or pieces[found] == text)
    if found is None:
        with pytest.raises(DecError):
            token_of(text, spelled(pieces))


def test_of_several_tokens_with_a_text_the_tokenizer_chooses() -> None:
    """A byte has the text of the letter, and a special token has its name."""
    known = Spelling([b"a", b"", b"a", b"b"], lambda text: [2] if text == "a" else [1, 3], {"<s>": 1})
    assert [known.token(t) for t in ("a", "b", "<s>", "")] == [2, 3, 1, None]


def test_a_check_goes_over_the_tokens_that_a_text_may_be() -> None:
    head = "algorithm a(target: causal):\n    refines autoregressive(target) in tokens\n    while not done:\n"
    head += "        x ~ target(ctx) as output\n"
    wrong = check_module(load_text(head + '        commit "a" if x == "the" and ctx.token == "a" else x\n'))
    assert wrong.verdict == "refuted" and wrong.counterexample is not None
    assert {'"the"', '"a"'} == wrong.counterexample.params.keys()
    both = 'x == "the" and x == "a" or x == "b" and x == "c"'  # no tokenizer has a token of two texts
    assert check_module(load_text(head + f'        commit "a" if {both} else x\n')).verdict != "refuted"
    drafts = USES[5].replace('chain([x, "the"])', 'point("the")')
    assert (
        check_module(
            load_text(head.replace("        x ~ target(ctx) as output\n", "") + f"        {drafts}\n"), models=2
        ).verdict
        == "proved"
    )


def test_what_is_no_token_is_not_compared_with_a_text() -> None:
    for use, hint in {"ctx": "text_of(n)", "p": 'p["the"]', "ctx.length": "cannot be equal"}.items():
        with pytest.raises(DecError) as caught:
            load_text(HEAD + f'        commit x if {use} == "the" else 0\n')
        assert hint in str(caught.value)


@pytest.mark.parametrize("backend", ("reference", "torch", "triton"))
def test_cells_are_decided_and_masked_again_by_texts(backend: str) -> None:
    text = """algorithm m(model: masked, length: int in 1..8 = 4):
    canvas c: length
    while any(c.masked):
        b = first(c.masked, 1)
        x = argmax(model(c, at = b))
        unmask c[b] with "the" if any(x == "the") else x[0]
        note the = count(c.token == "the")
    c[0] = "ab"
    commit c
"""
    results = []
    for made in (
        text,
        text.replace('"the"', "token_2")
        .replace('"ab"', "token_4")
        .replace("length: ", "token_2: token = 2, token_4: token = 4, length: "),
    ):
        module = load_text(made, "m.dec", check_labels=False)
        bound = Session(module, models_for(module.entry, 5, 3), {}, machine=machine(backend), tokenizer=Own())
        results.append(bound.run(Request(prompt=(0, 1, 2), max_tokens=4, temperature=0)))
    assert results[0].error is None and results[0].tokens == results[1].tokens and results[0].tokens[0] == 4
    assert results[0].stats.notes["the"].count == 4
