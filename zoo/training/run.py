"""`decgraph train`: text, held-out answers, the student, the loop, and the folder that comes out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from decgraph.errors import DecError
from decgraph.runtime import progress
from decgraph.runtime.placement import AUTO, Placement
from decgraph.zoo import loop
from decgraph.zoo.training import acceptance, card, fitting, selfmade, teacher, texts
from decgraph.zoo.training.eagle_student import Eagle
from decgraph.zoo.training.store import StoredRow, TokenStore, digest
from decgraph.zoo.training.students import DrafterStudent, Exit, Medusa, Student
from decgraph.zoo.training.template import template_of

STUDENTS: dict[str, Any] = {kind.kind: kind for kind in (DrafterStudent, Eagle, Medusa, Exit)}
HELD_OUT = 32
LEAST = 0.25
"""The share of the time, where it is given in minutes, that is kept for training itself. Answers to measure on take a
quarter of it at most, and all text three quarters."""
SLICE = 8
"""Held-out answers that are written and stored at a time."""


@dataclass(frozen=True)
class TrainingJob:
    """What to train, on what, for how long. `placed`: where the target is loaded and in which dtype; what is trained lies
    beside it, in float32. `data` and `self_made` exclude each other; see docs/heads.md."""

    kind: str
    model: str | Path
    out: Path
    data: tuple[Path, ...] = ()
    self_made: bool = False
    regenerate: bool = False
    prompts: Path | None = None
    tokens: int = 300_000
    length: int = 512
    minutes: float = 30.0
    steps: int | None = None
    batch_tokens: int = 2048
    checkpoint_minutes: float = 4.0
    resume: bool = False
    work: Path | None = None
    seed: int = 0
    rows: int = 64
    answer: int = 128
    options: dict[str, Any] = field(default_factory=dict)
    placed: Placement = field(default_factory=Placement)


@dataclass(frozen=True)
class TrainingReport:
    """What came out: the folder, how the run went, and the acceptance of what lies in the folder."""

    folder: Path
    outcome: loop.TrainingOutcome
    acceptance: acceptance.Acceptance


def train(job: TrainingJob, say: Callable[[str], None] = print) -> TrainingReport:
    """Run a job to its end or to Ctrl-C. Raises DecError for a kind, model, file or option that cannot be trained with."""
    if job.kind not in STUDENTS:
        raise DecError(f"{job.kind!r} cannot be trained", hint=f"one of {', '.join(STUDENTS)}")
    if job.self_made == bool(job.data):
        raise DecError("training needs text: --self (the model writes it) or --data FILES, one of them")
    if job.steps is None and job.minutes <= 0 or job.steps is not None and job.steps < 1:
        raise DecError("there is no time to train in", hint="give --minutes or --steps above zero")
    began = time.monotonic()
    from transformers.utils import logging

    logging.disable_progress_bar()  # training shows its own
    model, tokenizer, folder = teacher.load(job.model, job.placed)
    work = job.work or job.out.with_name(job.out.name + ".work")
    kind: type[Student] = STUDENTS[job.kind]
    layers = kind.layers_for(model, **job.options)
    if job.self_made:
        template_of(tokenizer)  # without one nothing can be asked: said before answers are written
    origin = {"model": teacher.weights_digest(folder), "layers": list(layers), "seed": job.seed}
    ends = None if job.steps is not None else began + 60 * job.minutes
    held, lessons = _texts(job, model, tokenizer, layers, work, origin, say, ends)
    torch.manual_seed(job.seed)
    student: Student = STUDENTS[job.kind](model, texts=lessons, **job.options)
    student.module.to(model.device)
    say(f"{job.kind}: {sum(p.numel() for p in student.module.parameters()):,} parameters")
    recipe = {"target": str(job.model), "target_sha256": origin["model"], "text": _told(job), **job.options}
    recipe |= {"device": str(model.device), "dtype": str(model.dtype).removeprefix("torch.")}
    recipe |= {"training_tokens": sum(len(text.ids) for text in lessons), "held_out_answers": len(held)}
    best = _Best(job, student, held, tokenizer, say)
    budget = loop.Budget(
        work=work,
        seed=job.seed,
        steps=job.steps,
        minutes=job.minutes if ends is None else max(LEAST * job.minutes, (ends - time.monotonic()) / 60),
        resume=job.resume,
        checkpoint_minutes=job.checkpoint_minutes,
        decay=0.5,
    )
    outcome = fitting.fit(student, lessons, best.export, budget=budget, batch_tokens=job.batch_tokens, settings=recipe)
    if best.measured is None:
        raise DecError("nothing was exported")  # cannot be: fit exports at its end
    return TrainingReport(job.out, outcome, best.measured)


class _Best:
    """Exports weights when their held-out acceptance is at least that of this run's weights in the folder."""

    def __init__(
        self, job: TrainingJob, student: Student, held: list[StoredRow], tokenizer: Any, say: Callable[[str], None]
    ) -> None:
        self.job, self.student, self.held, self.tokenizer, self.say = job, student, held, tokenizer, say
        self.measured: acceptance.Acceptance | None = None
        file = job.out / "training.json"
        if job.resume and file.exists():
            told = json.loads(file.read_text(encoding="utf-8")).get("acceptance")
            if told:
                gammas = tuple(told["tokens_per_call_by_gamma"])
                shares = tuple(told["by_depth"])
                self.measured = acceptance.Acceptance(told["gamma"], told["tokens_per_call"], shares, gammas, told["places"])

    def export(self, weights: dict[str, torch.Tensor], outcome: loop.TrainingOutcome) -> None:
        """Measure these weights, and write them where they are the best so far."""
        student, own = self.student, {n: v.clone() for n, v in self.student.module.state_dict().items()}
        student.module.load_state_dict(weights)
        found = acceptance.measure(student, self.held)
        student.module.load_state_dict(own)
        shares = " ".join(f"{share:.2f}" for share in found.by_depth)
        self.say(
            f"step {outcome.steps}: {found.tokens_per_call:.3f} tokens per target call (chain of {found.gamma}); "
            f"right at depth 1, 2, ...: {shares}"
        )
        if self.measured is not None and found.tokens_per_call < self.measured.tokens_per_call:
            self.say(f"kept the earlier weights ({self.measured.tokens_per_call:.3f})")
            return
        self.measured = found
        self.job.out.mkdir(parents=True, exist_ok=True)
        student.save(self.job.out, weights, self.tokenizer)
        told = {**asdict(outcome), "acceptance": found.record()}
        text = json.dumps(told, indent=2, default=str) + "\n"
        (self.job.out / "training.json").write_text(text, encoding="utf-8")
        (self.job.out / "README.md").write_text(card.text(self.job.kind, told), encoding="utf-8")


