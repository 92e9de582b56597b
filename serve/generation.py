"""From a body to what is computed: sessions, requests, and how the answers are to be written. What cannot be computed is
refused here, before it takes a place in the queue."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from decgraph.errors import DecError
from decgraph.runtime import chat
from decgraph.runtime.defaults import generation, limit
from decgraph.runtime.grammars import Grammar
from decgraph.runtime.prompts import automaton_of, check_grammar, end_of_text, no_tokenizer, request_for
from decgraph.runtime.request import LEAST, Request, RequestFields
from decgraph.runtime.session import Session
from decgraph.runtime.text import Detokenizer, Tokenizer
from decgraph.serve.catalogue import Catalogue, UnknownName
from decgraph.serve.refusals import Refusal, words_of
from decgraph.serve.texts import GrowingText
from decgraph.serve.tools import HERMES, SPACED, THOUGHTS, Format, format_of, grammar_of, told
from decgraph.serve.wire import (
    ChatRequest,
    Common,
    CompletionRequest,
    DetokenizeRequest,
    Message,
    StreamOptions,
    TokenizeRequest,
    Tool,
    ToolChoice,
)

COMPLETION_TOKENS = 16
"""New tokens of a completion without a number, as OpenAI's."""

LIKELY = 1 << 20
"""Most log-probabilities of one answer and its prompt."""


@dataclass(frozen=True)
class Limits:
    """What one request may ask for. tokens: new tokens of one answer. context: tokens of a prompt and its answer (None: what
    the model reads). answers: `n` times the number of prompts. body: bytes of a body. seconds: in which a body must arrive.
    strict: no fields that are unknown."""

    tokens: int = 4096
    context: int | None = None
    answers: int = 64
    body: int = 4 << 20
    seconds: float = 60.0
    strict: bool = False


@dataclass(frozen=True)
class Shown:
    """How an answer is written.

    logprobs: whether with log-probabilities. top: how many likeliest tokens stand beside each. prompt: whether prompts
    have them too. echo: the texts to be repeated, for each prompt. scored: whether no new token is shown, only what is
    known of the prompt. whole, special: as in `GrowingText`. ids: whether answers have token ids. stops: the client's own
    tokens that end a text. usage, always: whether the last chunk of a stream has the numbers of tokens, and whether each has.
    """

    logprobs: bool = False
    top: int = 0
    prompt: bool = False
    echo: Sequence[str] = ()
    scored: bool = False
    whole: bool = False
    special: bool = False
    ids: bool = False
    stops: frozenset[int] = frozenset()
    usage: bool = False
    always: bool = False


@dataclass(frozen=True)
class Tools:
    """Tools that an answer may call. forced: it is bound to. several: more than once. bare: a call may stand without marks."""

    format: Format
    tools: Sequence[Tool]
    forced: bool
    several: bool
    bare: bool


@dataclass(frozen=True)
class Generation:
    """A request of a client as it is computed. requests: one for every answer, `n` for each prompt in turn. format: how calls
    are written. thinking: what ends the thoughts that an answer begins in."""

    model: str
    chat: bool
    session: Session
    requests: Sequence[Request]
    n: int
    stream: bool
    shown: Shown
    tools: Tools | None = None
    priority: int = 0
    grammar: str | None = None
    """The client's field that the answers' grammar stands in."""
    format: Format = HERMES
    thinking: str = ""

    @property
    def algorithm(self) -> str:
        return self.session.function.name

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all prompts, each counted once."""
        return sum(len(one.prompt) for one in self.requests[:: self.n])


def session_of(
    catalogue: Catalogue, model: str | None, algorithm: str | None = None, params: Mapping[str, Any] | None = None
) -> Session:
    """The session of a model by its name; None: the one served. Raises `Refusal` for an unknown one, or no tokenizer."""
    try:
        session = catalogue.session(model or catalogue.name, algorithm, params)
    except UnknownName as error:
        raise Refusal(404, words_of(error), param="model", code="model_not_found") from None
    except DecError as error:
        raise Refusal(400, words_of(error), param="params") from None
    if session.tokenizer is None:
        hint = no_tokenizer(session).hint
        raise Refusal(400, f"the models have no tokenizer, and cannot answer in text (try: {hint})", param="model")
    return session


def wants_grammar(body: CompletionRequest | ChatRequest) -> bool:
    """Whether a body asks for a grammar, which takes long to compile: by its fields alone."""
    format = body.response_format
    forced = isinstance(body, ChatRequest) and body.tool_choice not in (None, "none", "auto")
    return forced or body.structured_outputs is not None or format is not None and format.type != "text"


def compiled(body: CompletionRequest | ChatRequest, catalogue: Catalogue) -> tuple[str, Grammar] | None:
    """The grammar of a body and its field; its automaton is ready when `read_request` asks for it. Raises `Refusal` for one
    that cannot be read. Takes up to seconds, mostly without the interpreter's lock: for a thread that none waits for."""
    session = session_of(catalogue, body.model, body.algorithm)  # the client's parameters change no vocabulary
    found = _grammars(body, session, _tools(body, session) if isinstance(body, ChatRequest) else None)
    if not found:
        return None
    param, make = found[0]
    if len(found) > 1:
        said = f"`{param}` and `{found[1][0]}` do not go together: an answer has one grammar"
        raise Refusal(400, said, param=found[1][0])
    try:
        check_grammar(session)
        grammar = make()
        automaton_of(session, grammar, _ends(body, session))
    except (DecError, ValueError, RecursionError) as error:
        raise Refusal(400, words_of(error), param=param) from None
    return param, grammar


