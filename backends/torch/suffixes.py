"""The torch machine's index of text: a suffix automaton over all texts at once (Blumer et al., 1985), which also counts.

A token costs amortised constant time and, for the counts, at most `depth` steps; a lookup costs as many steps as it has tokens,
of which `depth` are read; memory is proportional to the tokens kept. The meaning is the reference's `Suffixes`, a search.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from decgraph.backends.indexes import ROOM, forgotten

Place = tuple[int, int]


class Automaton:
    """States are classes of strings that end at the same places of the texts; state 0 is the empty string. A state has its
    longest string's length, a link to the state of the longest shorter one, and what may follow. Of the strings of at most
    depth + 1 tokens it also has how often they occur, and the first and the last place that something follows."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.length, self.link = [0], [-1]
        self.next: list[dict[int, int]] = [{}]
        self.count = [0]
        self.first: list[Place | None] = [None]
        self.last: list[Place | None] = [None]
        self.texts: dict[int, list[int]] = {}
        self.whole: dict[int, int] = {}  # the state of a whole text
        self.end: dict[int, Place] = {}  # a state with the end of a text, and how much of it counts
        self.log: list[Place] = []  # which text grew by how much, as versions of this automaton
        self.size = 0

    def append(self, number: int, tokens: Sequence[int]) -> None:
        """A text, new or known, grows."""
        text = self.texts.setdefault(number, [])
        whole, (state, known) = self.whole.get(number, 0), self.end.get(number, (0, 0))
        for t in tokens:
            place = (number, len(text))
            for s in self.ends(state, known):
                first, last = self.first[s], self.last[s]
                self.first[s] = place if first is None else min(first, place)
                self.last[s] = place if last is None else max(last, place)
            whole = self.extended(whole, t)
            state, known = self.after(state, known, t)
            for s in self.ends(state, known):
                self.count[s] += 1
            text.append(t)
        self.whole[number], self.end[number] = whole, (state, known)
        self.log.append((number, len(tokens)))
        self.size += len(tokens)

    def ends(self, state: int, known: int) -> Iterator[int]:
        """The states of the nonempty ends of a text, from the longest that counts on."""
        while state and self.length[self.link[state]] >= known:  # split since
            state = self.link[state]
        while state:
            yield state
            state = self.link[state]

    def after(self, state: int, known: int, token: int) -> Place:
        """The state of an end that something was appended to."""
        while state and self.length[self.link[state]] >= known:
            state = self.link[state]
        state, known = self.next[state][token], known + 1
        if known > self.depth + 1:
            known -= 1
            while self.length[self.link[state]] >= known:
                state = self.link[state]
        return state, known

    def state(self, length: int, like: int | None = None) -> int:
        """A new state, with what another one knows."""
        self.length.append(length)
        self.link.append(0 if like is None else self.link[like])
        self.next.append({} if like is None else dict(self.next[like]))
        self.count.append(0 if like is None else self.count[like])
        self.first.append(None if like is None else self.first[like])
        self.last.append(None if like is None else self.last[like])
        return len(self.length) - 1

    def split(self, p: int, token: int) -> int:
        """The state of p's longest string and the token: the one that it leads to, without its longer strings."""
        q = self.next[p][token]
        if self.length[q] == self.length[p] + 1:
            return q
        short = self.state(self.length[p] + 1, like=q)
        self.link[q] = short
        while p >= 0 and self.next[p].get(token) == q:
            self.next[p][token] = short
            p = self.link[p]
        return short

    def extended(self, p: int, token: int) -> int:
        """The state of a whole text and one more token."""
        if token in self.next[p]:
            return self.split(p, token)
        new = self.state(self.length[p] + 1)
        while p >= 0 and token not in self.next[p]:
            self.next[p][token] = new
            p = self.link[p]
        self.link[new] = self.split(p, token) if p >= 0 else 0
        return new

    def at(self, key: Sequence[int]) -> int | None:
        """The state of a string, None where it does not occur."""
        state: int | None = 0
        for t in key:
            state = self.next[state].get(int(t)) if state is not None else None
        return state

    def longest(self, context: Sequence[int]) -> Place:
        """The state and length of the longest end of `context` that something follows."""
        state = known = 0
        for t in context:
            while state and t not in self.next[state]:
                state = self.link[state]
                known = self.length[state]
            if t in self.next[state]:
                state, known = self.next[state][t], known + 1
        while state and not self.next[state]:
            state = self.link[state]
            known = self.length[state]
        return state, known

    def until(self, version: int) -> Automaton:
        """As it was when so much of the log was there."""
        old, read = Automaton(self.depth), dict.fromkeys(self.texts, 0)
        for number, n in self.log[:version]:
            old.append(number, self.texts[number][read[number] : read[number] + n])
            read[number] += n
        return old


