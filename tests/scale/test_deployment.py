"""The server as a deployment of Ray Serve."""

from __future__ import annotations

import json
import os
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import pytest
from lib.waiting import SECONDS, until

from decgraph.errors import DecError
from decgraph.scale import deployed

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed"),
]


def test_settings_go_to_ray_and_nothing_is_read_here() -> None:
    made = deployed(["speculative"], "/nowhere", width=3, queue=4, replicas=(0, 5), autoscaling={"upscale_delay_s": 1.0},
                      actor={"num_cpus": 2})  # fmt: skip
    one = made._bound_deployment
    scaling = one._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas, scaling.upscale_delay_s) == (0, 5, 1.0)
    assert scaling.target_ongoing_requests == 3 and one._deployment_config.max_ongoing_requests == 7
    assert one.ray_actor_options["num_cpus"] == 2


@pytest.mark.parametrize("replicas", [(2, 1), (0, 0), (-1, 1)])
def test_a_range_that_is_none_is_refused(replicas: tuple[int, int]) -> None:
    with pytest.raises(DecError, match="are no range"):
        deployed(replicas=replicas)


def test_a_replica_computes_on_what_is_reserved_for_it() -> None:
    vain = {"device": "cpu", "actor": {"num_gpus": 1}}
    refused = (({"device": "cuda"}, "no GPU is reserved"), (vain, "1 GPUs are"), ({"dtype": "half"}, "dtype is 'half'"))
    for words, message in refused:
        with pytest.raises(DecError, match=message):
            deployed(**words)  # type: ignore[arg-type]
    deployed(actor={"num_gpus": 1})
    deployed(device="cuda", dtype="bfloat16", actor={"num_gpus": 0.5})


@pytest.fixture
def port() -> Iterator[int]:
    """Ray Serve on a free port, gone afterwards."""
    import ray
    from ray import serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = free.getsockname()[1]
    for check in ("READY", "HEALTH"):  # of five and ten seconds: on a loaded machine Ray kills a proxy that is still starting
        os.environ[f"RAY_SERVE_PROXY_{check}_CHECK_TIMEOUT_S"] = "50"
    os.environ["RAY_USAGE_STATS_ENABLED"], os.environ["RAY_BACKEND_LOG_LEVEL"] = "0", "fatal"
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error", address="local")
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": number})
        yield number
        serve.shutdown()
    finally:
        ray.shutdown()


def asked(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def running(port: int) -> float:
    """How many answers the replica is computing."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=SECONDS) as answer:
        (line,) = [one for one in answer.read().decode().splitlines() if one.startswith("decgraph_running ")]
    return float(line.split()[1])


@pytest.mark.slow
@pytest.mark.budget(26)
def test_a_replica_answers_as_the_command_line_does(port: int) -> None:
    """The server in a replica of its own; two requests, the answers of `decgraph.run`."""
    pytest.importorskip("decgraph.serve", reason="there is no server here")
    from ray import serve

    import decgraph

    serve.run(deployed(["speculative"], replicas=(1, 1), name="tiny"), route_prefix="/", name="decgraph")
    expected = decgraph.run("speculative", "def main():", max_tokens=12, temperature=0)
    for model in ("tiny", "tiny:speculative"):
        body = {"model": model, "prompt": "def main():", "max_tokens": 12, "temperature": 0}
        answer = asked(f"http://127.0.0.1:{port}/v1/completions", body)
        assert answer["choices"][0]["text"] == expected.text
        assert answer["usage"]["completion_tokens"] == 12

    # What is under way when the replicas go is answered before they do.
    long = {"model": "tiny", "prompt": "import os", "max_tokens": 300, "temperature": 0}
    with ThreadPoolExecutor() as pool:
        answers = [pool.submit(asked, f"http://127.0.0.1:{port}/v1/completions", long | {"seed": n}) for n in range(4)]
        until("four answers are being computed", lambda: running(port) == 4)
        serve.delete("decgraph")
    expected = decgraph.run("speculative", "import os", max_tokens=300, temperature=0)
    assert [one.result(SECONDS)["choices"][0]["text"] for one in answers] == [expected.text] * 4


@pytest.mark.slow
@pytest.mark.budget(26)
def test_an_application_of_ones_own(port: int) -> None:
    from ray import serve

    def app() -> Any:
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route

        from decgraph.scale.decoder import Decoder

        decoder = Decoder("autoregressive", max_tokens=4, backend="reference")

        async def answer(request: Any) -> Any:
            asked = await request.json()
            return JSONResponse({"algorithm": decoder.algorithm.name, "prompt": asked["prompt"]})

        return Starlette(routes=[Route("/decode", answer, methods=["POST"])])

    serve.run(deployed(app=app, replicas=(1, 1)), route_prefix="/", name="decgraph")
    assert asked(f"http://127.0.0.1:{port}/decode", {"prompt": "x"}) == {"algorithm": "autoregressive", "prompt": "x"}
