"""`decgraph lsp`: it starts over TCP too, and says what is missing."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest
from lib.waiting import SECONDS, started, until

from decgraph.cli.main import main


def test_stdio_and_tcp_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lsp", "--tcp", "--stdio"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "decgraph.editor.server", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "pygls"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pygls", None)
    monkeypatch.setitem(sys.modules, "pygls.exceptions", None)
    assert main(["lsp"]) == 2
    said = capsys.readouterr().err
    assert "pygls, which is not installed" in said and "[editor]'" in said


@pytest.mark.budget(10)
def test_it_listens_on_a_port() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with started([sys.executable, "-m", "decgraph", "lsp", "--tcp", "--port", str(port)], stderr=None) as process:
        body = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"processId":null,"rootUri":null}}'
        with socket.socket() as connection:  # its only one: the server ends with it
            connection.settimeout(SECONDS)
            dialled = lambda: connection.connect_ex(("127.0.0.1", port)) == 0
            until("the port answers, or the process ends", lambda: process.poll() is not None or dialled())
            connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            answer = connection.recv(4096)
        assert b"hoverProvider" in answer


def test_a_session_that_is_shut_down_ends_well() -> None:
    asked = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"processId":null,"rootUri":null}}',
        b'{"jsonrpc":"2.0","method":"initialized","params":{}}',
        b'{"jsonrpc":"2.0","id":2,"method":"shutdown"}',
        b'{"jsonrpc":"2.0","method":"exit"}',
    )
    said = b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in asked)
    ended = subprocess.run([sys.executable, "-m", "decgraph", "lsp"], input=said, capture_output=True, timeout=SECONDS)
    assert ended.returncode == 0 and b"Traceback" not in ended.stderr, ended.stderr.decode()
