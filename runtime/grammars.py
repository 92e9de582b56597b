"""A caller's grammars: what a text must look like, as a regular expression, a JSON schema or a Lark grammar.

A grammar describes characters; a model's tokenizer turns it into an automaton over tokens. Regular expressions become tables
(runtime/regular.py); llguidance parses JSON schemas and Lark grammars as the text grows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from decgraph import extras
from decgraph.errors import DecError
from decgraph.ir.memo import memo_of
from decgraph.runtime.automaton import Automaton

if TYPE_CHECKING:
    from llguidance import LLMatcher

    from decgraph.runtime.text import Detokenizer, Tokenizer


_KEPT = 64  # automata in the cache: a server's clients bring any number of schemas
MOST_ITEMS = 50_000
"""The most continuations that a parser follows at once; a schema with 1,000 optional properties has 4,000."""
_parsing = threading.RLock()
"""Guards llguidance's parsers: sessions in several threads may share one, and it refuses a second caller."""
KINDS = ("regex", "json_schema", "lark")


class Detokenizing(Protocol):
    """A tokenizer that says which bytes a token stands for."""

    @property
    def detokenizer(self) -> Detokenizer: ...


@dataclass(frozen=True)
class Grammar:
    """A grammar before it meets a vocabulary: `Grammar.regex(...)`, `Grammar.json_schema(...)`, `Grammar.lark(...)`."""

    kind: str
    text: str

    @staticmethod
    def regex(pattern: str) -> Grammar:
        """The texts that a regular expression matches from beginning to end."""
        return Grammar("regex", pattern)

    @staticmethod
    def json_schema(schema: str | Mapping[str, object]) -> Grammar:
        """The JSON texts that a schema describes. Raises DecError for what is not JSON."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        try:
            json.loads(text)
        except ValueError as error:
            raise DecError(f"the JSON schema is not JSON: {error}") from None
        return Grammar("json_schema", text)

    @staticmethod
    def lark(grammar: str) -> Grammar:
        """The texts of a Lark grammar's rule `start`."""
        return Grammar("lark", grammar)

    @staticmethod
    def read(file: str | Path, kind: str = "") -> Grammar:
        """A grammar from a file: .json holds a JSON schema, .lark a Lark grammar, .regex or .txt a regular expression. Raises
        DecError for another name without `kind`, and for a file that cannot be read."""
        path = Path(file)
        kind = kind or {".json": "json_schema", ".lark": "lark", ".regex": "regex", ".txt": "regex"}.get(path.suffix, "")
        if not kind:
            raise DecError(f"{path} is no grammar by its name", hint="schema.json, grammar.lark or pattern.regex")
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DecError(f"cannot read the grammar {path}: {getattr(error, 'strerror', None) or error}") from None
        if kind == "json_schema":
            return Grammar.json_schema(text)
        return Grammar(kind, text.strip("\n") if kind == "regex" else text)

    def check(self) -> None:
        """Raises DecError for what is no grammar of its kind; needs no tokenizer, as `over` does."""
        letters = [bytes([b]) for b in range(256)]
        if self.kind == "regex":
            from decgraph.runtime.regular import automaton_of

            automaton_of(self.text, letters, (), len(letters))
        else:
            matcher(self, letters, (), len(letters))

    def over(self, tokenizer: Tokenizer | Detokenizing | None, eos: Collection[int], size: int) -> Automaton:
        """The automaton over a vocabulary of `size` tokens. Raises DecError without a tokenizer, and for a wrong grammar."""
        if tokenizer is None:
            raise DecError(
                "a grammar speaks of text, and these models have no tokenizer",
                hint="hand over a table of tokens: decgraph.runtime.automaton.Automaton",
            )
        return _over(self, tokenizer.detokenizer, frozenset(eos), size)


@lru_cache(_KEPT)  # which keeps the detokenizer: its identity stands for its vocabulary
def _over(grammar: Grammar, detokenizer: Detokenizer, eos: frozenset[int], size: int) -> Automaton:
    made: OfText
    if grammar.kind == "regex":
        from decgraph.runtime.regular import automaton_of

        table = automaton_of(grammar.text, detokenizer.pieces, eos, size)
        made = OfText(table.next, table.accepting)
    else:
        made = Parsed(matcher(grammar, detokenizer.pieces, eos, size), eos, size)
    memo_of(made).once("source", lambda: grammar.text)
    return made


class OfText(Automaton):
    """A grammar's automaton. After a text that it forbids it allows everything: no draft there is ever accepted, but rules over
    whole trees read the target's distributions below it.
    """

    @property
    def source(self) -> str:
        """The grammar's text."""
        return str(memo_of(self).get("source") or "")

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def allowed(self, state: int) -> frozenset[int]:
        return super().allowed(state) if state >= 0 else frozenset(range(len(self.next[0])))


