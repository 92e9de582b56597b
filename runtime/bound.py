"""Protocols of a program that is bound to models and a tokenizer; sessions (session.py) implement them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Protocol

from decgraph.ir.values import Function
from decgraph.runtime.arguments import Tokenizing
from decgraph.runtime.models.interface import Model
from decgraph.runtime.request import Request
from decgraph.runtime.result import Result
from decgraph.runtime.trace import Event


class BoundProgram(Protocol):
    """A program that is bound to models."""

    generation: Mapping[str, object] | None
    """The generation settings that requests have their defaults from; None: the first model's."""

    @property
    def function(self) -> Function: ...

    @property
    def models(self) -> Mapping[str, Model]: ...

    @property
    def tokenizer(self) -> Tokenizing | None: ...

    @property
    def unread(self) -> tuple[str, ...]:
        """The fields of a request that the program never reads."""
        ...


class Runs(BoundProgram, Protocol):
    """A bound program that runs its requests."""

    def run(self, request: Request, *, keep_events: bool, cache_key: Hashable | None) -> Result: ...

    def stream(self, request: Request, *, cache_key: Hashable | None) -> Iterator[Event | Result]: ...

    def forget_later(self, cache_key: Hashable) -> None:
        """Free the KV cache of a key when the session is next used."""
        ...

    def forget(self, cache_key: Hashable) -> None:
        """Free the KV cache of a key."""
