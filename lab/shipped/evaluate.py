"""Measure the shipped models: tokens per target call by algorithm, the masked model's answers.

Everything is at temperature 0 on held-out text, computed with plain forwards and no decgraph: a second
opinion on what `decgraph bench` reports. Tokens per target call come from simulating the verification against
the target's own greedy continuation: a draft is accepted as far as it agrees with it, and every call commits
one token more.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any

import torch
from torch.nn import functional as F
from typer import Argument, Option

from decgraph.zoo import path
from lab.shipped import cards, data, loop, pool, tasks
from lab.shipped.target import windows

PROMPT, CONTINUE = 64, 128
GAMMA = 4
TREE_DEPTH, TREE_WIDTH, TREE_BUDGET = 6, 8, 40
MEDUSA_WIDTHS = (4, 3, 2, 2)


@dataclass(frozen=True)
class Reference:
    """Held-out prompts with the target's greedy continuations and its hidden states on them.

    `ids` `[rows, PROMPT + CONTINUE]`; `hidden` is one `[rows, length, width]` per layer, embeddings first.
    """

    target: Any
    ids: torch.Tensor
    hidden: tuple[torch.Tensor, ...]


def load(name: str) -> Any:
    """A shipped model in float32, in evaluation mode."""
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    from decgraph.zoo import modeling

    assert modeling.__name__  # importing it registered the heads
    kinds = {"target": AutoModelForCausalLM, "drafter": AutoModelForCausalLM, "masked": AutoModelForMaskedLM}
    return kinds.get(name, AutoModel).from_pretrained(path(name), dtype=torch.float32, trust_remote_code=False).eval()


def reference(target: Any, tokenizer: Any, rows: int) -> Reference:
    """Greedy continuations of `rows` windows of held-out code."""
    code = torch.from_numpy(data.code_tokens(tokenizer, held=True))
    starts = windows(code, rows, PROMPT, loop.rng(11, 0))
    ids = torch.cat([pool.continue_greedily(target, part, CONTINUE) for part in starts.split(32)])
    hidden = target.model(ids, use_cache=False, output_hidden_states=True).hidden_states
    return Reference(target, ids, hidden)


def tokens_per_call(accepted: Callable[[int, int], int], rows: int) -> float:
    """Mean tokens committed per target call.

    `accepted(row, last)` is how many drafted tokens are right when `last` is the place of the last committed
    token. A continuation's end cuts its last call.
    """
    calls = tokens = 0
    for row in range(rows):
        last = PROMPT - 1
        end = PROMPT + CONTINUE - 1
        while last < end:
            taken = min(1 + accepted(row, last), end - last)
            calls, tokens, last = calls + 1, tokens + taken, last + taken
    return tokens / calls


def run_length(agrees: torch.Tensor, gamma: int) -> Callable[[int, int], int]:
    """Accepted drafts of a chain, where `agrees[row, place]` is whether the next token was guessed there.

    A chain's second guess matters only where the first was right, and then its context is the true one: so
    one plain forward over the continuation determines every draft that is ever accepted.
    """

    def accepted(row: int, last: int) -> int:
        count = 0
        while count < gamma and last + count < agrees.shape[1] and agrees[row, last + count]:
            count += 1
        return count

    return accepted


def measure_chain(ref: Reference, drafter: Any) -> dict[str, float]:
    """Speculative decoding with a chain of `GAMMA` drafted tokens."""
    agrees = drafter(ref.ids, use_cache=False).logits[:, :-1].argmax(-1) == ref.ids[:, 1:]
    value = tokens_per_call(run_length(agrees, GAMMA), len(ref.ids))
    return {"tokens_per_call": value, "agreement": agrees[:, PROMPT - 1 :].float().mean().item()}


def measure_exit(ref: Reference, adapter: Any) -> dict[str, float]:
    """Kangaroo without its early stop: a chain of `GAMMA` tokens from the shallow layers and the adapter."""
    states = adapter(ref.hidden[adapter.config.exit_layer])
    guesses = ref.target.lm_head(ref.target.model.norm(states))[:, :-1].argmax(-1)
    agrees = guesses == ref.ids[:, 1:]
    value = tokens_per_call(run_length(agrees, GAMMA), len(ref.ids))
    return {"tokens_per_call": value, "agreement": agrees[:, PROMPT - 1 :].float().mean().item()}


def measure_medusa(ref: Reference, heads: Any) -> dict[str, float]:
    """Medusa with first choices only, and with a full tree of `MEDUSA_WIDTHS` choices per head."""
    hits: dict[str, list[Any]] = {width: [] for width in ("chain", "tree")}
    for i, states in enumerate(heads(ref.hidden[-1])):
        top = ref.target.lm_head(states).topk(MEDUSA_WIDTHS[i]).indices[:, : -(i + 2)]
        right = top == ref.ids[:, i + 2 :, None]
        hits["chain"].append(right[..., 0])
        hits["tree"].append(right.any(-1))

    def accepted(kind: str) -> Callable[[int, int], int]:
        def count(row: int, last: int) -> int:
            for i, hit in enumerate(hits[kind]):
                if last >= hit.shape[1] or not hit[row, last]:
                    return i
            return len(hits[kind])

        return count

    return {
        "tokens_per_call": tokens_per_call(accepted("tree"), len(ref.ids)),
        "tokens_per_call_chain": tokens_per_call(accepted("chain"), len(ref.ids)),
        "first_head_agreement": hits["chain"][0][:, PROMPT - 1 :].float().mean().item(),
    }


def eagle_tree(head: Any, lm_head: Any, tokens: torch.Tensor, features: torch.Tensor) -> dict[tuple[int, ...], float]:
    """EAGLE-2's draft tree as paths with their log-probabilities, pruned to `TREE_BUDGET`.

    `tokens` `[length]` are the committed tokens but the first, `features` `[length, width]` the target's
    states before each.
    """
    grown: dict[tuple[int, ...], float] = {}
    paths: list[tuple[int, ...]] = [()]
    scores = torch.zeros(1)
    tails = torch.zeros(1, 0, features.shape[-1])
    for _ in range(TREE_DEPTH):
        ids = torch.cat((tokens.expand(len(paths), -1), torch.tensor(paths, dtype=torch.long).view(len(paths), -1)), 1)
        states = head(ids, torch.cat((features.expand(len(paths), -1, -1), tails), 1))[:, -1]
        values, chosen = lm_head(states).log_softmax(-1).topk(TREE_WIDTH)
        totals = (scores[:, None] + values).flatten()
        new = [path + (token,) for path, row in zip(paths, chosen.tolist(), strict=True) for token in row]
        grown.update(zip(new, totals.tolist(), strict=True))
        best = totals.topk(min(TREE_WIDTH, len(new))).indices
        parents = best // TREE_WIDTH
        tails = torch.cat((tails[parents], states[parents][:, None]), 1)
        scores, paths = totals[best], [new[i] for i in best.tolist()]
    kept = sorted(grown, key=lambda path: -grown[path])[:TREE_BUDGET]
    return {path: grown[path] for path in kept}


def measure_eagle(ref: Reference, head: Any, rows: int) -> dict[str, float]:
    """EAGLE-2's dynamic tree on the first `rows` continuations."""

    def accepted(row: int, last: int) -> int:
        tree = eagle_tree(head, ref.target.lm_head, ref.ids[row, 1 : last + 1], ref.hidden[-1][row, :last])
        truth = tuple(ref.ids[row, last + 1 :].tolist())
        return max((n for n in range(TREE_DEPTH + 1) if n == 0 or truth[:n] in tree), default=0)

    guesses = ref.target.lm_head(head(ref.ids[:, 1:], ref.hidden[-1][:, :-1]))[:, :-1].argmax(-1)
    agreement = (guesses == ref.ids[:, 2:])[:, PROMPT - 2 :].float().mean().item()
    return {"tokens_per_call": tokens_per_call(accepted, rows), "agreement": agreement}


