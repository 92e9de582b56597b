"""The callable that transformers' `generate` takes for `custom_generate`."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from decgraph import zoo
from decgraph.errors import DecError
from decgraph.hf import modules, settings
from decgraph.hf.criteria import Criterion, RowCriterion, Stops, stops_of
from decgraph.hf.prompts import assembled, check_embeddings, check_holes, check_model_arguments, rows_of
from decgraph.hf.scores import cache_of, logits_of, scores_of
from decgraph.ir.memo import memo_of
from decgraph.passes.plan import Plan
from decgraph.runtime.arguments import AlgorithmLike, Externs, ModelLike, ParamValue, TokenizerLike
from decgraph.runtime.binding import text_side
from decgraph.runtime.keywords import keywords_of
from decgraph.runtime.models.interface import shortest_context
from decgraph.runtime.models.masked_settings import NAMES
from decgraph.runtime.models.modules import width_of
from decgraph.runtime.models.sharing import making
from decgraph.runtime.processors import (
    BatchReading,
    PaddedPrompt,
    Processor,
    refuse_change,
    refuse_state,
    shaping_of,
    watched,
)
from decgraph.runtime.refused import adjusts
from decgraph.runtime.session import Result
from decgraph.runtime.sources import home_of, main_parameter
from decgraph.runtime.text import reads_text, tokenizer_of

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import GenerationConfig, PreTrainedModel
    from transformers.generation.utils import GenerateDecoderOnlyOutput

    from decgraph.api import Algorithm
    from decgraph.runtime.request import Request
    from decgraph.runtime.session import Session
    from decgraph.runtime.trace import Event


class Streamer(Protocol):
    """What transformers' streamers are: told of token ids as they come, and of the end."""

    def put(self, value: Tensor) -> object: ...

    def end(self) -> object: ...


def custom_generate(
    algorithm: AlgorithmLike,
    *,
    backend: str | None = None,
    seed: int | None = None,
    tokenizer: TokenizerLike | None = None,
    stop_strings: str | Sequence[str] | None = None,
    streamer: Streamer | None = None,
    externs: Externs | None = None,
    batch: int = 8,
    plan: Plan | None = None,
    reuse_prefix: bool = False,
    require: Literal["proved", "holds"] | None = None,
    **arguments: ModelLike | ParamValue,
) -> CustomGenerate:
    """An algorithm as transformers' `custom_generate`; `decgraph.hf(...)` is this function.

    algorithm: a name in stdlib/, a path, a text's `decgraph.parse`, an `Algorithm` or a decorated function. arguments: its
    other models (modules, folders, shipped names, decgraph models) and its parameters, by its own names; the model on
    which generate is called is its first causal or masked one. `heads` are Medusa heads. backend: "torch" if there is
    one, else "reference"; "triton" for generated kernels. seed: of the noise; left out, one number is drawn from
    torch's generator for every sampled call. tokenizer and stop_strings: transformers (5.17 to 5.23) keeps its own from
    a callable, so stop strings are given here. streamer: for callers that do not pass it to generate. externs: Python
    functions the algorithm calls.
    batch: how many sequences are decoded at a time, the others waiting. plan: which passes run, as in `Algorithm.session`.
    Neither changes a token. reuse_prefix: the KV cache of a call with one prompt stays for the next one, which computes
    only what its prompt has that the last text had not: for conversations. require: "proved" refuses an algorithm without a
    derivation that it keeps the target's distribution, "holds" one of which a small world refutes that it does
    (`check/required.py`; once for a program, a second where there is a derivation): for rollouts of reinforcement learning,
    whose ratios a lossy decoder biases. A call whose repetition penalty or processors a derivation does not cover is refused.

    One object keeps one session for each model: states that an algorithm keeps `per session` live as long as it does.

    Raises DecError for an algorithm that cannot be read, an unknown or missing model or parameter, a bad value, and what
    `require` refuses.
    """
    made = CustomGenerate(
        algorithm,
        arguments,
        backend=backend,
        seed=seed,
        tokenizer=tokenizer,
        stop_strings=stop_strings,
        streamer=streamer,
        externs=externs,
        batch=batch,
        plan=plan,
        reuse_prefix=reuse_prefix,
    )
    made.require = require
    made.required(())
    return made


CACHE = "generate"
"""The key of the KV cache that stays between the calls of one object."""


