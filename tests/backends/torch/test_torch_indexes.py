"""Torch's stores against the reference's, which are plain searches: random texts, continued in turn, forgotten, looked up at
the newest value and at older ones; and what a token costs."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import decgraph
from decgraph.backends.indexes import Lru
from decgraph.backends.reference.values import SuffixSearch as Searched
from decgraph.backends.torch.stores import Recent
from decgraph.backends.torch.suffixes import Suffixes
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request

TEXT = st.lists(st.integers(0, 2), max_size=7)


def looked_up(index: Any, key: list[int], least: int, most: int) -> list[Any]:
    """All that an index says of a key."""
    picks = [index.path(tuple(key), least, most, pick) for pick in ("first", "last", "likeliest")]
    return [
        index.has(tuple(key)),
        index.matched(tuple(key)),
        index.occurs(tuple(key)),
        index.counts(tuple(key)),
        *map(tuple, picks),
    ]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_an_index_says_what_a_search_finds(data: st.DataObject) -> None:
    depth, room = data.draw(st.integers(1, 5)), data.draw(st.sampled_from([1, 4, 9, 60]))
    pairs = [(Searched(depth, room), Suffixes(depth, room))]
    for _ in range(data.draw(st.integers(1, 8))):
        wanted, ours = data.draw(st.sampled_from(pairs[-2:]))  # a value that is no longer the newest is continued as well
        text = data.draw(TEXT)
        if data.draw(st.booleans()):
            pairs.append((wanted.learn(text), ours.learn(text)))
        else:
            number = data.draw(st.integers(-1, wanted.learned))
            pairs.append((wanted.extend(text, number), ours.extend(text, number)))
        wanted, ours = data.draw(st.sampled_from(pairs))
        key, least, most = data.draw(TEXT), data.draw(st.integers(0, 3)), data.draw(st.integers(0, 4))
        assert looked_up(ours, key, least, most) == looked_up(wanted, key, least, most)
        assert list(wanted.texts) == ours.texts() and wanted.learned == ours.learned
        assert sum(len(t) for _, t in ours.texts()) <= room


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2), st.integers(0, 3)), max_size=20))
def test_a_table_has_what_was_stored(capacity: int, stores: list[tuple[int, int, int]]) -> None:
    values = [(Lru(capacity), Recent(capacity))]
    for old, key, entry in stores:
        wanted, ours = values[max(0, len(values) - 1 - old)]
        values.append((wanted.store(key, (entry, 0)), ours.store(key, (entry, 0))))
        again = values[old % len(values)]
        assert all(again[1].get(k) == again[0].get(k) for k in range(3))


class Counting(dict[int, Any]):
    """A dictionary that counts how often it is looked up or written."""

    touched = 0

    def get(self, *args: Any) -> Any:
        Counting.touched += 1
        return super().get(*args)

    def __setitem__(self, key: int, value: Any) -> None:
        Counting.touched += 1
        super().__setitem__(key, value)


def test_storing_costs_the_same_in_a_large_table() -> None:
    costs = []
    for size in (10, 10_000):
        table = Recent(2, Counting({k: ((k,),) for k in range(size)}))
        Counting.touched = 0
        for k in range(50):
            table = table.store(k % 7, (k,))
        costs.append(Counting.touched)
    assert costs[0] == costs[1]


def test_memory_is_bounded_and_a_token_costs_the_same_in_a_long_text() -> None:
    depth, room = 8, 400
    index, built = Suffixes(depth, room), []
    text = [(i * i // 7 + i // 5) % 11 for i in range(4_000)]
    for i in range(0, len(text), 4):
        before = index.automaton
        index = index.extend(text[i : i + 4], 0)
        after = index.automaton
        assert after.size <= room and len(after.length) <= 2 * room + 1
        if after is not before:
            built.append(i)
    assert min(b - a for a, b in zip(built, built[1:], strict=False)) >= room // 2  # built anew once in half its room
    repeated = Suffixes(depth, 100_000).learn([0] * 3_000).automaton  # every end of the text is a state of its own
    state, known = repeated.end[0]
    assert len(list(repeated.ends(state, known))) == depth + 1


SHARED = """\
algorithm shared(target: causal):
    refines autoregressive(target) in tokens
    state past: suffixes(3) per session

    while not done:
        draft t:
            grow chain(past.path(ctx, at_least = 1, at_most = 3))
        verify t by match against target(t)
        commit t.accepted
"""


def test_requests_of_a_batch_learn_texts_of_their_own() -> None:
    session = decgraph.parse(SHARED).session({"target": TableModel(5, 2)}, backend="torch")
    requests = [Request((1, 2, n), max_tokens=9, seed=n, request_id=n) for n in range(3)]
    found = session.generate(requests, batch=3)
    texts = {text for _, text in session.shared["shared", "past"].texts()}
    assert texts == {tuple(r.tokens) for r in found}
