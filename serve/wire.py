"""What requests look like: OpenAI's fields, those of vLLM's and llama.cpp's servers, and decgraph's own.

What becomes of a field stands in one table each: `ALIASES` are other names of a field, `IGNORED` are fields that cannot change
an answer here, `REFUSED` are fields that may ask for what is done anyway and else say why they are refused; the fields of the
classes below are honoured. A field that is null is as if it were not there, and all others are unknown: see `unknown_fields`.
Of a message, which is often what another server answered, fields that say nothing to a chat template are ignored.

A body may be megabytes long and wrong everywhere. Each mistake is reported once: an error for every item, or for every type
that an item might have had, takes many times as long as the body itself, and the event loop waits meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

Seed = Annotated[int, Field(ge=-(2**63), lt=2**64)]
Text = Annotated[str, Field(max_length=4_000_000)]
Token = Annotated[int, Field(ge=0, lt=2**31)]
Tokens = Annotated[list[Token], Field(min_length=1, fail_fast=True)]
Stop = Annotated[str, Field(min_length=1, max_length=256)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Count = Annotated[int, Field(ge=-2, le=2**31)]
"""A number of tokens; below 0 is as many as fit."""
Top = Annotated[int, Field(ge=-1, le=20)]
"""How many likeliest tokens; -1 is all."""
Name = Annotated[str, Field(min_length=1, max_length=256)]
Object = dict[str, Any]
PROMPT = "must be a text, token ids, or a list of either"


ALIASES: dict[str, tuple[str, ...]] = {
    "max_completion_tokens": ("max_tokens",),
    "max_new_tokens": ("max_tokens",),
    "max_output_tokens": ("max_tokens",),
    "n_predict": ("max_tokens",),
    "repeat_penalty": ("repetition_penalty",),
    "guided_json": ("structured_outputs", "json"),
    "json_schema": ("structured_outputs", "json"),
    "guided_regex": ("structured_outputs", "regex"),
    "regex": ("structured_outputs", "regex"),
    "guided_choice": ("structured_outputs", "choice"),
    "choice": ("structured_outputs", "choice"),
    "guided_grammar": ("structured_outputs", "grammar"),
    "grammar": ("structured_outputs", "grammar"),
}
"""Other names of fields, and where what they say is put."""

IGNORED = frozenset(
    ("user", "metadata", "store", "prediction", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity",
     "prompt_cache_retention", "cache_prompt", "request_id", "guided_decoding_backend", "id_slot", "slot_id", "detokenize",
     "timings_per_token", "return_progress", "stream_interval", "reasoning_format", "thinking_forced_open", "keep_alive",
     "include", "max_tool_calls")
)  # fmt: skip
"""Fields that cannot change the tokens of an answer here, whatever they hold."""

REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(("functions", "function_call"), (([], "none", "auto"), "send `tools` and `tool_choice`")),
    **dict.fromkeys(("use_beam_search", "early_stopping"), ((False,), "ask for the algorithm beam")),
    **dict.fromkeys(("typical_p", "length_penalty", "tfs_z", "dynatemp_exponent"), ((0, 1), "no algorithm has it")),
    **dict.fromkeys(("mirostat", "dynatemp_range", "xtc_probability", "dry_multiplier", "top_n_sigma", "t_max_predict_ms",
                     "n_keep", "n_indent", "n_probs", "frequency_penalty_decay"), ((0, -1), "no algorithm has it")),
    "repeat_last_n": ((-1, 64), "penalties count the whole text"),
    **dict.fromkeys(("previous_response_id", "conversation"), ((), "nothing is stored: send the conversation as `input`")),
    "background": ((False,), "nothing is stored: wait for the answer, or stream it"),
    "truncation": (("disabled",), "a prompt is read whole, or refused"),
    "samplers": ((), "shaping has one order (docs/language.md)"),
    "suffix": (("",), "the models continue a text, and do not fill in"),
    "modalities": ((["text"],), "the models write texts"),
    **dict.fromkeys(("audio", "image_data", "web_search_options"), (([],), "the models read and write texts")),
    **dict.fromkeys(("bad_words", "logits_processors", "allowed_token_ids"), (([],), "say it by `logit_bias` or a grammar")),
    "documents": (([],), "put them into a message"),
    **dict.fromkeys(("chat_template", "mm_processor_kwargs", "cache_salt", "kv_transfer_params", "vllm_xargs", "lora"),
                    (([], {}), "it is set where the server is started, or not at all")),
    "parse_special": ((True,), "a text has special tokens where it spells them"),
    "truncate_prompt_tokens": ((-1,), "a prompt is read whole, or refused"),
    "spaces_between_special_tokens": ((True, False), ""),
    "include_reasoning": ((True,), "an answer is shown whole"),
    "return_tokens_as_token_ids": ((False,), "ask for `return_token_ids`"),
}  # fmt: skip
"""Fields that are not supported: the values that ask for what is done anyway, and why others are refused."""


def _whole(value: Any) -> Any:
    """Whole numbers with a point, alone or in a list, as integers: JSON knows no difference."""
    if isinstance(value, list):
        return [_whole(one) for one in value] if value and isinstance(value[0], float | list) else value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**64 else value


Param = Annotated[bool | int | float, Field(description="A number or a truth value."), BeforeValidator(_whole)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _without_idle(cls, body: Any) -> Any:
        """The fields that want something."""
        if not isinstance(body, dict):
            return body
        known = {field.alias or name for name, field in cls.model_fields.items()}
        idle = lambda name, value: value is None or name in IGNORED or value in REFUSED.get(name, ((), ""))[0]
        return {name: _whole(value) for name, value in body.items() if name in known or not idle(name, value)}


def unknown_fields(body: _Strict, place: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """The fields of a body that no class has: where each stands, and the class that lacks it."""
    for name in body.model_extra or ():
        yield place + name, type(body)
    for name, field in type(body).model_fields.items():
        if isinstance(inner := getattr(body, name), _Strict):
            yield from unknown_fields(inner, f"{place}{field.alias or name}.")


class StreamOptions(_Strict):
    """What a stream has beside its chunks."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None


