"""Options that several commands have, as types of their parameters: `prompt: options.Prompt = None`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer


def option(*names: str, help: str) -> Any:  # Any: typer's description of an option
    """`typer.Option` without a default, short enough for a line of a command."""
    return typer.Option(*names, help=help)


# What is decoded.
Prompt = Annotated[str | None, option("--prompt", "-p", help="The prompt.")]
PromptFile = Annotated[Path | None, option("--prompt-file", help="A file with the prompt; - is stdin.")]
Ids = Annotated[str | None, option("--ids", help='The prompt as token ids: "1 2 3".')]
Chat = Annotated[bool, option("--chat", help="The prompt is a message: use the model's chat template.")]
System = Annotated[str | None, option("--system", help="With --chat: the system message before it.")]

# By what.
Model = Annotated[
    list[str] | None, option("--model", "-m", help="FOLDER or a name of `decgraph zoo list`; drafter=FOLDER for another.")
]
Set = Annotated[list[str] | None, option("--set", help="A parameter: gamma=4. Also as --gamma 4.")]
Extern = Annotated[list[str] | None, option("--extern", help="A function it calls: file.py:name.")]
Backend = Annotated[str | None, option("--backend", help="torch, triton or reference.")]

# Where.
Device = Annotated[str, option("--device", help="auto, cpu, cuda or cuda:1. auto: CUDA where there is one.")]
Dtype = Annotated[
    str,
    option(
        "--dtype",
        help="auto, float32, bfloat16, float16; int8, int4: weights, on a CPU. auto: a model's own on CUDA, float32 on a CPU.",
    ),
]

# How.
MaxNew = Annotated[int, option("--max-new", "-n", help="Most new tokens.")]
Temperature = Annotated[float | None, option("--temperature", "-t", help="0 is greedy. Default: the model's own, else 0.")]
TopK = Annotated[int | None, option("--top-k", help="Keep the k likeliest tokens.")]
TopP = Annotated[float | None, option("--top-p", help="Keep the likeliest tokens whose probabilities add up to p.")]
MinP = Annotated[float | None, option("--min-p", help="Keep tokens above p times the likeliest's.")]
RepetitionPenalty = Annotated[float | None, option("--repetition-penalty", help="1 is off.")]
Strict = Annotated[bool, option("--strict", help="An error in a draft ends the run; else it ends that draft.")]
Seed = Annotated[int, option("--seed", help="Seed of all noise: the same seed commits the same tokens.")]
Stop = Annotated[list[str] | None, option("--stop", help="Text that ends the run.")]
Regex = Annotated[str | None, option("--regex", help="The new text must match this regular expression.")]
JsonSchema = Annotated[Path | None, option("--json-schema", help="It must be JSON that this schema describes.")]
Grammar = Annotated[Path | None, option("--grammar", help="It must be a text of this Lark grammar.")]