def read_request(
    body: CompletionRequest | ChatRequest, catalogue: Catalogue, limits: Limits, grammar: tuple[str, Grammar] | None = None
) -> Generation:
    """Raises `Refusal` for what cannot be computed. Tokenizes texts: not for the event loop. grammar: the body's, compiled."""
    session = session_of(catalogue, body.model, body.algorithm, body.params)
    if body.stream_options is not None and not body.stream:
        raise Refusal(400, "`stream_options` goes with `stream`: true", param="stream_options")
    n = body.n or 1
    if body.best_of not in (None, n):
        raise Refusal(400, "`best_of` other than `n` is not supported: ask for `n` answers, and choose", param="best_of")
    texts, param = _texts(body)
    check_length(texts, param, session, limits)
    tools = _tools(body, session) if isinstance(body, ChatRequest) else None
    prompts = _prompts(body, session, tools)
    if n * len(prompts) > limits.answers:
        raise Refusal(400, f"{n * len(prompts)} answers are asked for, and at most {limits.answers} are given", param="n")
    shown = _shown(body, session, prompts)
    fields = _fields(body, session)
    bound, fields["allow"] = grammar or (None, None)
    if shown.logprobs:
        fields["logprobs"] = shown.top
    if shown.prompt or shown.logprobs and (shown.echo or shown.scored):
        fields["prompt_logprobs"] = max(_top(body.prompt_logprobs, session), shown.top)
    # Any seed but -1 is one of its own: a run's are not negative.
    seed = body.seed % 2**64 if body.seed not in (None, -1) else secrets.randbits(31)
    made = []
    for prompt in prompts:
        fields["max_tokens"] = _limit(body, len(prompt), session, limits)
        likely = n * (shown.top * fields["max_tokens"] + (fields.get("prompt_logprobs") or 0) * len(prompt))
        if likely > LIKELY:
            raise Refusal(400, f"{likely} log-probabilities are asked for, and at most {LIKELY} are given", param="logprobs")
        for number in range(n):
            made.append(_request(session, prompt, {**fields, "seed": seed, "request_id": number}))
    name = body.model or catalogue.name
    plain = Generation(name, False, session, made, n, bool(body.stream), shown, tools, body.priority or 0, bound)
    if not isinstance(body, ChatRequest):
        return plain
    thinking = _thinking(body, session, prompts[0], fields)
    return replace(plain, chat=True, format=format_of(chat.template_of(session.tokenizer)), thinking=thinking)


def _thinking(body: ChatRequest, session: Session, prompt: Sequence[int], fields: RequestFields) -> str:
    """What ends the thoughts that the prompt has begun, if it has. A grammar binds the whole answer: under one that knows
    no end of thoughts there are none."""
    written, last = decoded(session, prompt[-16:], True).rstrip(), body.messages[-1]
    before = last.words if last.role == "assistant" else ""
    grammar = getattr(fields.get("allow"), "text", None)
    for mark, end in THOUGHTS.items():
        if written.endswith(mark) or before.rfind(mark) > before.rfind(end):
            return end if grammar is None or end in grammar.replace("\\", "") else ""
    return ""


