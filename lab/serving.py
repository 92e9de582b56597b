"""Measure a server under load: answers beside `decgraph.run`'s, tokens a second, and the time to a first token.

Four parts, each on a `decgraph serve` of its own. `stress`: many streaming clients of OpenAI's, of whom some go away in the
middle, on the shipped models with several algorithms; every finished answer is compared with `decgraph.run` for the same seed,
and every broken-off one must begin it. `throughput`: tokens a second of one client and of many. `first-token`: the time to the
first token of short prompts while a long one is computed, with and without chunks. `grammars`: the time of a request for two
tokens while grammars of others are read and followed. The openai package is needed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

from typer import Exit, Option

ALGORITHMS = ("speculative", "autoregressive", "prompt_lookup", "medusa", "eagle2", "sequoia")
PROMPTS = (
    "def main():\n",
    "import os\n\nclass Reader:\n    def read(self, size):\n",
    "# The quick brown fox\n",
    "for i in range(10):\n    print(i)\n\nfor i in range(10):\n",
)
QUESTIONS = ("What is the capital of France?", "Write a haiku about rain.", "Count to twenty.", "Why is the sky blue?")


@dataclass
class Process:
    """A server's process: where it is, how much memory and processor time it has taken."""

    url: str
    pid: int

    @property
    def memory(self) -> float:
        """Resident memory in MiB."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            (line,) = [line for line in file if line.startswith("VmRSS")]
        return int(line.split()[1]) / 1024

    @property
    def processor(self) -> float:
        """Seconds of processor time, of all threads."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as file:
            parts = file.read().rsplit(")", 1)[1].split()
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(*options: str) -> Iterator[Process]:
    """`decgraph serve` on a free port, ended by SIGTERM."""
    command = [sys.executable, "-m", "decgraph", "serve", "--port", "0", "--json", *options]
    started = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert started.stdout is not None
    try:
        said = ""
        while not said.rstrip().endswith("}"):
            line = started.stdout.readline()
            if not line:
                raise SystemExit(f"{' '.join(command)} ended before it served")
            said += line
        url = json.loads(said)["url"]
        wait_for(url)
        yield Process(url, started.pid)
    finally:
        started.send_signal(signal.SIGTERM)
        started.wait(60)


def wait_for(url: str) -> None:
    """Until the server takes work."""
    import httpx

    for _ in range(600):
        try:
            httpx.get(f"{url.removesuffix('/v1')}/ready", timeout=5).raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(0.1)
    raise SystemExit(f"nothing answers at {url}")


def clients(url: str, count: int) -> list[Any]:
    """So many clients, each with connections of its own."""
    import openai

    return [openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=600) for _ in range(count)]


@dataclass
class Tally:
    """What came of the stress."""

    finished: int = 0
    left: int = 0
    tokens: int = 0
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    """Seconds since the beginning, and MiB."""

    def growth(self) -> str:
        """MiB a minute by a straight line through the second half of the readings, with its standard error: in the first
        half every algorithm runs for the first time."""
        import numpy as np

        late = [row for row in self.memory if row[0] >= self.memory[-1][0] / 2] if self.memory else []
        if len(late) < 4:
            return "too few readings of memory for its growth"
        at, sizes = np.array(late).T
        at = at / 60
        slope, start = np.polyfit(at, sizes, 1)
        spread = ((sizes - slope * at - start) ** 2).sum() / (len(at) - 2)
        error = float(np.sqrt(spread / ((at - at.mean()) ** 2).sum()))
        return f"memory of the second half grows by {slope:.1f} MiB a minute (standard error {error:.1f})"


class Key(NamedTuple):
    """An answer that clients want. prompt: of `PROMPTS`."""

    algorithm: str
    prompt: int
    seed: int
    temperature: float
    limit: int


def answers_of(seeds: int) -> dict[Key, str]:
    """The answers of the command line, one after the other."""
    import decgraph

    drawn, out = random.Random(1), {}
    for name in ALGORITHMS:
        session = decgraph.load(name).session()
        assert session.tokenizer is not None
        for prompt, text in enumerate(PROMPTS):
            for seed in range(seeds):
                key = Key(name, prompt, seed, drawn.choice((0.0, 0.8, 1.0)), drawn.choice((8, 24, 48)))
                session.shared.clear()
                given: dict[str, Any] = {"seed": seed, "temperature": key.temperature, "max_tokens": key.limit}
                request = decgraph.models.request_for(session, text, **given)
                tokens = session.run(request, keep_events=False).tokens
                out[key] = session.tokenizer.decode(tuple(t for t in tokens if t not in request.eos))
    return out


