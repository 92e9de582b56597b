"""Texts that a person brings: .txt files, and .jsonl files of texts, prompts with responses, or messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from decgraph.errors import DecError

_FORMS = (
    'one JSON object a line: {"text": ...}, {"prompt": ..., "response": ...} or {"messages": [{"role": ..., "content": ...}]}'
)


@dataclass(frozen=True)
class Example:
    """Token ids, and the place where the part that the model should write begins; the user's words where they are one turn."""

    ids: list[int]
    answer: int
    question: str | None = None


def read(files: list[Path], tokenizer: Any, *, length: int) -> list[Example]:
    """Every example of the files, cut to `length` tokens. Raises DecError for a file that is not as it should be."""
    found = [example for file in files for example in _of_file(file, tokenizer, length)]
    found = [example for example in found if len(example.ids) - example.answer >= 4]
    if not found:
        raise DecError(f"there is no text in {', '.join(map(str, files)) or 'no file'}", hint=_FORMS)
    return found


def read_prompts(file: Path) -> list[str]:
    """The prompts of a .jsonl file (`prompt`, `text` or messages whose last is the user's), or a .txt file's lines.

    Raises DecError for a file that cannot be read so.
    """
    try:
        lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]
        if file.suffix != ".jsonl":
            return lines
        found = []
        for line in lines:
            value = json.loads(line)
            asked = value.get("prompt", value.get("text"))
            found.append(asked if isinstance(asked, str) else value["messages"][-1]["content"])
    except (OSError, ValueError, AttributeError, KeyError, IndexError, TypeError) as error:
        raise DecError(f"{file} is not a file of prompts: {error}", hint='lines of text, or {"prompt": ...} a line') from error
    return found


def prompt_ids(tokenizer: Any, prompt: str) -> list[int]:
    """A prompt as the user's turn of the chat template, or as it is where there is none."""
    if getattr(tokenizer, "chat_template", None):
        messages = [{"role": "user", "content": prompt}]
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer.encode(prompt, add_special_tokens=False))


def _of_file(file: Path, tokenizer: Any, length: int) -> Iterator[Example]:
    if file.suffix not in (".txt", ".jsonl"):
        raise DecError(f"{file} is neither a .txt nor a .jsonl file", hint=_FORMS)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DecError(f"{file} cannot be read: {error}") from error
    if file.suffix == ".txt":
        ids = tokenizer.encode(text, add_special_tokens=False, verbose=False)
        for start in range(0, len(ids), length):
            yield Example(ids[start : start + length], 0)
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise DecError(f"{where}: not JSON ({error.msg})", hint=_FORMS) from error
        if not isinstance(value, dict):
            raise DecError(f"{where}: not a JSON object", hint=_FORMS)
        yield _example(value, where, tokenizer, length)


def _example(value: dict[str, Any], where: str, tokenizer: Any, length: int) -> Example:
    if isinstance(value.get("text"), str):
        return Example(tokenizer.encode(value["text"], add_special_tokens=False)[:length], 0)
    if isinstance(value.get("messages"), list):
        messages = value["messages"]
        if not all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
        ):
            raise DecError(f"{where}: a message is an object with role and content", hint=_FORMS)
        last = messages[-1] if messages else {"role": ""}
        if last["role"] != "assistant":
            raise DecError(f"{where}: the last message is not the assistant's", hint=_FORMS)
        return _chat(messages[:-1], last["content"], where, tokenizer, length)
    prompt, response = value.get("prompt"), value.get("response")
    if isinstance(prompt, str) and isinstance(response, str):
        if getattr(tokenizer, "chat_template", None):
            return _chat([{"role": "user", "content": prompt}], response, where, tokenizer, length)
        before = tokenizer.encode(prompt, add_special_tokens=False)
        return Example((before + tokenizer.encode(response, add_special_tokens=False))[:length], len(before))
    raise DecError(f"{where}: neither text, nor prompt and response, nor messages", hint=_FORMS)


def _chat(messages: list[Any], answer: str, where: str, tokenizer: Any, length: int) -> Example:
    if not getattr(tokenizer, "chat_template", None):
        raise DecError(f"{where}: messages need a tokenizer with a chat template", hint='give "text" instead')
    before = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    whole = [*messages, {"role": "assistant", "content": answer}]
    after = tokenizer.apply_chat_template(whole, tokenize=False)
    # A template may change earlier turns once more follow; then the answer is appended as it is.
    rest = after[len(before) :] if after.startswith(before) else answer + (tokenizer.eos_token or "")
    ids = tokenizer.encode(before, add_special_tokens=False)
    question = messages[-1]["content"] if len(messages) == 1 else None
    return Example((ids + tokenizer.encode(rest, add_special_tokens=False))[:length], len(ids), question)


def questions(examples: list[Example], tokenizer: Any) -> list[list[int]]:
    """The user's words of examples of one turn, as token ids. Raises DecError where there are none."""
    found = [tokenizer.encode(one.question, add_special_tokens=False) for one in examples if one.question]
    if not found:
        raise DecError(
            "there is no question in the data that the model could answer anew",
            hint="--regenerate wants prompt and response, or messages of one question and one answer",
        )
    return found
