"""Text to tokens and back, and text that can be shown while it grows.

Incremental text is built from bytes: every token stands for a byte string, and a character is shown when its last byte has
come. So text that was shown never changes, and token by token gives the same text as decoding at once.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, TypedDict

from decgraph.errors import DecError
from decgraph.ir.values import Module
from decgraph.ir.walk import functions_of, ops_of
from decgraph.runtime.models.folders import is_gguf, without_tokenizer
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.models.unreadable import is_pointer, unreadable

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

LONG = 10_000
"""Characters of a text whose encoding takes so long that other threads should run meanwhile."""

Pending = bytes  # the bytes of a character that is not complete yet


@dataclass(frozen=True, eq=False)
class Detokenizer:
    """`pieces[token]` is the byte string that a token adds to the text: b"" for special tokens. `special` has their spellings,
    which stop strings may contain."""

    pieces: tuple[bytes, ...]
    special: Mapping[int, str] = field(default_factory=dict)

    def data(self, token: int) -> bytes:
        """What a token adds."""
        return bytes(self.pieces[token]) if token < len(self.pieces) else b""

    def start(self) -> Pending:
        """The state before any token."""
        return b""

    def feed(self, pending: Pending, token: int) -> tuple[Pending, str]:
        """The state after a token, and the characters it completes; U+FFFD for what is not UTF-8."""
        if not 0 <= token < len(self.pieces):
            return pending, ""  # padding rows of an embedding table have no text
        data = pending + self.pieces[token]
        text, read = codecs.utf_8_decode(data, "replace")
        return data[read:], text

    def finish(self, pending: Pending) -> str:
        """The rest of the text when no token follows: U+FFFD if a character was cut in the middle, else ""."""
        return pending.decode("utf-8", "replace")

    def text(self, tokens: Iterable[int]) -> str:
        """The text of tokens, equal to that of feeding them one by one and finishing."""
        return b"".join([self.pieces[t] for t in tokens if 0 <= t < len(self.pieces)]).decode("utf-8", "replace")


def pieces_of(tokens: Sequence[int], detokenizer: object) -> tuple[str, ...]:
    """The part of their text that each token adds; () for a detokenizer that is not decgraph's."""
    if not isinstance(detokenizer, Detokenizer):
        return ()
    pending, pieces = detokenizer.start(), []
    for token in tokens:
        pending, piece = detokenizer.feed(pending, token)
        pieces.append(piece)
    if pieces:
        pieces[-1] += detokenizer.finish(pending)
    return tuple(pieces)


def detokenizer_of(pieces: Sequence[str | bytes]) -> Detokenizer:
    """A detokenizer from the text or the bytes of every token, in token order."""
    return Detokenizer(tuple(p if isinstance(p, bytes) else p.encode() for p in pieces))


def whole(text: str) -> str:
    """The text itself. Raises DecError where UTF-8 cannot encode it: JSON and command lines may contain lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DecError(f"the prompt is not a text: character {error.start} is half of a surrogate pair") from None
    return text


def has_tokenizer(place: Path | None) -> bool:
    """Whether a model's folder has a tokenizer.json, or its GGUF file a tokenizer."""
    if place is None or place.is_dir() or not is_gguf(place):
        return place is not None and (place / "tokenizer.json").is_file()
    from decgraph.runtime.models.gguf.file import read

    return str(read(place).settings.get("tokenizer.ggml.model", "none")) != "none"


class DecoderEntry(TypedDict):
    """The entry `decoder` of a tokenizer.json; a sequence has `decoders`."""

    type: str
    decoders: NotRequired[list[DecoderEntry]]


class AddedToken(TypedDict):
    """An entry of `added_tokens` in a tokenizer.json: a token outside the model's vocabulary."""

    id: int
    content: str
    special: NotRequired[bool]
    lstrip: NotRequired[bool]
    rstrip: NotRequired[bool]


class TokenizerFile(TypedDict, total=False):
    """The entries of a tokenizer.json that this file reads."""

    normalizer: object
    pre_tokenizer: object
    decoder: DecoderEntry | None
    added_tokens: list[AddedToken]


