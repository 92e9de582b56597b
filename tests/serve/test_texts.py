"""Text that grows: pieces add up to the whole, stop strings and parts of them are never shown."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from quick import examples

from decgraph.runtime.request import Request
from decgraph.runtime.stop import StopMachine
from decgraph.runtime.text import Detokenizer
from decgraph.serve.texts import GrowingText

LETTERS = Detokenizer((b"a", b"b", b"ab", b"ba", b"\xc3", b"\xa4", b"", b"aab"), {6: "<b>"})
TOKENS = st.lists(st.integers(0, 7), max_size=20)
PARTS = st.lists(st.sampled_from(["a", "b", "\u00e4", "<b>", "<", "b>"]), min_size=1, max_size=4).map("".join)
STOPS = st.lists(PARTS, max_size=3)


@settings(max_examples=examples(300), deadline=None)
@given(TOKENS, STOPS, st.lists(st.integers(1, 4), min_size=20, max_size=20))
def test_pieces_add_up_to_the_text_before_the_stop_string(tokens: list[int], stops: list[str], sizes: list[int]) -> None:
    request = Request((0,), max_tokens=1000, stop=tuple(stops))
    kept, state = StopMachine.cut(StopMachine.start(request, LETTERS), tokens)
    whole = LETTERS.text(kept)
    wanted = whole[: len(whole) - state.over] if state.reason == "stop" else whole
    growing, shown, left = GrowingText(LETTERS, stops), [], list(kept)
    for size in sizes:
        shown.append(growing.feed(left[:size]))
        del left[:size]
        so_far = "".join(shown)
        assert wanted.startswith(so_far)
    shown.append(growing.finish())
    assert "".join(shown) == growing.text == wanted
    assert growing.stopped == (state.reason == "stop")
    assert "".join(piece.text for piece in growing.pieces) in (wanted, wanted.removesuffix("\ufffd"))


def test_what_cannot_begin_a_stop_string_is_shown_at_once() -> None:
    growing = GrowingText(LETTERS, ["bbb"])
    assert [growing.feed([t]) for t in (0, 1, 1, 0)] == ["a", "", "", "bba"]


def test_special_tokens_are_not_shown_and_hold_back_what_may_go_on_in_one() -> None:
    growing = GrowingText(LETTERS, ["b<b>a"])
    assert [growing.feed([t]) for t in (0, 1, 6, 1)] == ["a", "", "", "b"]  # the last b may begin the stop string
    assert [growing.feed([t]) for t in (6, 0)] == ["", ""] and growing.stopped and growing.text == "ab"


def test_a_character_that_is_cut_at_the_end_shows_alike_with_stop_strings_and_without() -> None:
    whole = {stops: (g := GrowingText(LETTERS, stops)).feed([0, 4]) + g.finish() for stops in ((), ("bb",), ("\u00e4",))}
    assert set(whole.values()) == {"a\ufffd"}
    growing = GrowingText(LETTERS, ["bb"])
    assert growing.feed([0, 4, 1, 1]) + growing.finish() == growing.text == "a\ufffd"  # the half is none of the stop string


def test_tokens_that_end_a_text_add_none() -> None:
    growing = GrowingText(LETTERS, (), {1})
    assert growing.feed([0, 1]) + growing.finish() == "a"