def matcher(grammar: Grammar, pieces: Sequence[bytes], eos: Collection[int], size: int) -> LLMatcher:
    """llguidance's parser of a grammar over tokens with these bytes. Raises DecError where llguidance is not installed, and for
    a grammar that it refuses."""
    try:
        import llguidance as ll
    except ImportError:
        raise extras.needed("grammars", first="llguidance", what="JSON schemas and Lark grammars need") from None

    class GrammarTokens:
        """The vocabulary as llguidance reads it; the last token is an end of its own, for vocabularies that have none."""

        def __init__(self) -> None:
            known = [pieces[t] if t < len(pieces) else b"" for t in range(size)]
            self.tokens = [p or b"\xff[%d]" % t for t, p in enumerate(known)] + [b"\xff[end]"]
            self.special_token_ids = [t for t, p in enumerate(known) if not p] + [size]
            self.eos_token_id, self.bos_token_id = size, None
            self.longest = max(map(len, known), default=1)
            self.ids = {p: t for t, p in reversed(list(enumerate(known))) if p}

        def __call__(self, text: bytes | str) -> list[int]:
            data = text.encode() if isinstance(text, str) else text
            out, i = [], 0
            while i < len(data):
                n = next((n for n in range(self.longest, 0, -1) if data[i : i + n] in self.ids), 0)
                if not n:
                    raise ValueError(f"no token begins {data[i : i + 8]!r}")
                out.append(self.ids[data[i : i + n]])
                i += n
            return out

    vocabulary = ll.LLTokenizer(ll.TokenizerWrapper(GrammarTokens()), n_vocab=size + 1)
    read = ll.LLMatcher.grammar_from_lark if grammar.kind == "lark" else ll.LLMatcher.grammar_from_json_schema
    limits = ll.LLParserLimits(max_items_in_row=MOST_ITEMS, step_max_items=10 * MOST_ITEMS)
    found = ll.LLMatcher(vocabulary, read(grammar.text), log_level=0, limits=limits)
    failed(found, f"the {grammar.kind.replace('_', ' ')} cannot be read")
    found.compute_bitmask()
    failed(found, f"the {grammar.kind.replace('_', ' ')} cannot be followed")
    return found


def failed(parser: LLMatcher, what: str) -> None:
    """Raises DecError where a parser has failed, for good: from then on it would allow nothing, or everything."""
    if parser.is_error():
        said = str(parser.get_error()).split("<state>")[0].strip()
        said = "no text fits it" if said.startswith("NoExtension") else said
        raise DecError(f"{what}: {' '.join(said.split())}", hint="a simpler grammar" if "max is" in said else "")


class Parsed(OfText):
    """An automaton whose states are the parser's after each text, found when they are first reached. State 0 is the start."""

    _parsers: list[LLMatcher | None]
    _after: dict[tuple[int, int], int]
    _eos: frozenset[int]
    _size: int

    def __init__(self, start: LLMatcher | None, eos: Iterable[int], size: int) -> None:
        put = object.__setattr__
        put(self, "start", 0)
        put(self, "accepting", frozenset())
        put(self, "masks", {})
        put(self, "_parsers", [start])
        put(self, "_after", {})
        put(self, "_eos", frozenset(eos))
        put(self, "_size", size)

    def anew(self) -> Parsed:
        """A copy that knows the start alone: the states that are found live as long as their automaton."""
        made = Parsed(self._parsers[0], self._eos, self._size)
        memo_of(made).once("source", lambda: self.source)
        return made

    def __getattr__(self, name: str) -> NoReturn:
        if name == "next":
            raise DecError(
                "this program needs a table of an automaton's states, and a parsed grammar has none",
                hint="a regular expression has one",
            )
        raise AttributeError(name)

    def step(self, state: int, token: int) -> int:
        if state < 0:
            return -1
        with _parsing:
            if (state, token) not in self._after:
                self._after[state, token] = self._stepped(state, int(token))
            return self._after[state, token]

    def _stepped(self, state: int, token: int) -> int:
        parser = self._parsers[state]
        if token in self._eos:  # only end tokens follow an end token
            if parser is not None and not parser.is_accepting():
                return -1
            self._parsers.append(None)
            return len(self._parsers) - 1
        if parser is None or not 0 <= token < self._size or parser.is_stopped():
            return -1
        after = parser.deep_copy()
        taken = after.try_consume_tokens([token])
        failed(after, "the grammar cannot be followed any further")
        if not taken:
            return -1
        self._parsers.append(after)
        return len(self._parsers) - 1

    def allowed(self, state: int) -> frozenset[int]:
        if state < 0:
            return frozenset(range(self._size))
        parser = self._parsers[state]
        if parser is None:
            return self._eos
        with _parsing:
            ends = self._eos if parser.is_accepting() else frozenset()
            if parser.is_stopped():
                return ends
            mask = parser.compute_bitmask()
            failed(parser, "the grammar cannot be followed any further")
        bits = np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")
        return frozenset(np.flatnonzero(bits[: self._size]).tolist()) - self._eos | ends

    def permitted(self, state: int) -> frozenset[int]:
        return self.allowed(state)


def complete(automaton: Automaton, base: int) -> Callable[[tuple[int, ...]], bool]:
    """A stopping criterion on paths: true where the automaton allows no token after what follows the first `base` tokens, the
    prompt."""

    def whole(path: tuple[int, ...]) -> bool:
        return not automaton.allowed(automaton.run(path[base:]))

    return whole
