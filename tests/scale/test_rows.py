"""Rows of prompts: ids, errors, keys of noise, and what is sent to workers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from decgraph.errors import DecError
from decgraph.scale.rows import key_of, noise_key, packed, read, unpacked

Write = Callable[[Sequence[Any]], Path]


def test_a_row_is_called_by_its_id_or_its_place(write: Write) -> None:
    file = write([{"id": "a", "prompt": "x"}, "!", {"prompt": "y"}, {"id": 7, "ids": [1, 2]}, "z"])
    assert [row.id for row in read(file)] == ["a", 1, 7, 3]


def test_a_plain_file_has_a_prompt_on_every_line(tmp_path: Path) -> None:
    file = tmp_path / "rows.txt"
    file.write_bytes("{a}\r\n\nb\u2028c".encode())
    assert [(row.id, row.prompt and row.prompt.text) for row in read(file)] == [(0, "{a}"), (1, "b\u2028c")]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("!{", "is not JSON"),
        ({"prompt": 3}, "must be a text"),
        ({"ids": [-1]}, "must be a list of token ids"),
        ({"id": 1.5, "prompt": "x"}, "1.5 is no id"),
        ({"id": True, "prompt": "x"}, "true is no id"),
        ({"id": 2**64, "prompt": "x"}, "is no id"),
        ("!" + "[" * 100_000, "nested too deeply"),
    ],
)
def test_a_line_that_is_no_row_is_a_row_with_an_error(line: Any, words: str, write: Write) -> None:
    good, bad = read(write(["a", line]))
    assert (good.id, bad.id, bad.prompt) == (0, "line 2", None)
    assert words in bad.error


@pytest.mark.parametrize("line", [{"prompt": ""}, {"prompt": 3}, {"ids": []}, {"prompt": "a", "ids": [1]}, {}])
@pytest.mark.parametrize("id", [9, "x"])
def test_a_bad_row_keeps_its_id(id: Any, line: Any, write: Write) -> None:
    good, bad = read(write(["a", {"id": id, **line}]))
    assert (good.id, bad.id, bad.prompt) == (0, id, None)


def test_bytes_that_are_no_text_are_a_row_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'"a"\n"\xff"\n"b"\n')
    assert [row.prompt is None for row in read(tmp_path / "rows.jsonl")] == [False, True, False]


def test_two_rows_with_one_id_are_refused_and_5_is_not_the_text_5(write: Write) -> None:
    assert key_of(5) != key_of("5")
    assert len(read(write([{"id": 5, "prompt": "x"}, {"id": "5", "prompt": "x"}]))) == 2
    with pytest.raises(DecError, match="rows.jsonl:3: the id 5 is that of line 1 too"):
        read(write([{"id": 5, "prompt": "x"}, "y", {"id": 5, "prompt": "z"}]))


def test_the_key_of_noise_is_the_id_or_a_digest_of_it() -> None:
    assert noise_key(3) == 3
    assert len({noise_key(text) for text in ("a", "b", "3", "\ud800")}) == 4
    assert noise_key("a") == int.from_bytes(bytes.fromhex("40f89e395b66422f"), "little")  # as `b2sum -l 64` has it


def test_what_is_sent_is_what_arrives(write: Write, tmp_path: Path) -> None:
    rows = read(write([{"id": "a", "messages": [{"role": "user", "content": "x"}]}, "y", {"ids": [1]}]))
    plain = tmp_path / "rows.txt"
    plain.write_text('"a"\n{"prompt": "b"}\n', encoding="utf-8")
    for row in [*rows, *read(plain)]:
        assert unpacked(packed(row)) == row


@pytest.mark.parametrize("suffix", [".txt", ".jsonl"])
def test_all_readers_of_prompts_end_lines_at_line_feeds_alone(suffix: str, tmp_path: Path) -> None:
    """`map` and `run --prompts`: U+2028 and the like may stand within a prompt."""
    from decgraph.runtime import prompt_files

    texts = ["a\u2028b\x85c\u2029", "d"]
    file = tmp_path / f"prompts{suffix}"
    lines = texts if suffix == ".txt" else [json.dumps({"prompt": text}, ensure_ascii=False) for text in texts]
    file.write_bytes("\r\n".join(lines).encode())
    assert [row.prompt and row.prompt.text for row in read(file)] == texts
    assert [text.text for text in prompt_files.read(file).texts] == texts
