"""Masked models: programs with an approximate KV cache against the same program without one, interleaved."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from decgraph.bench.compare import Candidate, document, rival, work_of
from decgraph.bench.contenders import Ours, params_for, request_of, run
from decgraph.bench.measure import MeasureSettings, OnProgress, Row, digits, measured
from decgraph.bench.prompts import BenchPrompt, Text
from decgraph.errors import DecError
from decgraph.models import bind
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.placement import Placement
from decgraph.runtime.session import Session

USUAL = "fast_dllm_uncached"


def prepared(
    algorithms: Sequence[Candidate],
    texts: Sequence[Text],
    settings: MeasureSettings,
    *,
    folder: str | None = None,
    wanted: Sequence[str] | None = None,
    placed: Placement | None = None,
) -> Callable[[OnProgress], Row]:
    """Masked algorithms and another one on the same model, all compiled, canvases of the same size; called, it measures.

    folder: the model; left out, the shipped one. wanted: the other algorithms (default: `USUAL`). A canvas takes seconds, so
    half of the prompts and rounds are run. Also counts the model calls of one request by each and by the reference
    interpreter: they must be equal. Raises DecError for a baseline of another kind.
    """
    others = [rival(name) for name in (wanted or (USUAL,))]
    for one in (*algorithms, *others):
        if set(one.algorithm.models.values()) != {"masked"}:
            raise DecError(
                f"{one.algorithm.name} does not decode with a masked model",
                hint=f"--baseline {USUAL}, or another algorithm for masked models",
            )
    first = algorithms[0]
    sources = dict.fromkeys(first.algorithm.models, folder) if folder is not None else {}
    where = placed or Placement()
    bound = bind(first.algorithm.function, sources, device=where.device, dtype=where.dtype)
    model = next(iter(bound.models.values()))
    if bound.tokenizer is None:
        raise DecError(f"{folder} has no tokenizer.json, and prompts are texts")
    few = texts[: max(1, len(texts) // 2)]
    for text in few:
        text.check_ids(model.vocab.size)
        if text.messages:
            raise DecError(f"{text.where}: masked models are measured on texts or token ids, not on messages")
    prompts = [BenchPrompt(text.kind, text.ids or tuple(bound.tokenizer.encode(text.text))) for text in few]
    work = work_of(prompts, 1)
    cells = int(first.values.get("length", settings.limit))
    halved = MeasureSettings(cells, max(1, settings.rounds // 2), 1, settings.temperature, settings.seed)
    contenders = []
    for one in [*(o for o in others if all(o.label != a.label for a in algorithms)), *algorithms]:
        values = params_for(one.algorithm, {**first.values, **one.params})
        session = one.algorithm.session(
            dict.fromkeys(one.algorithm.models, model), tokenizer=bound.tokenizer, backend="torch", **values
        )
        contenders.append(Ours(one.label, one.algorithm, values, session, work.groups, cells, settings.temperature))
    names = [other.label for other in others]
    models = facts_of(model)
    facts = {c.label: Candidate(c.label, c.algorithm, c.params).facts() for c in contenders}

    def run(on_progress: OnProgress) -> Row:
        found = measured(contenders, work, halved, on_progress=on_progress)
        made = document(found, dict.fromkeys(found.contenders, names), found.failed, facts, models, prompts, halved)
        for row in made["rows"]:
            contender = found.contenders[row["algorithm"]]
            assert isinstance(contender, Ours)
            if row["algorithm"] not in names:
                row["interpreter"] = by_the_interpreter(contender, model, bound.tokenizer)
        return made

    return run


def facts_of(model: Any) -> Row:
    """Sizes of a masked model, as `Weights.facts` has them of others."""
    net = model.net
    once = {id(p): p for p in net.parameters()}  # tied matrices count once
    return {
        "name": model.name,
        "target": sum(p.numel() for p in once.values()),
        "width": net.decoder.width,
        "layers": model.layers,
        "vocabulary": model.vocab.size,
        "dtype": str(net.decoder.dtype).removeprefix("torch."),
        "device": str(net.decoder.device),
        "eos": [],
        "folders": {"target": str(model.family)},
    }


def by_the_interpreter(contender: Ours, model: Any, tokenizer: Any) -> Row:
    """Calls and tokens of one request, compiled and interpreted, and the forwards of the engine."""
    engine = engine_of(model)
    request = request_of(contender.groups[0][0], contender.limit)
    forwards, computed = engine.counted.calls, engine.counted.computed
    mine = run(contender.session, request)
    forwards, computed = engine.counted.calls - forwards, engine.counted.computed - computed
    models = dict.fromkeys(contender.algorithm.models, model)
    reference: Session = contender.algorithm.session(models, tokenizer=tokenizer, backend="reference", **contender.params)
    meant = run(reference, request)
    return {
        "calls": mine.stats.target_calls,
        "interpreter_calls": meant.stats.target_calls,
        "forwards": forwards,
        "cells_computed": digits(computed),
        "tokens_equal": mine.tokens == meant.tokens,
    }