async def ask(client: Any, key: Key, leave: int | None) -> tuple[str, bool]:
    """One stream, left after so many chunks: its text, and whether it ended."""
    stream = await client.completions.create(
        model=f"decgraph:{key.algorithm}", prompt=PROMPTS[key.prompt], max_tokens=key.limit, temperature=key.temperature,
        seed=key.seed, stream=True,
    )  # fmt: skip
    text, ended, seen = "", False, 0
    async for chunk in stream:
        text += chunk.choices[0].text
        ended = ended or chunk.choices[0].finish_reason is not None
        seen += 1
        if leave is not None and seen >= leave:
            await stream.close()
            break
    return text, ended


async def stress(process: Process, answers: dict[Key, str], seconds: float, count: int) -> Tally:
    """Clients until `seconds` seconds are over."""
    tally, asked, began = Tally(), list(answers), time.monotonic()
    until = began + seconds

    async def live(number: int, client: Any) -> None:
        drawn = random.Random(number)
        while time.monotonic() < until:
            key = drawn.choice(asked)
            leave = drawn.randrange(1, 12) if drawn.random() < 0.3 else None
            try:
                text, ended = await ask(client, key, leave)
            except Exception as error:
                tally.wrong.append(f"{key}: {type(error).__name__}: {error}")
                continue
            tally.finished += ended
            tally.left += not ended
            tally.tokens += len(text)
            if not (text == answers[key] if ended else answers[key].startswith(text)):
                tally.wrong.append(f"{key}: {text!r} instead of {answers[key]!r}")

    async def watch() -> None:
        while time.monotonic() < until:
            tally.memory.append((time.monotonic() - began, process.memory))
            await asyncio.sleep(max(0.5, seconds / 60))

    many = clients(process.url, count)
    await asyncio.gather(watch(), *(live(n, client) for n, client in enumerate(many)))
    tally.memory.append((time.monotonic() - began, process.memory))
    for client in many:
        await client.close()
    return tally


async def throughput(process: Process, count: int, rounds: int, limit: int) -> tuple[float, float]:
    """Tokens a second, and tokens a second of processor time, of so many clients with `rounds` requests each."""
    many = clients(process.url, count)
    total = 0

    async def live(number: int, client: Any) -> None:
        nonlocal total
        for turn in range(rounds):
            question = f"{QUESTIONS[(number + turn) % len(QUESTIONS)]} ({number})"
            got = await client.chat.completions.create(
                model="smollm2", messages=[{"role": "user", "content": question}], max_tokens=limit, temperature=0,
                logit_bias={"2": -100},
            )  # fmt: skip
            total += got.usage.completion_tokens

    began, spent = time.perf_counter(), process.processor
    await asyncio.gather(*(live(n, client) for n, client in enumerate(many)))
    wall, spent = time.perf_counter() - began, process.processor - spent
    for client in many:
        await client.close()
    return total / wall, total / spent


