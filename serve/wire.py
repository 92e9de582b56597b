"""What requests look like: OpenAI's fields, and those of decgraph's own (`algorithm`, `params`, `top_k`, `min_p`,
`repetition_penalty`). Unknown fields are refused; fields that change nothing here are named and ignored.

A body may be megabytes long and wrong everywhere. Whatever is wrong is said once: an error for every item, or for every type
that an item might have had, takes many times as long as the body itself, and the event loop waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Text = Annotated[str, Field(max_length=4_000_000)]
Token = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[list[Token], Field(min_length=1, fail_fast=True)]
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]
PROMPT = "Input should be a text, token ids, or a list of either"
Param = Annotated[bool | int | float, Field(description="A number or a truth value.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, given: Any) -> Any:
        """Of the fields that are unknown, the first alone."""
        if not isinstance(given, dict):
            return given
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = next((name for name in given if name not in known), None)
        return {name: value for name, value in given.items() if name in known or name == unknown}


class StreamOptions(_Strict):
    """What a stream has beside its chunks."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchema(_Strict):
    """A named JSON schema."""

    name: str = Field(max_length=64)
    description: str | None = None
    schema_: dict[str, Any] = Field(alias="schema", default_factory=dict)
    strict: bool | None = None


class ResponseFormat(_Strict):
    """What the text must look like."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


def _at_most(most: int) -> Callable[[Any], Any]:
    """A check of how many fields an object has, before any of them is read."""

    def check(given: Any) -> Any:
        if isinstance(given, dict) and len(given) > most:
            said = "Object should have at most {most} fields, not {length}"
            raise PydanticCustomError("too_long", said, {"most": most, "length": len(given)})
        return given

    return check


class Common(_Strict):
    """The fields that both routes take."""

    model: str = Field(max_length=256)
    n: int | None = Field(None, ge=1, le=128)
    max_tokens: int | None = Field(None, ge=1, le=2**31)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: Annotated[dict[str, Bias] | None, BeforeValidator(_at_most(1024))] = Field(None, max_length=1024)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    seed: Seed | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    # decgraph's own
    algorithm: str | None = Field(None, max_length=128)
    params: Annotated[dict[str, Param] | None, BeforeValidator(_at_most(64))] = Field(None, max_length=64)
    top_k: int | None = Field(None, ge=1, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=1e-6, le=100)


def _kind_of_prompt(given: Any) -> str | None:
    """Which of its types a prompt has, by its first item; None for no type of a prompt's."""
    if not isinstance(given, list):
        return "str" if isinstance(given, str) else None
    kinds: dict[type, str] = {str: "list[str]", list: "list[list[int]]", int: "list[int]"}
    return kinds.get(type(given[0])) if given else "list[int]"


class CompletionRequest(Common):
    """The body of POST /v1/completions."""

    prompt: Annotated[
        Annotated[Text, Tag("str")]
        | Annotated[Tokens, Tag("list[int]")]
        | Annotated[list[Text], Field(min_length=1, max_length=128, fail_fast=True), Tag("list[str]")]
        | Annotated[list[Tokens], Field(min_length=1, max_length=128, fail_fast=True), Tag("list[list[int]]")],
        Discriminator(_kind_of_prompt, custom_error_type="prompt_type", custom_error_message=PROMPT),
    ]
    logprobs: int | None = Field(None, ge=0, le=20)
    echo: bool | None = None
    best_of: int | None = Field(None, ge=1, le=128)
    suffix: str | None = None


class TextPart(_Strict):
    """A part of a message's content; texts alone are read."""

    type: Literal["text"]
    text: Text


class Message(_Strict):
    """A message of a chat."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[TextPart], Field(fail_fast=True)] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None


class ChatRequest(Common):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=4096, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    # known, and without a meaning here
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    service_tier: str | None = None
    parallel_tool_calls: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None


class ErrorBody(BaseModel):
    """What is wrong: `type` and `code` for programs, `param` the field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(BaseModel):
    """The body of every answer with a status of 400 or more."""

    error: ErrorBody
