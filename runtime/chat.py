"""Messages as a prompt: a model's chat template turns them into token ids, as transformers' `apply_chat_template` does."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeGuard

from decgraph.errors import DecError
from decgraph.runtime.arguments import Messages
from decgraph.runtime.models.folders import is_gguf
from decgraph.runtime.text import Tokenizer, whole

_READING = threading.Lock()
"""transformers cannot be imported by two threads at once."""


class TemplateTokenizer(Protocol):
    """A tokenizer of transformers that has a chat template."""

    @property
    def chat_template(self) -> str | Mapping[str, str]: ...

    def apply_chat_template(self, conversation: list[dict[str, object]], /, **settings: object) -> Iterable[int]: ...


def tokens_of(
    tokenizer: object,
    messages: Messages,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    goes_on: bool | None = None,
    begins: bool | None = None,
    settings: Mapping[str, object] | None = None,
) -> tuple[int, ...]:
    """The token ids of a conversation and of the beginning of the assistant's answer; special tokens are the template's alone.

    Where the last message is the assistant's own, the answer goes on from it, unless `goes_on` or `begins` say otherwise.
    tokenizer: decgraph's or transformers'. tools: functions that the template is to tell of, as OpenAI's API has them. goes_on:
    whether the last message is left open. begins: whether the beginning of an answer follows. settings: variables of the
    template's own, such as `enable_thinking`. Raises DecError for what is no message, without a template, and for messages that
    the template refuses.
    """
    _check(messages)
    source = _templates(tokenizer)
    if goes_on is None:
        goes_on = messages[-1]["role"] == "assistant" and not begins
    try:
        ids = source.apply_chat_template(
            [dict(m) for m in messages],
            tools=tools,
            tokenize=True,
            return_dict=False,
            add_generation_prompt=not goes_on if begins is None else begins,
            continue_final_message=goes_on,
            **(settings or {}),
        )
    except Exception as error:  # a template is a program of the model's: it raises what it likes
        raise DecError(f"the model's chat template refuses these messages: {error}") from error
    return tuple(int(t) for t in ids)


def template_of(tokenizer: object) -> str:
    """The text of the chat template: of several, the one for tools. Raises DecError where there is none."""
    found = _templates(tokenizer).chat_template
    return str(found.get("tool_use", found.get("default", ""))) if isinstance(found, Mapping) else str(found)


def _check(messages: Messages) -> None:
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or "content" not in message:
            raise DecError(
                f"message {number} of the prompt is {message!r}, which has no role and content",
                hint='[{"role": "user", "content": "Hello"}]',
            )
        if isinstance(message["content"], str):
            whole(message["content"])


def _templates(tokenizer: object) -> TemplateTokenizer:
    """The tokenizer of transformers that has the chat template. Raises DecError where there is none."""
    if tokenizer is None:
        raise DecError("messages need a tokenizer with a chat template, and these models have none", hint="tokenizer=FOLDER")
    source = tokenizer
    if isinstance(tokenizer, Tokenizer):
        with _READING:
            if tokenizer.source is None:
                tokenizer.source = _read(tokenizer.path)
        source = tokenizer.source
    if not _has_template(source):
        raise DecError(
            "this model has no chat template, so it cannot read messages",
            hint="give the prompt as a text; a model trained for chats has chat_template.jinja in its folder",
        )
    return source


def _has_template(source: object) -> TypeGuard[TemplateTokenizer]:
    return getattr(source, "chat_template", None) is not None and hasattr(source, "apply_chat_template")


def _read(path: Path) -> object:
    """transformers' tokenizer of a folder with this tokenizer.json, or of this GGUF file."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        if is_gguf(path):
            from decgraph.runtime.models.gguf import file, tokens

            return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(path).backend, **tokens.templates_of(file.read(path)))
        return AutoTokenizer.from_pretrained(path.parent, trust_remote_code=False)
    except DecError:
        raise
    except Exception as error:  # transformers raises many kinds for what it cannot read
        raise DecError(f"transformers cannot read the tokenizer in {path}: {error}") from error