def _request(session: Session, prompt: Sequence[int], fields: RequestFields) -> Request:
    try:
        request = request_for(session, prompt, **fields)
        session._check(request)
    except DecError as error:
        raise Refusal(400, words_of(error), param=_param(str(error), fields)) from None
    return request


def _param(words: str, fields: RequestFields) -> str | None:
    """The client's field that an error of a request begins with the name of."""
    name = words.removeprefix("error: ").split(" ", 1)[0]
    told = {"bias": "logit_bias", "eos": "stop_token_ids", "min_length": "min_tokens"}
    return told.get(name, name) if name in fields or name == "prompt" else None


def _several(body: CompletionRequest) -> list[str | list[int]]:
    """The prompts of a body, which may be one or many."""
    given: Any = body.prompt
    return [given] if isinstance(given, str) or isinstance(given[0], int) else list(given)


def _texts(body: CompletionRequest | ChatRequest) -> tuple[list[str], str]:
    """The texts that a body has, and their field."""
    if isinstance(body, ChatRequest):
        return ["".join(message.words for message in body.messages)], "messages"
    return [one for one in _several(body) if isinstance(one, str)], "prompt"


def check_length(texts: Iterable[str], param: str, session: Session, limits: Limits) -> None:
    """Raises `Refusal` for a text that cannot fit, without reading it: a tokenizer takes seconds for megabytes."""
    assert isinstance(session.tokenizer, Tokenizer)
    most = window(session, limits)
    for text in texts:
        least = session.tokenizer.fewest(text)
        if least >= most:
            said = f"the context length is {most} tokens; the prompt has {least} at least"
            raise Refusal(400, said, param=param, code="context_length_exceeded")


def window(session: Session, limits: Limits) -> int:
    """The tokens of a prompt and its answer that all models read."""
    windows = [m.context for m in session.models.values() if m.context is not None]
    if limits.context:
        windows.append(limits.context)
    return min(windows, default=2**31)


def _prompts(body: CompletionRequest | ChatRequest, session: Session, tools: Tools | None) -> list[Sequence[int]]:
    """The token ids of every prompt."""
    assert isinstance(session.tokenizer, Tokenizer)
    if isinstance(body, ChatRequest):
        return [conversation(body, session, tools)]
    encode = session.tokenizer.encode_part if body.add_special_tokens is False else session.tokenizer.encode
    out: list[Sequence[int]] = []
    for one in _several(body):
        try:
            tokens = tuple(encode(one)) if isinstance(one, str) else tuple(one)
        except DecError as error:
            raise Refusal(400, words_of(error), param="prompt") from None
        if not tokens:
            raise Refusal(400, "the prompt is empty: it needs at least one token", param="prompt")
        out.append(tokens)
    return out


def conversation(body: ChatRequest | TokenizeRequest, session: Session, tools: Tools | None = None) -> Sequence[int]:
    """The token ids of a conversation by the model's chat template. Raises `Refusal`."""
    if body.add_special_tokens:
        raise Refusal(400, "`add_special_tokens`: the chat template writes them", param="add_special_tokens")
    messages = [_message(message, place) for place, message in enumerate(body.messages or ())]
    if len(messages) > 1 and messages[-1] == {"role": "assistant", "content": ""}:
        messages.pop()  # an answer that is to go on from nothing is a new one
    on, begins = body.continue_final_message, body.add_generation_prompt
    if on and (begins or messages[-1]["role"] != "assistant"):
        said = "`continue_final_message` goes with a last message of the assistant's, and not with `add_generation_prompt`"
        raise Refusal(400, said, param="continue_final_message")
    if on is False and begins is None:
        begins = True
    settings = dict(body.chat_template_kwargs or {})
    if taken := settings.keys() & _OURS:
        raise Refusal(400, f"`{min(taken)}` is no setting of a template's own", param="chat_template_kwargs")
    if isinstance(body, ChatRequest) and body.reasoning_effort is not None:
        settings.setdefault("reasoning_effort", body.reasoning_effort)
    try:
        known = "tools" in chat.template_of(session.tokenizer)
        wanted = isinstance(body, TokenizeRequest) or tools is not None
        dumped = [tool.model_dump(exclude_none=True) for tool in body.tools or ()] if wanted else []
        if not known:
            messages = told(messages, dumped)
        return chat.tokens_of(
            session.tokenizer, messages, tools=(dumped or None) if known else None, goes_on=on, begins=begins, settings=settings
        )
    except DecError as error:
        raise Refusal(400, words_of(error), param="messages") from None


