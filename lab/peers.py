"""Other engines beside decgraph on the same weights, by CPU time: `python -m lab peers --peer llama.cpp`.

Every engine runs in a process of its own (engines.py). A request is run for its first token alone and in full: what the second
takes more is decoding. The engines alternate in an order drawn for each prompt of each round, so that other work on the machine
falls on all of them.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import prod
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
from safetensors import safe_open
from typer import Argument, Exit, Option

from decgraph import errors, zoo
from decgraph.bench import prompts as texts_
from decgraph.bench.compare import Candidate, candidates, plain
from decgraph.bench.machine import facts, load, named
from decgraph.bench.measure import MeasureSettings, OnProgress, Row, silent
from decgraph.bench.prompts import BenchPrompt
from decgraph.bench.render import Table, markdown_table, number
from decgraph.cli import parsing
from decgraph.cli.output import INTERRUPTED
from decgraph.errors import DecError
from decgraph.runtime.models import processor
from decgraph.runtime.models.folders import ends, is_gguf
from decgraph.runtime.models.gguf import file as gguf
from decgraph.runtime.sources import concerns
from lab import pages

BYTES = {"F32": 4.0, "F16": 2.0, "Q8_0": 34 / 32, "Q4_1": 20 / 32, "float32": 4.0, "int8": 1.0}
"""Bytes of a weight of a matrix by the form that it is read in; vectors are float32 in all of them."""
DTYPES = {"float32": "F32", "int8": "Q8_0", "int4": "Q4_1"}
"""decgraph's precisions, and the GGUF form of each."""


@dataclass(frozen=True)
class Peer:
    """An engine. modules: those that it needs, its own first. package: what pip installs. weights: by decgraph's dtype, the
    form in which the engine reads the matrices. start: what its process runs. files: whether it reads GGUF files."""

    modules: tuple[str, ...]
    package: str
    weights: Mapping[str, str]
    start: tuple[str, ...] = (sys.executable, "-m", "lab.engines")
    files: bool = False

    @property
    def lacking(self) -> str:
        """What to install, in the words of a shell; "" where everything is there."""
        packages = zip((self.package, *self.modules[1:]), self.modules)
        return " ".join(package for package, module in packages if find_spec(module) is None)


PEERS = {
    "llama.cpp": Peer(("xllamacpp", "gguf"), "xllamacpp", DTYPES, files=True),
    "ctranslate2": Peer(("ctranslate2", "transformers"), "ctranslate2", {"float32": "float32", "int8": "int8"}),
    "openvino": Peer(
        ("openvino_genai", "gguf"), "openvino-genai", {"float32": "F16", "int8": "Q8_0", "int4": "Q4_1"}, files=True
    ),
    "transformers": Peer(("transformers",), "transformers", dict.fromkeys(DTYPES, "float32")),
}
OURS = Peer(("decgraph",), "decgraph", DTYPES)


