"""From a body to what is computed: sessions, requests, and how the answers are to be written. What cannot be computed is
refused here, before it takes a place in the queue."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from decgraph.errors import DecError
from decgraph.runtime.grammars import Grammar, Parsed, complete
from decgraph.runtime.prompts import check_grammar, no_tokenizer, request_for
from decgraph.runtime.request import Request, RequestFields
from decgraph.runtime.session import Session
from decgraph.runtime.text import Tokenizer
from decgraph.serve.catalogue import Catalogue, Unknown
from decgraph.serve.refusals import Refusal, words_of
from decgraph.serve.wire import ChatRequest, Common, CompletionRequest

COMPLETION_TOKENS = 16
"""New tokens of a completion that says no number, as OpenAI's."""


@dataclass(frozen=True)
class Limits:
    """What one request may ask for. tokens: new tokens of one answer. context: tokens of a prompt and its answer (None: what
    the model reads). answers: `n` times the number of prompts. body: bytes of a body. seconds: in which a body must arrive."""

    tokens: int = 4096
    context: int | None = None
    answers: int = 64
    body: int = 4 << 20
    seconds: float = 60.0


@dataclass(frozen=True)
class Generation:
    """A request of a client as it is computed. requests: one for every answer, `n` for each prompt in turn. echo: the texts to
    be repeated, for each prompt. top: how many likeliest tokens a log-probability is told with."""

    model: str
    chat: bool
    session: Session
    requests: Sequence[Request]
    n: int
    stream: bool
    usage: bool
    logprobs: bool
    top: int
    echo: Sequence[str] = field(default=())

    @property
    def algorithm(self) -> str:
        return self.session.function.name

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts, each counted once."""
        return sum(len(one.prompt) for one in self.requests[:: self.n])


def read_request(body: CompletionRequest | ChatRequest, catalogue: Catalogue, limits: Limits) -> Generation:
    """Raises `Refusal` for what cannot be computed. Tokenizes texts and compiles grammars: not for the event loop."""
    try:
        session = catalogue.session(body.model, body.algorithm, body.params)
    except Unknown as error:
        raise Refusal(404, words_of(error), param="model", code="model_not_found") from None
    except DecError as error:
        raise Refusal(400, words_of(error), param="params") from None
    if session.tokenizer is None:
        hint = no_tokenizer(session).hint
        raise Refusal(400, f"the models have no tokenizer, and cannot answer in text (try: {hint})", param="model")
    if body.stream_options is not None and not body.stream:
        raise Refusal(400, "`stream_options` goes with `stream`: true", param="stream_options")
    n = body.n or 1
    _check_length(body, session, limits)
    prompts, echo = _prompts(body, session)
    if n * len(prompts) > limits.answers:
        raise Refusal(400, f"{n * len(prompts)} answers are asked for, and at most {limits.answers} are given", param="n")
    logprobs, top = _logprobs(body)
    fields = _fields(body, session)
    if logprobs:
        fields["logprobs"] = top
    seed = body.seed if body.seed is not None else secrets.randbits(31)
    made = []
    for prompt in prompts:
        fields["limit"] = _limit(body, len(prompt), session, limits)
        for number in range(n):
            made.append(_request(session, prompt, {**fields, "seed": seed, "request_id": number}))
    usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    return Generation(
        body.model, isinstance(body, ChatRequest), session, made, n, bool(body.stream), usage, logprobs, top, echo
    )


def _request(session: Session, prompt: Sequence[int], fields: RequestFields) -> Request:
    try:
        request = request_for(session, prompt, **fields)
        if isinstance(request.allow, Parsed):  # the states that this answer comes to go with it
            allow = request.allow.anew()
            until = (complete(allow, len(prompt)),) if request.until else ()
            request = replace(request, allow=allow, until=until)
        session._check(request)
    except DecError as error:
        raise Refusal(400, words_of(error)) from None
    return request


def _check_length(body: CompletionRequest | ChatRequest, session: Session, limits: Limits) -> None:
    """Refuses texts that cannot fit before they are encoded: that takes seconds for millions of characters."""
    if not isinstance(session.tokenizer, Tokenizer):
        return
    window = _window(session, limits)
    if isinstance(body, ChatRequest):
        texts, param = ["".join(message.words for message in body.messages)], "messages"
    else:
        given = body.prompt if isinstance(body.prompt, list) else [body.prompt]
        texts, param = [one for one in given if isinstance(one, str)], "prompt"
    for text in texts:
        least = session.tokenizer.fewest(text)
        if least >= window:
            said = f"the context length is {window} tokens; the prompt has {least} at least"
            raise Refusal(400, said, param=param, code="context_length_exceeded")


def _window(session: Session, limits: Limits) -> int:
    """The tokens of a prompt and its answer that all models read."""
    windows = [m.context for m in session.models.values() if m.context is not None]
    return min([*windows, *([limits.context] if limits.context else [])], default=2**31)


def _prompts(body: CompletionRequest | ChatRequest, session: Session) -> tuple[list[Sequence[int]], list[str]]:
    """The token ids of every prompt, and with `echo` their texts."""
    assert session.tokenizer is not None
    if isinstance(body, ChatRequest):
        return [_chat(body, session)], []
    if body.suffix:
        raise Refusal(400, "`suffix` is not supported: the models continue a text", param="suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise Refusal(400, "`best_of` other than `n` is not supported", param="best_of")
    if body.echo and body.logprobs is not None:
        raise Refusal(400, "`echo` with `logprobs` is not supported: prompts have no log-probabilities here", param="echo")
    given = body.prompt
    texts: list[Any] = [given] if isinstance(given, str) or isinstance(given[0], int) else list(given)
    out: list[Sequence[int]] = []
    for one in texts:
        try:
            tokens = tuple(session.tokenizer.encode(one)) if isinstance(one, str) else tuple(one)
        except DecError as error:
            raise Refusal(400, words_of(error), param="prompt") from None
        if not tokens:
            raise Refusal(400, "the prompt is empty: it needs at least one token", param="prompt")
        out.append(tokens)
    echo = [one if isinstance(one, str) else session.tokenizer.decode(tuple(one)) for one in texts] if body.echo else []
    return out, echo


def _chat(body: ChatRequest, session: Session) -> Sequence[int]:
    """The token ids of a conversation by the model's chat template."""
    from decgraph.runtime import chat

    messages: list[dict[str, str]] = []
    for place, message in enumerate(body.messages):
        lost = {"tool_calls": message.tool_calls, "function_call": message.function_call, "audio": message.audio}
        for name in [name for name, value in lost.items() if value]:
            raise Refusal(400, f"`{name}` is not supported: messages are texts", param=f"messages.{place}.{name}")
        if message.role != "assistant" and "content" not in message.model_fields_set:
            raise Refusal(400, "a message needs a content", param=f"messages.{place}.content")
        made = {"role": "system" if message.role == "developer" else message.role, "content": message.words}
        if message.reasoning_content is not None:
            made["reasoning_content"] = message.reasoning_content  # some templates read it
        messages.append(made)
    if len(messages) > 1 and messages[-1] == {"role": "assistant", "content": ""}:
        messages.pop()  # an answer that is to go on from nothing is a new one
    try:
        return chat.tokens_of(session.tokenizer, messages)
    except DecError as error:
        raise Refusal(400, words_of(error), param="messages") from None


