"""`decgraph.evals` where lm_eval is not installed: it can be imported, and says what to install where it is used."""

from __future__ import annotations

import pytest

import decgraph
import decgraph.evals
from decgraph.evals import __main__ as command


@pytest.fixture(autouse=True)
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decgraph.evals.find_spec", lambda name: None)


def test_the_class() -> None:
    with pytest.raises(decgraph.DecError, match="lm_eval, which is not installed") as error:
        _ = decgraph.evals.DecgraphLM
    assert error.value.hint.endswith("[evals]'")
    with pytest.raises(AttributeError):
        _ = decgraph.evals.DecgraphML  # type: ignore[attr-defined]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main() == 1
    assert "[evals]'" in capsys.readouterr().err