class JsonSchema(_Strict):
    """A named JSON schema."""

    name: str = Field("", max_length=64)
    description: str | None = None
    schema_: Object = Field(alias="schema", default_factory=dict)
    strict: bool | None = None


class ResponseFormat(_Strict):
    """What the text must look like; `schema` is llama.cpp's place for one."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    schema_: Object | None = Field(alias="schema", default=None)


class Structured(_Strict):
    """A grammar of the text, as vLLM has it."""

    json_: Object | str | None = Field(alias="json", default=None)
    regex: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    choice: Annotated[list[Name], Field(min_length=1, max_length=1024)] | None = None
    grammar: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    json_object: bool | None = None
    disable_fallback: bool | None = None
    disable_any_whitespace: bool | None = None


def _at_most(most: int) -> Callable[[Any], Any]:
    """A check of how many fields an object has, before any of them is read."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            said = "must have at most {most} fields, and has {length}"
            raise PydanticCustomError("too_long", said, {"most": most, "length": len(value)})
        return value

    return check


class Common(_Strict):
    """The fields that all routes take."""

    model: str | None = Field(None, max_length=256)
    n: int | None = Field(None, ge=1, le=128)
    best_of: int | None = Field(None, ge=1, le=128)
    max_tokens: Count | None = None
    min_tokens: int | None = Field(None, ge=0, le=2**31)
    temperature: float | None = Field(None, ge=0)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, lt=2**31)
    min_p: float | None = Field(None, ge=0, le=1)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, ge=0, le=100)
    logit_bias: Annotated[dict[str, Bias] | None, BeforeValidator(_at_most(1024))] = Field(None, max_length=1024)
    stop: Stop | Annotated[list[Stop], Field(max_length=16)] | None = None
    stop_token_ids: Annotated[list[Token], Field(max_length=1024)] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    add_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    prompt_logprobs: Top | None = None
    priority: int | None = Field(None, ge=-(2**31), lt=2**31)
    seed: Seed | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: Structured | None = None
    # decgraph's own
    algorithm: str | None = Field(None, max_length=128)
    params: Annotated[dict[str, Param] | None, BeforeValidator(_at_most(64))] = Field(None, max_length=64)

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, body: Any) -> Any:
        """The fields under one name each."""
        if not isinstance(body, dict):
            return body
        out = {name: value for name, value in body.items() if name not in ALIASES and value is not None}
        for alias in ALIASES.keys() & body.keys():
            value = body[alias]
            if value is None or value == "" or value == {}:  # llama.cpp's clients send empty grammars
                continue
            *above, name = ALIASES[alias]
            place = out
            for part in above:
                inner = place.get(part)
                place[part] = place = dict(inner) if isinstance(inner, dict) else {}
            if place.get(name, value) != value:
                said = "`{alias}` and `{name}` are one field, and do not say the same"
                raise PydanticCustomError("twice", said, {"alias": alias, "name": ".".join(ALIASES[alias])})
            place[name] = value
        return out


def _kind_of_prompt(prompt: Any) -> str | None:
    """Which of its types a prompt has, by its first item; None for no type of a prompt's."""
    if not isinstance(prompt, list):
        return "str" if isinstance(prompt, str) else None
    kinds: dict[type, str] = {str: "list[str]", list: "list[list[int]]", int: "list[int]"}
    return kinds.get(type(prompt[0])) if prompt else "list[int]"