def _logprobs(body: CompletionRequest | ChatRequest) -> tuple[bool, int]:
    """Whether log-probabilities are asked for, and of how many likeliest tokens."""
    if isinstance(body, CompletionRequest):
        return body.logprobs is not None, body.logprobs or 0
    if body.top_logprobs is not None and not body.logprobs:
        raise Refusal(400, "`top_logprobs` goes with `logprobs`: true", param="top_logprobs")
    return bool(body.logprobs), body.top_logprobs or 0


def _limit(body: Common, prompt: int, session: Session, limits: Limits) -> int:
    """How many new tokens an answer may have: as many as are wished for, if they fit."""
    window = _window(session, limits)
    wished = (body.max_completion_tokens if isinstance(body, ChatRequest) else None) or body.max_tokens
    if prompt >= window:
        raise Refusal(
            400,
            f"the context length is {window} tokens; the prompt has {prompt}",
            param="messages" if isinstance(body, ChatRequest) else "prompt",
            code="context_length_exceeded",
        )
    if wished is None and isinstance(body, CompletionRequest):
        wished = COMPLETION_TOKENS
    return min(wished or limits.tokens, limits.tokens, window - prompt)


def _fields(body: Common, session: Session) -> RequestFields:
    """The sampling settings. OpenAI's default is a temperature of 1."""
    fields: RequestFields = {"temperature": 1.0 if body.temperature is None else body.temperature}
    if body.top_p == 0:  # the likeliest token alone
        fields["top_k"] = 1
    elif body.top_p is not None and body.top_p < 1:
        fields["top_p"] = body.top_p
    if body.top_k is not None:
        fields["top_k"] = min(body.top_k, fields.get("top_k") or body.top_k)
    if body.min_p:
        fields["min_p"] = body.min_p
    if body.repetition_penalty is not None:
        fields["repetition_penalty"] = body.repetition_penalty
    if body.presence_penalty:
        fields["presence_penalty"] = body.presence_penalty
    if body.frequency_penalty:
        fields["frequency_penalty"] = body.frequency_penalty
    if body.logit_bias:
        fields["bias"] = _bias(body.logit_bias)
    if body.stop:
        fields["stop"] = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop)
    if body.response_format is not None and body.response_format.type != "text":
        fields["allow"] = _grammar(body, session)
    return fields


def _bias(given: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token): amount for token, amount in given.items() if token.isascii() and token.isdigit() or _bad(token)}
    except ValueError:
        raise Refusal(400, "`logit_bias` maps token ids to amounts", param="logit_bias") from None


def _bad(token: str) -> bool:
    raise ValueError(token)


def _grammar(body: Common, session: Session) -> Any:
    """The grammar of a response format."""
    wanted = body.response_format
    assert wanted is not None
    schema: dict[str, Any] = {"type": "object"}
    if wanted.type == "json_schema":
        if wanted.json_schema is None:
            raise Refusal(400, "a response format of type json_schema needs `json_schema`", param="response_format.json_schema")
        schema = wanted.json_schema.schema_
    try:
        check_grammar(session)
        return Grammar.json_schema(schema)
    except (DecError, ValueError, RecursionError) as error:
        raise Refusal(400, words_of(error), param="response_format") from None
