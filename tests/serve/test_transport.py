"""What is around requests: HTTPS, several keys, a proxy's path, traces."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lib.lazily import httpx
from lib.server import served
from lib.waiting import SECONDS

import decgraph
from decgraph.cli.main import main
from decgraph.serve.traces import Traces

BODY = {"model": "target", "prompt": "def main():\n", "max_tokens": 3, "temperature": 0}


def test_https_keys_a_proxy_and_traces(catalogue: Any, tmp_path: Path) -> None:
    """All in one server: each needs a start."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*make, *names], check=True, capture_output=True, timeout=SECONDS)
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    more = {"ssl_certfile": cert, "ssl_keyfile": key, "root_path": "/models"}
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with served(catalogue, key=("one", "two"), traces=Traces(provider.get_tracer("test")), uvicorn=more) as running:
        assert running.url.startswith("https://")
        with httpx.Client(base_url=running.url, timeout=SECONDS, verify=ssl.create_default_context(cafile=cert)) as http:
            for given, status in (("one", 200), ("two", 200), ("three", 401), ("on", 401)):
                head = {"authorization": f"Bearer {given}", "traceparent": parent}
                assert http.post("/v1/completions", json=BODY, headers=head).status_code == status
                assert http.post("/tokenize", json={"prompt": "a"}, headers=head).status_code == status
            assert http.get("/models/v1/models").status_code in (401, 404)  # the prefix opens nothing
            assert http.get("/health").status_code == 200
    first, *_, last = spans.get_finished_spans()
    told: dict[str, Any] = dict(first.attributes or {})
    assert first.name == "text_completion target" and told["gen_ai.request.model"] == "target"
    assert told["gen_ai.usage.output_tokens"] == 3 and told["gen_ai.response.finish_reasons"] == ("length",)
    assert told["gen_ai.response.time_to_first_chunk"] > 0 and told["decgraph.algorithm"] == "speculative"
    assert first.parent is not None and f"{first.parent.span_id:x}" == "b7ad6b7169203331"
    assert not last.status.is_ok and dict(last.attributes or {})["http.response.status_code"] == 401


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ssl-keyfile", "key.pem"], "--ssl-keyfile goes with --ssl-certfile"),
        (["--ssl-certfile", "nowhere.pem"], "cannot read nowhere.pem"),
        (["--api-key-file", "nowhere.txt"], "cannot read nowhere.txt"),
        (["--generation-config", "nowhere", "--port", "0"], "has no generation_config.json"),
    ],
)
def test_options_that_cannot_be(words: list[str], said: str, capsys: Any) -> None:
    assert main(["serve", *words]) == 2
    assert said in capsys.readouterr().err


def test_keys_of_a_file(tmp_path: Path) -> None:
    from decgraph.cli import parsing

    (tmp_path / "keys").write_text("a\n\n b \n")
    assert parsing.keys(["c", ""], tmp_path / "keys") == ["c", "a", "b"]
    (tmp_path / "none").write_text("\n")
    with pytest.raises(decgraph.DecError, match="has no API key"):
        parsing.keys([], tmp_path / "none")
