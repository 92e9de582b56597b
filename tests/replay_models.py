"""What models of small folders do under requests of every kind: one row for each pair in replay_models.tsv.

`replay.py` has table models alone: no engine, decoder, head or cache of a transformers model runs in it. A refactoring of
these changes no row here. Digests are of tokens; sums of log-probabilities may differ as processors do.

    python tests/replay_models.py                 which rows differ from the committed ones
    python tests/replay_models.py eagle --write   commit to what rows with a name that begins so are now
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lib.models import masked_modules, published_heads
from lib.models.architecture_table import ROWS, architecture
from lib.models.family_configs import random_model
from lib.models.hf_models import llama, noisy
from safetensors.torch import save_file
from torch import Tensor

from decgraph.bench.compare import candidates
from decgraph.runtime.models.engine.of import engine_of
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Unmasked

Write = Callable[[Path], Mapping[str, Path]]
TABLE = Path(__file__).parent / "replay_models.tsv"
COLUMNS = ("name", "tokens", "calls", "computed", "moved", "logprobs")
SPREAD = 1e-6
"""By which share of itself, or of 100 where that is more, a sum of log-probabilities may differ: as processors add."""
ROOM = 330  # rows of one model in a cache that is too small
PROMPTS = ((5, 9, 11, 5, 9, 7), (8, 3, 8, 3), (4, 6, 4, 6, 4, 6, 30, 2, 9), (12, 13), (7, 7, 7, 7, 7))


@dataclass(frozen=True)
class Case:
    """write: makes the folders that an algorithm's models stand in, by its parameters. algorithms: each is run by every
    kind of request in `kinds`."""

    write: Write
    algorithms: tuple[str, ...]
    kinds: tuple[str, ...] = ("alone", "batch", "cancelled", "sampled")


def family(name: str) -> Write:
    """A causal model of a family: an entry of the decoder, or another architecture that runs as a module."""

    def write(at: Path) -> Mapping[str, Path]:
        module = architecture(name) if name in ROWS else random_model(name, torch.float32)
        module.generation_config.eos_token_id = None
        module.save_pretrained(at / "target")
        return {"target": at / "target"}

    return write


def head(parameter: str, made: Callable[[], tuple[dict[str, Any], published_heads.Weights]]) -> Write:
    """A head of a published layout on a Llama of four layers."""

    def write(at: Path) -> Mapping[str, Path]:
        llama(0, layers=4).save_pretrained(at / "target")
        return {"target": at / "target", parameter: published_heads.written(at / "head", *made())}

    return write


def medusa(at: Path) -> Mapping[str, Path]:
    """Medusa's heads in a folder of their own."""
    llama(0, layers=4).save_pretrained(at / "target")
    return {"target": at / "target", "target.heads": published_heads.written(at / "head", *published_heads.medusa())}


def masked(settings: Callable[[], dict[str, Any]], weights: Callable[[], Mapping[str, Tensor]]) -> Write:
    """A masked model, as its authors publish it."""

    def write(at: Path) -> Mapping[str, Path]:
        at.mkdir(exist_ok=True)
        (at / "config.json").write_text(json.dumps(settings()), encoding="utf-8")
        save_file(dict(weights()), at / "model.safetensors")
        return {"model": at}

    return write


def gguf(form: str) -> Write:
    """A Llama as llama.cpp's converter writes it."""

    def write(at: Path) -> Mapping[str, Path]:
        from lib.models import gguf_files

        return {"target": gguf_files.write(at / "target.gguf", "llama", gguf_files.module_of("llama"), form)}

    return write


def pair(at: Path) -> Mapping[str, Path]:
    """A target, and a drafter whose drafts it often accepts: its own weights with a little noise."""
    llama(0, layers=4).save_pretrained(at / "target")
    noisy(llama(0, layers=4), 0.02).save_pretrained(at / "drafter")
    return {"target": at / "target", "drafter": at / "drafter"}


def akin(at: Path) -> Mapping[str, Path]:
    """A target whose next token is mostly its last one's doing, and an EAGLE head of the target's own embedding and layer: half
    of its drafts are accepted, and it reads features all the same."""
    target = llama(0, layers=1, num_key_value_heads=published_heads.HEADS)
    target.model.layers[0].self_attn.o_proj.weight.data *= 0.1
    target.model.layers[0].mlp.down_proj.weight.data *= 0.1
    target.save_pretrained(at / "target")
    config, weights = published_heads.eagle1(bias=False)
    same, own = torch.eye(published_heads.WIDTH), dict(target.model.named_parameters())
    weights |= {name: own[name].detach().clone() for name in weights if name in own}
    weights["fc.weight"] = torch.cat([2 * same, 0.3 * same.roll(1, 0)], 1)
    return {"target": at / "target", "head": published_heads.written(at / "head", config, weights)}