class CustomGenerate:
    """The result of `decgraph.hf`, which `generate` calls.

    last: the results of the latest call, a list of `runtime.session.Result`, a row each: tokens, reason, statistics (tokens
    per target call and so on), which way each model's forward ran (`forwards`). After an error or an interruption it has the
    partial result of each row, with `error` for a row that failed.
    """

    def __init__(
        self,
        algorithm: AlgorithmLike,
        arguments: Mapping[str, ModelLike | ParamValue],
        *,
        backend: str | None,
        seed: int | None,
        tokenizer: TokenizerLike | None,
        stop_strings: str | Sequence[str] | None,
        streamer: Streamer | None,
        externs: Externs | None,
        batch: int,
        plan: Plan | None = None,
        reuse_prefix: bool = False,
    ) -> None:
        from decgraph import api
        from decgraph.backends.registry import machine
        from decgraph.runtime.session import check_params

        self.algorithm = api.of(algorithm)
        models, self.params = modules.split(self.algorithm.function, arguments, keywords_of(custom_generate))
        check_params(self.algorithm.function, self.params, unread=True)
        self.backend = backend  # None: chosen by where the models lie
        machine(backend or api.default_backend())
        binds = backend or api.default_backend()
        self.binder = modules.Binder(self.algorithm.module, self.algorithm.function, models, binds)
        self.seed, self.tokenizer, self.streamer, self.externs = (
            seed,
            zoo.known().located(tokenizer),
            streamer,
            dict(externs or {}),
        )
        self.stop_strings = [stop_strings] if isinstance(stop_strings, str) else list(stop_strings or ())
        if self.stop_strings and not hasattr(tokenizer, "get_vocab"):
            raise DecError("stop_strings need the model's tokenizer to see text", hint="decgraph.hf(..., tokenizer=tokenizer)")
        if batch < 1:
            raise DecError(f"batch is {batch}; it must be at least 1")
        self.batch, self.plan, self.reuse_prefix = batch, plan, reuse_prefix
        self.last: list[Result] = []
        self.require: Literal["proved", "holds"] | None = None

    def required(self, requests: Sequence[Request]) -> None:
        """Raises DecError where what is required is not known for these requests."""
        if self.require is not None:
            self.algorithm.require(self.require, self.params, requests)

    def __repr__(self) -> str:
        return f"<decgraph.hf {self.algorithm!r} on {self.backend or 'the backend of its models'}>"

    def __call__(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        logits_processor: Sequence[Processor] | None = None,
        stopping_criteria: Sequence[Criterion] | None = None,
        generation_config: GenerationConfig | None = None,
        synced_gpus: bool = False,
        streamer: Streamer | None = None,
        seed: int | None = None,
        **model_kwargs: Any,
    ) -> Tensor | GenerateDecoderOnlyOutput:
        """Decode a batch: what `generate` calls once its inputs, processors and criteria are prepared.

        input_ids: int64[B, T], without the tokens where `attention_mask` [B, T] is 0. Returns int64[B, T + n], prompt
        included and filled up with the pad token, or a GenerateDecoderOnlyOutput with `sequences` where the
        configuration asks for a dict. `seed` can also be given to generate: `model.generate(..., seed=1)`.

        Called directly (masked models have no generate), it takes a GenerationConfig, or generate's own arguments, and builds
        the rest.

        Raises DecError for every unsupported setting, by name, and for errors in a run.
        """
        caller = _caller()
        if generation_config is None and not caller:
            asked = {"logits_processor": logits_processor, "stopping_criteria": stopping_criteria, "streamer": streamer}
            ready = settings.alone(model, {**model_kwargs, **asked, "input_ids": input_ids})
            return self(model, **ready, synced_gpus=synced_gpus, seed=seed)
        streamer = streamer or self.streamer or caller.get("streamer")
        try:
            if synced_gpus or caller.get("synced_gpus"):
                raise DecError("synced_gpus is not supported: decgraph.hf decodes in one process", hint="synced_gpus=False")
            if caller.get("assistant_model") is not None:
                hint = "decgraph.hf('speculative', drafter=...)"
                raise DecError("assistant_model is not supported with decgraph.hf", hint=hint)
            if generation_config is None:
                raise DecError("there is no generation_config", hint="model.generate(..., custom_generate=decgraph.hf(...))")
            settings.refuse(generation_config, model)
            check_embeddings(model, input_ids, model_kwargs.pop("inputs_embeds", None))
            mask = model_kwargs.pop("attention_mask", None)
            rows = rows_of(input_ids, mask)
            check_holes(model, rows, logits_processor)
            check_model_arguments(model_kwargs, rows)
            if streamer is not None and len(rows) > 1:
                raise DecError(f"a streamer shows one sequence, this call has {len(rows)}", hint="give it one prompt")
            if logits_processor is None and stopping_criteria is None:
                logits_processor, stopping_criteria = settings.prepared(generation_config, input_ids)
            with modules.evaluating([model, *self.binder.arguments.values()]):
                new = self._decode(
                    model,
                    input_ids,
                    rows,
                    list(logits_processor or ()),
                    list(stopping_criteria or ()),
                    generation_config,
                    streamer,
                    self.seed if seed is None else seed,
                )
        finally:
            if streamer is not None:  # also after an error: readers of the streamer stop waiting
                streamer.end()
        sequences = assembled(input_ids, new, settings.pad_of(generation_config))
        if getattr(generation_config, "return_dict_in_generate", False):
            from transformers.generation.utils import GenerateDecoderOnlyOutput

            more: dict[str, Any] = {}
            if getattr(generation_config, "use_cache", True):
                with modules.evaluating([model]):
                    more["past_key_values"] = cache_of(model, sequences, mask)
            if _asks(generation_config, "output_scores", "output_logits"):
                with modules.evaluating([model]):
                    logits = logits_of(model, rows, new)
                    if _asks(generation_config, "output_scores"):
                        more["scores"] = scores_of(logits, sequences, list(logits_processor or ()))
                    if _asks(generation_config, "output_logits"):
                        more["logits"] = logits
            # Transformers wants a LongTensor, a type that torch gives to no tensor
            return GenerateDecoderOnlyOutput(sequences=sequences, **more)  # pyright: ignore[reportArgumentType]
        return sequences

    def _decode(
        self,
        model: PreTrainedModel,
        input_ids: Tensor,
        rows: list[PaddedPrompt],
        processors: list[Processor],
        criteria: list[Criterion],
        config: GenerationConfig,
        streamer: Streamer | None,
        seed: int | None,
    ) -> list[tuple[int, ...]]:
        session = self._session_for(model)
        main = session.models[self.binder.main]
        length, device = input_ids.shape[1], input_ids.device
        if self.stop_strings:
            from transformers import StopStringCriteria

            # Its `get_vocab`, which was looked for, is what the criterion reads
            criteria.append(StopStringCriteria(self.tokenizer, self.stop_strings))  # pyright: ignore[reportArgumentType]
        stops = stops_of(criteria, length, main.vocab.size)
        reading = BatchReading(
            greedy=not getattr(config, "do_sample", False),
            length=length,
            copies=int(getattr(config, "num_return_sequences", None) or 1),
            eos=stops.eos,
            width=width_of(model),
            size=main.vocab.size,
            device=device,
            adjusts=adjusts(self.algorithm.function),
        )
        refuse_state(processors, reading, rows[0])
        held = watched(processors)
        key = drawn_seed() if seed is None and not reading.greedy else seed or 0
        requests = [self._request(row, processors, reading, stops, key, len(rows)) for row in rows]
        self.required(requests)
        listener = _feeding(streamer, input_ids) if streamer is not None else None
        self.last = results = _run(session, requests, self.batch, listener, CACHE if self.reuse_prefix else None)
        for row, result in zip(rows, results, strict=True):
            if result.reason == "interrupted":
                raise KeyboardInterrupt
            if result.error is not None:
                raise _for_row(result.error, row, len(rows))
            if result.reason == "context":
                warnings.warn(f"row {row.index} ended at {shortest_context(session.models)}", UserWarning, stacklevel=4)
        for processor, before in held:
            refuse_change(processor, before)
        return [tuple(result.results[0]) if result.results and not result.tokens else result.tokens for result in results]

    def results(
        self, model: PreTrainedModel, requests: Sequence[Request], name: str = "", texts: Sequence[Sequence[int]] | None = None
    ) -> list[Result]:
        """The results of requests on a module, outside of its `generate`. texts: for each request its value of the parameter
        `name`, which takes tokens; such requests run one after the other. Raises what a run raises."""
        from decgraph.runtime.parameters import check_value

        self.required(requests)
        with modules.evaluating([model, *self.binder.arguments.values()]):
            session = self._session_for(model)
            if texts is None:
                self.last = _run(session, list(requests), self.batch, None, None)
            else:
                self.last = []
                for request, text in zip(requests, texts, strict=True):
                    value = check_value(self.algorithm.name, self.algorithm.params[name], text)
                    session.params[name] = value  # which no pass makes a constant
                    self.last.append(session.run(request, keep_events=False))
        for n, result in enumerate(self.last):
            if result.reason == "interrupted":
                raise KeyboardInterrupt
            if result.error is not None:
                raise _for_row(result.error, PaddedPrompt(n, (), ()), len(requests))
        return self.last

    def _request(
        self, row: PaddedPrompt, processors: list[Processor], reading: BatchReading, stops: Stops, seed: int, rows: int
    ) -> Request:
        from decgraph.runtime.request import Request

        if stops.limit is None:
            raise DecError("there is no limit on the length", hint="give generate max_new_tokens")
        shaping = shaping_of(processors, reading, row)
        hooks = (shaping.hook,) if shaping.hook is not None else ()
        until = tuple(RowCriterion(criterion, row, reading.device, rows) for criterion in stops.asked)
        return Request(
            row.prompt,
            max_tokens=stops.limit,
            eos=stops.eos,
            seed=seed,
            request_id=row.index,
            processors=hooks,
            until=until,
            **{"temperature": 1.0, **shaping.fields},
        )

    def _session_for(self, model: PreTrainedModel) -> Session:
        """The session of a module, which itself makes its models again when the module has changed (`Session.run`)."""
        width = width_of(model)
        with making:
            # The model keeps the session, which refers to it: so both go when nobody else has the model.
            kept: MutableMapping[CustomGenerate, tuple[int, Session]]
            kept = memo_of(model).once("sessions", weakref.WeakKeyDictionary)
            if self not in kept or kept[self][0] != width:
                text = text_side(self.tokenizer) or tokenizer_of(home_of(model)) if reads_text(self.algorithm.module) else None
                session = self.algorithm.session(
                    self.binder(model),
                    tokenizer=text,
                    externs=self.externs,
                    backend=self.backend,
                    plan=self.plan,
                    **self.params,
                )
                kept[self] = width, session
            return kept[self][1]