Prompt = Annotated[
    Annotated[Text, Tag("str")]
    | Annotated[Tokens, Tag("list[int]")]
    | Annotated[list[Text], Field(min_length=1, max_length=128, fail_fast=True), Tag("list[str]")]
    | Annotated[list[Tokens], Field(min_length=1, max_length=128, fail_fast=True), Tag("list[list[int]]")],
    Discriminator(_kind_of_prompt, custom_error_type="prompt_type", custom_error_message=PROMPT),
]


class CompletionRequest(Common):
    """The body of POST /v1/completions."""

    prompt: Prompt
    logprobs: Top | None = None
    echo: bool | None = None


class Part(BaseModel):
    """A part of a message's content; texts alone are read."""

    model_config = ConfigDict(strict=True)
    type: Literal["text", "refusal", "input_text", "output_text", "reasoning_text"]
    text: Text | None = None
    refusal: Text | None = None

    @property
    def words(self) -> str:
        return (self.refusal if self.type == "refusal" else self.text) or ""

    @model_validator(mode="after")
    def _has_words(self) -> Part:
        if (self.refusal if self.type == "refusal" else self.text) is None:
            name = "refusal" if self.type == "refusal" else "text"
            raise PydanticCustomError(
                "missing_part", "of type {type} needs the field `{name}`", {"type": self.type, "name": name}
            )
        return self


class Called(BaseModel):
    """The function of a call: its arguments are JSON, or a text of it."""

    model_config = ConfigDict(strict=True)
    name: Name
    arguments: Text | Object = ""


class ToolCall(BaseModel):
    """A call that an answer made."""

    model_config = ConfigDict(strict=True)
    id: str | None = None
    type: Literal["function"] = "function"
    function: Called


class Message(BaseModel):
    """A message of a chat. Clients send back what a server answered, with whatever fields that has."""

    model_config = ConfigDict(strict=True)
    role: str = Field(min_length=1, max_length=64)
    content: Text | Annotated[list[Part], Field(fail_fast=True)] | None = None
    refusal: Text | None = None
    reasoning_content: Text | None = None
    reasoning: Text | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=128, fail_fast=True)] | None = None
    function_call: Object | None = None
    audio: Object | None = None

    @property
    def words(self) -> str:
        """Its text: "" for a content that is null, unless it was a refusal."""
        if isinstance(self.content, list):
            return "".join(part.words for part in self.content)
        return self.content if self.content is not None else self.refusal or ""


class ToolFunction(BaseModel):
    """What a tool is called, and the JSON schema of its arguments."""

    model_config = ConfigDict(strict=True)
    name: str = Field(pattern=r"^[\w.:-]{1,128}$")
    description: Text | None = None
    parameters: Object | None = None
    strict: bool | None = None


class Tool(BaseModel):
    """A function that an answer may call."""

    model_config = ConfigDict(strict=True)
    type: Literal["function"]
    function: ToolFunction


class FunctionName(BaseModel):
    """The name of a function."""

    model_config = ConfigDict(strict=True)
    name: Name


class ToolChoice(BaseModel):
    """The function that an answer must call."""

    model_config = ConfigDict(strict=True)
    type: Literal["function"]
    function: FunctionName


class ChatRequest(Common):
    """The body of POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1, max_length=4096, fail_fast=True)
    logprobs: bool | None = None
    top_logprobs: Top | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    echo: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Annotated[Object | None, BeforeValidator(_at_most(64))] = None
    reasoning_effort: str | None = Field(None, max_length=64)


class TokenizeRequest(_Strict):
    """The body of POST /tokenize, of a text or of a conversation."""

    model: str | None = Field(None, max_length=256)
    prompt: Text | None = None
    content: Text | None = None
    messages: Annotated[list[Message], Field(min_length=1, max_length=4096, fail_fast=True)] | None = None
    tools: Annotated[list[Tool], Field(max_length=128, fail_fast=True)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Annotated[Object | None, BeforeValidator(_at_most(64))] = None
    return_token_strs: bool | None = None
    # llama.cpp's
    add_special: bool | None = None
    with_pieces: bool | None = None


class DetokenizeRequest(_Strict):
    """The body of POST /detokenize."""

    model: str | None = Field(None, max_length=256)
    tokens: list[Token] = Field(max_length=1_000_000, fail_fast=True)


class ErrorBody(BaseModel):
    """What is wrong: `type` and `code` for programs, `param` the field."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(BaseModel):
    """The body of every answer with a status of 400 or more."""

    error: ErrorBody