def fill_canvas(model: Any, prompts: torch.Tensor, mask: int) -> torch.Tensor:
    """Decode one canvas per row of `[rows, length]`: at each step the surest masked cell gets its likeliest token.

    Gives the canvases, `[rows, CANVAS]`.
    """
    rows, length = prompts.shape
    ids = torch.cat((prompts, torch.full((rows, data.CANVAS), mask)), dim=1)
    for _ in range(data.CANVAS):
        probs, tokens = model(ids).logits.softmax(-1).max(-1)
        cells = probs.masked_fill(ids != mask, -1.0).argmax(-1, keepdim=True)
        ids.scatter_(1, cells, tokens.gather(1, cells))
    return ids[:, length:]


def answer_text(tokenizer: Any, canvas: list[int]) -> str:
    """The text of a canvas up to its first `<|eos|>`."""
    end = canvas.index(tokenizer.eos_token_id) if tokenizer.eos_token_id in canvas else len(canvas)
    return str(tokenizer.decode(canvas[:end]))


def measure_masked(model: Any, tokenizer: Any, per_kind: int) -> dict[str, float]:
    """Held-out tasks answered right, one token per step, most confident first; by kind and in all."""
    right = dict.fromkeys(tasks.KINDS, 0)
    by_length: dict[int, list[tuple[tasks.Task, list[int]]]] = defaultdict(list)
    for task in islice(tasks.stream(7, held=True), per_kind * len(tasks.KINDS)):
        prompt = data.encode(tokenizer, task.prompt)
        by_length[len(prompt)].append((task, prompt))
    for group in by_length.values():
        canvases = fill_canvas(model, torch.tensor([prompt for _, prompt in group]), tokenizer.mask_token_id)
        for (task, _), canvas in zip(group, canvases.tolist(), strict=True):
            right[task.kind] += task.check(answer_text(tokenizer, canvas))
    return _rates(right, per_kind)