DRAFTS = ("autoregressive", "prompt_lookup:k=4", "token_recycling:shape=2x2,k=2")
UNMASK = ("llada:length=8,block=4,steps=8", "fast_dllm_prefix:length=8,block=4,tau=0.3", "dkv_cache:length=8,block=4")
EVERY = ("alone", "batch", "cancelled", "sampled", "rewound", "crowded")
RECURRENT = ("autoregressive", "prompt_lookup:k=4")
CASES: dict[str, Case] = {
    **{name: Case(family(name), DRAFTS) for name in (
        "llama", "qwen3", "mistral", "gemma2", "gpt2", "gpt_neox", "falcon", "phi3", "mixtral", "gpt_oss", "deepseek_v3",
        "llama, yarn", "gemma3_text, scaled")},
    **{name: Case(family(name), RECURRENT) for name in ("gemma4_text", "qwen3_next", "zamba2", "falcon_mamba")},
    "pair": Case(pair, ("speculative:gamma=3", "recursive_sd:shape=2x2", "sequoia:shape=2x2", "pearl:gamma=3", "swift")),
    "tight": Case(pair, ("speculative:gamma=3", "sequoia:shape=2x2", "pearl:gamma=3"), ("rewound", "crowded")),
    "akin": Case(akin, ("eagle1:shape=2x2", "eagle2:depth=3,k=2,budget=6"), EVERY),
    "memory": Case(pair, ("magicdec:sinks=1,recent=3",), ("alone", "batch")),
    "eagle1": Case(head("head", published_heads.eagle1), ("eagle1:shape=2x2", "eagle2:depth=3,k=2,budget=6")),
    "eagle3": Case(head("head", lambda: published_heads.eagle3(reads=[0, 2, 4])), ("eagle3", "eagle2:depth=2,k=2,budget=4")),
    "p_eagle": Case(head("head", lambda: published_heads.speculators("peagle", [0, 2, 4])), ("p_eagle",)),
    "hydra": Case(head("head", lambda: published_heads.hydra(prefix=True)), ("hydra:shape=2x2x1",)),
    "redrafter": Case(head("head", published_heads.redrafter), ("redrafter:width=3,length=3",)),
    "dflash": Case(head("head", published_heads.dflash), ("dflash:block=4",)),
    "kangaroo": Case(head("adapter", published_heads.kangaroo), ("kangaroo:exit=2,gamma=3",)),
    "medusa": Case(medusa, ("medusa:shape=2x2x1", "medusa_match:shape=2x1")),
    "llada": Case(masked(masked_modules.llada_settings, masked_modules.llada_weights), UNMASK, ("alone", "batch", "sampled")),
    "dream": Case(masked(masked_modules.dream_settings, masked_modules.dream_weights), UNMASK, ("alone", "batch", "sampled")),
    "Q8_0": Case(gguf("Q8_0"), ("autoregressive", "prompt_lookup:k=4")),
    "Q4_K": Case(gguf("Q4_K"), ("autoregressive", "prompt_lookup:k=4")),
}  # fmt: skip


def asked(session: Session, prompt: tuple[int, ...], **fields: Any) -> Request:
    """A request, greedy where nothing is said; with log-probabilities of the tokens, where the model is causal."""
    causal = next(iter(session.models.values())).kind == "causal"
    return Request(prompt, **{"temperature": 0, "logprobs": 1 if causal else None, **fields})


def alone(session: Session) -> list[Result]:
    """A request, and one that goes on with the text of the first."""
    first = session.run(asked(session, PROMPTS[0], max_tokens=12), cache_key="a conversation")
    text = (*PROMPTS[0], *map(int, first.tokens), 5)
    return [first, session.run(asked(session, text, max_tokens=4), cache_key="a conversation")]


def batch(session: Session) -> list[Result]:
    """Five prompts of other lengths, three at a time: they join and leave."""
    requests = [asked(session, p, max_tokens=4 + 3 * n) for n, p in enumerate(PROMPTS)]
    return session.generate(requests, batch=3, keep_events=True)


def cancelled(session: Session) -> list[Result]:
    """A text that is left in the middle, and the next request."""
    stream = session.stream(asked(session, PROMPTS[1], max_tokens=12, logprobs=None))
    next(iter(stream))
    stream.close()
    return [session.run(asked(session, PROMPTS[1], max_tokens=8))]


def rewound(session: Session) -> list[Result]:
    """A text, then beginnings of it with other noise, all under one key: what was drafted behind them is no longer cached."""
    text = [*PROMPTS[0], *map(int, session.run(asked(session, PROMPTS[0], max_tokens=9), cache_key="a text").tokens)]
    cuts = [len(PROMPTS[0]), len(text) - 1, len(text), len(PROMPTS[0]) + 3]
    return [
        session.run(asked(session, tuple(text[:end]), max_tokens=7, temperature=3.0, seed=end), cache_key="a text")
        for end in cuts
    ]


