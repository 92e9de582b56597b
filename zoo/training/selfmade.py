"""Text of a chat model's own making: it writes the user's turn, then the answer (Xu et al., 2024, "Magpie").

A draft is judged on what the target itself would write, so that is what a drafter or head has to learn from.
The template up to the user's words is given, the question is sampled, the template's closing is forced, and the
answer is the model's greedy text (some rows are sampled, for the user who samples).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from decgraph.zoo.training.openers import OPENERS
from decgraph.zoo.training.rows import TrainingRows
from decgraph.zoo.training.template import Template

# Tokens likelier than this share of the likeliest may be sampled ("min-p", Nguyen et al., 2024).
LEAST_SHARE, CANDIDATES = 0.05, 64
# A row that repeats a period of at most this many tokens over its last `LOOP` tokens is ended: it teaches nothing more.
PERIOD, LOOP = 40, 100
# Columns beyond the longest row: the cache is shifted once in so many steps.
SPARE = 48


@dataclass(frozen=True)
class Recipe:
    """How rows are written. Lengths in tokens; `greedy` is the share of answers at temperature 0."""

    question: int = 80
    answer: int = 192
    question_temperature: float = 0.9
    answer_temperature: float = 0.7
    greedy: float = 0.8
    openers: float = 0.8


@dataclass
class TrainingText:
    """One text: token ids, where the answer begins, and the features of every token but the last (or None)."""

    ids: list[int]
    answer: int = -1
    temperature: float = 0.0
    forced: list[int] = field(default_factory=list)
    limit: int = 0
    greedy: bool = True
    features: torch.Tensor | None = None


def write(
    model: Any,
    template: Template,
    tokenizer: Any,
    *,
    seed: int,
    rows: int = 64,
    recipe: Recipe | None = None,
    features: tuple[int, ...] | None = None,
    questions: Iterator[list[int]] | None = None,
    more: Callable[[], bool] = lambda: True,
) -> Iterator[TrainingText]:
    """Rows as they are finished, in an order that `seed` fixes; until `more()` is false.

    `questions` gives user turns (token ids) instead of the model's own; the writing ends when they are used up. With
    `features`, each row has the inputs of those layers side by side, [tokens - 1, layers * width].
    """
    recipe = recipe or Recipe()
    chance = random.Random(f"decgraph selfmade {seed}")
    noise = torch.Generator().manual_seed(seed)
    openers = {kind: [tokenizer.encode(text, add_special_tokens=False) for text in texts] for kind, texts in OPENERS.items()}
    kinds = [kind for kind in OPENERS if kind != "any"]
    ends = {template.end, *_ends(model, tokenizer)}
    given = 400 if questions is not None else 0  # questions that are given may be longer than those sampled
    longest = len(template.opening) + recipe.question + given + len(template.closing) + recipe.answer + 1
    seen: set[tuple[int, ...]] = set()

    def fresh() -> TrainingText | None:
        row = TrainingText(list(template.opening), greedy=chance.random() < recipe.greedy)
        if questions is not None:
            words = next(questions, None)
            if words is None:
                return None
            row.forced = [*words[: recipe.question + given], *template.closing]
            row.answer = len(row.ids) + len(row.forced)
            row.limit = row.answer + recipe.answer
            row.temperature = 0.0 if row.greedy else recipe.answer_temperature
            return row
        kind = chance.choice(kinds) if chance.random() < recipe.openers else "any"
        row.forced = list(chance.choice(openers[kind]))
        row.temperature, row.limit = recipe.question_temperature, len(row.ids) + recipe.question
        return row

    with torch.inference_mode():
        # The last token of the opening is fed by each row itself, so that a row's first token needs no case of its own.
        batch = TrainingRows(model, template.opening[:-1], rows, longest + SPARE, features)
        live: list[TrainingText | None] = [fresh() for _ in range(rows)]
        start = len(template.opening) - 1
        kept = None
        if batch.opening[1] is not None:
            states = batch.opening[1]
            kept = states.new_zeros(rows, longest, states.shape[-1])
            kept[:, :start] = states
        position = [start] * rows
        while any(live) and more():
            tokens = torch.tensor([row.ids[place] if row else 0 for row, place in zip(live, position, strict=True)])
            logits, states = batch.feed(tokens)
            if kept is not None:
                kept[range(rows), [min(p, longest - 1) for p in position]] = states
            chosen = _choose(logits.float(), [row.temperature if row else 0.0 for row in live], noise)
            for index, row in enumerate(live):
                if row is None:
                    continue
                position[index] += 1
                if position[index] < len(row.ids):
                    continue
                if row.forced:
                    row.ids.append(row.forced.pop(0))
                    continue
                if _asked(row, chosen[index], ends, template, recipe, len(template.opening)):
                    question = tuple(row.ids[len(template.opening) : row.answer])
                    if question not in seen:
                        seen.add(question)
                        continue
                elif not _answered(row, chosen[index], ends):
                    continue
                elif len(row.ids) - row.answer >= 4:
                    if kept is not None:
                        row.features = kept[index, : len(row.ids) - 1].clone().cpu()
                    yield row
                live[index], position[index] = fresh(), start
                batch.begin(index)


def _ends(model: Any, tokenizer: Any) -> list[int]:
    told = [tokenizer.eos_token_id, getattr(model.generation_config, "eos_token_id", None)]
    return [end for item in told if item is not None for end in (item if isinstance(item, list) else [item])]


def _asked(row: TrainingText, token: int, ends: set[int], template: Template, recipe: Recipe, opening: int) -> bool:
    """Take one token of the user's turn; whether it is over (then the template's closing is to come)."""
    if row.answer >= 0:
        return False
    over = token in ends or len(row.ids) + 1 >= row.limit
    if over and len(row.ids) - opening < 3:
        over, token = False, template.closing[-1]  # an empty question: go on with a line break
    if not over:
        row.ids.append(token)
        return False
    row.forced = list(template.closing)
    row.answer = len(row.ids) + len(row.forced)
    row.ids.append(row.forced.pop(0))
    row.limit = row.answer + recipe.answer
    row.temperature = 0.0 if row.greedy else recipe.answer_temperature
    return True


def _answered(row: TrainingText, token: int, ends: set[int]) -> bool:
    """Take one token of the answer; whether it is over."""
    if row.answer < 0:
        return False
    row.ids.append(token)
    length = len(row.ids)
    return token in ends or length >= row.limit or (length - row.answer) % 16 == 0 and loops(row.ids[row.answer :])


def loops(ids: list[int]) -> bool:
    """Whether the last `LOOP` tokens repeat with a period of at most `PERIOD`."""
    tail = ids[-LOOP:]
    return len(tail) == LOOP and any(tail[:-period] == tail[period:] for period in range(1, PERIOD + 1))


def _choose(logits: torch.Tensor, temperatures: list[float], noise: torch.Generator) -> list[int]:
    chosen = logits.argmax(-1)
    hot = [index for index, temperature in enumerate(temperatures) if temperature > 0]
    if hot:
        warmth = torch.tensor([temperatures[index] for index in hot], device=logits.device)[:, None]
        values, places = logits[hot].topk(min(CANDIDATES, logits.shape[-1]))
        probs = (values / warmth).softmax(-1)
        probs = probs.where(probs >= LEAST_SHARE * probs[:, :1], 0.0)
        drawn = torch.multinomial(probs.cpu(), 1, generator=noise).to(places.device)  # the CPU's noise everywhere
        chosen[hot] = places.gather(1, drawn)[:, 0]
    return chosen.tolist()
