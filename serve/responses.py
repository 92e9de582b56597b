"""OpenAI's Responses API: a request becomes one of chat completions, and the answer is written as items and their events.

Nothing is stored: a conversation comes whole, as `input`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from decgraph.serve.answers import Answer, AnswerWriter, event, told
from decgraph.serve.generation import Generation
from decgraph.serve.refusals import Refusal
from decgraph.serve.wire import ChatRequest, Common, Name, Object, Part, Text, ToolFunction, _Strict


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


class FlatChoice(BaseModel):
    """The function that an answer must call."""

    model_config = ConfigDict(strict=True)
    type: Literal["function"]
    name: Name


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
    top_logprobs: int | None = Field(None, ge=0, le=20)
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
    for place, item in enumerate(items):
        _add(messages, item, f"input.{place}")
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


def _add(messages: list[dict[str, Any]], item: ConversationItem, place: str) -> None:
    """Add an item to the messages of a chat."""
    words = lambda given: "".join(part.words for part in given) if isinstance(given, list) else given or ""
    if item.type == "message":
        if item.role is None or item.content is None:
            raise Refusal(400, "a message needs a role and a content", param=place)
        messages.append({"role": item.role, "content": words(item.content)})
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
        messages.append({"role": "tool", "tool_call_id": item.call_id, "content": words(item.output)})


class ResponseWriter(AnswerWriter):
    """A response, and the events of its stream."""

    def __init__(self, generation: Generation, body: ResponsesRequest) -> None:
        super().__init__(generation)
        self.id = f"resp_{secrets.token_hex(16)}"
        self.body = body
        self._message = f"msg_{secrets.token_hex(16)}"
        self._number, self._begun = 0, False

    def whole(self, answers: Sequence[Answer]) -> dict[str, Any]:
        """The response."""
        (answer,) = answers
        cut = answer.finish_reason == "length"
        body, request = self.body, answer.job.request
        usage = None
        if answer.result is not None:
            counted = self.usage(answers)
            usage = {
                "input_tokens": counted["prompt_tokens"], "input_tokens_details": counted["prompt_tokens_details"],
                "output_tokens": counted["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
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
            "output": [] if answer.result is None else self._items(answer),
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

    def _items(self, answer: Answer) -> list[dict[str, Any]]:
        """What an answer that has ended is made of."""
        calls = [
            {
                "type": "function_call",
                "id": f"fc_{call['id']}",
                "call_id": call["id"],
                "status": "completed",
                **call["function"],
            }
            for call in answer.calls
        ]
        return [*([] if calls and not answer.content else [self._said(answer.content, self.logprobs(answer))]), *calls]

    def _said(self, text: str | None, logprobs: Any = None) -> dict[str, Any]:
        """The message; without a text as it begins."""
        content = [] if text is None else [_part(text, logprobs)]
        status = "in_progress" if text is None else "completed"
        return {"type": "message", "id": self._message, "role": "assistant", "status": status, "content": content}

    def _event(self, kind: str, **fields: Any) -> bytes:
        number, self._number = self._number, self._number + 1
        return f"event: {kind}\n".encode() + event({"type": kind, "sequence_number": number, **fields})

    def opening(self, answers: Sequence[Answer]) -> Iterator[bytes]:
        for kind in ("created", "in_progress"):
            yield self._event(f"response.{kind}", response=self.whole(answers))

    def grown(self, answers: Sequence[Answer], answer: Answer, text: str) -> Iterator[bytes]:
        place: dict[str, Any] = {"item_id": self._message, "output_index": 0, "content_index": 0}
        ended = answer.result is not None
        if not self._begun and (text or ended and not answer.calls):
            self._begun = True
            yield self._event("response.output_item.added", output_index=0, item=self._said(None))
            yield self._event("response.content_part.added", **place, part=_part(""))
        if text:
            yield self._event("response.output_text.delta", **place, delta=text, logprobs=_rows(self.logprobs(answer)))
        if not ended:
            return
        items = self._items(answer)
        if self._begun:
            part = items[0]["content"][0]
            yield self._event("response.output_text.done", **place, text=part["text"], logprobs=part["logprobs"])
            yield self._event("response.content_part.done", **place, part=part)
            yield self._event("response.output_item.done", output_index=0, item=items[0])
        for index, item in list(enumerate(items))[self._begun :]:
            at = {"item_id": item["id"], "output_index": index}
            begun = {**item, "arguments": "", "status": "in_progress"}
            yield self._event("response.output_item.added", output_index=index, item=begun)
            yield self._event("response.function_call_arguments.delta", **at, delta=item["arguments"])
            yield self._event("response.function_call_arguments.done", **at, name=item["name"], arguments=item["arguments"])
            yield self._event("response.output_item.done", output_index=index, item=item)
        whole = self.whole(answers)
        yield self._event(f"response.{whole['status']}", response=whole)

    def closing(self, answers: Sequence[Answer]) -> Iterator[bytes]:
        yield from ()

    def failed(self, body: dict[str, Any]) -> bytes:
        return self._event("error", **{name: body["error"][name] for name in ("code", "message", "param")})


def _part(text: str, logprobs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": _rows(logprobs)}


def _rows(logprobs: Mapping[str, Any] | None) -> list[Any]:
    return list(logprobs["content"]) if logprobs else []
