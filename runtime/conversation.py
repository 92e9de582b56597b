"""Conversations with a chat model: each message continues the text so far, whose keys and values stay in the KV cache."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Self, Unpack

from decgraph.errors import DecError
from decgraph.runtime.bound import Runs
from decgraph.runtime.prompts import request_for
from decgraph.runtime.request import Request, RequestFields, renamed
from decgraph.runtime.result import Result
from decgraph.runtime.trace import Event


class Conversation:
    """A conversation on a session whose model has a chat template; what `Session.chat` returns.

    messages: the conversation so far, as dicts of "role" and "content". It may be edited: the next prompt is made of it, and
    the part before the first difference is not computed again. `close` and the end of a `with` block free the cache; for an
    object that is dropped, the next use of the session does.
    """

    def __init__(self, session: Runs, system: str | None, fields: RequestFields) -> None:
        self.session, self.fields = session, fields
        self.messages: list[dict[str, str]] = [] if system is None else [{"role": "system", "content": system}]
        self._key = object()
        weakref.finalize(self, session.forget_later, self._key).atexit = False

    def say(self, text: str, **fields: Unpack[RequestFields]) -> Result:
        """The model's answer to a message of the user. Both are added to `messages` unless the run has an error.

        fields: of the request; they override those of the conversation. Raises DecError where the run cannot start: for a model
        without a chat template, and for a conversation that is longer than the context.
        """
        request = self._request(text, fields)
        return self._heard(text, self.session.run(request, keep_events=False, cache_key=self._key))

    def stream(self, text: str, **fields: Unpack[RequestFields]) -> Iterator[Event | Result]:
        """As `say`, with the run's events as they happen, and its Result as the last item."""
        for item in self.session.stream(self._request(text, fields), cache_key=self._key):
            if isinstance(item, Result):
                self._heard(text, item)
            yield item

    def close(self) -> None:
        """Free the cache. The conversation may continue; its next message is then computed from the start."""
        self.session.forget(self._key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _request(self, text: str, fields: RequestFields) -> Request:
        if not isinstance(text, str) or not text:
            raise DecError("a message is a text that is not empty", hint='conversation.say("Hello")')
        given: RequestFields = {**renamed(self.fields), **renamed(fields)}
        return request_for(self.session, [*self.messages, {"role": "user", "content": text}], **given)

    def _heard(self, text: str, result: Result) -> Result:
        if result.error is None:
            self.messages += [{"role": "user", "content": text}, {"role": "assistant", "content": result.text}]
        return result