def _run(
    session: Session, requests: list[Request], batch: int, listener: Callable[[Event], None] | None, cache_key: str | None
) -> list[Result]:
    """A result for every request, `batch` of them decoded at a time. cache_key: of a single request, as in `Session.run`."""
    if len(requests) > 1:
        return list(session.generate(requests, batch=batch, keep_events=False))
    return [session.run(r, listener=listener, keep_events=False, cache_key=cache_key) for r in requests]


def _feeding(streamer: Streamer, input_ids: Tensor) -> Callable[[Event], None]:
    """Passes each commit's tokens to a streamer, int64[n] on the CPU. `generate` has put the prompt already."""
    from decgraph.runtime.trace import Commits, Committed

    def hear(event: Event) -> None:
        if isinstance(event, Committed):
            streamer.put(input_ids.new_tensor(list(event.tokens)).cpu())

    return Commits(hear)


def _asks(config: GenerationConfig, *names: str) -> bool:
    """Whether a generation configuration has one of these settings on."""
    return any(getattr(config, name, None) for name in names)


def drawn_seed() -> int:
    """One number of torch's default generator: torch.manual_seed makes a call repeatable, the next call differs."""
    import torch

    return int(torch.randint(2**63 - 1, (1,), dtype=torch.int64).item())


def _for_row(error: DecError, row: PaddedPrompt, rows: int) -> DecError:
    if rows == 1:
        return error
    made = DecError(
        [f"row {row.index} of the batch: {error.diagnostics[0]}", *error.diagnostics[1:]]
        if isinstance(error.diagnostics[0], str)
        else error.diagnostics,
        hint=error.hint,
    )
    made.__cause__ = error
    return made


def _caller() -> Mapping[str, Any]:
    """The local variables of the `generate` that is calling, or nothing.

    transformers (5.17 to 5.23) passes a callable neither the streamer nor other arguments that it consumes: it puts the
    prompt into a streamer, which would then never be ended. So they are read from its frame.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(8):
        if frame is None:
            break
        if frame.f_code.co_name == "generate" and frame.f_globals.get("__name__") == "transformers.generation.utils":
            return frame.f_locals
        frame = frame.f_back
    return {}


def names_of(algorithm: Algorithm) -> Iterable[str]:
    """The keyword arguments of `decgraph.hf` for an algorithm: its models but the main one, and its parameters."""
    main = main_parameter(algorithm.function)
    names = [*algorithm.models, *algorithm.params]
    masked = [f"{n}.{setting}" for n, kind in algorithm.models.items() if kind == "masked" for setting in NAMES]
    return [*(n for n in names if n != main), *(f"{n}.heads" for n in algorithm.models), *masked, "heads", *NAMES]