_OURS = {"tokenize", "return_dict", "tools", "documents", "chat_template", "conversation", "add_generation_prompt", "padding",
         "continue_final_message", "truncation", "max_length", "return_tensors", "return_assistant_tokens_mask", "messages",
         "tokenizer_kwargs"}  # fmt: skip
"""What a client may not say to transformers' `apply_chat_template`."""


def _message(message: Message, place: int) -> dict[str, Any]:
    """A message as a template reads it."""
    unsupported = (
        ("function_call", message.function_call, "send `tool_calls`"),
        ("audio", message.audio, "messages are texts"),
    )
    for name, value, hint in unsupported:
        if value:
            raise Refusal(400, f"`{name}` is not supported: {hint}", param=f"messages.{place}.{name}")
    if message.role != "assistant" and "content" not in message.model_fields_set:
        raise Refusal(400, "a message needs a content", param=f"messages.{place}.content")
    made: dict[str, Any] = {"role": "system" if message.role == "developer" else message.role, "content": message.words}
    more = {
        "reasoning_content": message.reasoning_content or message.reasoning,
        "tool_call_id": message.tool_call_id,
        "name": message.name,
    }
    made |= {name: value for name, value in more.items() if value is not None}
    if message.tool_calls:
        made["tool_calls"] = [
            {"id": call.id or f"call_{n}", "type": "function",
             "function": {"name": call.function.name, "arguments": _arguments(call.function.arguments)}}
            for n, call in enumerate(message.tool_calls)
        ]  # fmt: skip
    return made


def _arguments(arguments: str | dict[str, Any]) -> Any:
    """The arguments of a call as templates read them: an object, where the text is one."""
    if isinstance(arguments, dict):
        return arguments
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) else arguments


def _tools(body: ChatRequest, session: Session) -> Tools | None:
    """The tools that an answer may call. Raises `Refusal` for a function that must be called and is none of them."""
    choice = body.tool_choice or ("auto" if body.tools else "none")
    if choice in ("none", "auto") and not body.tools or choice == "none":
        return None
    tools = list(body.tools or ())
    if isinstance(choice, ToolChoice):
        tools = [tool for tool in tools if tool.function.name == choice.function.name]
        if not tools:
            raise Refusal(400, f"`tools` has no function {choice.function.name!r}", param="tool_choice")
    if not tools:
        raise Refusal(400, "`tool_choice` is required, and there are no `tools`", param="tool_choice")
    try:
        format = format_of(chat.template_of(session.tokenizer))
    except DecError as error:
        raise Refusal(400, words_of(error), param="messages") from None
    several = body.parallel_tool_calls is not False and not isinstance(choice, ToolChoice)
    formatted = body.response_format is not None and body.response_format.type != "text"
    return Tools(format, tools, choice != "auto", several, bare=not (formatted and format.starts))


def _shown(body: CompletionRequest | ChatRequest, session: Session, prompts: Sequence[Sequence[int]]) -> Shown:
    """How the answers are to be written."""
    top: int | None = body.logprobs if isinstance(body, CompletionRequest) else None
    if isinstance(body, ChatRequest):
        if body.echo:
            raise Refusal(400, "`echo` is not supported for a chat: its prompt is the template's", param="echo")
        if body.top_logprobs is not None and not body.logprobs:
            raise Refusal(400, "`top_logprobs` goes with `logprobs`: true", param="top_logprobs")
        top = body.top_logprobs or 0 if body.logprobs else None
    special = body.skip_special_tokens is False
    echo: list[str] = []
    if isinstance(body, CompletionRequest) and body.echo:
        texts = _several(body)
        echo = [t if isinstance(t, str) else decoded(session, ids, special) for t, ids in zip(texts, prompts, strict=True)]
    options = body.stream_options or StreamOptions()
    return Shown(
        logprobs=top is not None,
        top=_top(top, session),
        prompt=body.prompt_logprobs is not None,
        echo=echo,
        scored=body.max_tokens == 0,
        whole=bool(body.include_stop_str_in_output),
        special=special,
        ids=bool(body.return_token_ids),
        stops=frozenset(body.stop_token_ids or ()),
        usage=bool(options.continuous_usage_stats if options.include_usage is None else options.include_usage),
        always=bool(options.continuous_usage_stats),
    )


