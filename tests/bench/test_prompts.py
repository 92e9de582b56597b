"""Prompts of a user's file and the built-in ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decgraph import zoo
from decgraph.bench import prompts
from decgraph.bench.prompts import Text
from decgraph.errors import DecError


def test_a_text_file_has_a_prompt_on_every_line(tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text('first\n\n  \n{"prompt": "second"}\n', encoding="utf-8")
    found = prompts.read(file)
    assert found.texts == (Text("prompts", "first"), Text("prompts", '{"prompt": "second"}'))
    assert found.name == str(file) and len(found.digest) == 64


def test_json_lines_have_kinds_and_messages(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    lines = [{"prompt": "one", "kind": "a"}, {"messages": messages, "kind": "b"}, {"prompt": "three"}]
    file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    one, two, three = prompts.read(file).texts
    assert (one.kind, one.text, two.kind, three.kind) == ("a", "one", "b", "prompts")
    assert two.where == f"{file}:2"
    bodies = [{"body": {"model": "m", "messages": messages, "temperature": 0}}, {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "H"}, {"type": "text", "text": "i"}]}]}]  # fmt: skip
    file.write_text("\n".join(map(json.dumps, bodies)), encoding="utf-8")  # requests, as a batch file or a proxy has them
    assert [list(text.messages) for text in prompts.read(file).texts] == [messages, messages[1:]]
    assert list(two.as_messages()) == messages and one.as_messages() == ({"role": "user", "content": "one"},)


@pytest.mark.parametrize(("line", "message"), [
    ("not json", "p.jsonl:2 is not JSON"),
    ("3", "p.jsonl:2 has neither a prompt nor messages"),
    ('""', "p.jsonl:2: the prompt must be a text"),
    ('{"ids": [1, -2]}', "p.jsonl:2: ids must be a list"),
    ('{"ids": []}', "p.jsonl:2: ids must be a list"),
    ('{"ids": [true]}', "p.jsonl:2: ids must be a list"),
    ('{"ids": [1], "prompt": "a"}', "p.jsonl:2 has neither"),
    ('{"prompt": "a", "messages": []}', "p.jsonl:2 has neither a prompt nor messages nor ids, or more"),
    ('{"prompt": ""}', "p.jsonl:2: the prompt must be a text"),
    ('{"prompt": 3}', "p.jsonl:2: the prompt must be a text"),
    ('{"messages": []}', "p.jsonl:2: a message must have a role"),
    ('{"messages": [{"role": "user"}]}', "p.jsonl:2: a message must have a role"),
    ('{"logger": "decgraph.serve", "status": 200}', "has no prompts: record the bodies of requests"),
    ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "p.jsonl:2: a message must have a role"),
    ('{"prompt": "a", "kind": 3}', "p.jsonl:2: the kind must be a text"),
])  # fmt: skip
def test_what_is_no_prompt_is_named_by_its_line(line: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f'{{"prompt": "a"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(DecError, match=message):
        prompts.read(file)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DecError, match="cannot read"):
        prompts.read(tmp_path / "none.txt")
    (tmp_path / "b.txt").write_bytes(b"ok\n\xff\xfe")
    with pytest.raises(DecError, match="not UTF-8"):
        prompts.read(tmp_path / "b.txt")
    (tmp_path / "e.jsonl").write_text("\n")
    with pytest.raises(DecError, match="has no prompts"):
        prompts.read(tmp_path / "e.jsonl")


def test_there_are_some_of_every_kind_built_in() -> None:
    found = prompts.built_in().texts
    counts = {kind: sum(text.kind == kind for text in found) for kind in {text.kind for text in found}}
    assert set(counts) == {"chat", "code", "copy-edit", "summary", "json"} and set(counts.values()) == {8}
    assert len({text.text for text in found}) == len(found)
    assert [text.kind for text in prompts.taken(found, 1)] == ["chat", "code", "copy-edit", "summary", "json"]


def test_texts_are_tokens_of_the_models_tokenizer() -> None:
    folder = zoo.path("target")
    (made,) = prompts.encoded([Text("k", "def f(x):")], folder, chat=False)
    from transformers import AutoTokenizer

    assert list(made.tokens) == AutoTokenizer.from_pretrained(folder)("def f(x):").input_ids
    with pytest.raises(DecError, match="chat template"):
        prompts.encoded([Text("k", "def f(x):")], folder, chat=True)
    with pytest.raises(DecError, match="chat template"):
        prompts.encoded([Text("k", messages=({"role": "user", "content": "Hi"},))], folder, chat=False)
    with pytest.raises(DecError, match="need a tokenizer"):
        prompts.encoded([Text("k", "a")], zoo.path("target").parent, chat=False)


def test_ids_are_tokens_as_they_stand(tmp_path: Path) -> None:
    """No tokenizer is needed for them; one that the vocabulary lacks is refused with its line."""
    file = tmp_path / "p.jsonl"
    file.write_text('{"ids": [3, 1, 4], "kind": "a"}\n{"ids": [9]}\n"a text"\n', encoding="utf-8")
    *ids, text = prompts.read(file).texts
    assert text == Text("prompts", "a text")
    made = prompts.encoded(ids, None, chat=False, size=10)
    assert [(p.kind, p.tokens) for p in made] == [("a", (3, 1, 4)), ("prompts", (9,))]
    with pytest.raises(DecError, match=r"p.jsonl:2: 9 is no token: the vocabulary has 9"):
        prompts.encoded(ids, None, chat=False, size=9)
    with pytest.raises(DecError, match="p.jsonl:1: token ids go through no chat template"):
        prompts.encoded(ids, None, chat=True, size=10)
