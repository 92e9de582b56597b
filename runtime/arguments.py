"""What a caller hands over: the types of algorithms, models, tokenizers and parameters in public signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeGuard

import numpy as np

from decgraph.ir.data.topology import Topology
from decgraph.ir.values import Module
from decgraph.runtime.automaton import Automaton
from decgraph.runtime.grammars import Grammar
from decgraph.runtime.models.interface import Model
from decgraph.runtime.text import Detokenizer, Tokenizer
from decgraph.runtime.trace import Event

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend


class WithModule(Protocol):
    """What carries an algorithm's IR: a `decgraph.Algorithm`, a decorated function."""

    @property
    def module(self) -> Module: ...


class TorchModule(Protocol):
    """A torch module, as far as its type can be told without importing torch: transformers' models are."""

    def parameters(self, recurse: bool = True) -> Iterator[object]: ...

    def state_dict(self) -> Mapping[str, object]: ...


class OwnTokenizer(Protocol):
    """Text to tokens and back, with a tokenizer of the caller's."""

    def encode(self, text: str, /) -> Sequence[int]: ...

    def decode(self, tokens: tuple[int, ...], /) -> str: ...

    @property
    def detokenizer(self) -> Detokenizer: ...


class FastTokenizer(Protocol):
    """A fast tokenizer of transformers: a wrapper around one of the tokenizers library."""

    @property
    def backend_tokenizer(self) -> Backend: ...


Tokenizing: TypeAlias = Tokenizer | OwnTokenizer
"""A tokenizer as a session uses it: `runtime.text.Tokenizer` reads a tokenizer.json."""

TokenizerLike: TypeAlias = str | Path | Tokenizing | FastTokenizer
"""A folder with a tokenizer.json, the name of a shipped or fetched model, or a tokenizer: decgraph's, or a fast one of
transformers."""

Messages: TypeAlias = Sequence[Mapping[str, object]]

Prompt: TypeAlias = str | Sequence[int] | Messages
"""A text, token ids, or the messages of a chat: `[{"role": "user", "content": "Hello"}]`."""

AlgorithmLike: TypeAlias = str | Path | Module | WithModule
"""A name of the standard library, a path of a .dec file, or an object that carries the IR."""

ModelLike: TypeAlias = str | Path | Model | TorchModule
"""A model's folder, the name of a shipped or fetched model, a model of decgraph's, or a loaded transformers module."""

ParamValue: TypeAlias = (
    bool
    | int
    | float
    | Fraction
    | str
    | Path
    | Topology
    | Automaton
    | Grammar
    | Iterable["ParamValue"]
    | Mapping[str, "ParamValue"]
    | np.ndarray
    | np.integer
    | np.floating
    | None
)
"""A parameter's value, as `runtime.parameters.check_value` reads it."""

Externs: TypeAlias = Mapping[str, Callable[..., object]]
"""A Python function for each extern of the program, by its name."""

Listener: TypeAlias = Callable[[Event], None]
"""Called with every event of a run as it happens."""


def is_chat(prompt: object) -> TypeGuard[Messages]:
    """Whether a prompt is a list of messages, `{"role": ..., "content": ...}`, and not a text or token ids."""
    return isinstance(prompt, Sequence) and not isinstance(prompt, str) and bool(prompt) and isinstance(prompt[0], Mapping)
