"""What requests look like: OpenAI's fields, and those of decgraph's own (`algorithm`, `params`, `top_k`, `min_p`,
`repetition_penalty`). Unknown fields are refused; fields that change nothing here are named and ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Seed = Annotated[int, Field(ge=0, lt=2**63)]
Text = Annotated[str, Field(max_length=4_000_000)]
Token = Annotated[int, Field(ge=0, lt=2**31)]
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Param = Annotated[bool | int | float, Field(description="A number or a truth value.")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


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


class Common(_Strict):
    """The fields that both routes take."""

    model: str = Field(max_length=256)
    n: int | None = Field(None, ge=1, le=128)
    max_tokens: int | None = Field(None, ge=1, le=2**31)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    logit_bias: dict[str, Bias] | None = Field(None, max_length=1024)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    seed: Seed | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    # decgraph's own
    algorithm: str | None = Field(None, max_length=128)
    params: dict[str, Param] | None = Field(None, max_length=64)
    top_k: int | None = Field(None, ge=1, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    repetition_penalty: float | None = Field(None, ge=1e-6, le=100)


class CompletionRequest(Common):
    """The body of POST /v1/completions."""

    prompt: (
        Text
        | Annotated[list[Token], Field(min_length=1)]
        | Annotated[list[Text], Field(min_length=1, max_length=128)]
        | Annotated[list[Annotated[list[Token], Field(min_length=1)]], Field(min_length=1, max_length=128)]
    )
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
    content: Text | list[TextPart] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_call_id: str | None = None


class ChatRequest(Common):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=4096)
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