async def first_tokens(process: Process, words: int, repeats: int) -> tuple[list[float], list[float]]:
    """Seconds to the first token of short prompts, alone and beside a long prompt."""

    async def first(text: str) -> float:
        began = time.perf_counter()
        stream = await short.completions.create(model="smollm2", prompt=text, max_tokens=2, stream=True, temperature=0)
        async for _ in stream:
            took = time.perf_counter() - began
            break
        await stream.close()
        return took

    short, long = clients(process.url, 2)
    alone = [await first(f"Question {n}: hello") for n in range(repeats)]
    beside = []
    for n in range(repeats):
        prompt = f"{n} " + "The quick brown fox jumps over the lazy dog again. " * (words // 11)
        reading = asyncio.ensure_future(long.completions.create(model="smollm2", prompt=prompt, max_tokens=1, temperature=0))
        await asyncio.sleep(0.15)  # it is being computed by then
        beside.append(await first(f"Question {n}: goodbye"))
        await reading
    for client in (short, long):
        await client.close()
    return alone, beside


def heavy() -> dict[str, dict[str, Any]]:
    """Grammars that take long, each by a name and as fields of a request; `{turn}` makes every one a new one."""
    keys = {f"property {n}": {"type": "string", "maxLength": 40} for n in range(5000)}
    schema = {"type": "object", "properties": keys, "required": list(keys), "additionalProperties": False}
    return {
        "an answer without a grammar": {},
        "a regex bomb": {"regex": "(((((a|{turn}){1,100}){1,100}){1,100}){1,100})"},
        "1,000 choices": {"choice": [f"{{turn}} word {n}" for n in range(1000)]},
        "a schema of 60,000 tokens": {"json_schema": {"title": "{turn}", **schema}},
    }


async def beside_grammars(process: Process, fields: dict[str, Any], repeats: int) -> tuple[list[float], list[float]]:
    """Seconds of requests for two tokens, alone and beside a grammar that is new each time."""
    import httpx

    async def ask(**fields: Any) -> float:
        began = time.perf_counter()
        await client.post(f"{process.url}/completions", json={"model": "decgraph", "prompt": "def", "max_tokens": 2, **fields})
        return time.perf_counter() - began

    alone, beside = [], []
    async with httpx.AsyncClient(timeout=600) as client:
        for turn in range(repeats):
            alone += [await ask() for _ in range(5)]
            mine = json.loads(json.dumps(fields).replace("{turn}", f"turn {turn}"))
            reading = asyncio.ensure_future(ask(**{"max_tokens": 30, **mine}))
            while not reading.done():
                beside.append(await ask())
            await reading
    return alone, beside


def stressed(seconds: float, count: int, seeds: int) -> Tally:
    """The stress, with its figures printed."""
    answers, offered = answers_of(seeds), [word for name in ALGORITHMS for word in ("-a", name)]
    with server(*offered, "--max-concurrent", "16", "--max-queue", str(4 * count), "--keep", "64") as process:
        tally = asyncio.run(stress(process, answers, seconds, count))
    rows = ", ".join(f"{m:.0f}" for _, m in tally.memory[:: max(1, len(tally.memory) // 12)])
    print(f"stress: {count} clients, {seconds:.0f} s: {tally.finished} answers finished, {tally.left} left by their clients,")
    print(f"  {len(tally.wrong)} wrong, {tally.tokens} characters; memory in MiB: {rows}\n  {tally.growth()}", flush=True)
    for line in tally.wrong[:5]:
        print(f"  {line}")
    return tally


def command(
    only: Annotated[Literal["stress", "throughput", "first-token", "grammars"] | None, Option(help="One part.")] = None,
    seconds: float = 120,
    count: Annotated[int, Option("--clients")] = 32,
    seeds: Annotated[int, Option(help="How many of each prompt and algorithm of the stress.")] = 2,
    many: Annotated[int, Option(help="Clients of the throughput.")] = 16,
    limit: Annotated[int, Option(help="New tokens of its answers.")] = 48,
    prompt: Annotated[int, Option(help="Tokens of the long prompt.")] = 1500,
) -> None:
    """Run the parts and print their figures; the exit code is 1 where an answer was wrong."""
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}", flush=True)
    wrong = only in (None, "stress") and bool(stressed(seconds, count, seeds).wrong)
    smollm2 = ("-m", "smollm2", "-a", "autoregressive")
    if only in (None, "throughput"):
        with server(*smollm2) as process:
            asyncio.run(throughput(process, 1, 1, 8))  # the first forwards
            one, all_, again = (asyncio.run(throughput(process, *how, limit)) for how in ((1, 3), (many, 1), (1, 3)))
        single = [(a + b) / 2 for a, b in zip(one, again, strict=True)]
        print(f"throughput: one client {single[0]:.1f} tokens/s ({single[1]:.1f} a processor second), {many} clients")
        print(f"  {all_[0]:.1f} ({all_[1]:.1f}): {all_[0] / single[0]:.2f} times ({all_[1] / single[1]:.2f})", flush=True)
    for chunk in ("64", "256", "0") if only in (None, "first-token") else ():
        with server(*smollm2, "--prefill", chunk) as process:
            asyncio.run(throughput(process, 1, 1, 4))
            alone, beside = asyncio.run(first_tokens(process, prompt, 3))
        print(f"first token with --prefill {chunk}: alone {statistics.median(alone):.2f} s, beside a prompt of")
        print(f"  {prompt} tokens {statistics.median(beside):.2f} s (most {max(beside):.2f})", flush=True)
    if only in (None, "grammars"):
        with server("-a", "autoregressive") as process:
            asyncio.run(beside_grammars(process, {}, 2))
            for name, fields in heavy().items():
                alone, beside = asyncio.run(beside_grammars(process, fields, 5))
                few, mean, most = statistics.mean(alone), statistics.mean(beside), max(beside)
                print(f"two tokens beside {name}: {mean:.3f} s (most {most:.3f}, {len(beside)} of them); alone")
                print(f"  {few:.3f} (most {max(alone):.3f}): {mean / few:.2f} times", flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")
    raise Exit(wrong)
