"""Regular expressions as automata over tokens.

Python's own parser reads the expression. The subset construction makes it an automaton over characters, and the characters of
every token are walked through that to make an automaton over tokens. Only regular expressions in the strict sense are accepted:
no look-around, no references to groups.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from decgraph.errors import DecError
from decgraph.runtime.automaton import Automaton

STATES = 4096
"""Most states of an automaton over characters; an expression with more is refused."""
PLACES = 32 * STATES
"""Most places of an expression before the subsets are formed: `(a{999}){999}` has a million."""
VISITS = 1 << 21
"""Most places that the subsets hold together, two seconds of work: in `(a?){2000}` each of 2,000 subsets holds up to 2,000."""

CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}


def automaton_of(pattern: str, pieces: Sequence[bytes], eos: Collection[int], size: int) -> Automaton:
    """The automaton of the texts that a regular expression matches whole, over tokens with these bytes.

    End tokens are allowed after a matching text, and only end tokens follow an end token. A token that is not a whole number of
    characters is never allowed. Raises DecError for an expression that is not regular.
    """
    texts = [_text(pieces[t]) if t < len(pieces) else "" for t in range(size)]
    places = StateMachine(pattern, {c for text in texts for c in text})
    table, accepting = places.table()
    dead, end, pad = len(table) - 1, len(table), table.shape[1] - 1
    letters = np.full((size, max(map(len, texts), default=0) or 1), pad)
    for t, text in enumerate(texts):
        letters[t, : len(text)] = [places.letter[c] for c in text]
    silent = np.array([not text for text in texts])
    rows = []
    for state in range(dead):
        at = np.full(size, state)
        for column in letters.T:
            at = table[at, column]
        at = np.where(silent | (at == dead), -1, np.where(at > dead, at - 1, at))
        if state in accepting:
            at[[t for t in eos if t < size]] = end - 1
        rows.append(tuple(at.tolist()))
    last = np.full(size, -1)
    last[[t for t in eos if t < size]] = end - 1
    return Automaton((*rows, tuple(last.tolist())), frozenset(accepting) | {end - 1})


def _text(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return ""


class StateMachine:
    """The nondeterministic automaton of an expression over the characters of a vocabulary: places, joined by sets of characters
    (`moves`) and by empty moves (`empty`)."""

    def __init__(self, pattern: str, alphabet: set[str]) -> None:
        self.pattern = pattern
        self.letters = sorted(alphabet)
        self.empty: list[list[int]] = []
        self.moves: list[list[tuple[frozenset[str], int]]] = []
        self._chosen: dict[tuple[str, int], frozenset[str]] = {}
        self.visits = 0
        try:
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined, unused-ignore]  # the parser of the standard library
            self.start = self.place()
            self.stop = self.sequence(parsed, self.start)
        except (re.error, OverflowError) as error:
            raise DecError(f"the regular expression {pattern!r} cannot be read: {error}") from None
        except RecursionError:
            raise DecError("the regular expression cannot be read: it is nested too deeply") from None
        kinds: dict[tuple[bool, ...], int] = {}
        classes = list({c for moves in self.moves for c, _ in moves})
        self.letter = {c: kinds.setdefault(tuple(c in k for k in classes), len(kinds)) for c in self.letters}
        self.kinds = {n: c for c, n in reversed(list(self.letter.items()))}

    def place(self) -> int:
        if len(self.empty) == PLACES:
            raise self.too_large()
        self.empty.append([])
        self.moves.append([])
        return len(self.empty) - 1

    def too_large(self) -> DecError:
        return DecError(f"the regular expression {self.pattern!r} needs more than {STATES} states")

    def sequence(self, items: Any, at: int) -> int:
        """Add items in sequence from the place `at`. Returns the place after them."""
        for op, value in items:
            at = self.item(str(op), value, at)
        return at

    def item(self, op: str, value: Any, at: int) -> int:
        after = self.place()
        if op in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            if (key := (op, id(value))) not in self._chosen:  # a repetition comes here once for every round
                self._chosen[key] = frozenset(c for c in self.letters if self.matches(op, value, c))
            self.moves[at].append((self._chosen[key], after))
        elif op == "SUBPATTERN":
            self.empty[self.sequence(value[3], at)].append(after)
        elif op == "BRANCH":
            for branch in value[1]:
                begin = self.place()
                self.empty[at].append(begin)
                self.empty[self.sequence(branch, begin)].append(after)
        elif op in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, inner = value
            for _ in range(low):
                at = self.sequence(inner, at)
            if high is re._constants.MAXREPEAT:  # type: ignore[attr-defined, unused-ignore]
                loop = self.place()
                self.empty[at].append(loop)
                self.empty[self.sequence(inner, loop)].append(loop)
                self.empty[loop].append(after)
            else:
                for _ in range(high - low):
                    self.empty[at].append(after)
                    at = self.sequence(inner, at)
                self.empty[at].append(after)
        elif op == "AT" and str(value) in ("AT_BEGINNING_STRING", "AT_END_STRING", "AT_BEGINNING", "AT_END"):
            raise DecError(
                f"the regular expression {self.pattern!r} has an anchor", hint="leave out ^ and $: the whole text must match"
            )
        else:
            raise DecError(
                f"the regular expression {self.pattern!r} is not regular: it has {op.lower().replace('_', ' ')}",
                hint="write it without look-around and references to groups",
            )
        return after

    def matches(self, op: str, value: Any, c: str) -> bool:
        if op == "ANY":
            return c != "\n"
        if op == "LITERAL":
            return ord(c) == int(value)
        if op == "NOT_LITERAL":
            return ord(c) != int(value)
        found = False
        for kind, what in value:
            match str(kind):
                case "LITERAL":
                    found |= ord(c) == what
                case "RANGE":
                    found |= what[0] <= ord(c) <= what[1]
                case "CATEGORY":
                    found |= re.match(CATEGORIES[str(what).removeprefix("CATEGORY_")], c) is not None
        return found != any(str(kind) == "NEGATE" for kind, _ in value)

    def closed(self, places: Collection[int]) -> frozenset[int]:
        """The places, and all that empty moves reach from them. Raises DecError beyond `VISITS`."""
        found, queue = set(places), list(places)
        while queue:
            for p in self.empty[queue.pop()]:
                if p not in found:
                    found.add(p)
                    queue.append(p)
        self.visits += len(found)
        if self.visits > VISITS:
            raise DecError(f"the regular expression {self.pattern!r} has too many ways to be read",
                           hint="write a repeated part so that it is never empty: a{0,2000} for (a?){2000}")  # fmt: skip
        return frozenset(found)

    def steps(self, state: frozenset[int]) -> Iterator[frozenset[int]]:
        """The state after a character of each kind."""
        for c in map(self.kinds.__getitem__, range(len(self.kinds))):
            yield self.closed({to for p in state for chosen, to in self.moves[p] if c in chosen})

    def table(self) -> tuple[np.ndarray, set[int]]:
        """int64[states + 1, kinds + 1], the successor of each state for each kind of character, and the accepting states. The
        last state is dead, and the last kind, no character, stays in its state. Raises DecError beyond `STATES` states."""
        states = {self.closed([self.start]): 0}
        rows: list[list[frozenset[int]]] = []
        for state in (queue := list(states)):
            rows.append(list(self.steps(state)))
            for after in rows[-1]:
                if after and after not in states:
                    states[after] = len(states)
                    queue.append(after)
            if len(states) > STATES:
                raise self.too_large()
        dead = len(states)
        table = np.full((dead + 1, len(self.kinds) + 1), dead)
        for i, row in enumerate(rows):
            table[i, :-1] = [states.get(after, dead) for after in row]
        table[:, -1] = np.arange(dead + 1)
        return table, {i for state, i in states.items() if self.stop in state}