def _top(wanted: int | None, session: Session) -> int:
    """How many likeliest tokens stand beside each; -1 is the vocabulary."""
    return next(iter(session.models.values())).vocab.size if wanted == -1 else wanted or 0


def decoded(session: Session, tokens: Iterable[int], special: bool) -> str:
    """The text of tokens, special ones as they are spelled where they are to be shown."""
    assert session.tokenizer is not None
    text = GrowingText(session.tokenizer.detokenizer, special=session.tokenizer.detokenizer.special if special else {})
    return text.feed(tokens) + text.finish()


def _limit(body: Common, prompt: int, session: Session, limits: Limits) -> int:
    """How many new tokens an answer may have: as many as are wished for, if they fit. A run that only scores has one."""
    most = window(session, limits)
    wished = body.max_tokens
    if prompt >= most + (wished == 0):
        raise Refusal(
            400,
            f"the context length is {most} tokens; the prompt has {prompt}",
            param="messages" if isinstance(body, ChatRequest) else "prompt",
            code="context_length_exceeded",
        )
    if wished is None:
        wished = limit(generation(session), prompt)
    if wished is None and isinstance(body, CompletionRequest):
        wished = COMPLETION_TOKENS
    if wished is None or wished < 0:
        wished = limits.tokens
    return max(1, min(wished, limits.tokens, most - prompt))


SAMPLING: dict[str, Callable[[Any], RequestFields]] = {
    "temperature": lambda value: {"temperature": value if value >= LEAST else 0},  # so low it is greedy
    "top_p": lambda value: {"top_p": value if value < 1 else None} if value else {"temperature": 0},  # 0: the likeliest alone
    "top_k": lambda value: {"top_k": value if value > 0 else None},
    "min_p": lambda value: {"min_p": value or None},
    "repetition_penalty": lambda value: {"repetition_penalty": value or 1},
    "presence_penalty": lambda value: {"presence_penalty": value},
    "frequency_penalty": lambda value: {"frequency_penalty": value},
    "logit_bias": lambda value: {"bias": _bias(value)},
    "stop": lambda value: {"stop": (value,) if isinstance(value, str) else tuple(value)},
    "min_tokens": lambda value: {"min_length": value},
}
"""What the fields of a client are as fields of a request, in this order."""


def _fields(body: Common, session: Session) -> RequestFields:
    """The sampling settings; what the client leaves out is the model's default (`runtime/defaults.py`)."""
    fields: RequestFields = {}
    for name, read in SAMPLING.items():
        if (value := getattr(body, name)) is not None:
            fields.update(read(value))
    if body.min_tokens and body.stop:
        raise Refusal(400, "`min_tokens` forbids tokens that end a text, and does not go with `stop`", param="min_tokens")
    if body.ignore_eos or body.stop_token_ids:
        fields["eos"] = _ends(body, session)
    return fields


def _ends(body: Common, session: Session) -> frozenset[int]:
    """The tokens that end a text."""
    return frozenset(() if body.ignore_eos else end_of_text(session)) | set(body.stop_token_ids or ())


def _bias(bias: dict[str, float]) -> dict[int, float]:
    if wrong := [token for token in bias if not (token.isascii() and token.isdigit() and len(token) <= 20)]:
        raise Refusal(400, f"`logit_bias` maps token ids to amounts, and {wrong[0][:40]!r} is no token id", param="logit_bias")
    return {int(token): amount for token, amount in bias.items()}