def _told(job: TrainingJob) -> str:
    if job.self_made:
        return "written by the target itself: its own questions and answers"
    names = ", ".join(path.name for path in job.data)
    return f"{names}, answered by the target" if job.regenerate else names


def _texts(
    job: TrainingJob,
    model: Any,
    tokenizer: Any,
    layers: tuple[int, ...],
    work: Path,
    origin: dict[str, Any],
    say: Callable[[str], None],
    ends: float | None,
) -> tuple[list[StoredRow], list[StoredRow]]:
    """(held-out answers, training texts), from the work folder where they are there already."""
    brought = texts.read(list(job.data), tokenizer, length=job.length) if job.data else []
    asked = _held_prompts(job, tokenizer, brought)
    # What was held out is not trained on.
    brought = [example for example in brought if tuple(example.ids[: example.answer or job.length // 4]) not in asked[1]]
    if job.data and not brought:
        raise DecError("too little text: all of it is held out to measure with", hint="give more, or --prompts FILE")
    files = [digest(path) for path in job.data]
    held = TokenStore(work / "held-out", {**origin, "prompts": [list(ids) for ids in asked[0]], "answer": job.answer})
    if not held.done:
        say(f"held-out answers: {len(asked[0])} prompts")
        with progress.shown("train: held-out answers") as told:
            for at in range(len(held), len(asked[0]), SLICE):
                if at and _over(ends, 3 * LEAST * job.minutes):
                    say(f"held-out answers: {at} of them fit into the time")
                    break
                for text in _greedy(model, tokenizer, asked[0][at : at + SLICE], layers, job.answer):
                    held.add(text)
                held.flush()
                told(f"{len(held)} of {len(asked[0])}", len(held), len(asked[0]))
        held.flush(done=True)
    source: dict[str, Any] = {"files": files, "regenerate": job.regenerate, "self": job.self_made}
    source |= {"length": job.length, "prompts": digest(job.prompts) if job.prompts else None}
    if job.self_made or job.regenerate:
        source["recipe"] = asdict(selfmade.Recipe())
    store = TokenStore(work / "text", {**origin, **source})
    if job.self_made or job.regenerate:
        _write(job, model, tokenizer, layers, store, brought, say, ends)
    elif not store.done:
        rows = sorted(((example.ids, example.answer) for example in brought), key=lambda row: len(row[0]))
        for text in teacher.view(model, rows, layers):
            store.add(text)
        store.flush(done=True)
    say(f"text: {store.tokens:,} tokens in {store.folder} (sha256 {store.sha256()[:12]})")
    found = store.texts()
    if not found:
        raise DecError("there is no training text", hint="give --tokens above zero")
    return held.texts(), found


def _held_prompts(job: TrainingJob, tokenizer: Any, brought: list[Any]) -> tuple[list[tuple[int, ...]], set[tuple[int, ...]]]:
    """Prompts as token ids, and those of them that come out of the training data: a file's, ours, or one text in twenty."""
    if job.prompts is not None:
        rows = texts.read_prompts(job.prompts)
    elif job.self_made or getattr(tokenizer, "chat_template", None):
        rows = acceptance.prompts()
    else:
        every = max(2, len(brought) // HELD_OUT)
        chosen = [tuple(example.ids[: example.answer or job.length // 4]) for example in brought[::every]]
        return chosen, set(chosen)
    return [tuple(texts.prompt_ids(tokenizer, row)) for row in rows], set()


def _greedy(
    model: Any, tokenizer: Any, prompts: list[tuple[int, ...]], layers: tuple[int, ...], count: int
) -> Iterator[StoredRow]:
    """The target's greedy answers of at most `count` tokens, with its states, in the prompts' order."""
    yield from teacher.view(model, teacher.answers(model, prompts, count, pad=tokenizer.pad_token_id), layers)


def _over(ends: float | None, minutes: float) -> bool:
    """Whether fewer minutes than these are left before the end of the time; without an end never."""
    return ends is not None and time.monotonic() > ends - 60 * minutes


def _write(
    job: TrainingJob,
    model: Any,
    tokenizer: Any,
    layers: tuple[int, ...],
    store: TokenStore,
    brought: list[Any],
    say: Callable[[str], None],
    ends: float | None,
) -> None:
    """Let the target write until there are `job.tokens` tokens, or its share of the time is over; goes on where an earlier run
    stopped."""
    if store.tokens >= job.tokens or store.done:
        return
    writer = model
    if model.device.type == "cpu" and job.placed.dtype == AUTO and torch.cpu._is_avx512_bf16_supported():
        writer = (
            type(model)
            .from_pretrained(model.name_or_path, dtype=torch.bfloat16, trust_remote_code=False)
            .eval()
            .requires_grad_(False)
        )
    questions = None
    if job.regenerate:
        known = len(store)
        questions = iter(texts.questions(brought, tokenizer)[known:])
    begun, before = time.monotonic(), store.tokens
    with loop.stop_asked() as stop, progress.shown("train: text") as shown:
        written = selfmade.write(
            writer,
            template_of(tokenizer),
            tokenizer,
            seed=job.seed * 1009 + len(store.parts),
            rows=job.rows,
            features=layers,
            questions=questions,
            more=lambda: store.tokens < job.tokens and not stop.is_set() and not _over(ends, LEAST * job.minutes),
        )
        for row in written:
            states = torch.cat((row.features, row.features[:1] * 0)) if row.features is not None else torch.empty(0)
            store.add(StoredRow(torch.tensor(row.ids), row.answer, states))
            rate = (store.tokens - before) / (time.monotonic() - begun)
            shown(f"{store.tokens:,} tokens, {rate:.0f} a second", store.tokens, job.tokens)
        store.flush(done=job.regenerate and not stop.is_set() and not _over(ends, LEAST * job.minutes))
    if stop.is_set():
        say(f"stopped with {store.tokens:,} tokens; the same command goes on from there")
        raise KeyboardInterrupt
