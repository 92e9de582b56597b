"""A caller's grammars: what a text must look like, as a regular expression, a JSON schema or a Lark grammar.

A grammar describes characters, and a model's tokens are bytes: llguidance follows the bytes of every token, as the text grows,
so that a character of several tokens can be written. No step is forced: a text may be spelled in any of its tokens.
"""

from __future__ import annotations

import itertools
import json
import math
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import numpy as np

from decgraph import extras
from decgraph.errors import ConstraintError, DecError
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.text import Detokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from decgraph.runtime.text import Tokenizer

_KEPT = 64  # automata in the cache: a server's clients bring any number of schemas
MOST_ITEMS = 50_000
"""The most continuations that a parser follows at once; a schema with 1,000 optional properties has 4,000."""
LIMITS = {
    "max_items_in_row": MOST_ITEMS,
    "step_max_items": 10 * MOST_ITEMS,
    "step_lexer_fuel": 100_000,
    "max_lexer_states": 100_000,
    "verbose_errors": False,
}
"""What a grammar may cost, in llguidance's words: some 0.03 s of a step, and 200 MB. Its other limits are its own."""
PARSERS = 256
"""Most parsers that an automaton keeps, one for each of its last states."""
MULTIPLES = 20_000
"""The largest least common multiple of a schema's `multipleOf`: llguidance has a state for every remainder."""
STATES = 4096
"""Most states of a table; an expression with more is refused."""
_WHOLE = "\U0010fffe"  # no character of any text
BLANKS = r"[ ]?|\n[ ]{0,16}"
"""Blanks between the parts of JSON: one, or a line end and an indentation. A small model would write them forever."""
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
        except (ValueError, RecursionError) as error:
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

    @staticmethod
    def choice(texts: Iterable[str]) -> Grammar:
        """One of several texts."""
        return Grammar("lark", "start: TEXT\nTEXT: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts))

    def check(self) -> None:
        """Raises DecError for what is no grammar of its kind; needs no tokenizer, as `over` does."""
        matcher(self, Detokenizer(tuple(bytes([b]) for b in range(256))), 256)

    def over(self, tokenizer: Tokenizer | Detokenizing | None, eos: Collection[int], size: int) -> Parsed:
        """The automaton over a vocabulary of `size` tokens. Raises DecError without a tokenizer, and for a wrong grammar."""
        return _over(self, _detokenizer_of(tokenizer), frozenset(eos), size)

    def table(self, tokenizer: Tokenizer | Detokenizing | None, eos: Collection[int], size: int) -> Automaton:
        """The same with all its states in a table. Raises DecError also for what is no regular expression, or has too many."""
        return _table(self, _detokenizer_of(tokenizer), frozenset(eos), size)

    def schema(self) -> str:
        """The JSON schema with a bound on blanks, where it says nothing of them itself."""
        schema = json.loads(self.text)
        own = schema.get("x-guidance", {}) if isinstance(schema, dict) else None
        if isinstance(own, dict) and "whitespace_flexible" not in own:
            schema = {**schema, "x-guidance": {"whitespace_pattern": BLANKS, **own}}
        return json.dumps(schema)

    def written(self) -> str:
        """The grammar in llguidance's dialect of Lark. Raises DecError for multiples that take too long to follow."""
        from llguidance import regex_to_lark

        if self.kind == "regex":
            text = f"start: TEXT\nTEXT: /{regex_to_lark(self.text, use_ascii='')}/" if self.text else 'start: ""'
        elif self.kind == "json_schema":
            text = f"start: %json {self.schema()}"
        else:
            text = self.text
        steps = [float(number) for number in re.findall(r'"multipleOf"\s*:\s*([\d.eE+-]+)', text)]
        if any(step > MULTIPLES for step in steps) or math.lcm(*(Fraction(repr(step)).numerator for step in steps)) > MULTIPLES:
            raise DecError(f"`multipleOf` goes up to {MULTIPLES}, also where several go together", hint="leave it out")
        return text + '\n%llguidance {"no_forcing": true}\n'


def _detokenizer_of(tokenizer: Tokenizer | Detokenizing | None) -> Detokenizer:
    if tokenizer is None:
        raise DecError(
            "a grammar speaks of text, and these models have no tokenizer",
            hint="hand over a table of tokens: decgraph.runtime.automaton.Automaton",
        )
    return tokenizer.detokenizer


@lru_cache(_KEPT)  # which keeps the detokenizer: its identity stands for its vocabulary
def _over(grammar: Grammar, detokenizer: Detokenizer, eos: frozenset[int], size: int) -> Parsed:
    return Parsed(matcher(grammar, detokenizer, size), eos, size, grammar.text)


@lru_cache(_KEPT)
def _table(grammar: Grammar, detokenizer: Detokenizer, eos: frozenset[int], size: int) -> Automaton:
    if grammar.kind != "regex":
        raise DecError(
            "this program needs a table of an automaton's states, and a parsed grammar has none",
            hint="a regular expression has one",
        )
    matcher(grammar, detokenizer, size)  # for its words about what is no regular expression
    try:
        from outlines_core import Index, Vocabulary
    except ImportError:
        raise extras.needed("models", first="outlines_core", what="tables of regular expressions need") from None
    ids = {_WHOLE.encode(): [size]}  # follows a whole text: outlines_core loses tokens that go on from one
    for token, piece in enumerate(detokenizer.pieces[:size]):
        if piece and token not in eos:
            ids.setdefault(piece, []).append(token)
    try:
        index = Index(f"(?:{grammar.text}){_WHOLE}", Vocabulary(size + 1, ids))
    except ValueError as error:
        raise DecError(f"the regular expression has no table of states: {error}", hint="leave out ^ and $") from None
    steps, last = index.get_transitions(), index.get_final_states()
    place = {state: n for n, state in enumerate(dict.fromkeys([index.get_initial_state(), *steps, *last]))}
    if len(place) >= STATES:
        raise DecError(f"the regular expression needs more than {STATES} states")
    rows, ends = np.full((len(place) + 1, size), -1), [token for token in eos if token < size]
    for state, after in steps.items():
        known = [token for token in after if token < size]
        rows[place[state], known] = [place[after[token]] for token in known]
    whole = [*(place[state] for state, after in steps.items() if after.get(size) in last), len(place)]
    rows[np.ix_(whole, ends)] = len(place)
    return Automaton(tuple(map(tuple, rows.tolist())), frozenset(whole), source=grammar.text)


@lru_cache(8)
def _vocabulary(detokenizer: Detokenizer, size: int) -> LLTokenizer:
    """The tokens as llguidance reads them; the last one is an end of its own, for vocabularies that have none."""
    import llguidance as ll

    class PieceList:
        def __init__(self) -> None:
            known = [*detokenizer.pieces[:size], *[b""] * (size - len(detokenizer.pieces))]
            self.tokens = [p or b"\xff[%d]" % t for t, p in enumerate(known)] + [b"\xff[end]"]
            self.special_token_ids = [t for t, p in enumerate(known) if not p] + [size]
            self.eos_token_id, self.bos_token_id = size, None

        def __call__(self, text: bytes | str) -> list[int]:
            return []  # no text is forced, so none is tokenized

    return ll.LLTokenizer(ll.TokenizerWrapper(PieceList()), n_vocab=size + 1)


def matcher(grammar: Grammar, detokenizer: Detokenizer, size: int) -> LLMatcher:
    """llguidance's parser of a grammar over a tokenizer's first `size` tokens. Raises DecError where llguidance is not
    installed, and for a grammar that it refuses."""
    try:
        import llguidance as ll
    except ImportError:
        raise extras.needed("models", first="llguidance", what="grammars and regular expressions need") from None
    name = {"regex": "regular expression", "json_schema": "JSON schema", "lark": "grammar"}[grammar.kind]
    read = ll.LLMatcher.grammar_from_lark(grammar.written())
    found = ll.LLMatcher(_vocabulary(detokenizer, size), read, log_level=0, limits=ll.LLParserLimits(**LIMITS))
    failed(found, f"the {name} cannot be read")
    found.compute_bitmask()
    failed(found, f"the {name} cannot be followed")
    return found


_NOISE = re.compile(
    r"^at \d+\(\d+\): |invalid regex .*? \(in regex\): |failed to compile JSON schema: |^.*\nerror: | in regex /.*", re.S
)
"""What llguidance writes around its reasons: places in the grammar that was made of the caller's, and the pattern itself."""


def failed(parser: LLMatcher, what: str) -> None:
    """Raises ConstraintError where a parser has failed, for good: from then on it would allow nothing, or everything. The words
    are llguidance's, without the grammar, which is the caller's and may be long."""
    if not parser.is_error():
        return
    said = re.split(r"<state>|<non-verbose/>|\n   1 \||\n\n|: +\(", str(parser.get_error()))[0]
    while (shorter := _NOISE.sub("", said).strip()) != said:
        said = shorter
    if said.startswith(("NoExtension", "Unsatisfiable")):
        said = "no text fits it" + (f": {why}" if (why := said.partition(": ")[2]) else "")
    said = " ".join(said.split())
    simpler = re.search("max is|too many|limit|fuel|too large|too big|too complex", said, re.I)
    raise ConstraintError(f"{what}: {said[:200]}", hint="a simpler grammar" if simpler else "")


class Parsed(Automaton):
    """An automaton whose states are the parser's after each text, found when they are first reached. State 0 is the start.
    After a text that it forbids it allows everything, as `permitted` does."""

    _parsers: dict[int, LLMatcher]
    _came: list[tuple[int, int]]
    _after: dict[tuple[int, int], int]
    _eos: frozenset[int]
    _size: int
    _lock: threading.RLock
    """Guards the parsers: they are copies of one, which sessions in several threads may share, and llguidance refuses a second
    caller."""

    def __init__(
        self, start: LLMatcher, eos: Iterable[int], size: int, source: str, lock: threading.RLock | None = None
    ) -> None:
        put = object.__setattr__
        put(self, "start", 0)
        put(self, "accepting", frozenset())
        put(self, "masks", {})
        put(self, "source", source)
        put(self, "_lock", lock or threading.RLock())
        put(self, "_parsers", {0: start})
        put(self, "_came", [(0, -1)])
        put(self, "_after", {})
        put(self, "_eos", frozenset(eos))
        put(self, "_size", size)

    def anew(self) -> Parsed:
        """A copy that knows the start alone, for a text of its own: its states live as long as it does."""
        return Parsed(self._parsers[0], self._eos, self._size, self.source, self._lock)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

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
        with self._lock:
            if (state, token) not in self._after:
                self._after[state, token] = self._stepped(state, int(token))
            return self._after[state, token]

    def _parser(self, state: int) -> LLMatcher | None:
        """The parser in a state, None after an end token. The last ones are kept, and others made again."""
        at, path = state, []
        while at not in self._parsers:
            at, token = self._came[at]
            path.append(token)
        if path and path[0] in self._eos:
            return None
        parser = self._parsers[at]
        if path:
            parser = parser.deep_copy()
            parser.consume_tokens(path[::-1])
            self._keep(state, parser)
        return parser

    def _keep(self, state: int, parser: LLMatcher) -> None:
        if len(self._parsers) >= PARSERS:
            del self._parsers[next(itertools.islice(self._parsers, 1, None))]
        self._parsers[state] = parser

    def _stepped(self, state: int, token: int) -> int:
        parser = self._parser(state)
        if token in self._eos:  # only end tokens follow an end token
            if parser is not None and not parser.is_accepting():
                return -1
        elif parser is None or not 0 <= token < self._size or parser.is_stopped():
            return -1
        else:
            parser = parser.deep_copy()
            taken = parser.try_consume_tokens([token])
            failed(parser, "the grammar cannot be followed any further")
            if not taken:
                return -1
            self._keep(len(self._came), parser)
        self._came.append((state, token))
        return len(self._came) - 1

    def allowed(self, state: int) -> frozenset[int]:
        return frozenset(np.flatnonzero(self.mask(state, self._size)).tolist())

    permitted = allowed

    def _mask(self, state: int, size: int) -> np.ndarray:
        mask = np.full(size, state < 0)
        if state >= 0:
            ends = [token for token in self._eos if token < size]
            with self._lock:
                parser = self._parser(state)
                if parser is not None and not parser.is_stopped():
                    bits = np.frombuffer(parser.compute_bitmask(), np.uint8)
                    failed(parser, "the grammar cannot be followed any further")
                    known = np.unpackbits(bits, bitorder="little")[: min(size, self._size)]
                    mask[: len(known)] = known
                mask[ends] = parser is None or parser.is_accepting()
        return mask


def complete(automaton: Automaton, base: int) -> Callable[[tuple[int, ...]], bool]:
    """A stopping criterion on paths: true where the automaton allows no token after what follows the first `base` tokens, the
    prompt."""

    def whole(path: tuple[int, ...]) -> bool:
        return not automaton.allowed(automaton.run(path[base:]))

    return whole
