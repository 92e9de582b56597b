"""decgraph train: Train a drafter or a drafting head for a model of yours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from decgraph.cli import completion, options, output
from decgraph.cli.options import option
from decgraph.errors import DecError
from decgraph.runtime.placement import AUTO, Placement

KINDS = ("drafter", "eagle", "medusa", "exit")


def command(
    kind: Annotated[str, typer.Argument(help="drafter, eagle, medusa or exit.", autocompletion=completion.choice(*KINDS))],
    model: Annotated[
        str,
        option("--model", "-m", help="The target: a folder or a name.", autocompletion=completion.models),
    ],
    data: Annotated[list[Path] | None, option("--data", help="Text to learn from, .txt or .jsonl; may be repeated.")] = None,
    self_made: Annotated[bool, option("--self", help="Let the model write its own questions and answers.")] = False,
    regenerate: Annotated[
        bool, option("--regenerate", help="Keep the questions of --data and let the model answer them.")
    ] = False,
    out: Annotated[Path | None, option("--out", "-o", help="Folder to write; the kind's name when left out.")] = None,
    tokens: Annotated[int, option("--tokens", min=1, help="Tokens that the model writes with --self.")] = 300_000,
    minutes: Annotated[float, option("--minutes", help="How long it takes, text and all.")] = 30.0,
    steps: Annotated[int | None, option("--steps", help="Length in steps instead; such a run repeats exactly.")] = None,
    resume: Annotated[bool, option("--resume", help="Go on from the last checkpoint in --work.")] = False,
    work: Annotated[Path | None, option("--work", help="Folder for text and checkpoints; OUT.work when left out.")] = None,
    prompts: Annotated[
        Path | None, option("--prompts", help="Held-out prompts to measure on, a line each or .jsonl; decgraph has some.")
    ] = None,
    seed: Annotated[int, option("--seed", help="Seed of text, weights and batches.")] = 0,
    threads: Annotated[int | None, option("--threads", min=1, help="Threads of torch.")] = None,
    batch_tokens: Annotated[int, option("--batch-tokens", min=16, help="Tokens of a step.")] = 2048,
    rows: Annotated[int, option("--rows", min=1, help="Texts that the model writes at a time.")] = 64,
    answer: Annotated[int, option("--answer", min=8, help="Tokens of a held-out answer.")] = 128,
    draft_vocabulary: Annotated[
        int | None, option("--draft-vocabulary", min=2, help="eagle: tokens that the head can say (16,384).")
    ] = None,
    output_matrix: Annotated[
        bool,
        option("--output-matrix", help="eagle: write lm_head.weight too, the target's rows, for programs that need it."),
    ] = False,
    width: Annotated[int | None, option("--width", min=32, help="drafter: width of its layers (128).")] = None,
    depth: Annotated[int | None, option("--depth", min=1, help="drafter: number of layers (2).")] = None,
    heads: Annotated[int | None, option("--heads", min=1, help="medusa: number of heads (4).")] = None,
    exit_layer: Annotated[int | None, option("--exit-layer", min=1, help="exit: layers before the exit.")] = None,
    device: options.Device = AUTO,
    dtype: options.Dtype = AUTO,
    quiet: options.Quiet = False,
    json: options.Json = False,
) -> None:
    """Train a drafter or head on the target's own text; writes a folder with a card and training.json.

    Ctrl-C finishes the step, keeps a checkpoint and writes the folder; the same command with --resume goes on.
    """
    if kind not in KINDS:
        raise DecError(f"{kind!r} cannot be trained", hint=f"one of {', '.join(KINDS)}")
    output.check_folder(out)
    given = {
        "vocabulary": ("eagle", "--draft-vocabulary", draft_vocabulary),
        "output_matrix": ("eagle", "--output-matrix", output_matrix or None),
        "width": ("drafter", "--width", width),
        "depth": ("drafter", "--depth", depth),
        "heads": ("medusa", "--heads", heads),
        "exit_layer": ("exit", "--exit-layer", exit_layer),
    }
    own: dict[str, Any] = {}
    for name, (belongs, flag, value) in given.items():
        if value is not None and belongs != kind:
            raise DecError(f"{flag} belongs to `decgraph train {belongs}`")
        if value is not None:
            own[name] = value
    placed = Placement.of(device, dtype)
    import torch

    from decgraph.zoo.training.run import TrainingJob, train

    if threads is not None:
        torch.set_num_threads(threads)
    job = TrainingJob(
        kind=kind,
        model=model,
        out=out or Path(kind),
        data=tuple(data or ()),
        self_made=self_made,
        regenerate=regenerate,
        prompts=prompts,
        tokens=tokens,
        minutes=minutes,
        steps=steps,
        batch_tokens=batch_tokens,
        resume=resume,
        work=work,
        seed=seed,
        rows=rows,
        answer=answer,
        options=own,
        placed=placed,
    )
    lines: list[str] = []
    report = train(job, lines.append if json or quiet else print)
    if json:
        acceptance = report.acceptance.record()
        output.emit_json({"folder": str(report.folder), "finished": report.outcome.finished, "acceptance": acceptance})
        return
    print(f"{report.folder}: {report.acceptance.tokens_per_call:.2f} tokens per target call on held-out prompts")
    if not report.outcome.finished:
        print("stopped before its end; the same command with --resume goes on")
