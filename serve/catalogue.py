"""What a server offers: algorithms on models, by the names that clients use; the sessions behind them share the models."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from decgraph.api import Algorithm, load
from decgraph.errors import DecError
from decgraph.runtime.defaults import defaults, of_folder, sampling
from decgraph.runtime.models.interface import Model
from decgraph.runtime.models.sharing import original_of
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement
from decgraph.runtime.session import Session, check_params
from decgraph.runtime.sources import handed_out
from decgraph.serve.worker import batching

SESSIONS = 64
"""Most sessions with parameters of clients' own that are kept."""


class UnknownName(DecError):
    """A model or algorithm that the server does not offer."""


class Catalogue:
    """The algorithms of a server, the first one the default, and the models that all of them share.

    main: the first model of every algorithm, a folder or a name of `decgraph zoo list`; None: the shipped ones. drafter: every
    further causal model. models: by parameter name, before both. params: by name, for the algorithms that have them. name:
    what clients call the model; None: the folder's. device, dtype: as in `Algorithm.session`. generation: whose generation
    settings: the defaults of requests (runtime/defaults.py): "auto", the model's; "none", none; else those of a folder.
    loads: what decodes a request that names no algorithm and no parameters, where so many answers are computed or wait.
    Raises DecError for models and parameters that do not fit, for an algorithm that calls functions of Python, and for a
    backend that cannot batch.
    """

    def __init__(
        self,
        algorithms: Sequence[str],
        main: str | None = None,
        *,
        drafter: str | None = None,
        models: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        name: str | None = None,
        backend: str | None = None,
        device: DeviceLike = AUTO,
        dtype: DtypeLike = AUTO,
        generation: str = "auto",
        loads: Sequence[tuple[int, Algorithm, Mapping[str, Any]]] = (),
    ) -> None:
        self.name = name or (Path(main).name if main is not None else "decgraph")
        self._folders, self._main, self._drafter = dict(models or {}), main, drafter
        self._asked = Placement.of(device, dtype)
        self._generation: Mapping[str, object] | None = None if generation == "auto" else {}
        if generation not in ("auto", "none"):
            if not (Path(generation) / "generation_config.json").is_file():
                raise DecError(f"{generation} has no generation_config.json", hint="--generation-config auto, none or a folder")
            self._generation = of_folder(Path(generation))
            sampling(self._generation, generation)
        self.algorithms: dict[str, Algorithm] = {}
        self.sessions: dict[str, Session] = {}
        self._variants: OrderedDict[tuple[str, str], Session] = OrderedDict()
        unused = set(params or {})
        chosen = [*{one.name: one for _, one, _ in loads}.values(), *map(load, algorithms)]
        taken = {model for one in chosen for model in one.models}
        for given in self._folders:
            if given.split(".")[0] not in taken:
                raise DecError(f"no algorithm takes a model `{given}`", hint=f"they take {', '.join(sorted(taken))}")
        for one in chosen:
            if one.name in self.algorithms:
                raise DecError(f"the algorithm {one.name} is given twice")
            if one.module.externs:
                raise DecError(f"{one.name} calls Python functions, which a server does not have", hint="another algorithm")
            mine = {key: value for key, value in (params or {}).items() if key in one.params}
            unused -= set(mine)
            self.algorithms[one.name] = one
            self.sessions[one.name] = self._open(one, mine, backend)
        if unused:
            raise DecError(f"no algorithm has a parameter `{min(unused)}`")
        own = [{**values, **{n: v for n, v in (params or {}).items() if n in one.params}} for _, one, values in loads]
        self.loads = [(least, self._variant(one.name, mine)) for (least, one, _), mine in zip(loads, own, strict=True)]
        self.busy: Callable[[], int] = lambda: 0
        """How many answers are computed or wait."""

    @property
    def default(self) -> str:
        """The algorithm of requests that name none."""
        return next(iter(self.algorithms))

    @property
    def placement(self) -> Placement:
        """The device and the dtype of the default algorithm's first model."""
        return self.sessions[self.default].placement

    def every_session(self) -> list[Session]:
        """Those that may decode a request that has no parameters."""
        return [*self.sessions.values(), *(session for _, session in self.loads)]

    def ids(self) -> list[str]:
        """What `model` may be: the name alone, and with each algorithm."""
        return [self.name, *(f"{self.name}:{one}" for one in self.algorithms)]

    def parts(self, model: str) -> tuple[str, str]:
        """The name and the algorithm ("": none) in what a client calls `model`. The name may have colons of its own."""
        if model == self.name:
            return model, ""
        name, _, chosen = model.rpartition(":") if model.startswith(f"{self.name}:") else model.partition(":")
        return name, chosen

    def models(self) -> list[Model]:
        """Every model, each once."""
        found = {id(m): m for s in self.every_session() for m in map(original_of, s.models.values())}
        return list(found.values())

    def session(self, model: str, algorithm: str | None = None, params: Mapping[str, Any] | None = None) -> Session:
        """The session that a request names. Raises `UnknownName`, and DecError for wrong parameters."""
        name, chosen = self.parts(model)
        if name != self.name:
            raise UnknownName(f"the model {model!r} does not exist here", hint=f"it is one of {', '.join(self.ids())}")
        if chosen and algorithm is not None and chosen != algorithm:
            raise DecError(f"`model` asks for the algorithm {chosen}, `algorithm` for {algorithm}", hint="one of the two")
        if self.loads and not (chosen or algorithm or params):
            below = [one for one in self.loads if one[0] <= self.busy() + 1]
            return max(below, key=lambda one: one[0])[1] if below else min(self.loads, key=lambda one: one[0])[1]
        wanted = chosen or algorithm or self.default
        if wanted not in self.sessions:
            raise UnknownName(f"the algorithm {wanted!r} is not served here", hint=f"it is one of {', '.join(self.algorithms)}")
        base = self.sessions[wanted]
        if not params:
            return base
        key = (wanted, repr(sorted(params.items())))
        if key not in self._variants:
            self._variants[key] = self._variant(wanted, params)
            while len(self._variants) > SESSIONS:
                self._variants.popitem(last=False)
        self._variants.move_to_end(key)
        return self._variants[key]

    def _variant(self, name: str, params: Mapping[str, Any]) -> Session:
        """A session of an algorithm with other parameters, those that it has. Raises DecError for wrong ones."""
        one, base = self.algorithms[name], self.sessions[name]
        values = {**base.params, **params}
        known = check_params(one.function, values)
        made = Session(
            one.optimised(known), base.models, values, machine=base.machine, tokenizer=base.tokenizer, batch=base.batch
        )
        made.generation = self._generation
        return made

    def _open(self, one: Algorithm, params: Mapping[str, Any], backend: str | None) -> Session:
        """A session of an algorithm: it shares the models of folders with those that are open."""
        given = handed_out(one.function, self._main, self._drafter, self._folders)
        session = one.session(given, backend=backend, device=self._asked.device, dtype=self._asked.dtype, **dict(params))
        session.generation = self._generation
        defaults(session)  # unreadable settings are an error before the first request
        batching(session.machine)
        return session
