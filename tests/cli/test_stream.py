"""Text on a terminal: which colour a token gets, and a canvas while it is decided."""

from __future__ import annotations

import io

from rich.console import Console

from decgraph.cli.stream import ACCEPTED, AGES, OWN, REJECTED, Stream
from decgraph.runtime import trace
from decgraph.runtime.text import detokenizer_of

STEP = (
    trace.Drafted(1, 0, 0, 0.5, "drafter"),
    trace.Drafted(2, 1, 1, 0.5, "drafter"),
    trace.Drafted(3, 2, 3, 0.5, "drafter"),
    trace.Accepted(1, 0, 1),
    trace.Rejected(2, 1, 2),
    trace.Emitted(2, "residual"),
    trace.Committed((0, 2)),
    trace.Stopped("limit"),
)


def shown(
    events: tuple[trace.Event, ...], *, colour: bool = True, canvas: bool = False, drafts: bool = True
) -> tuple[str, list[tuple[str, str]]]:
    """What the terminal gets, and the (text, style) pieces that were printed."""
    console = Console(file=io.StringIO(), force_terminal=colour, width=60, color_system="truecolor")
    stream = Stream(console, detokenizer_of("abc\n"), colour=colour, canvas=canvas, drafts=drafts)
    pieces: list[tuple[str, str]] = []
    show = stream.show

    def spy(piece: str, style: str) -> None:
        if piece:
            pieces.append((piece, style))
        show(piece, style)

    stream.show = spy  # type: ignore[method-assign]
    for event in events:
        stream.hear(event)
    return console.file.getvalue(), pieces  # type: ignore[attr-defined]


def test_accepted_rejected_and_own_tokens() -> None:
    _, pieces = shown(STEP)
    assert pieces == [("a", ACCEPTED), ("b⏎", REJECTED), ("c", OWN)]


def test_rejected_drafts_are_shown_only_where_they_are_asked_for() -> None:
    _, pieces = shown(STEP, drafts=False)
    assert pieces == [("a", ACCEPTED), ("c", OWN)]


def test_without_colour_there_is_only_the_text() -> None:
    assert shown(STEP, colour=False)[0] == "ac"


def test_a_tree_of_rejected_drafts_is_not_shown() -> None:
    wide = (trace.Drafted(1, 0, 0, 0.5, "d"), trace.Drafted(2, 0, 1, 0.5, "d"), trace.Rejected(1, 0, 1),
            trace.Rejected(2, 1, 1), trace.Emitted(2, "residual"), trace.Committed((2,)))  # fmt: skip
    assert shown(wide)[1] == [("c", OWN)]


def test_tokens_without_verification_are_plain() -> None:
    assert shown((trace.Committed((0, 1)),))[1] == [("a", ""), ("b", "")]


def test_a_canvas_is_shown_while_it_is_decided() -> None:
    events = (
        trace.ModelCall("m", 4, 4),
        trace.Unmasked(3, 2, 0.9),
        trace.ModelCall("m", 4, 4),
        trace.Unmasked(0, 0, 0.9),
        trace.Remasked(3),
        trace.ModelCall("m", 4, 4),
        trace.Unmasked(3, 1, 0.9),
        trace.Committed((0, 2, 2, 1)),
        trace.Stopped("end"),
    )
    text, pieces = shown(events, canvas=True)
    assert "░" in text
    assert "".join(piece for piece, _ in pieces) == "accb"
    assert pieces[0][1] == AGES[2]
    assert pieces[3][1] == AGES[3]


def test_legends_say_what_the_colours_mean() -> None:
    for canvas, word in ((False, "rejected draft"), (True, "masked")):
        console = Console(file=io.StringIO(), force_terminal=True)
        Stream(console, detokenizer_of("ab"), colour=True, canvas=canvas, drafts=True).legend()
        assert word in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_legend_says_nothing_of_drafts_that_are_not_shown() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    Stream(console, detokenizer_of("ab"), colour=True).legend()
    assert "rejected" not in console.file.getvalue()  # type: ignore[attr-defined]
