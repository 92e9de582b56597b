"""OpenAI's Responses API: a request becomes one of chat completions, and the answer is written as items and their events.

Nothing is stored: a conversation comes whole, as `input`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from decgraph.serve.answers import Answer, AnswerWriter, PartGrowth, event, told
from decgraph.serve.generation import Generation
from decgraph.serve.refusals import Refusal
from decgraph.serve.tools import AnswerPart
from decgraph.serve.wire import ChatRequest, Common, FunctionName, Name, Object, Part, Text, ToolFunction, Top, _Strict


class ConversationItem(BaseModel):
    """A piece of a conversation: a message, a call of a function, or what it gave."""

    model_config = ConfigDict(strict=True)
    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: Text | Annotated[list[Part], Field(fail_fast=True)] | None = None
    call_id: str | None = None
    name: Name | None = None
    arguments: Text | None = None
    output: Text | Annotated[list[Part], Field(fail_fast=True)] | None = None


class FlatTool(ToolFunction):
    """A function that an answer may call."""

    type: Literal["function"]


class FlatChoice(FunctionName):
    """The function that an answer must call."""

    type: Literal["function"]


class TextFormat(_Strict):
    """What the text must look like."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: Object | None = Field(alias="schema", default=None)
    strict: bool | None = None


class TextSettings(_Strict):
    """Settings of the text."""

    format: TextFormat | None = None


class Reasoning(BaseModel):
    """How much the model is to think, where its template reads that."""

    model_config = ConfigDict(strict=True)
    effort: str | None = Field(None, max_length=64)


