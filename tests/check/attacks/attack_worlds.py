"""The worlds in which the attacks show, for the simulation: by name, or the usual one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from decgraph.runtime.automaton import Automaton


@dataclass(frozen=True)
class World:
    """Where an attack shows: the models' size, seed and rows, the prompt, the request, parameters and externs.

    rows: model to weights of every row (one list), or to a table. window: how many tokens a causal row depends on. before:
    how many requests the session ran first. batch: how many run together (only the torch
    backend does that). layers: free models of so many layers in place of
    tables. runs: samples where laws are compared. by_hand: why simulation cannot decide (then nothing is run).
    """

    vocab: int = 3
    seed: int = 1
    prompt: tuple[int, ...] = (0, 1)
    limit: int = 3
    params: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Any] = field(default_factory=dict)
    window: int | None = 1
    zeros: bool = False
    before: int = 0
    batch: int = 1
    layers: int = 0
    runs: int = 1000
    externs: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    backend: str = "reference"
    by_hand: str = ""


SAME = {"drafter": [1, 2, 6]}  # a drafter whose law is far from that of the target
THREE: dict[str, Any] = {"target": [5, 3, 2], **SAME}


def peaked(size: int, top: int, rest: int = 1) -> list[int]:
    """A row with one likely token."""
    return [top, *[rest] * (size - 1)]


TURNS = Automaton(((0, 1, -1), (-1, 0, 1)), frozenset({0, 1}))  # state 0 forbids token 2, state 1 token 0

WORLDS: dict[str, World] = {
    "adaptive_lenience_growing": World(limit=24, vocab=2, rows={"target": [3, 1], "drafter": [1, 3]}, runs=800),
    "adaptive_lenience_counts": World(limit=10, rows={"target": [6, 3, 1], "drafter": [3, 3, 3]}),
    "adaptive_lenience_streak": World(limit=8, rows={"target": [6, 3, 1], "drafter": [5, 3, 2]}),
    "across_batch_kept": World(
        by_hand="capacity 1 and two sequences: one keeps no guess if its own are less likely. No "
        "backend has chosen across sequences so far (`batch_top` is asked by each alone)"
    ),
    "across_batch_capacity": World(params={"capacity": 1}),
    "across_batch_state": World(batch=1, limit=20, rows={"target": [3, 1], "drafter": [1, 3]}, vocab=2, runs=600),
    "across_batch_siblings": World(by_hand="as across_batch_kept, with capacity 2 and two sequences"),
    "allow_forced": World(limit=4, request={"allow": lambda g: [0, 1] if len(g) % 2 else [0, 1, 2]}, rows=THREE),
    "allow_remembered": World(limit=4, request={"allow": TURNS}, rows=THREE),
    "allow_jump": World(limit=3, vocab=4, prompt=(0, 1), request={"allow": lambda g: [0, 1] if len(g) % 2 else [0, 1, 2, 3]}),
    "at_the_default_eleven": World(),
    "at_the_default_shape": World(vocab=6),
    "blind_below_depth_three": World(vocab=2, limit=8, rows={"target": [9, 1], "drafter": [6, 4]}, runs=800),
    "blind_below_depth_three_evidence": World(vocab=2, limit=10, rows={"target": [7, 3], "drafter": [6, 4]}),
    "blind_below_depth_three_tree_rule": World(vocab=2, limit=10, rows={"target": [7, 3], "drafter": [6, 4]}),
    "blind_below_depth_three_height": World(vocab=2, limit=5, rows={"target": [9, 1], "drafter": {(0,): [9, 1], (1,): [1, 9]}}),
    "break_early": World(limit=6),
    "ctx_longer_than_prompt": World(limit=4, rows=THREE),
    "ensures_false": World(rows={"target": [300, 2, 1], "drafter": [1, 1, 1]}),
    "ensures_false_close": World(rows={"target": [10000, 195, 900]}),
    "ensures_false_typical": World(vocab=4, rows={"target": [50, 20, 20, 10.5], "drafter": [1, 1, 1, 9]}),
    "ensures_false_half": World(vocab=4, rows={"target": [28, 26, 24, 22]}),
    "externs_bool": World(rows=THREE, externs={"easy": lambda text: len(text) > 1}),
    "externs_float": World(rows=THREE, externs={"ease": lambda n: 3.0}),
    "externs_length": World(externs={"wanted": lambda n: -1}),
    "externs_threshold": World(externs={"score": lambda a, b: 11.0}),
    "float_default_only_lenience": World(rows=THREE, params={"lenience": 3}),
    "float_default_only_share": World(rows=THREE, params={"share": 0.5}),
    "float_default_only_smoothing": World(rows=THREE, params={"smooth": 1}),
    "forgets_residual": World(limit=4, rows=THREE, runs=2500),
    "forgets_residual_after_first_two_rules": World(vocab=2, limit=4, rows={"target": [3, 1], "drafter": [1, 3]}, runs=3000),
    "frequency_penalty": World(vocab=2, limit=4, rows={"target": [11, 9]}, request={"frequency_penalty": 1.0}),
    "frequency_penalty_third": World(vocab=3, limit=5, rows={"target": [8, 1, 1]}, request={"frequency_penalty": 0.5}),
    "gamma_schedule": World(limit=8, rows={"target": [8, 1, 1], "drafter": [5, 3, 2]}),
    "gamma_schedule_parameter": World(params={"gamma": 5, "step": 2}),
    "keeps_support": World(zeros=True, limit=6),
    "keeps_support_topk_second": World(rows={"target": [1, 0, 0]}),
    "keeps_support_topk_kept": World(rows={"target": [9, 0, 0]}),
    "keeps_support_topk_unverified": World(rows={"target": [0, 0, 9], "drafter": [6, 2, 1]}, by_hand=""),
    "long_context": World(limit=40, runs=400),
    "long_context_ends": World(limit=20, runs=300),
    "long_context_twenty": World(prompt=tuple(i % 3 for i in range(20)), rows=THREE),
    "long_prompt": World(prompt=(0, 1, 2, 0, 1, 2, 0), rows=THREE),
    "loop_carried_second_step_depth": World(limit=5, rows=THREE),
    "masked_cached": World(layers=3, vocab=3, limit=6, params={"length": 6}),
    "masked_long_canvas": World(limit=8),
    "masked_sampled_four": World(limit=4, vocab=2),
    "masked_sampled_fresh_law": World(limit=3, vocab=2, params={"length": 3}, runs=800),
    "masked_sampled_fresh_law_drafted": World(limit=2, vocab=2, seed=3, runs=4000),
    "masked_three_blocks": World(limit=6),
    "masked_two_at_once_confident_first": World(limit=3, vocab=2, params={"tau": 0.5}),
    "masked_two_at_once_confident_margin": World(limit=4, vocab=2, params={"gap": 0}),
    "masked_two_at_once_confident_tau": World(limit=4, vocab=2, params={"tau": 0.5}),
    "mixture_once_token": World(rows={"target": [1, 2, 6], "drafter": [6, 2, 1]}),
    "mixture_once_coin": World(limit=24, vocab=2, rows={"target": [3, 1]}, runs=800),
    "ngram_store_third_pool": World(limit=16),
    "ngram_store_third": World(limit=12, vocab=2, prompt=(0, 1, 0, 1, 0, 1)),
    "noise_once": World(limit=3, rows=THREE),
    "noise_once_for_all_steps_belief": World(limit=40, vocab=2, rows={"target": [4, 1]}, runs=2000),
    "nucleus_target": World(by_hand="a token with less than a thousandth of the mass is lost; that takes many runs to see"),
    "nucleus_evidence": World(limit=1, rows={"target": [9000, 500, 45], "drafter": [1, 1, 8]}, runs=12000),
    "nucleus_floor": World(
        limit=1,
        rows={"target": [9000, 900, 0.8], "drafter": [1, 1, 8]},
        by_hand="a token with less than a ten thousandth is lost; that takes a million runs to see",
    ),
    "one_token_prompt": World(prompt=(1,), rows=THREE),
    "param_gamma_4": World(params={"gamma": 4}, rows=THREE),
    "param_gamma_4_siblings": World(vocab=4, params={"k": 4}, rows={"target": [4, 3, 2, 1], "drafter": [1, 2, 3, 4]}),
    "prob_extreme_trust": World(rows=THREE, params={"trust": 0.95}),
    "prob_extreme_floor": World(rows=THREE, params={"least": 0.01}),
    "prob_zero_off": World(params={"eta": 0}),
    "prob_zero_one": World(rows=THREE, params={"mix": 1}),
    "pending_after_two_steps": World(limit=6, rows=THREE, runs=1500),
    "pending_after_two_steps_ahead": World(limit=16, vocab=2, rows={"target": [3, 1]}),
    "refines_itself": World(by_hand="a claim about oneself says nothing, whatever the program does"),
    "repetition_penalty_at_root": World(
        vocab=2, prompt=(0,), rows={"target": [1, 1], "drafter": [1, 1]}, runs=2000, request={"frequency_penalty": 2.0}
    ),
    "repetition_penalty": World(
        prompt=(0, 0), rows={"target": [11, 9, 1], "drafter": [1, 2, 6]}, request={"repetition_penalty": 2.0}
    ),
    "session_second_request": World(before=1, rows=THREE),
    "session_second_request_count": World(before=20, limit=6),
    "session_lenient": World(before=6, rows=THREE, runs=500),
    "session_learned": World(before=2, limit=8),
    "session_learned_law": World(before=2, limit=5, rows=THREE, runs=600),
    "stop_strings": World(limit=6, request={"stop": ("b",)}),
    "stop_when_repeating": World(limit=8, window=1),
    "sure_takes_argmax": World(limit=1, rows={"target": [96, 2, 2], "drafter": [1, 1, 1]}, runs=3000),
    "sure_takes_argmax_rule": World(
        limit=1,
        rows={"target": [975, 12, 13], "drafter": [99, 1, 1]},
        by_hand="p[x] / q[x] is below 1 only where q[x] > 0.97 too: too near to see in samples",
    ),
    "sure_takes_argmax_entropy": World(limit=1, rows={"target": [995, 3, 2], "drafter": [1, 1, 1]}, runs=12000),
    "temperature_two": World(rows={"target": [16, 4, 1], "drafter": [1, 2, 6]}, request={"temperature": 2}),
    "third_step_state": World(limit=6, rows=THREE),
    "token_id_above_3": World(vocab=12),
    "token_id_above_3_seven": World(vocab=8, prompt=(0, 7), limit=1),
    "temperature_two_hot": World(rows={"target": [9, 1, 1]}, request={"temperature": 2}),
    "token_id_above_3_accepted": World(vocab=6, limit=1, rows={"drafter": [1, 1, 1, 1, 1, 9]}),
    "topk_32_rule": World(vocab=40, limit=1, runs=4000, rows={"target": [1] * 40, "drafter": peaked(40, 40)}),
    "vocab_4_rule": World(vocab=6, limit=1, rows={"target": [20, 15, 10, 5, 5, 1], "drafter": [1, 1, 1, 1, 1, 9]}),
    "topk_32": World(vocab=40, limit=1, runs=4000),
    "unlikely_accept_rare_draft": World(
        limit=1, vocab=4, rows={"target": [6, 2, 2, 0], "drafter": [970, 10, 10, 10]}, runs=8000
    ),
    "unlikely_accept_flat_drafter": World(limit=1, vocab=4, rows={"target": [6, 2, 1, 1], "drafter": [1, 1, 1, 1]}),
    "unlikely_accept_hopeless": World(limit=1, rows={"target": [600, 400, 9], "drafter": [1, 1, 9]}, runs=12000),
    "until": World(limit=4, request={"until": (lambda path: path[-1] == 1,)}, rows=THREE),
    "vocab_4": World(vocab=6, limit=1),
}


def world_of(name: str) -> World:
    """The world of an attack: that of its name, or of the longest beginning of it."""
    keys = [k for k in WORLDS if name.startswith(k)]
    return WORLDS[max(keys, key=len)] if keys else World()
