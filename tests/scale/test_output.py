"""The file of results: whole lines, each id once, gone on with after a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from decgraph.errors import DecError
from decgraph.scale.output import JsonLinesOutput

SETTINGS = {"max_tokens": 3}


def ids(file: Path) -> list[object]:
    return [json.loads(line)["id"] for line in file.read_text(encoding="utf-8").splitlines()]


def test_an_id_is_written_once(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with JsonLinesOutput(file, SETTINGS) as out:
        assert [out.write({"id": i, "text": "\u00e4\u2028\x85"}) for i in (1, "1", 1, "\ud800")] == [True, True, False, True]
    assert ids(file) == [1, "1", "\ud800"]  # read with `splitlines`


def test_a_record_is_there_before_the_file_is_closed(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with JsonLinesOutput(file, SETTINGS) as out:
        out.write({"id": 1})
        assert ids(file) == [1]


@pytest.mark.parametrize("torn", [b"{", b'{"id": 2, "text": "x"}', '{"id": 2, "text": "\u00e4'.encode()[:-1]])
def test_a_torn_last_line_is_decoded_again(torn: bytes, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with JsonLinesOutput(file, SETTINGS) as out:
        out.write({"id": 1})
    with file.open("ab") as handle:
        handle.write(torn)
    with JsonLinesOutput(file, SETTINGS, resume=True) as out:
        assert (out.has(1), out.has(2)) == (True, False)
        out.write({"id": 2})
    assert ids(file) == [1, 2]


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with JsonLinesOutput(file, SETTINGS) as out:
        out.write({"id": 1})
    with pytest.raises(DecError, match="is there already"):
        JsonLinesOutput(file, SETTINGS)
    with pytest.raises(DecError, match="another max_tokens"):
        JsonLinesOutput(file, {"max_tokens": 4}, resume=True)
    (tmp_path / "out.jsonl.settings").unlink()
    with pytest.raises(DecError, match="nobody knows"):
        JsonLinesOutput(file, SETTINGS, resume=True)
    assert ids(file) == [1]


def test_one_process_writes(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with JsonLinesOutput(file, SETTINGS), pytest.raises(DecError, match="another process"):
        JsonLinesOutput(file, SETTINGS, resume=True)
    with JsonLinesOutput(file, SETTINGS, resume=True):  # an empty file is begun anew
        pass


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    with JsonLinesOutput(file, SETTINGS):
        pass
    file.write_text("hello\n", encoding="utf-8")
    with pytest.raises(DecError, match="out.jsonl:1 is no record"):
        JsonLinesOutput(file, SETTINGS, resume=True)
    with pytest.raises(DecError, match="cannot write"):
        JsonLinesOutput(tmp_path, SETTINGS, resume=True)
    assert file.read_text(encoding="utf-8") == "hello\n"


def test_a_disk_without_room_is_told_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "out.jsonl"
    out = JsonLinesOutput(file, SETTINGS)
    out.write({"id": 1})
    out._handle.close()
    full = Path("/dev/full").open("ab")  # noqa: SIM115  # every flush fails
    monkeypatch.setattr(out, "_handle", full)
    with pytest.raises(DecError, match="No space left") as told, out:
        out.write({"id": 2})
    assert "--resume" in str(told.value)
    assert full.closed
    with JsonLinesOutput(file, SETTINGS, resume=True) as again:
        assert (again.has(1), again.has(2)) == (True, False)


def test_a_device_is_no_output() -> None:
    with pytest.raises(DecError, match="regular file"):
        JsonLinesOutput(Path("/dev/full"), SETTINGS)