def crowded(session: Session) -> list[Result]:
    """Four at a time where rows of three have room: sequences lose theirs to others, and slots move to where these were."""
    prompts = [tuple(4 + (7 * n + i * (n + 3)) % 50 for i in range(50 + 3 * n)) for n in range(6)]
    requests = [asked(session, p, max_tokens=12 + 4 * n, temperature=2.0, seed=n) for n, p in enumerate(prompts)]
    cells = min(engine_of(m).layout.cell_bytes for m in session.models.values())
    return session.generate(requests, batch=4, budget=ROOM * cells, keep_events=True)


def sampled(session: Session) -> list[Result]:
    """Sampled, with penalties and filters, one alone and two together: so warm that drafts of random heads are accepted too."""
    more: dict[str, Any] = {"temperature": 4.0, "top_p": 0.98, "repetition_penalty": 1.2}
    requests = [asked(session, p, max_tokens=10, seed=n, **more) for n, p in enumerate(PROMPTS[:3])]
    return [session.run(requests[0]), *session.generate(requests[1:], batch=2, keep_events=True)]


KINDS = {of.__name__: of for of in (alone, batch, cancelled, rewound, crowded, sampled)}


def names() -> list[str]:
    """The names of all rows: models, algorithm, kind of request."""
    return [f"{case} | {algorithm} | {kind}" for case, c in CASES.items() for algorithm in c.algorithms for kind in c.kinds]


def row(name: str) -> tuple[str, ...]:
    """A row: tokens, calls of models, positions computed, cache rows moved, sum of log-probabilities. Its models
    are read anew: an engine that another row has used has its cache."""
    case, spec, kind = name.split(" | ")
    with tempfile.TemporaryDirectory() as at:
        models = {of: str(path) for of, path in CASES[case].write(Path(at)).items()}
        return name, *_measured(models, spec, kind)


def _measured(models: Mapping[str, str], spec: str, kind: str) -> tuple[str, ...]:
    (one,) = candidates([spec], {})
    wanted = {of: path for of, path in models.items() if of.partition(".")[0] in one.algorithm.models}
    session = one.algorithm.session(wanted, device="cpu", **one.values)
    engines = [engine_of(model) for model in session.models.values() if model.kind not in ("layers", "head")]
    before = [replace(engine.counted) for engine in engines]
    results = KINDS[kind](session)
    for result in results:
        if result.error is not None:
            raise result.error
    counted = [engine.counted.since(was) for engine, was in zip(engines, before, strict=True)]
    calls = sum((Counter(r.stats.calls) for r in results), Counter[str]())
    known = [p for r in results if r.logprobs is not None for p in r.logprobs.tokens]
    known += [math.log(e.confidence) for r in results for e in r.events if isinstance(e, Unmasked)]
    tokens = hashlib.sha256(repr([tuple(map(int, r.tokens)) for r in results]).encode()).hexdigest()[:12]
    called = " ".join(map(str, sorted(calls.values())))
    computed, moved = (" ".join(str(getattr(c, what)) for c in counted) for what in ("computed", "moved"))
    if kind == "cancelled":  # how far the text got that was left is chance
        called = computed = moved = "-"
    return tokens, called, computed, moved, f"{sum(known):.5f}" if known else "-"


def committed() -> dict[str, tuple[str, ...]]:
    """The rows of the table, by name."""
    return {r[0]: r for r in (tuple(line.split("\t")) for line in TABLE.read_text(encoding="utf-8").splitlines()[1:])}


def difference(now: tuple[str, ...], before: tuple[str, ...] | None) -> str:
    """In which columns a row has changed; "" in none."""
    if before is None:
        return "new"
    changed = [
        f"{c} {old} -> {new}" for c, old, new in zip(COLUMNS, before, now, strict=True) if old != new and not near(old, new)
    ]
    return ", ".join(changed)


def near(a: str, b: str) -> bool:
    """Whether two numbers are the same but for rounding."""
    return "." in a and "." in b and abs(float(a) - float(b)) <= SPREAD * max(100, abs(float(b)))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only rows whose name begins so")
    parser.add_argument("--write", action="store_true", help="write the table")
    chosen = parser.parse_args()
    before = committed() if TABLE.exists() else {}
    wanted = [name for name in names() if not chosen.names or name.startswith(tuple(chosen.names))]
    rows = {}
    for name in wanted:
        rows[name] = row(name)
        if found := difference(rows[name], before.get(name)):
            print(f"{name}: {found}", flush=True)
    gone = [name for name in before if name not in names()]
    print("".join(f"{name}: gone\n" for name in gone) + f"{len(rows)} rows")
    if chosen.write:
        every = {**before, **rows}
        table = (COLUMNS, *(every[name] for name in names() if name in every))
        TABLE.write_text("\n".join("\t".join(r) for r in table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
