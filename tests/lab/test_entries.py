"""`python -m lab`: the list of entries, and how one is run."""

from __future__ import annotations

import pytest
from lib.repository import ROOT

from lab.__main__ import entries, main


def test_alone_it_lists_the_entries_each_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    said = capsys.readouterr().out
    assert {"gallery", "leaderboard", "tradeoffs", "walk"} <= set(entries())
    assert all(about and f"{name} " in said and about in said for name, about in entries().items())


def test_what_is_no_entry_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pages"]) == 2 and "gallery" in capsys.readouterr().err


def test_an_error_is_a_message_and_an_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decoding", "--only", "nothing"]) == 1
    assert "no part 'nothing'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", entries())
def test_every_entry_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code in (0, None) and "Usage: python -m lab" in capsys.readouterr().out


def test_the_readme_names_entries_alone() -> None:
    import re

    named = re.findall(r"`python -m lab ([\w.]+)", (ROOT / "lab" / "README.md").read_text("utf-8"))
    assert set(named) - {"NAME"} <= set(entries())