def _grammars(body: Common, session: Session, tools: Tools | None) -> list[tuple[str, Callable[[], Grammar]]]:
    """The grammars that a body requests, by its fields."""
    made: list[tuple[str, Callable[[], Grammar]]] = []
    wanted, given = body.response_format, body.structured_outputs

    def called(answer: str = "") -> Grammar:
        assert tools is not None
        special = {text: token for token, text in session.tokenizer.detokenizer.special.items()}  # type: ignore[union-attr]
        return Grammar.lark(grammar_of(tools.format, tools.tools, parallel=tools.several, special=special, answer=answer))

    answered = lambda grammar: grammar if tools is None else called(grammar.schema())  # the answer, or calls instead of it
    if wanted is not None and wanted.type != "text" and not (tools is not None and tools.forced):
        schema = wanted.schema_ or {"type": "object"}
        if wanted.type == "json_schema":
            if wanted.json_schema is None and wanted.schema_ is None:
                said = "a response format of type json_schema needs `json_schema`"
                raise Refusal(400, said, param="response_format.json_schema")
            schema = wanted.json_schema.schema_ if wanted.json_schema is not None else schema
        made.append(("response_format", lambda: answered(Grammar.json_schema(schema))))
    tight = SPACED if given is not None and given.disable_any_whitespace else {}
    kinds: dict[str, Callable[[Any], Grammar]] = {
        "json_": lambda schema: Grammar.json_schema(_with(schema, tight)),
        "regex": Grammar.regex,
        "choice": Grammar.choice,
        "grammar": _lark,
        "json_object": lambda _: Grammar.json_schema({"type": "object", **tight}),
    }
    for name, make in kinds.items() if given is not None else ():
        if value := getattr(given, name):
            made.append((f"structured_outputs.{name.rstrip('_')}", partial(make, value)))
    if tools is not None and tools.forced:
        made.append(("tool_choice", called))
    return made


def _with(schema: str | dict[str, Any], more: dict[str, Any]) -> str | dict[str, Any]:
    """A schema with more at its root."""
    read = json.loads(schema) if isinstance(schema, str) and more else schema
    return {**read, **more} if isinstance(read, dict) else read


def _lark(text: str) -> Grammar:
    """A grammar as Lark writes it, or as llama.cpp does (GBNF)."""
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return Grammar.lark(any_to_lark(text))
    except Exception as error:  # of a class of its own
        raise DecError(f"the grammar cannot be read: {error}") from None


def tokenized(body: TokenizeRequest, catalogue: Catalogue, limits: Limits) -> dict[str, Any]:
    """The token ids of a text or a conversation, in vLLM's words and in llama.cpp's (`content`). Raises `Refusal`."""
    session = session_of(catalogue, body.model)
    assert isinstance(session.tokenizer, Tokenizer)
    text = body.prompt if body.prompt is not None else body.content
    if (text is None) == (body.messages is None):
        raise Refusal(400, "send a `prompt` or `messages`", param="prompt")
    if text is None:
        ids = list(conversation(body, session))
    else:
        check_length([text], "prompt", session, limits)
        special = body.add_special_tokens if body.add_special_tokens is not None else body.add_special
        bare = not (body.prompt is not None if special is None else special)
        try:
            ids = list((session.tokenizer.encode_part if bare else session.tokenizer.encode)(text))
        except DecError as error:
            raise Refusal(400, words_of(error), param="prompt") from None
    named = [session.tokenizer.spelled(t) for t in ids] if body.return_token_strs else None
    tokens = [{"id": t, "piece": _piece(session.tokenizer.detokenizer, t)} for t in ids] if body.with_pieces else ids
    return {"count": len(ids), "max_model_len": window(session, limits), "tokens": tokens, "token_strs": named}


def _piece(detokenizer: Detokenizer, token: int) -> str | list[int]:
    """A token's text, or its bytes where these are no characters."""
    data = detokenizer.special.get(token, "").encode() or detokenizer.data(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)


def detokenized(body: DetokenizeRequest, catalogue: Catalogue) -> dict[str, Any]:
    """The text of token ids, special ones as they are spelled, in vLLM's words and in llama.cpp's. Raises `Refusal`."""
    session = session_of(catalogue, body.model)
    size = next(iter(session.models.values())).vocab.size
    if wrong := [token for token in body.tokens if token >= size]:
        raise Refusal(400, f"`tokens` has {wrong[0]}, and token ids are below {size}", param="tokens")
    text = decoded(session, body.tokens, special=True)
    return {"prompt": text, "content": text}
