"""The HTTP server (`decgraph serve`) as a deployment of Ray Serve: replicas that come and go with the load."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from decgraph import extras
from decgraph.errors import DecError
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement
from decgraph.serve.worker import QUEUE, WIDTH


def deployed(
    algorithms: Sequence[str] = ("autoregressive",),
    main: str | None = None,
    *,
    drafter: str | None = None,
    models: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    name: str | None = None,
    backend: str | None = None,
    device: DeviceLike = AUTO,
    dtype: DtypeLike = AUTO,
    keys: Sequence[str] = (),
    width: int = WIDTH,
    queue: int = QUEUE,
    replicas: tuple[int, int] = (1, 4),
    autoscaling: Mapping[str, Any] | None = None,
    actor: Mapping[str, Any] | None = None,
    app: Callable[[], Any] | None = None,
) -> Any:  # an application of Ray Serve
    """An application for `ray.serve.run`, or for `serve run module:application`:

        application = decgraph.scale.deployed(["speculative"], "smollm2", drafter="FOLDER", replicas=(1, 8))

    algorithms to dtype: what is served, as `decgraph serve` has it (`serve/catalogue.py`); a device `auto` is the GPU that
    `actor` reserves, and the CPU where it reserves none. keys: API keys, of which a client needs one; none: open to all.
    width, queue: answers that a replica computes at a time, and that may wait in it. replicas: the fewest and the most.
    autoscaling: further settings of Ray's `AutoscalingConfig`; by default a replica is added where each has more than `width`
    answers under way. actor: Ray's options of a replica, such as {"num_cpus": 4} or {"num_gpus": 1}. app: what makes the ASGI
    application in a replica, in the place of decgraph's server.

    Models are read in the replica, from its own disk, so every replica holds a copy of the weights. Nothing is read here.
    Raises DecError where Ray Serve is not installed, for a range of replicas that is none, and for a GPU that is not reserved.
    """
    fewest, most = replicas
    if not 0 <= fewest <= most or most < 1:
        raise DecError(f"{fewest} to {most} replicas are no range", hint="replicas=(1, 4)")
    placed = Placement.of(device, dtype).reserved(float((actor or {}).get("num_gpus") or 0))
    try:
        from ray import serve
    except ImportError as error:  # Ray without its extra `serve` raises one of its own
        raise extras.needed("models", "serve", "ray", first="Ray Serve") from error
    served: dict[str, Any] = {"drafter": drafter, "models": dict(models or {}), "params": dict(params or {}), "name": name}
    options = {"algorithms": list(algorithms), "main": main, **served, "backend": backend,
               "device": placed.device, "dtype": placed.dtype}  # fmt: skip

    def build() -> Any:  # called in the replica
        from decgraph.scale.deployment import application

        return application(options, tuple(keys), width, queue)

    scaling = {"min_replicas": fewest, "max_replicas": most, "target_ongoing_requests": width, **(autoscaling or {})}
    replica = serve.deployment(
        name="decgraph",
        autoscaling_config=scaling,
        max_ongoing_requests=width + queue,  # past it Ray lets requests wait in its proxy
        ray_actor_options=dict(actor or {"num_cpus": 1}),
        graceful_shutdown_timeout_s=60.0,  # an answer may take its time
    )(serve.ingress(app or build)())
    return replica.bind()


def application(options: Mapping[str, Any], keys: Sequence[str], width: int, queue: int) -> Any:
    """The ASGI application of a replica. options: the arguments of `decgraph.serve.catalogue.Catalogue`."""
    from decgraph.serve.app import app_of
    from decgraph.serve.catalogue import Catalogue
    from decgraph.serve.generation import Limits
    from decgraph.serve.service import Service

    made = Service(Catalogue(**options), limits=Limits(answers=width + queue), width=width, queue=queue)
    return app_of(made, keys=keys)
