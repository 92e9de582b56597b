"""`decgraph serve`: where it listens, logs, the end by a signal, and what it refuses to serve."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lib.lazily import http_server, httpx
from lib.waiting import SECONDS, started

from decgraph.cli.main import main
from decgraph.serve.catalogue import Catalogue
from decgraph.serve.logs import JsonFormatter

Capture = pytest.CaptureFixture[str]


@pytest.mark.budget(14)
def test_serves_until_a_signal() -> None:
    command = [sys.executable, "-m", "decgraph", "serve", "--port", "0", "--json", "--name", "mine", "-a", "speculative",
               "-a", "prompt_lookup", "--set", "gamma=2", "--api-key", "k"]  # fmt: skip
    with started(command) as process:
        assert process.stdout is not None and process.stderr is not None
        said = ""
        while not said.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            said += line
        where = json.loads(said)
        assert where["models"] == ["mine", "mine:speculative", "mine:prompt_lookup"]
        with httpx.Client(base_url=where["url"], headers={"authorization": "Bearer k"}, timeout=SECONDS) as http:
            secret = "a prompt that is nobody's business"
            answer = http.post("/completions", json={"model": "mine", "prompt": secret, "max_tokens": 3})
            assert answer.status_code == 200, answer.text
            assert http.get("/models", headers={"authorization": ""}).status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(SECONDS) == 0
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    (told,) = [line for line in lines if line["message"] == "request" and line["status"] == 200]
    assert told["request_id"] == answer.headers["x-request-id"]
    assert (told["algorithm"], told["completion_tokens"], told["answers"], told["ended"]) == ("speculative", 3, 1, "limit")
    assert secret not in json.dumps(lines) and answer.json()["choices"][0]["text"] not in told.values()
    assert any(line["message"] == "draining" for line in lines)


def test_clients_connect_as_soon_as_the_address_is_told() -> None:
    with http_server.listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname(), timeout=5):
        pass


def test_the_url_of_an_address_with_colons(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """IPv6: RFC 3986 has it in brackets, and clients read no other."""
    monkeypatch.setattr(http_server, "listen", lambda host, port: socket.create_server(("127.0.0.1", port)))
    monkeypatch.setattr(http_server.Server, "run", lambda self, sockets: None)
    assert main(["serve", "--host", "::1", "--port", "0", "--quiet"]) == 0
    assert re.fullmatch(r"http://\[::1\]:\d+/v1\n", capsys.readouterr().out)


def test_a_port_that_is_taken(capsys: Capture) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "--port 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-m", "target", "-m", "drafter"], "one first model"),
        (["-a", "speculativ"], "speculative"),
        (["-a", "speculative", "-a", "speculative"], "twice"),
        (["-m", "verifier=target"], "no algorithm takes a model `verifier`"),
        (["--set", "gama=2"], "no algorithm has a parameter `gama`"),
        (["-m", "nowhere/at all"], "nowhere"),
        (["-m", "target", "--backend", "reference"], "one request after the other"),
    ],
)
def test_what_cannot_be_served(capsys: Capture, words: list[str], said: str) -> None:
    assert main(["serve", "--port", "0", *words]) == 2
    assert said in capsys.readouterr().err


def test_without_the_extra(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [m for m in sys.modules if m.startswith("decgraph.serve.")] + ["fastapi"]:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    find: Any = __import__

    def missing(name: str, *more: Any, **named: Any) -> Any:
        if name == "fastapi":
            raise ModuleNotFoundError("No module named 'fastapi'", name="fastapi")
        return find(name, *more, **named)

    monkeypatch.setattr("builtins.__import__", missing)
    assert main(["serve", "--port", "0"]) == 2
    assert "[serve]'" in capsys.readouterr().err


def test_algorithms_share_the_models(catalogue: Catalogue) -> None:
    from decgraph.runtime.models.sharing import original_of

    targets = {id(original_of(s.models["target"])) for s in catalogue.sessions.values()}
    assert len(targets) == 1 and len(catalogue.models()) == 2
    own = catalogue.session("target", "speculative", {"gamma": 2})
    assert own is catalogue.session("target:speculative", None, {"gamma": 2})
    assert own.params["gamma"] == 2 and own.models["target"] is catalogue.sessions["speculative"].models["target"]


def test_a_log_line_is_json() -> None:
    import logging

    record = logging.LogRecord("decgraph.serve", logging.INFO, "", 0, "said %s", ("it",), None)
    record.fields = {"status": 200}
    line = json.loads(JsonFormatter().format(record))
    assert (line["message"], line["level"], line["status"]) == ("said it", "info", 200) and line["time"].endswith("Z")


def test_heads_are_attached_to_the_model_that_others_use() -> None:
    import decgraph
    from decgraph.models import request_for

    made = Catalogue(["autoregressive", "medusa"])
    session = made.session("decgraph:medusa")
    got = session.run(request_for(session, "def main():\n", max_tokens=8))
    assert got.error is None and got.tokens == decgraph.run("medusa", "def main():\n", max_tokens=8).tokens
    assert len({id(getattr(m, "net", m)) for m in made.models()}) == 1


def test_a_request_without_an_algorithm_gets_the_choice_for_the_load(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A request that names one, or parameters, gets what it names; a server's own load is how many are computed or wait."""
    import decgraph
    from decgraph.serve.service import Service

    one, other = decgraph.load("speculative"), decgraph.load("prompt_lookup")
    made = Catalogue(["autoregressive"], loads=[(1, one, {"gamma": 2}), (3, other, {"k": 4}), (8, one, {"gamma": 1})])
    assert made.ids() == ["decgraph", "decgraph:speculative", "decgraph:prompt_lookup", "decgraph:autoregressive"]
    expected = [(0, one, 2), (1, one, 2), (2, other, 4), (7, one, 1), (40, one, 1)]
    for busy, chosen, first in expected:
        made.busy = lambda n=busy: n
        session = made.session("decgraph")
        assert session.function.name == chosen.name and next(iter(session.params.values())) == first
    assert made.session("decgraph:autoregressive").function.name == "autoregressive"
    assert made.session("decgraph", None, {"gamma": 5}).params["gamma"] == 5
    assert len(made.every_session()) == 6 and len({id(m) for s in made.every_session() for m in s.models.values()}) <= 4
    service = Service(made)
    service.worker._thread = SimpleNamespace(start=bool)  # type: ignore[assignment]  # warm-up runs wait, and are no load
    service.worker.start(made.every_session())
    assert made.busy() == 0 and service.worker.cold == 6
    assert made.session("decgraph").params == {"gamma": 2}
    assert main(["serve", "--tuned", str(tmp_path / "none.toml")]) == 2 and "cannot read" in capsys.readouterr().err
    (tmp_path / "p.toml").write_text('format = 2\n[[loads]]\nbatch = 1\nalgorithm = "speculative"\nparams = { gamma = "99" }\n')
    assert main(["serve", "--tuned", str(tmp_path / "p.toml")]) == 2 and "`gamma` is 99" in capsys.readouterr().err