def measure_tasks(target: Any, tokenizer: Any, per_kind: int) -> dict[str, float]:
    """Held-out tasks that a causal model answers right, greedily, up to the end of the line; by kind and in all."""
    right = dict.fromkeys(tasks.KINDS, 0)
    for task in islice(tasks.stream(7, held=True), per_kind * len(tasks.KINDS)):
        ids = torch.tensor([data.encode(tokenizer, task.prompt)])
        text = tokenizer.decode(pool.continue_greedily(target, ids, data.CANVAS)[0, ids.shape[1] :])
        right[task.kind] += task.check(text.partition("\n")[0])
    return _rates(right, per_kind)


def _rates(right: dict[str, int], per_kind: int) -> dict[str, float]:
    by_kind = {f"tasks_right_{kind}": count / per_kind for kind, count in right.items()}
    return {"tasks_right": sum(right.values()) / (per_kind * len(right)), **by_kind}


def held_out_loss(model: Any, tokenizer: Any, rows: int = 64) -> float:
    """Mean cross entropy per token, in nats, on windows of 256 tokens of held-out code."""
    code = torch.from_numpy(data.code_tokens(tokenizer, held=True))
    ids = windows(code, rows, 256, loop.rng(12, 0))
    parts = []
    for part in ids.split(16):
        logits = model(part, use_cache=False).logits[:, :-1]
        parts.append(F.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()).item())
    return sum(parts) / len(parts)


@torch.no_grad()
def measure(names: list[str], *, rows: int, per_kind: int) -> dict[str, dict[str, float]]:
    """Measure the models named; figures by model."""
    tokenizer = data.load_tokenizer(path("tokenizer"))
    figures: dict[str, dict[str, float]] = {}
    if "masked" in names:
        figures["masked"] = measure_masked(load("masked"), tokenizer, per_kind)
    causal = [name for name in names if name != "masked"]
    if not causal:
        return figures
    target = load("target")
    ref = reference(target, tokenizer, rows)
    if "target" in causal:
        figures["target"] = {"held_out_loss": held_out_loss(target, tokenizer)}
        figures["target"] |= measure_tasks(target, tokenizer, per_kind)
    if "drafter" in causal:
        drafter = load("drafter")
        figures["drafter"] = measure_chain(ref, drafter) | {"held_out_loss": held_out_loss(drafter, tokenizer)}
    if "medusa" in causal:
        figures["medusa"] = measure_medusa(ref, load("medusa"))
    if "eagle" in causal:
        figures["eagle"] = measure_eagle(ref, load("eagle"), max(1, rows // 3))
    if "exit" in causal:
        figures["exit"] = measure_exit(ref, load("exit"))
    return figures


def command(
    names: Annotated[list[str] | None, Argument(help="Models; all that are there when left out.")] = None,
    rows: Annotated[int, Option(help="Held-out prompts.")] = 48,
    per_kind: Annotated[int, Option(help="Held-out tasks of each kind.")] = 40,
    write: Annotated[bool, Option("--write", help="Keep the figures in models/measured.json, and write the card.")] = False,
) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    figures = measure(names or ["target", "drafter", "medusa", "eagle", "exit", "masked"], rows=rows, per_kind=per_kind)
    rounded = {name: {k: round(v, 4) for k, v in row.items()} for name, row in figures.items()}
    print(json.dumps(rounded, indent=2))
    if write:
        cards.keep_figures(rounded)
        cards.write()