class Process:
    """An engine's process, as the one that measures sees it."""

    def __init__(self, start: Sequence[str], job: Row) -> None:
        """Starts it and waits until its model is loaded. Raises DecError with the engine's own words where it is not."""
        ours = str(Path(errors.__file__).resolve().parents[1])
        environment = {**os.environ, "OMP_NUM_THREADS": str(job["threads"]), "OMP_WAIT_POLICY": "passive"}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True, env=environment,
            start_new_session=True,  # Ctrl-C is for the process that measures
        )  # fmt: skip
        try:
            self.ask(job)
        except BaseException:
            self.close()
            raise

    def ask(self, line: Row) -> Row:
        """The answer to a line. Raises DecError where the engine says an error, or ends."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()
            answer: Row = json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            code = self.process.wait()
            self.log.seek(0)
            raise DecError(
                f"its process ended with {code}: {(self.log.read().strip().splitlines() or [''])[-1][:300]}"
            ) from None
        if "error" in answer:
            raise DecError(answer["error"])
        return answer

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.communicate()
        self.log.close()


def bandwidth() -> float:
    """Bytes that one thread reads in a second: a sum over 256 MB of float32, the best of eight."""
    threads, numbers, best = torch.get_num_threads(), torch.ones(64 << 20), float("inf")
    torch.set_num_threads(1)
    for _ in range(8):
        began = time.process_time()
        numbers.sum()
        best = min(best, time.process_time() - began)
    torch.set_num_threads(threads)
    return 4 * numbers.numel() / best


def sizes(model: Path) -> tuple[int, int] | None:
    """How many numbers of matrices and of vectors a token reads: all of a model's, but a table of embeddings that is not the
    output's too. None for a mixture of experts, of which a token reads a part."""
    shapes: dict[str, list[int]] = {}
    if is_gguf(model):
        shapes = {name: list(entry.shape) for name, entry in gguf.read(model).tensors.items()}
    for file in sorted(model.glob("*.safetensors")):
        with safe_open(file, "np") as tensors:
            shapes |= {name: tensors.get_slice(name).get_shape() for name in list(tensors.keys())}
    if any("expert" in name for name in shapes):
        return None
    read = [shape for name, shape in shapes.items() if name not in idle(shapes)]
    return sum(prod(s) for s in read if len(s) > 1), sum(prod(s) for s in read if len(s) < 2)


def idle(names: Collection[str]) -> list[str]:
    """The tables of embeddings among tensors that are not the output's too: a token reads a row of them."""
    untied = "lm_head.weight" in names or "output.weight" in names
    return [name for name in names if untied and ("embed_tokens" in name or name == "token_embd.weight")]


def bytes_of(file: gguf.GgufFile) -> int:
    """The bytes of a GGUF file that a token reads."""
    return sum(entry.size for name, entry in file.tensors.items() if name not in idle(file.tensors))


def measure(
    wanted: Comparison, engines: Mapping[str, tuple[Peer, Row]], on_progress: OnProgress
) -> tuple[dict[str, Row], dict[str, str], float, bool]:
    """Every engine on every prompt, `rounds` times after one that is not timed. engines: by label, the engine and its job.

    Returns by label the tokens of every prompt and a record of times for each round and prompt; why an engine is not measured;
    the greatest bandwidth that was found before a round; whether Ctrl-C came. Raises it where nothing was timed.
    """
    prompts, settings, speed = wanted.prompts, wanted.settings, 0.0
    order, made, failed = random.Random(settings.seed), dict[str, Row](), dict[str, str]()
    going: dict[str, Process] = {}

    def ask(label: str, n: int, limit: int) -> Row:
        return going[label].ask({"prompt": list(prompts[n].tokens), "limit": limit})

    def run(round_: int, n: int) -> None:
        for label in order.sample(list(going), len(going)):
            try:
                first, full = ask(label, n, 1), ask(label, n, settings.limit)
            except DecError as error:
                failed[label] = str(error.diagnostics[0])
                going.pop(label).close()
                made.pop(label)
                continue
            if round_ < 0:
                made[label]["tokens"].append(full["tokens"])
            elif (count := len(full["tokens"]) - 1) > 0:  # a text that ends with its first token has no decoding to measure
                times = {clock: max(full[clock] - first[clock], 1e-9) for clock in ("cpu", "wall")}
                made[label]["times"].append({"round": round_, "prompt": n, "tokens": count, **times, "first": first["cpu"]})

    try:
        for label, (peer, job) in engines.items():
            on_progress(f"loading {label}", 0.0)
            try:
                going[label] = Process(peer.start, job)
                made[label] = {"tokens": [], "times": []}
            except DecError as error:
                failed[label] = str(error.diagnostics[0])
        for round_ in range(-1, settings.rounds):
            speed = max(speed, bandwidth())
            for n in range(len(prompts)):
                on_progress(f"round {round_ + 1} of {settings.rounds}", (round_ + 1 + n / len(prompts)) / (settings.rounds + 1))
                run(round_, n)
    except KeyboardInterrupt:
        made = {label: row for label, row in made.items() if row["times"]}
        if not made:
            raise
        return made, failed, speed, True
    finally:
        for process in going.values():
            process.close()
    for label in [label for label, row in made.items() if not row["times"]]:
        failed[label] = "every text ended with its first token: there is no decoding to measure"
        made.pop(label)
    return made, failed, speed, False


