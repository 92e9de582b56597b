"""What requests look like: OpenAI's fields, and those of decgraph's own (`algorithm`, `params`, `top_k`, `min_p`,
`repetition_penalty`). A field that is null is as if it were not there. Unknown fields are refused, fields that change nothing
here are named and ignored, and those of other servers' own may ask for what is done anyway (`NEUTRAL`). Of a message, which is
often what another server answered, fields that say nothing to a chat template are ignored.

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


NEUTRAL: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("tools", "functions", "stop_token_ids"), ([],)),
    **dict.fromkeys(("tool_choice", "function_call"), ("none", "auto")),
    **dict.fromkeys(("ignore_eos", "continue_final_message", "include_stop_str_in_output", "return_token_ids"), (False,)),
    **dict.fromkeys(("use_beam_search", "continuous_usage_stats"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "add_generation_prompt", "cache_prompt"), (True,)),
    **dict.fromkeys(("min_tokens", "priority"), (0,)),
    **dict.fromkeys(("typical_p", "length_penalty"), (1,)),
    "chat_template_kwargs": ({},),
    "modalities": (["text"],),
    **dict.fromkeys(("audio", "web_search_options"), ()),
}
"""Fields that clients of OpenAI's, vLLM's or llama.cpp's servers send and that are not supported, with the values that ask for
what is done anyway."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _first_unknown(cls, given: Any) -> Any:
        """Of the fields that are unknown and want something, the first alone."""
        if not isinstance(given, dict):
            return given
        known = {field.alias or name for name, field in cls.model_fields.items()}
        idle = lambda name, value: value is None or value in NEUTRAL.get(name, ())
        unknown = next((name for name, value in given.items() if name not in known and not idle(name, value)), None)
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


class Part(BaseModel):
    """A part of a message's content; texts alone are read."""

    model_config = ConfigDict(strict=True)
    type: Literal["text", "refusal"]
    text: Text | None = None
    refusal: Text | None = None

    @property
    def words(self) -> str:
        return (self.text if self.type == "text" else self.refusal) or ""

    @model_validator(mode="after")
    def _has_words(self) -> Part:
        if (self.text if self.type == "text" else self.refusal) is None:
            raise PydanticCustomError("missing", "Part of type {type} needs the field `{type}`", {"type": self.type})
        return self


class Message(BaseModel):
    """A message of a chat. Clients send back what a server answered, with whatever fields that has."""

    model_config = ConfigDict(strict=True)
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[Part], Field(fail_fast=True)] | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = None
    tool_calls: list[Any] | None = None
    function_call: dict[str, Any] | None = None
    audio: dict[str, Any] | None = None

    @property
    def words(self) -> str:
        """Its text: "" for a content that is null, unless it was a refusal."""
        if isinstance(self.content, list):
            return "".join(part.words for part in self.content)
        return self.content if self.content is not None else self.refusal or ""


class ChatRequest(Common):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=4096, fail_fast=True)
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    # known, and without a meaning here
    metadata: dict[str, Any] | None = None
    prediction: dict[str, Any] | None = None
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