class ResponsesRequest(Common):
    """The body of POST /v1/responses."""

    input: Text | Annotated[list[ConversationItem], Field(min_length=1, max_length=4096, fail_fast=True)]
    instructions: Text | None = None
    text: TextSettings | None = None
    tools: Annotated[list[FlatTool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | FlatChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    top_logprobs: Top | None = None
    chat_template_kwargs: Object | None = None


def chat_of(body: ResponsesRequest) -> ChatRequest:
    """The same request as one of chat completions. Raises `Refusal` for items without what they need, and more than one answer,
    and RequestValidationError for what no chat may say."""
    if body.n is not None and body.n != 1:
        raise Refusal(400, "a response is one answer", param="n")
    if body.max_tokens == 0:
        raise Refusal(400, "a response has one token at least", param="max_output_tokens")
    items = [ConversationItem(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    messages: list[dict[str, Any]] = [{"role": "system", "content": body.instructions}] if body.instructions else []
    thoughts = ""
    for place, item in enumerate(items):
        if item.type == "reasoning":
            thoughts = _words(item.content)
            continue
        _add(messages, item, f"input.{place}")
        if thoughts and messages[-1]["role"] == "assistant":
            messages[-1]["reasoning_content"] = thoughts
        thoughts = ""
    same = {name for name in Common.model_fields if name in body.model_fields_set}
    made: dict[str, Any] = {**body.model_dump(include=same, by_alias=True), "messages": messages}
    if body.tools:
        made["tools"] = [{"type": "function", "function": tool.model_dump(exclude={"type"})} for tool in body.tools]
    choice = body.tool_choice
    made["tool_choice"] = {"type": "function", "function": {"name": choice.name}} if isinstance(choice, FlatChoice) else choice
    made |= {"parallel_tool_calls": body.parallel_tool_calls, "chat_template_kwargs": body.chat_template_kwargs}
    if body.top_logprobs is not None:
        made |= {"logprobs": True, "top_logprobs": body.top_logprobs}
    if body.reasoning is not None:
        made["reasoning_effort"] = body.reasoning.effort
    if body.text is not None and body.text.format is not None and body.text.format.type != "text":
        schema = {"json_schema": {"name": "text", "schema": body.text.format.schema_ or {}}}
        kind = body.text.format.type
        made["response_format"] = {"type": kind, **(schema if kind == "json_schema" else {})}
    try:
        return ChatRequest.model_validate(made)
    except ValidationError as error:
        raise RequestValidationError(error.errors(), body=made) from None


def _words(content: str | Sequence[Part] | None) -> str:
    return content or "" if isinstance(content, str | None) else "".join(part.words for part in content)


def _add(messages: list[dict[str, Any]], item: ConversationItem, place: str) -> None:
    """Add an item to the messages of a chat."""
    if item.type == "message":
        if item.role is None or item.content is None:
            raise Refusal(400, "a message needs a role and a content", param=place)
        messages.append({"role": item.role, "content": _words(item.content)})
    elif item.type == "function_call":
        if item.name is None or item.call_id is None:
            raise Refusal(400, "a call needs a name and a call_id", param=place)
        call = {"id": item.call_id, "type": "function", "function": {"name": item.name, "arguments": item.arguments or ""}}
        if messages and messages[-1]["role"] == "assistant":
            messages[-1].setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    elif item.type == "function_call_output":
        if item.call_id is None or item.output is None:
            raise Refusal(400, "what a call gave needs a call_id and an output", param=place)
        messages.append({"role": "tool", "tool_call_id": item.call_id, "content": _words(item.output)})


class ResponseWriter(AnswerWriter):
    """A response, and the events of its stream."""

    def __init__(self, generation: Generation, body: ResponsesRequest) -> None:
        super().__init__(generation)
        self.id = f"resp_{secrets.token_hex(16)}"
        self.body = body
        self._number = 0

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The response."""
        (answer,) = answers
        cut = answer.finish_reason == "length"
        body, request = self.body, answer.job.request
        usage = None
        if answer.result is not None:
            counted = self.usage(answers)
            thoughts = counted.get("completion_tokens_details", {"reasoning_tokens": 0})
            usage = {
                "input_tokens": counted["prompt_tokens"], "input_tokens_details": counted["prompt_tokens_details"],
                "output_tokens": counted["completion_tokens"], "output_tokens_details": thoughts,
                "total_tokens": counted["total_tokens"],
            }  # fmt: skip
        asked = {"tool_choice": "auto", "parallel_tool_calls": True, "tools": [], "text": {"format": {"type": "text"}}}
        dumped = body.model_dump(include=set(asked), exclude_none=True, by_alias=True)
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress" if answer.result is None else "incomplete" if cut else "completed",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "instructions": body.instructions,
            "metadata": {},
            "model": self.generation.model,
            "output": [] if answer.result is None else [self._item(answer, part) for part in answer.parts],
            "previous_response_id": None,
            "store": False,
            "temperature": float(request.temperature),
            "top_p": float(request.top_p or 1),
            "max_output_tokens": body.max_tokens,
            "truncation": "disabled",
            "usage": usage,
            **asked,
            **dumped,
            "decgraph": [] if answer.result is None else [told(answer)],
        }

    def _item(self, answer: Answer, part: AnswerPart, *, begins: bool = False) -> dict[str, Any]:
        """A part of an answer; without its text as it begins."""
        kind, prefix = _ITEMS[part.kind]
        status = "in_progress" if begins else "completed" if part.whole else "incomplete"
        item: dict[str, Any] = {"type": kind, "id": f"{prefix}_{part.id}", "status": status}
        if kind == "function_call":
            return {**item, "call_id": f"call_{part.id}", "name": part.name, "arguments": "" if begins else part.text}
        more: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        return {**item, **more, "content": [] if begins else [self._content(answer, part)]}

    def _content(self, answer: Answer, part: AnswerPart, *, begins: bool = False) -> dict[str, Any]:
        """The text of a part; log-probabilities stand in the first message."""
        text = "" if begins else part.text
        if part.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        first = next((one for one in answer.parts if one.kind == "content"), part)
        rows = [] if begins or part is not first else _rows(self.logprobs(answer))
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": rows}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return f"event: {kind}\n".encode() + event({"type": kind, "sequence_number": number, **fields})

    def opening(self, answers: Sequence[Answer]) -> Iterator[bytes]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self.whole(answers))

    def grown(self, answers: Sequence[Answer], answer: Answer, news: Sequence[PartGrowth]) -> Iterator[bytes]:
        for one in news:
            if one.first and one.number:  # a part ends where the next one begins
                yield from self._done(answer, one.number - 1, answer.parts[one.number - 1])
            yield from self._more_of(answer, one)
        if answer.result is not None:
            yield from self._done(answer, len(answer.parts) - 1, answer.parts[-1])
            whole = self.whole(answers)
            yield self._event(f"response.{whole['status']}", response=whole)

    def _more_of(self, answer: Answer, news: PartGrowth) -> Iterator[bytes]:
        """The events of a part that grew."""
        item, place = self._item(answer, news.part, begins=True), {"output_index": news.number}
        at = {"item_id": item["id"], **place, **({} if news.part.kind == "call" else {"content_index": 0})}
        if news.first:
            yield self._event("response.output_item.added", **place, item=item)
            if news.part.kind != "call":
                yield self._event("response.content_part.added", **at, part=self._content(answer, news.part, begins=True))
        rows = {"logprobs": self._content(answer, news.part)["logprobs"]} if news.part.kind == "content" else {}
        if news.text:
            yield self._event(f"response.{_DELTAS[news.part.kind]}.delta", **at, delta=news.text, **rows)

    def _done(self, answer: Answer, number: int, part: AnswerPart) -> Iterator[bytes]:
        """The events of a part that has ended."""
        item, place = self._item(answer, part), {"output_index": number}
        at = {"item_id": item["id"], **place}
        if part.kind == "call":
            yield self._event("response.function_call_arguments.done", **at, name=part.name, arguments=part.text)
        else:
            content = self._content(answer, part)
            rows = {"logprobs": content["logprobs"]} if part.kind == "content" else {}
            yield self._event(f"response.{_DELTAS[part.kind]}.done", **at, content_index=0, text=part.text, **rows)
            yield self._event("response.content_part.done", **at, content_index=0, part=content)
        yield self._event("response.output_item.done", **place, item=item)

    def closing(self, answers: Sequence[Answer]) -> Iterator[bytes]:
        yield from ()

    def failed(self, body: dict[str, Any]) -> bytes:
        return self._event("error", **{name: body["error"][name] for name in ("code", "message", "param")})


_ITEMS = {"reasoning": ("reasoning", "rs"), "content": ("message", "msg"), "call": ("function_call", "fc")}
"""The type of a part's item, and how its id begins."""

_DELTAS = {"reasoning": "reasoning_text", "content": "output_text", "call": "function_call_arguments"}
"""What the events of a part's text are called."""


def _rows(logprobs: Mapping[str, Any] | None) -> list[Any]:
    return list(logprobs["content"]) if logprobs else []