def row_of(label: str, made: Mapping[str, Row], first: str, ends: frozenset[int], floor: float | None) -> Row:
    """The figures of an engine. first: decgraph's row, which the others are compared with. floor: the least seconds a token."""
    times, rounds = made[label]["times"], {"cpu": list[float](), "wall": list[float]()}
    for round_ in sorted({one["round"] for one in times}):
        part = [one for one in times if one["round"] == round_]
        for clock, speeds in rounds.items():
            speeds.append(sum(one["tokens"] for one in part) / sum(one[clock] for one in part))
    row: Row = {
        "engine": label,
        "tokens_per_cpu_second": {"best": max(rounds["cpu"]), "median": median(rounds["cpu"])},
        "tokens_per_second": median(rounds["wall"]),
        "prompt_cpu_seconds": median(one["first"] for one in times),
        "floors": None if floor is None else 1 / max(rounds["cpu"]) / floor,
        "ratio": None,
        "tokens_equal": None,
    }
    if first in made and label != first:
        pairs = {(one["round"], one["prompt"]): one["cpu"] / one["tokens"] for one in made[first]["times"]}
        row["ratio"] = median(one["cpu"] / one["tokens"] / pairs[one["round"], one["prompt"]] for one in times
                              if (one["round"], one["prompt"]) in pairs)  # fmt: skip
        texts = list(zip(made[first]["tokens"], made[label]["tokens"], strict=True))
        lengths = [next((n for n, token in enumerate(ours) if token in ends), len(ours)) for ours, _ in texts]
        row["tokens_equal"] = sum(a[:n] == b[:n] for n, (a, b) in zip(lengths, texts, strict=True))
    return row


