"""Algorithms as objects: load, parse, run, check, explain. What `decgraph.load` and `decgraph.parse` give."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

from decgraph import stdlib
from decgraph.dsl.lower import load_text, refuse_settings
from decgraph.errors import DecError
from decgraph.ir.values import Claim, Function, Module, Param
from decgraph.passes.plan import Plan
from decgraph.runtime.keywords import check_by_name, check_keywords, keywords_of
from decgraph.runtime.placement import AUTO, DeviceLike, DtypeLike, Placement

if TYPE_CHECKING:
    from decgraph.check import CheckOptions, Report
    from decgraph.dsl.explain import Explanation
    from decgraph.passes.cost import Cost
    from decgraph.runtime.arguments import AlgorithmLike, Externs, Listener, ModelLike, ParamValue, Prompt, TokenizerLike
    from decgraph.runtime.request import Request, RequestFields
    from decgraph.runtime.session import Result, Session
    from decgraph.views.document import Trace

MODULES = 64
"""How many optimised modules an algorithm keeps, of the values of parameters that were used last."""

__all__ = ["Algorithm", "algorithm", "load", "of", "parse", "run"]


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A decoding algorithm: its module (`ir/values.py`), the text it was written in, and what can be done with it.

    >>> load("speculative").params["gamma"].high
    32
    """

    module: Module
    text: str = ""
    path: str = ""
    definition: object = None
    """Of a function under `@decgraph.algorithm`: what was read (dsl/capture.py), so that other such functions can name it."""

    @property
    def function(self) -> Function:
        """The algorithm itself; the module also holds what it refines or runs. Raises DecError for a text without one, and for
        a parameter that is called as a setting of requests."""
        if self.module.main not in self.module.functions:
            raise DecError(f"{self.path or 'this text'} has no algorithm", hint="algorithm name(target: causal): ...")
        refuse_settings(self.module, self.text)
        return self.module.entry

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def spec(self) -> str:
        """What `load` finds it by: its name in the standard library, or its path. `path` is for messages: that of a program of
        the standard library is no file of the folder that one is in."""
        shipped = self.path == f"stdlib/{self.name}.dec" and self.name in stdlib.names() and self.text == stdlib.text(self.name)
        return self.name if shipped else self.path

    @property
    def doc(self) -> str:
        return self.function.doc

    @property
    def source(self) -> str:
        """The papers that the docstring cites: every parenthesis that ends in a year."""
        return stdlib.published(self.doc)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """What it says of itself (`refines ...`, `ensures ...`, `keeps support of ...`); `.text` is the line."""
        return self.function.claims

    @cached_property
    def params(self) -> dict[str, Param]:
        """Its parameters that are not models, by name, with type, range and default."""
        return {p.name: p for p in self.function.params if p.value.type.elem != "model"}

    @cached_property
    def models(self) -> dict[str, str]:
        """The models it takes, by name, and the kind of each: causal, masked, features or layers."""
        return {p.name: str(p.value.type.of[0]) for p in self.function.params if p.value.type.elem == "model"}

    def __repr__(self) -> str:
        params = [*self.models, *(f"{n}={p.default}" if p.has_default else n for n, p in self.params.items())]
        return f"<algorithm {self.name}({', '.join(params)})>"

    def _repr_html_(self) -> str:
        from decgraph.html import fragment

        return fragment(self)

    def ir(self, *, locs: bool = False) -> str:
        """The text form of the module; with `locs`, the source line of every operation."""
        from decgraph.ir.text import print_module

        return print_module(self.module, locs)

    def cost(self) -> Cost:
        """The static report: model calls in a step, capacities, host work (`passes/cost.py`)."""
        from decgraph.passes.cost import cost_of

        return cost_of(self.module)

    def explanation(self) -> Explanation:
        """What it does, part by part. Raises DecError where there is no text to explain."""
        from decgraph.dsl.explain import explain

        if not self.text:
            raise DecError(f"there is no text of {self.name} to explain", hint="its IR and cost can be shown: compile")
        return explain(self.text, self.path, self.name)

    def explain(self) -> str:
        """What it does, in words and as a drawing of its step."""
        return self.explanation().text()

    def check(self, **options: Unpack[CheckOptions]) -> Report:
        """Decide its claims; options and the report are those of `decgraph.check`."""
        from decgraph.check import check_algorithm

        return check_algorithm(self, **options)

    def require(
        self,
        least: Literal["proved", "holds"],
        params: Mapping[str, Any] | None = None,
        requests: Sequence[Request] | None = None,
    ) -> None:
        """Raises DecError unless it is known to keep the target's distribution with these parameters, the others at their
        defaults: by a derivation ("proved"), or in worlds of which none refutes it ("holds"; `check/required.py`).
        requests: those that a premise of the derivation must be met by; None: any request."""
        from decgraph.check.required import require

        require(self, least, params, requests)

    def session(
        self,
        models: Mapping[str, ModelLike] | ModelLike | None = None,
        *,
        tokenizer: TokenizerLike | None = None,
        externs: Externs | None = None,
        backend: str | None = None,
        plan: Plan | None = None,
        compile: bool = False,
        device: DeviceLike = AUTO,
        dtype: DtypeLike = AUTO,
        **arguments: ModelLike | ParamValue,
    ) -> Session:
        """Models and parameters bound, ready to run requests.

        `arguments`: parameters and models by the algorithm's own names: `session(target=model, drafter="FOLDER", gamma=4)`.
        `models`: the same by name, where one is no keyword (`target.heads`); or the first model alone: `session("FOLDER")`. A
        model is a folder, a GGUF file, the name of a shipped model, a transformers module (its weights are shared and it is
        put in evaluation mode) or a model of decgraph's; what is left out is a shipped model of its kind. `backend`: torch
        (the default where torch is installed), triton (whole steps on the device, docs/gpu.md; the default for models on
        CUDA) or reference. `plan`: which
        passes run (all, on the reference none, unless it says so), the backend where `backend` does not say it, and how many
        sequences `generate` runs at a time; it never changes a token.
        `compile`: run the models' decoders through torch.compile (seconds to minutes at the first calls); what cannot
        be compiled runs as it is, with a warning.
        `device` (auto, cpu, cuda, cuda:1) and `dtype` (auto, float32, bfloat16, float16; int8, int4: weights on a CPU): where
        folders are loaded. `auto` is what a module beside them has; else CUDA where there is one and the folder's own dtype
        there, float32 on a CPU. A module stays as it is. `session.placement` has what it came to.
        Raises DecError for models and parameters that do not fit, and for a device that is not there.
        """
        models = self._by_name(models)
        takes = [*self.models, *self.params, *keywords_of(Algorithm.session)]
        check_keywords(f"a session of {self.name}", arguments, takes)
        named: dict[str, Any] = {name: arguments.pop(name) for name in list(arguments) if name in self.models}
        if twice := next((name for name in named if name in models), None):
            raise DecError(f"`{twice}` is given twice", hint="as a keyword, or in models=")
        params = cast("dict[str, ParamValue]", arguments)
        from decgraph.runtime.collecting import uncollected

        began = time.perf_counter()
        with uncollected():  # torch and transformers are imported there
            placed = Placement.of(device, dtype)
            made = self._session({**models, **named}, params, tokenizer, externs, backend, plan, placed, compile)
        made.load_seconds = time.perf_counter() - began
        return made

    def _by_name(self, models: Mapping[str, ModelLike] | ModelLike | None) -> Mapping[str, ModelLike]:
        """Models by name; a single one is the first that the algorithm takes."""
        from decgraph.runtime.sources import main_parameter

        if models is None or isinstance(models, Mapping):
            return models or {}
        return {main_parameter(self.function): models}

    def _session(
        self,
        models: Mapping[str, ModelLike],
        params: Mapping[str, ParamValue],
        tokenizer: TokenizerLike | None,
        externs: Externs | None,
        backend: str | None,
        plan: Plan | None,
        placed: Placement,
        compile: bool = False,
    ) -> Session:
        import warnings

        from decgraph.backends.registry import machine
        from decgraph.models import bind
        from decgraph.runtime.session import Session, check_params

        check_by_name(params=params, externs=externs)
        if plan is not None and not isinstance(plan, Plan):
            raise DecError(f"plan is {plan!r}; it must be a Plan", hint="plan=decgraph.Plan(passes=...)")
        asked = backend or (plan.backend if plan is not None else None)
        backend = asked or default_backend()
        engine = machine(backend)
        if wrong := next((name for name in params if name in self.models), None):
            raise DecError(f"`{wrong}` is a model of {self.name}, not a parameter", hint=f'models={{"{wrong}": ...}}')
        known = check_params(self.function, params, unread=True)  # before models are read, which takes seconds
        apart = {"share": False} if compile else {}  # another session's forwards stay as they are
        bound = bind(self.function, models, tokenizer=tokenizer, device=placed.device, dtype=placed.dtype, **apart)
        if asked is None:
            backend = default_backend(bound.models)
            engine = machine(backend)
        module = self.optimised(known, plan if plan is not None else Plan(passes=() if backend == "reference" else None))
        if compile:
            engine.compile(bound.models, lambda reason: warnings.warn(reason, RuntimeWarning, stacklevel=3))
        batch = plan.batch if plan is not None else None
        return Session(module, bound.models, params, machine=engine, tokenizer=bound.tokenizer, externs=externs, batch=batch)

    def optimised(self, params: Mapping[str, ParamValue] | None = None, plan: Plan | None = None) -> Module:
        """The module after the passes of a plan (default: all), with the values of parameters that are known."""
        from dataclasses import replace

        from decgraph.passes.manager import optimise

        plan = replace(plan or Plan(), params=tuple((params or {}).items()))
        if plan.passes == ():
            return self.module
        key = plan.text()
        made = self._compiled.pop(key, None) or optimise(self.module, plan=plan)[0]
        self._compiled[key] = made  # the last one used stands last
        if len(self._compiled) > MODULES:
            self._compiled.pop(next(iter(self._compiled)))
        return made

    @cached_property
    def _compiled(self) -> dict[str, Module]:
        return {}

    def warnings(self) -> list[str]:
        """What is worth knowing of the text though it is no error, rendered: cells decided out of drawing order, and so on."""
        from decgraph.dsl.lower.module import warnings_of
        from decgraph.dsl.parse import parse_text
        from decgraph.dsl.source import Source

        if not self.text:
            return []
        source = Source(self.text, self.path)
        return [d.render() for d in warnings_of(self.module, parse_text(self.text, self.path), source)]

    def cached(self, policy: str) -> Algorithm:
        """The algorithm with another cache policy for its masked model (`dual`, `prefix`, or one defined in its file).

        A policy changes what is computed, so this is another program. Raises DecError where there is nothing to cache.
        """
        from dataclasses import replace

        from decgraph.dsl.caching import lowered_with_policy

        module = lowered_with_policy(self.text, self.path, self.name, policy)
        return Algorithm(replace(module, main=self.name), self.text, self.path)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Only in functions under `@decgraph.algorithm`, which are read: `refines(mine(target))`. Raises DecError elsewhere."""
        raise DecError(f"`{self.name}` is an algorithm, not a function", hint=f"run it: {self.name}.run(prompt)")

    def run(
        self,
        prompt: Prompt,
        models: Mapping[str, ModelLike] | ModelLike | None = None,
        *,
        params: Mapping[str, ParamValue] | None = None,
        tokenizer: TokenizerLike | None = None,
        externs: Externs | None = None,
        backend: str | None = None,
        plan: Plan | None = None,
        listener: Listener | None = None,
        device: DeviceLike = AUTO,
        dtype: DtypeLike = AUTO,
        **request: Unpack[RequestFields],
    ) -> Result:
        """Decode one prompt, as `decgraph.run` does."""
        session, asked = self._prepared(prompt, models, params, tokenizer, externs, backend, plan, device, dtype, request)
        return session.run(asked, listener=listener)

    def trace(
        self,
        prompt: Prompt,
        models: Mapping[str, ModelLike] | ModelLike | None = None,
        *,
        params: Mapping[str, ParamValue] | None = None,
        tokenizer: TokenizerLike | None = None,
        externs: Externs | None = None,
        backend: str | None = None,
        plan: Plan | None = None,
        device: DeviceLike = AUTO,
        dtype: DtypeLike = AUTO,
        **request: Unpack[RequestFields],
    ) -> Trace:
        """Decode one prompt as `run` does, and record it: in a notebook what it returns is the page of `decgraph trace`, and
        `decgraph.views.page.trace_page([trace])` is the text of the page. Raises DecError as `run` does."""
        from decgraph.runtime.recording import Recorder
        from decgraph.views.document import Trace

        session, asked = self._prepared(prompt, models, params, tokenizer, externs, backend, plan, device, dtype, request)
        recorder = Recorder()
        result = session.run(asked, listener=recorder, keep_events=False)
        about: dict[str, Any] = {"source": self.text, "path": self.path, "temperature": asked.temperature}
        return Trace.of(session, asked.prompt, result, recorder.recording(), **about)

    def _prepared(
        self,
        prompt: Prompt,
        models: Mapping[str, ModelLike] | ModelLike | None,
        params: Mapping[str, ParamValue] | None,
        tokenizer: TokenizerLike | None,
        externs: Externs | None,
        backend: str | None,
        plan: Plan | None,
        device: DeviceLike,
        dtype: DtypeLike,
        request: RequestFields,
    ) -> tuple[Session, Request]:
        """A session for one run, and its request."""
        from decgraph.models import request_for
        from decgraph.runtime.request import Request

        elsewhere = {name: f'params={{"{name}": ...}}' for name in self.params}
        elsewhere |= {name: f'models={{"{name}": ...}}' for name in self.models}
        takes = [*Request.__dataclass_fields__, *keywords_of(Algorithm.run)]
        check_keywords(f"a run of {self.name}", request, takes, elsewhere=elsewhere)  # before models are read
        session = self._session(
            self._by_name(models), params or {}, tokenizer, externs, backend, plan, Placement.of(device, dtype)
        )
        return session, request_for(session, prompt, **request)


def default_backend(models: Mapping[str, Any] | None = None) -> str:
    """torch where it is installed, else the reference; triton, which runs whole steps there, for models on CUDA."""
    from importlib.util import find_spec

    from decgraph.runtime.placement import placement_of_all

    if models and placement_of_all(models).device.startswith("cuda") and find_spec("triton"):
        return "triton"
    return "torch" if find_spec("torch") else "reference"


def load(name: str | Path) -> Algorithm:
    """An algorithm of the standard library by name, or of a file by path (what has a folder or a suffix is a path).

    Raises DecError for an unknown name, a file that cannot be read, and everything that is wrong with the text.

    >>> load("speculative")
    <algorithm speculative(target, drafter, gamma=4)>
    """
    if not isinstance(name, str | Path):
        raise DecError(f"{name!r} is not an algorithm's name", hint="a name of the standard library, or a path")
    if isinstance(name, str) and name.isidentifier():
        return parse(stdlib.text(name), path=f"stdlib/{name}.dec", main=name)
    path = Path(name)
    if path.suffix == ".py":
        raise DecError(f"{path} is Python, not a .dec text", hint="import it, and call .run(prompt) of its decorated function")
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecError(f"{path} is not UTF-8 text (byte {error.start})") from None
    except (OSError, ValueError) as error:
        raise DecError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    return parse(text, path=str(path))


def parse(text: str, *, path: str = "<text>", main: str = "") -> Algorithm:
    """An algorithm from a text: the one called `main`, or the last one in it.

    Raises DecError: file, line, caret and a suggestion for everything that is wrong.
    """
    from dataclasses import replace

    if not isinstance(text, str):
        raise DecError(f"{text!r} is not an algorithm's text", hint="a file is read by decgraph.load(PATH)")
    module = load_text(text, path)
    return Algorithm(replace(module, main=main) if main in module.functions else module, text, path)


def of(algorithm: AlgorithmLike) -> Algorithm:
    """The algorithm meant by a name, a path, an `Algorithm`, a module or a decorated function. Raises DecError for others."""
    if isinstance(algorithm, Algorithm):
        return algorithm
    if isinstance(algorithm, Module):
        return Algorithm(algorithm, path=algorithm.path)
    if isinstance(algorithm, str | Path):
        return load(algorithm)
    raise DecError(f"{algorithm!r} is not an algorithm", hint="a name, a path, or what decgraph.parse returns")


def algorithm(function: Callable[..., object]) -> Algorithm:
    """The decorator: a function that is read, never called, as the algorithm that it describes (dsl/prelude.py has its words).

    Raises DecError, with the Python file's line and a suggestion, for everything that is wrong with it, where it is defined.
    """
    from decgraph.dsl.capture import algorithm as captured

    found = captured(function)
    return Algorithm(found.module, found.written, found.module.path, found)


def run(
    algorithm: AlgorithmLike,
    prompt: Prompt,
    models: Mapping[str, ModelLike] | ModelLike | None = None,
    *,
    params: Mapping[str, ParamValue] | None = None,
    tokenizer: TokenizerLike | None = None,
    externs: Externs | None = None,
    backend: str | None = None,
    plan: Plan | None = None,
    listener: Listener | None = None,
    device: DeviceLike = AUTO,
    dtype: DtypeLike = AUTO,
    **request: Unpack[RequestFields],
) -> Result:
    """Decode one prompt (a text, token ids, or messages for the model's chat template) with an algorithm given by name, path or
    object.

    `params` are the algorithm's, `request` the fields of `runtime.request.Request` (max_tokens, temperature, top_k, seed,
    stop, ...): greedy unless a temperature is given, eos the target's unless given. `listener` is called with every event
    (`runtime/trace.py`) as it happens. `device` and `dtype` are those of `Algorithm.session`.
    Returns tokens, text, statistics and reason; a run that fails midway returns what it had, with `error` set.
    Raises DecError for what cannot start.
    """
    return of(algorithm).run(
        prompt,
        models,
        params=params,
        tokenizer=tokenizer,
        externs=externs,
        backend=backend,
        plan=plan,
        listener=listener,
        device=device,
        dtype=dtype,
        **request,
    )