class Tokenizer:
    """A tokenizer.json: encode, decode and a detokenizer. Byte-level BPE, Metaspace with byte fallback, and BERT's word pieces.

    folder: where the file is, or a GGUF file. Raises DecError if there is none or it cannot be read.
    """

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder) if Path(folder).is_file() else Path(folder) / "tokenizer.json"
        if not has_tokenizer(Path(folder)):
            raise DecError(f"{folder} has no tokenizer.json", hint=without_tokenizer([Path(folder)]))
        try:
            found = path.stat()
            self._backend, self._spec = _read(str(path.resolve()), (found.st_ino, found.st_mtime_ns, found.st_size))
        except DecError:
            raise
        except Exception as error:  # the library raises bare Exception for every malformed file
            if is_pointer(path):
                raise unreadable(path, error) from None
            raise DecError(f"{path} is not a tokenizer: {error}") from None
        self.path = path
        self.source: object = None
        """transformers' tokenizer of the same folder, which has the chat template (`runtime/chat.py`); None until read."""

    @property
    def backend(self) -> Backend:
        """The library's tokenizer."""
        return self._backend

    @property
    def size(self) -> int:
        """The greatest id and one, added tokens included: ids may have gaps, which are tokens without a text."""
        return self._identity[1]

    @property
    def digest(self) -> str:
        """A name for the vocabulary: equal for tokenizers with the same tokens under the same ids."""
        return self._identity[0]

    @cached_property
    def _identity(self) -> tuple[str, int]:
        entries = sorted(self._backend.get_vocab(with_added_tokens=True).items(), key=lambda e: (e[1], e[0]))
        digest = "tokens-" + hashlib.sha256(repr(entries).encode()).hexdigest()[:12]
        return digest, entries[-1][1] + 1 if entries else 0

    def encode(self, text: str) -> tuple[int, ...]:
        """The token ids of a text, with those that the tokenizer's template adds (a beginning-of-text token). Raises DecError
        for a lone surrogate."""
        return tuple(self._encoded(whole(text), True))

    def encode_part(self, text: str) -> tuple[int, ...]:
        """The token ids of a piece of a text, without those that the template adds. Raises DecError as `encode`."""
        return tuple(self._encoded(whole(text), False))

    def _encoded(self, text: str, special: bool) -> Sequence[int]:
        if len(text) < LONG:
            one = self._backend.encode(text, add_special_tokens=special)
        else:  # `encode` holds the interpreter's lock until it ends; this releases it
            (one,) = self._backend.encode_batch_fast([text], add_special_tokens=special)
        ids: Sequence[int] = one.ids
        return ids

    def fewest(self, text: str) -> int:
        """A lower bound of the number of a text's tokens, found without encoding it; 0 where the tokenizer allows no bound."""
        return -(-len(text.encode("utf-8", "replace")) // self._longest) if self._longest else 0

    @cached_property
    def _longest(self) -> int:
        """The most bytes of a text that one token covers; 0 where tokens are not the text's own bytes."""
        spec = self._spec
        cuts = spec.get("normalizer") or "Removed" in json.dumps(spec.get("pre_tokenizer"))
        if cuts or "ByteLevel" not in _decoders(spec.get("decoder")):
            return 0
        added = [token["content"].encode() for token in spec.get("added_tokens", ())]
        bare = not any(token.get("lstrip") or token.get("rstrip") for token in spec.get("added_tokens", ()))
        return max((len(piece) for piece in (*self.detokenizer.pieces, *added)), default=0) if bare else 0

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens, special ones left out."""
        return self.detokenizer.text(tokens)

    def token(self, text: str) -> int | None:
        """The id of the token spelled `text` in the vocabulary, or None."""
        found = self._backend.token_to_id(text)
        return None if found is None else int(found)

    def spelled(self, token: int) -> str | None:
        """The spelling of a token in the vocabulary, or None."""
        found = self._backend.id_to_token(token)
        return None if found is None else str(found)

    @cached_property
    def detokenizer(self) -> Detokenizer:
        """The detokenizer. Raises DecError for a tokenizer whose tokens do not stand for bytes."""
        special = {int(t["id"]): str(t["content"]) for t in self._spec.get("added_tokens", ()) if t.get("special")}
        plain = {t["id"] for t in self._spec.get("added_tokens", ()) if not t.get("special")}
        kinds = _decoders(self._spec.get("decoder"))
        if "ByteLevel" in kinds:
            to_bytes = _byte_level
        elif kinds & {"Metaspace", "ByteFallback"}:
            to_bytes = _metaspace
        elif "WordPiece" in kinds:  # BERT's: a space before every piece that does not continue a word
            to_bytes = _word_piece
        else:
            raise DecError(f"{self.path}: text cannot be shown token by token with the decoder {sorted(kinds)}")
        pieces = []
        for i in range(self.size):
            piece = self._backend.id_to_token(i)
            if piece is None or i in special:
                pieces.append(b"")
            else:
                pieces.append(piece.encode() if i in plain else to_bytes(piece))
        return Detokenizer(tuple(pieces), special)


def tokenizer_of(home: Path | None) -> Tokenizer | None:
    """The tokenizer in a model's folder or GGUF file, or None; the same object until the file changes. Raises DecError for one
    that cannot be read."""
    if home is None or not has_tokenizer(home):
        return None
    found = (home if home.is_file() else home / "tokenizer.json").stat()
    return _kept(str(home.resolve()), (found.st_ino, found.st_mtime_ns, found.st_size))


def reads_text(module: Module) -> bool:
    """Whether a program needs a tokenizer: it reads texts, hands them to the caller's functions, or follows a grammar."""
    of_text = ("completes", "text_of", "token", "automaton")
    return bool(module.externs) or any(op.opcode in of_text for f in functions_of(module) for op in ops_of(f))


def vocabulary(home: Path | None, size: int, named: Vocab | None = None) -> Vocab:
    """The vocabulary of a model with `size` scores (0: unknown): that of the tokenizer in its folder, named by a digest of its
    entries; else `named`, if that has as many tokens; else plain ids.

    An output matrix is often padded: rows beyond the tokenizer's size are not tokens.
    """
    tokenizer = tokenizer_of(home)
    if tokenizer is not None:
        return Vocab(tokenizer.digest, min(size, tokenizer.size) if size else tokenizer.size)
    return named if named is not None and named.size == size else Vocab("ids", size)


@lru_cache(maxsize=2)
def _kept(folder: str, state: tuple[int, int, int]) -> Tokenizer:
    return Tokenizer(folder)


@lru_cache(maxsize=2)
def _read(path: str, state: tuple[int, int, int]) -> tuple[Backend, TokenizerFile]:
    """The library's tokenizer and the JSON of a file in this state. Cached: a start needs the vocabulary of a model and its
    tokenizer."""
    from tokenizers import Tokenizer

    if is_gguf(path):
        from decgraph.runtime.models.gguf import file, tokens

        spec = tokens.tokenizer_of(file.read(Path(path)))
        if spec is None:
            raise DecError(f"{path} has no tokenizer", hint="tokenizer=FOLDER in Python, or a file with one")
        backend = Tokenizer.from_str(json.dumps(spec))
        read: TokenizerFile = json.loads(json.dumps({name: part for name, part in spec.items() if name != "model"}))
        return backend, read
    backend = Tokenizer.from_file(path)
    backend.no_truncation()  # what training with truncation or padding leaves in the file; transformers switches both off too
    backend.no_padding()
    spec = json.loads(Path(path).read_text(encoding="utf-8"))
    spec.pop("model", None)  # the vocabulary and its merges, which the library has
    return backend, spec


def _decoders(spec: DecoderEntry | None) -> set[str]:
    """The names of the decoders in a tokenizer.json's `decoder` entry."""
    if not spec:
        return set()
    return {spec["type"]}.union(*(_decoders(part) for part in spec.get("decoders", ())))


@lru_cache(maxsize=1)
def _alphabet() -> dict[str, int]:
    """Byte-level BPE's alphabet: printable Latin-1 bytes are themselves, the others U+0100 and on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in printable}
    others = (b for b in range(256) if b not in set(printable))
    return table | {chr(0x100 + i): b for i, b in enumerate(others)}


def _byte_level(piece: str) -> bytes:
    table = _alphabet()
    try:
        return bytes([table[c] for c in piece])
    except KeyError:
        return piece.encode()


def _word_piece(piece: str) -> bytes:
    return (piece[2:] if piece.startswith("##") else f" {piece}").encode()


def _metaspace(piece: str) -> bytes:
    if re.fullmatch("<0x[0-9A-Fa-f]{2}>", piece):
        return bytes.fromhex(piece[3:5])
    return piece.replace("\u2581", " ").encode()