@dataclass(frozen=True)
class Comparison:
    """What is measured. algorithms: decgraph's; the others are compared with the first. peers: names of
    `PEERS`. model: its folder or GGUF file; parts: folders of other models by the name of an algorithm's parameter. ends: the
    tokens that end a text: tokens are compared before them, since some engines forbid them."""

    algorithms: tuple[Candidate, ...]
    peers: tuple[str, ...]
    model: Path
    prompts: tuple[BenchPrompt, ...]
    settings: MeasureSettings
    dtype: str = "float32"
    threads: int = 1
    parts: Mapping[str, str] = field(default_factory=dict)
    ends: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if unknown := next((name for name in self.peers if name not in PEERS), None):
            raise DecError(f"there is no peer {unknown!r}", hint=f"one of {', '.join(PEERS)}")
        if is_gguf(self.model) and self.dtype != "float32":
            raise DecError(f"{self.model} is measured in the form that it has", hint="leave --dtype out")
        if self.dtype not in DTYPES:
            raise DecError(f"no peer is measured in {self.dtype}", hint=f"--dtype {', '.join(DTYPES)}")
        if masked := [one.label for one in self.algorithms if one.masked]:
            raise DecError(f"{masked[0]} decodes with a masked model, and peers do not", hint="autoregressive")

    def engines(self) -> tuple[dict[str, tuple[Peer, Row]], dict[str, str]]:
        """By label, the engines and their jobs; and those that cannot be measured, with the reason."""
        context = max(len(one.tokens) for one in self.prompts) + self.settings.limit + 8
        dtype = "auto" if is_gguf(self.model) else self.dtype
        common = {"model": str(self.model), "dtype": dtype, "threads": self.threads, "context": context}
        made, failed = dict[str, tuple[Peer, Row]](), dict[str, str]()
        own_form = gguf.read(self.model).form if is_gguf(self.model) else ""
        for one in self.algorithms:
            parts = {name: value for name, value in self.parts.items() if concerns(one.algorithm.function, name)}
            own = {
                "weights": own_form or DTYPES[self.dtype],
                "algorithm": one.algorithm.spec,
                "params": plain(one.values),
                "parts": parts,
            }
            made[f"decgraph {one.label}"] = OURS, {**common, "engine": "decgraph", **own}
        for name in dict.fromkeys(self.peers):
            peer = PEERS[name]
            if peer.lacking:
                failed[name] = f"it is not installed: pip install {peer.lacking}"
            elif own_form and not peer.files:
                failed[name] = "it reads no GGUF file"
            elif self.dtype not in peer.weights:
                failed[name] = f"it has no {self.dtype} weights on a CPU"
            else:
                made[name] = peer, {**common, "engine": name, "weights": own_form or peer.weights[self.dtype]}
        return made, failed

    def document(self, on_progress: OnProgress = silent, *, command: str = "", source: Row | None = None) -> Row:
        """Measures, and returns the result file. source: of the prompts. Raises DecError where no engine could be measured."""
        engines, failed = self.engines()
        started, machine = time.strftime("%Y-%m-%dT%H:%M:%S%z"), facts(*(peer.package for peer, _ in engines.values()))
        counted, versions = sizes(self.model), machine["versions"]
        made, broken, speed, interrupted = measure(self, engines, on_progress)
        failed |= broken
        if not made:
            raise DecError("no engine could be measured", hint="; ".join(f"{name}: {why}" for name, why in failed.items()))
        rows = []
        for label in made:
            peer, job = engines[label]
            read = None if counted is None else counted[0] * BYTES.get(job["weights"], 0) + 4 * counted[1]
            if is_gguf(self.model) and counted is not None:
                read = bytes_of(gguf.read(self.model))
            row = row_of(label, made, next(iter(engines)), self.ends, read and read / speed)
            rows.append({**row, "weights": job["weights"], "bytes_per_token": read, "version": versions[peer.package]})
        lengths = [len(one.tokens) for one in self.prompts]
        return {
            "version": 1,
            "command": command,
            "started": started,
            "machine": {**machine, "features": features(), "load_after": load()},
            "model": {"name": self.model.name, "folder": str(self.model), "numbers": counted and sum(counted)},
            "dtype": self.dtype,
            "threads": self.threads,
            "settings": {"limit": self.settings.limit, "rounds": self.settings.rounds, "seed": self.settings.seed},
            "prompts": {"count": len(lengths), "least": min(lengths), "most": max(lengths), **(source or {})},
            "bandwidth": speed,
            "rows": rows,
            "failed": failed,
            "interrupted": interrupted,
            "times": {label: one["times"] for label, one in made.items()},
        }


