"""The stop machine token by token against whole texts, incremental text, and statistics."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decgraph.errors import DecError
from decgraph.runtime.request import Request
from decgraph.runtime.stop import StopMachine, StopState
from decgraph.runtime.text import Detokenizer, Tokenizer
from decgraph.runtime.trace import (
    Accepted,
    Committed,
    Drafted,
    Emitted,
    ModelCall,
    Rejected,
    Remasked,
    Stats,
    Stopped,
    Unmasked,
)

# Pieces that split characters: é is c3 a9, € is e2 82 ac.
PIECES = [b"a", b"b", b"ab", b"ba ", b"\xc3", b"\xa9", b"\xc3\xa9", b"\xe2\x82", b"\xac", b"", b"aab\n"]
SPECIAL = {9: "<e>"}
DETOKENIZER = Detokenizer(tuple(PIECES), SPECIAL)
tokens = st.lists(st.integers(0, len(PIECES) - 1), max_size=30)
parts = st.lists(st.sampled_from([*"abé€ \n", "<e>", "<", "e>"]), min_size=1, max_size=4).map("".join)
stops = st.lists(parts, max_size=3).map(tuple)


def finished(ids: list[int]) -> list[tuple[str, bool]]:
    """The characters that are complete after these tokens, and whether they are shown: those that spell a special token are
    not."""
    pending, out = DETOKENIZER.start(), []
    for token in ids:
        pending, new = DETOKENIZER.feed(pending, token)
        out += [(c, False) for c in SPECIAL.get(token, "")] + [(c, True) for c in new]
    return out


@given(tokens)
def test_text_token_by_token_is_text_at_once(ids: list[int]) -> None:
    pending, shown = DETOKENIZER.start(), ""
    for n, token in enumerate(ids):
        pending, new = DETOKENIZER.feed(pending, token)
        shown += new
        assert DETOKENIZER.text(ids[: n + 1]).startswith(shown)  # what was shown never changes
    assert shown + DETOKENIZER.finish(pending) == DETOKENIZER.text(ids)


@given(st.text(max_size=20), st.data())
def test_any_split_of_a_text_into_bytes_gives_it_back(text: str, data: st.DataObject) -> None:
    raw = text.encode("utf-8", "surrogatepass").decode("utf-8", "ignore").encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    parts = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    detokenizer = Detokenizer(tuple(parts))
    pending, shown = detokenizer.start(), ""
    for token in range(len(parts)):
        pending, new = detokenizer.feed(pending, token)
        shown += new
    assert shown.encode() == raw and pending == b""


@given(tokens, stops, st.frozensets(st.integers(0, len(PIECES) - 1), max_size=2), st.integers(1, 25))
def test_the_machine_stops_where_the_whole_text_says(
    ids: list[int], stop: tuple[str, ...], eos: frozenset[int], limit: int
) -> None:
    request = Request(prompt=(0,), max_tokens=limit, eos=eos, stop=stop)
    end, reason = len(ids), ""
    for n in range(1, len(ids) + 1):
        text = "".join(c for c, _ in finished(ids[:n]))
        if ids[n - 1] in eos:
            reason = "eos"
        elif any(s in text for s in stop):
            reason = "stop"
        elif n == limit:
            reason = "limit"
        if reason:
            end = n
            break
    kept, state = StopMachine.cut(StopMachine.start(request, DETOKENIZER), ids)
    assert list(kept) == ids[:end]
    assert (state.done, state.reason, state.count) == (bool(reason), reason, end)
    if reason == "stop":
        read = finished(ids[:end])
        text = "".join(c for c, _ in read)
        _, first, matched = min((text.index(s) + len(s), text.index(s), s) for s in stop if s in text)
        cut = len(DETOKENIZER.text(ids[:end])) - sum(shown for _, shown in read)  # what an incomplete character is shown as
        assert (state.matched, state.over) == (matched, sum(shown for _, shown in read[first:]) + cut)


@given(tokens, tokens, stops)
def test_states_are_values_and_forks_do_not_disturb_each_other(ids: list[int], other: list[int], stop: tuple[str, ...]) -> None:
    request = Request(prompt=(0,), max_tokens=100, stop=stop)
    _, middle = StopMachine.cut(StopMachine.start(request, DETOKENIZER), ids)
    first = StopMachine.cut(middle, other)
    StopMachine.cut(middle, ids)
    assert StopMachine.cut(middle, other) == first
    assert hash(first[1]) == hash(StopMachine.cut(middle, other)[1])


def test_nothing_is_fed_after_the_end() -> None:
    request = Request(prompt=(0,), max_tokens=3, eos=frozenset({2}))
    kept, state = StopMachine.cut(StopMachine.start(request), [1, 2, 1])
    assert kept == (1, 2) and isinstance(state, StopState) and state.reason == "eos"
    with pytest.raises(ValueError, match="ended by 'eos'"):
        StopMachine.feed(state, 1)
    assert StopMachine.cut(state, [1]) == ((), state)
    with pytest.raises(DecError, match="tokenizer"):
        StopMachine.start(Request(prompt=(0,), stop=("x",)))


def test_an_end_wins_over_a_stop_string_and_both_over_the_limit() -> None:
    both = Request(prompt=(0,), max_tokens=1, eos=frozenset({0}), stop=("a",))
    assert StopMachine.feed(StopMachine.start(both, DETOKENIZER), 0).reason == "eos"
    string = Request(prompt=(0,), max_tokens=1, stop=("a",))
    assert StopMachine.feed(StopMachine.start(string, DETOKENIZER), 0).reason == "stop"


def test_of_two_stop_strings_the_one_that_ends_first_counts() -> None:
    request = Request(prompt=(0,), stop=("ab\n", "a"))
    state = StopMachine.feed(StopMachine.start(request, DETOKENIZER), 10)
    assert (state.matched, state.over) == ("a", 4)


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, pre_tokenizers, trainers

    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["def f(x): return x", "naïve €uro 日本語"], trainer)
    folder = tmp_path_factory.mktemp("byte_level")
    backend.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize("text", ["def f(x):\n\treturn x  ", "naïve €uro 日本語 🙂", ""])
def test_a_byte_level_tokenizer_goes_there_and_back(byte_level: Path, text: str) -> None:
    tokenizer = Tokenizer(byte_level)
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    pending, shown = tokenizer.detokenizer.start(), ""
    for token in ids:
        pending, new = tokenizer.detokenizer.feed(pending, token)
        shown += new
    assert shown == text
    assert tokenizer.decode([tokenizer.token("<|end|>") or 0, *ids, 10**6]) == text  # special and padding ids show nothing
    assert tokenizer.size == len(tokenizer.detokenizer.pieces) and tokenizer.token("no such token") is None
    assert tokenizer.digest == Tokenizer(byte_level).digest != "tokens-"


def test_a_metaspace_tokenizer_falls_back_to_bytes(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models

    vocab = {"\u2581a": 0, "b": 1, "<0xC3>": 2, "<0xA9>": 3, "\u2581": 4, "<0xGG>": 5}
    backend = Backend(models.BPE(vocab=vocab, merges=[], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(), decoders.Fuse()])
    backend.save(str(tmp_path / "tokenizer.json"))
    assert Tokenizer(tmp_path).decode([1, 0, 2, 3, 4, 1]) == "b aé b"
    assert Tokenizer(tmp_path).decode([5]) == "<0xGG>"  # a text that is no byte
    backend.decoder = decoders.CTC()
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(DecError, match="CTC"):
        _ = Tokenizer(tmp_path).detokenizer


def test_a_tokenizer_that_was_replaced_is_read_again(byte_level: Path) -> None:
    path = byte_level / "tokenizer.json"
    before = Tokenizer(byte_level)
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["added_tokens"] = [*spec.get("added_tokens", ()), {**ADDED, "id": before.size, "content": "<new>"}]
    path.write_text(json.dumps(spec), encoding="utf-8")
    assert before.token("<new>") is None
    assert Tokenizer(byte_level).token("<new>") == before.size
    assert Tokenizer(byte_level).digest != before.digest


ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def test_a_folder_without_a_tokenizer_says_so(tmp_path: Path) -> None:
    with pytest.raises(DecError, match=r"no tokenizer\.json"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(DecError, match="is not a tokenizer"):
        Tokenizer(tmp_path)


def test_statistics_of_a_run() -> None:
    step = [
        ModelCall("drafter", 2, 9, "draft"),
        ModelCall("target", 3, 12),
        *(Drafted(n, 0, n, 0.5, "drafter") for n in (1, 2, 3)),
    ]
    events = [
        *step,
        Rejected(1, 1, 1, "residual"),
        Accepted(2, 2, 1),  # two siblings tested at depth 1 are one test
        Rejected(3, 3, 2),
        Emitted(7, "residual"),
        Committed((2, 7)),
        *step,
        Rejected(1, 1, 1),
        Emitted(8, "residual"),
        Committed((8,)),
        ModelCall("target", 1, 14),
        Emitted(9, "plain"),
        Unmasked(4, 9, 0.9),
        Remasked(4),
        Committed((9,)),
        Stopped("limit"),
    ]
    stats = Stats.of(events)
    assert (stats.tokens, stats.target_calls, stats.draft_calls, stats.drafted) == (4, 3, 2, 6)
    assert stats.tested == (2, 1) and stats.accepted == (1, 0) and stats.acceptance == (0.5, 0.0)
    assert stats.tokens_per_call == 4 / 3 and stats.stopped == "limit" and stats.calls == {"drafter": 2, "target": 3}
    assert (stats.unmasked, stats.remasked) == (1, 1)
    assert Stats.of([]) == Stats() and Stats().tokens_per_call == 0 and Stats().acceptance == ()


def test_ids_with_a_gap_reach_the_greatest(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models, pre_tokenizers

    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    library = Library(models.BPE({**letters, "ab": 300}, [("a", "b")]))
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.size == 301 and len(tokenizer.detokenizer.pieces) == 301
    assert tokenizer.encode("ab") == (300,) and tokenizer.decode([299, 300]) == "ab"