class Suffixes:
    """An index of the texts learned so far: looked up by at most `depth` tokens, it returns what followed them. A value: the
    newest one shares its automaton with its past, an older one that is used again gets one of its own."""

    __slots__ = ("_automaton", "_version", "depth", "learned", "room")

    def __init__(self, depth: int = 64, room: int = ROOM, learned: int = 0, automaton: Automaton | None = None) -> None:
        self.depth, self.room, self.learned = depth, room, learned
        self._automaton = automaton or Automaton(depth)
        self._version = len(self._automaton.log)

    @property
    def automaton(self) -> Automaton:
        """The automaton of this value."""
        if self._version != len(self._automaton.log):
            self._automaton = self._automaton.until(self._version)
        return self._automaton

    def texts(self) -> list[tuple[int, tuple[int, ...]]]:
        """The texts that are kept, by their numbers."""
        return [(n, tuple(t)) for n, t in sorted(self.automaton.texts.items())]

    def learn(self, tokens: Sequence[int]) -> Suffixes:
        """With another text, whose number is `learned` before."""
        return self._with(self.learned, tokens, self.learned + 1) if len(tokens) else self

    def extend(self, tokens: Sequence[int], number: int | None = None) -> Suffixes:
        """With a text continued, the last one by default; with another one if it is forgotten."""
        number = self.learned - 1 if number is None else number
        if number not in self.automaton.texts:
            return self.learn(tokens)
        return self._with(number, tokens, self.learned)

    def _with(self, number: int, tokens: Sequence[int], learned: int) -> Suffixes:
        grown = self.automaton
        grown.append(number, [int(t) for t in tokens])
        drop = forgotten(grown.size, self.room)
        if drop:
            texts, grown = sorted(grown.texts.items()), Automaton(self.depth)
            for n, text in texts:
                if len(text) > drop:
                    grown.append(n, text[drop:])
                drop = max(0, drop - len(text))
        return Suffixes(self.depth, self.room, learned, grown)

    def has(self, key: Sequence[int]) -> bool:
        """Whether something followed these tokens, `depth` of them at most."""
        state = self.automaton.at(key) if len(key) <= self.depth else None
        return state is not None and bool(self.automaton.next[state])

    def matched(self, context: Sequence[int]) -> int:
        """How long the longest end of `context` is that something followed, of at most `depth` tokens."""
        return self.automaton.longest(context[-self.depth :])[1]

    def path(self, context: Sequence[int], at_least: int, at_most: int, pick: str = "last") -> tuple[int, ...]:
        """What followed the longest end of `context` that is known, where it stands first or last, or token by token what
        followed most often; see the reference."""
        a = self.automaton
        if pick == "likeliest":
            known = list(context[-self.depth :])
            for n in range(at_most):
                state, length = a.longest(known[-self.depth :])
                if length < max(at_least, 1):
                    return tuple(known[len(known) - n :]) if n else ()
                follows = a.next[state]
                known.append(min(follows, key=lambda t: (-a.count[follows[t]], t)))
            return tuple(known[len(known) - at_most :]) if at_most > 0 else ()
        state, length = a.longest(context[-self.depth :])
        place = a.first[state] if pick == "first" else a.last[state]
        if length < max(at_least, 1) or place is None:
            return ()
        return tuple(a.texts[place[0]][place[1] : place[1] + at_most])

    def occurs(self, key: Sequence[int]) -> int:
        """How often `key` occurs, of at most `depth` tokens."""
        a = self.automaton
        state = a.at(key) if len(key) <= self.depth else None
        return 0 if state is None else a.count[state] if state else a.size

    def counts(self, key: Sequence[int]) -> dict[int, int]:
        """How often each token followed `key`; nothing is known of more than `depth` tokens."""
        a = self.automaton
        state = a.at(key) if len(key) <= self.depth else None
        return {} if state is None else {t: a.count[s] for t, s in a.next[state].items()}


__all__ = ["Automaton", "Suffixes"]