def features() -> list[str]:
    """What the processor has of the instructions that decide such figures, as far as the system says."""
    wanted = ("avx2", "f16c", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_int8")
    return [name for name in wanted if name in processor.features().split()]


def table(document: Row) -> Table:
    """The rows for people."""
    head = ["engine", "weights", "tokens a CPU second, best", "median", "decgraph is times as fast", "memory floors",
            "prompt, CPU ms", "tokens a second", "same tokens"]  # fmt: skip
    count, rows = document["prompts"]["count"], []
    for row in document["rows"]:
        speeds = row["tokens_per_cpu_second"]
        rows.append([
            f"{row['engine']} {row['version']}", row["weights"], number(speeds["best"], 1), number(speeds["median"], 1),
            number(row["ratio"]), number(row["floors"]), number(1000 * row["prompt_cpu_seconds"], 0),
            number(row["tokens_per_second"], 1), "-" if row["tokens_equal"] is None else f"{row['tokens_equal']} of {count}",
        ])  # fmt: skip
    return head, rows


def caption(document: Row) -> str:
    """Model, precision and settings, in a line."""
    model, settings, prompts = document["model"], document["settings"], document["prompts"]
    threads, rounds = document["threads"], settings["rounds"]
    read = f" ({model['numbers'] / 1e6:.1f}M numbers read a token)" if model["numbers"] else ""
    return (
        f"{model['name']}{read}, {document['dtype']}, {threads} thread{'s' * (threads != 1)}, {settings['limit']} new tokens, "
        f"{rounds} round{'s' * (rounds != 1)}; {prompts['count']} prompts ({prompts['least']} to {prompts['most']} tokens)"
    )


def notes(document: Row) -> list[str]:
    """What stands below the table."""
    machine = document["machine"]
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
    bandwidth = f"{document['bandwidth'] / 1e9:.1f} GB/s"
    lines = [
        (
            "CPU seconds are user and system time of an engine's own process, the prompt taken off. A memory floor is the time "
            f"in which one thread reads the weights of a token once, at {bandwidth} (a sum over 256 MB of float32 in this "
            "run), and is given of the best round. Tokens are compared with decgraph's, up to the end of its text."
        ),
        (
            f"{named(machine)} ({' '.join(machine['features'])}), {machine['cores']} cores, load {machine['load']} before and "
            f"{machine['load_after']} after; Python {machine['python']}, {versions}."
        ),
    ]
    lines += [f"Command: {document['command']}"] if document["command"] else []
    lines += ["Interrupted: fewer rounds were measured."] if document["interrupted"] else []
    return [*lines, *(f"{label} is not measured: {why}" for label, why in document["failed"].items())]


def command(
    algorithms: Annotated[list[str] | None, Argument(help="decgraph's: names or .dec files, `speculative:gamma=6`.")] = None,
    peer: Annotated[list[str] | None, Option(help=f"Another engine: {', '.join(PEERS)}; all where none is named.")] = None,
    model: Annotated[str, Option(help="The target: a name, a folder or a GGUF file.")] = "target",
    part: Annotated[list[str] | None, Option(help="Another model, `drafter=FOLDER`.")] = None,
    prompts: Annotated[Path | None, Option(help="Prompts: .txt, one a line, or .jsonl.")] = None,
    chat: Annotated[bool, Option(help="Through the model's chat template.")] = False,
    take: Annotated[int | None, Option(help="At most so many prompts of each kind.")] = None,
    max_tokens: Annotated[int, Option(help="New tokens of a request.")] = 64,
    rounds: Annotated[int, Option(help="Timed runs of each request.")] = 5,
    threads: Annotated[int, Option(help="Threads of all sides.")] = 1,
    dtype: Annotated[str, Option(help=", ".join(DTYPES))] = "float32",
    results: Annotated[Path | None, Option(help="Write everything measured to this file.")] = None,
) -> None:
    """Measure and print; greedy decoding on the CPU, each engine in a process of its own."""
    names = zoo.known()
    names.check(model)
    folder = names.folder_of(model)
    source = texts_.read(prompts) if prompts is not None else texts_.built_in() if chat else texts_.code()
    comparison = Comparison(
        tuple(candidates(algorithms or ["autoregressive"], {})), tuple(peer or PEERS), folder,
        tuple(texts_.encoded(texts_.taken(source.texts, take), folder, chat=chat)), MeasureSettings(max_tokens, rounds),
        dtype, threads, parsing.pairs(part or (), "--part"), ends(folder),
    )  # fmt: skip
    document = comparison.document(
        lambda what, done: print(f"{done:4.0%} {what}", file=sys.stderr),
        command=shlex.join(["python", "-m", "lab", "peers", *sys.argv[2:]]),
        source={"source": source.name, "sha256": source.digest, "chat": chat},
    )
    if results is not None:
        pages.keep(results, document)
    print(f"**{caption(document)}**\n\n{markdown_table(table(document))}")
    print("\n".join(f"- {one}" for one in notes(document)))
    if document["interrupted"]:
        raise Exit(INTERRUPTED)
    if not any(row["engine"].startswith("decgraph ") for row in document["rows"]):
        raise DecError("no algorithm could be measured", hint="the reasons are below the table")
