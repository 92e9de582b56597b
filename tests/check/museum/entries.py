"""The museum: correctness bugs that decoding engines shipped, and what becomes of each when it is written for decgraph.

The numbers are those of a survey of engines; `source` names where the bug was. tests/check/test_museum.py decides every
program here and looks up every test and mutant; page.py writes docs/museum.md from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Program:
    """A program of this folder and the verdict on it: proved, refuted, or the code of the error that refuses it. options: of
    `decgraph.check`. outside: it asks for something that the language has no words for."""

    name: str
    verdict: str
    options: Mapping[str, Any] = field(default_factory=dict)
    outside: bool = False


@dataclass(frozen=True)
class Entry:
    """One bug. wrong: what was wrong, in a sentence. mutants: bugs of check/mutants that are of its kind. tests: functions of
    tests/check/test_museum_engine.py that look for it in our engine. why: what keeps it out, where that is not plain."""

    number: str
    source: str
    wrong: str
    programs: tuple[Program, ...] = ()
    mutants: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    why: str = ""

    @property
    def status(self) -> tuple[str, ...]:
        """How it is found or kept out: refuted, refused, outside (of the language), planted, engine test."""
        verdicts = [
            ("outside" if p.outside else "refuted" if p.verdict == "refuted" else "refused")
            for p in self.programs
            if p.verdict != "proved"
        ]
        found = [*dict.fromkeys(verdicts)]
        return (*found, *(["planted"] if self.mutants else []), *(["engine test"] if self.tests else []))


def wrong(name: str, **options: Any) -> tuple[Program, Program]:
    """A refuted program and its right twin, which is proved."""
    return Program(name, "refuted", options), Program(f"{name}_right", "proved", options)


def attempt(name: str, code: str) -> tuple[Program]:
    """Something that the language has no words for."""
    return (Program(name, code, outside=True),)


RESIDUALS = (
    Entry(
        "M01",
        "Spec-RL #14",
        "After a rejection the token is drawn from p, not from what the draft left of it.",
        wrong("m01_no_residual"),
        ("residual-skipped", "emit-from-p"),
    ),
    Entry(
        "M02",
        "transformers #47932",
        "Drafts are drawn from the filtered distribution and tested with the unfiltered one.",
        wrong("m02_raw_law"),
        ("law-of-the-raw-face",),
        why="A draw carries its law; the program has to pass another one to its rule.",
    ),
    Entry(
        "M03",
        "transformers PR #30778, jaymody #3",
        "The drafter's likeliest token is tested as if it had been drawn.",
        wrong("m03_greedy_draft"),
        ("points-as-drawn",),
    ),
    Entry(
        "M04",
        "xLLM PR #2175",
        "Only the drafted token is taken out of p, not the drafter's whole distribution.",
        wrong("m04_one_token_residual"),
        ("residual-of-the-token",),
    ),
    Entry(
        "M05",
        "vllm-ascend #2881",
        "A row of p is changed in place, and later positions read the change.",
        wrong("m05_zeroed_in_place"),
        ("zeroed-in-place",),
    ),
    Entry(
        "M06",
        "vLLM #9834, PR #10198",
        "Temperature, top-k and top-p reach the drafter and not the target.",
        wrong("m06_one_side_shaped"),
        ("law-of-the-raw-face", "shaping-at-the-root-only"),
    ),
    Entry(
        "M07",
        "DeepSpec #31",
        "Drafts are drawn from rounded probabilities and tested with exact ones.",
        wrong("m07_rounded_draft", models=8),
    ),
    Entry(
        "M08",
        "vLLM PR #47386, #54282; lilab #205",
        "The token that replaces a rejected draft is drawn with the draft's own noise.",
        wrong("m08_shared_noise"),
        ("noise-shared-by-siblings", "noise-shared-by-sites", "noise-shared-by-steps", "noise-shared-by-turns"),
    ),
    Entry(
        "M09",
        "openvino.genai #4190",
        "After a rejection the token is read from the next row, which knows the rejected draft.",
        wrong("m09_next_row"),
        ("next-row", "evidence-at-parent"),
    ),
    Entry(
        "M10",
        "lattice #243",
        "The first draft is committed without a test.",
        wrong("m10_first_unchecked"),
        ("accept-always", "match-blindly", "evidence-at-parent"),
    ),
    Entry(
        "M11",
        "jaymody #9",
        "A draft is accepted where p >= q, at temperature 0 too, and without a coin for the rest.",
        (*wrong("m11_where_likelier"), Program("m11_where_likelier_greedy", "refuted")),
        ("accept-where-p-exceeds-q",),
    ),
    Entry(
        "M12",
        "vllm-ascend #7807, PR #7808",
        "Block verification by a product of uniforms; and its repair, whose thresholds stand one position early.",
        (*wrong("m12_block_product", models=8), *wrong("m12_block_early", models=8), *wrong("m12_block_first", models=8)),
        ("accept-p-alone", "block-coin-early", "block-residual-of-the-token", "block-worth-forgotten", "block-worth-uncapped"),
    ),
    Entry(
        "M13",
        "EAGLE #183, #221, #74, #93",
        "The likeliest children of a node are tested as if they had been drawn.",
        (*wrong("m13_children_as_drawn"), *wrong("x_multi_round")),
        ("points-as-drawn", "law-with-replacement", "residual-after-all"),
    ),
    Entry(
        "M14",
        "EAGLE; SpecHub's repository",
        "A rejected sibling's mass stays, or a second draft of the same token is skipped.",
        (*wrong("m14_sibling_kept"), *wrong("m14_equal_siblings_skipped"), Program("m14_better_first", "E031")),
        ("residual-after-all", "siblings-merged"),
    ),
    Entry(
        "M15",
        "vLLM PR #29274",
        "A row after the last draft reads as token 0, and the bonus token is compared with it.",
        wrong("m15_padded_row"),
        ("padded-slot", "bonus-of-the-root"),
    ),
    Entry(
        "M16",
        "transformers, _speculative_sampling",
        "A uniform of exactly 0 accepts a draft that the target excludes.",
        wrong("m16_accepts_impossible"),
        (),
        ("test_a_coin_of_probability_nothing",),
    ),
    Entry(
        "M17",
        "TorchCode #16",
        "Where p is q the residual is 0/0, and no number or the uniform distribution comes of it.",
        wrong("m17_empty_residual"),
        (),
        ("test_nothing_is_left_of_p",),
    ),
    Entry(
        "M18",
        "SGLang PR #31214, #39253",
        "One backend emits the likeliest token at every temperature.",
        wrong("m18_argmax_instead"),
        ("emit-argmax",),
    ),
)

BONUS = (
    Entry(
        "M19",
        "vLLM PR #9730, #5765, #4212",
        "The drafter never reads the bonus token, and drafts on with a hole in its cache.",
        tests=("test_the_drafter_has_read_the_bonus_token",),
        why="A call is a function of the whole context.",
    ),
    Entry(
        "M20",
        "vLLM #44006, #54437",
        "The bonus token's row has not seen the grammar.",
        wrong("m20_bonus_unconstrained"),
        ("constraints-at-the-root-only",),
        ("test_what_is_allowed_at_every_node",),
    ),
    Entry(
        "M21",
        "vLLM #42744",
        "Biases and min-p reach the bonus token alone.",
        wrong("m21_bonus_alone_shaped"),
        ("shaping-at-the-root-only",),
        ("test_shaping_counts_each_nodes_path",),
    ),
)

CACHES = (
    Entry(
        "M22",
        "aprender #2014, Token-Print #110",
        "After a rejection the cache is not taken back.",
        wrong("m22_no_rollback"),
        ("rollback-forgotten",),
        ("test_any_number_of_drafts",),
    ),
    Entry(
        "M23",
        "openvino.genai #4190",
        "The cache is one row too long where the last draft alone is rejected.",
        wrong("m22_no_rollback"),
        ("rollback-forgotten",),
        ("test_the_last_draft_alone_is_rejected",),
    ),
    Entry(
        "M24",
        "mlx-lm #1423, #1427, #1486; transformers PR #48280",
        "A sliding window's cache is cut by its index, and what the window had left is lost.",
        tests=("test_a_window_is_left",),
        why="No cache can be named.",
    ),
    Entry(
        "M25",
        "mlx-lm #980, #1446",
        "A recurrent state cannot be taken back by cutting it.",
        attempt("m25_untrimmed_state", "E230"),
        (),
        ("test_a_recurrent_state_is_refused",),
        "Recurrent models are refused when they are loaded.",
    ),
    Entry(
        "M26",
        "transformers #30312, PR #45745",
        "A static cache is allocated again, too small for the next request.",
        tests=("test_requests_of_all_lengths_in_one_session",),
        why="No cache can be named.",
    ),
    Entry(
        "M27",
        "mlx-lm #1528",
        "A run that is left early cuts the cache by a stale, negative number.",
        tests=("test_left_in_the_middle",),
        why="No cache can be named.",
    ),
    Entry(
        "M28",
        "SGLang PR #15360, TRT-LLM #10343",
        "The accepted path of a tree is read from the tree's first slots.",
        wrong("m28_growth_order", models=8),
        ("path-not-gathered",),
        ("test_paths_of_trees",),
    ),
    Entry(
        "M29",
        "vLLM PR #56734, PR #26498, #46899",
        "Padded drafts write into slots that are in use.",
        (),
        ("padded-slot",),
        ("test_batch_equals_alone",),
    ),
    Entry(
        "M30",
        "mlx-vlm #1962",
        "Rows of rejected drafts are set to zero and still attended to.",
        tests=("test_any_number_of_drafts", "test_long_and_short_together"),
        why="No cache can be named.",
    ),
    Entry(
        "M31",
        "SGLang PR #33872",
        "A ring of four slots is overwritten by the fifth draft.",
        attempt("m31_ring", "E260"),
        (),
        ("test_any_number_of_drafts",),
    ),
    Entry(
        "M32",
        "vLLM #43559, #47930",
        "A prompt that was seen before gives other tokens, or fewer accepted drafts.",
        tests=("test_the_same_prompt_again",),
        why="No cache can be named.",
    ),
    Entry(
        "M33",
        "vLLM #14649",
        "A head continues from its own predictions of the target's states although the target has computed them.",
        (),
        ("rollback-forgotten",),
        ("test_drafts_are_those_of_the_reference",),
    ),
    Entry(
        "M34",
        "vLLM #30916, #49620, #30618",
        "Drafts from before a sequence was set aside are verified after it comes back.",
        tests=("test_memory_is_taken_away_and_given_back", "test_batch_equals_alone"),
        why="There is no scheduler between drafting and verifying: a step is whole.",
    ),
)

POSITIONS = (
    Entry(
        "M35",
        "SGLang PR #25015",
        "Drafts are computed one position late.",
        attempt("m35_draft_positions", "E260"),
        (),
        ("test_draft_rows_are_those_of_the_reference",),
    ),
    Entry(
        "M36",
        "TRT-LLM PR #12962",
        "A node's position is its number, not its depth.",
        attempt("m36_tree_positions", "E260"),
        ("path-not-gathered",),
        ("test_paths_of_trees",),
    ),
    Entry(
        "M37",
        "FastDeploy PR #3514, speculators PR #897",
        "The mask of a tree is a triangle: nodes see their siblings.",
        attempt("m37_triangle_mask", "E260"),
        ("siblings-seen",),
        ("test_paths_of_trees",),
    ),
    Entry(
        "M38",
        "transformers 5.23, eager attention",
        "A mask of yes and no is added to the scores as 0 and 1.",
        tests=("test_both_ways_of_attention",),
        why="No mask can be named.",
    ),
    Entry(
        "M39",
        "llama.cpp #25618",
        "A kernel for one query token is used for up to eight.",
        tests=("test_shared_key_heads",),
        why="On a CPU; the kernels of the Triton backend have tests of their own.",
    ),
    Entry(
        "M40",
        "vLLM #48894, #49343",
        "Positions past the end of the drafter's context are read.",
        tests=(
            "test_the_end_of_the_context",
            "test_a_drafter_with_a_shorter_context",
            "test_a_long_prompt_to_the_end_of_the_context",
        ),
        why="The engine had a bug of this kind, found in review and fixed: texts that filled the context crashed.",
    ),
)

BATCHES = (
    Entry(
        "M41",
        "Megatron-Bridge PR #4760, unsloth #9708",
        "Padding of short rows leaves a gap in their positions, or no numbers.",
        tests=("test_batch_equals_alone",),
        why="A program speaks of one sequence.",
    ),
    Entry(
        "M42",
        "vLLM PR #35398",
        "Settings of a request are looked up by the number of a token.",
        tests=("test_batch_equals_alone",),
        why="A program speaks of one sequence.",
    ),
    Entry(
        "M43",
        "vLLM #46088, llama.cpp #26741",
        "A long and a short sequence in one batch read each other.",
        tests=("test_long_and_short_together",),
        why="A program speaks of one sequence.",
    ),
    Entry(
        "M44",
        "vllm-ascend #13608",
        "Rows without drafts use up random numbers of their request.",
        (),
        ("match-fresh-noise", "output-shifted", "edit-fresh-noise"),
        ("test_a_row_without_drafts_draws_what_it_draws_alone",),
    ),
    Entry(
        "M45",
        "TRT-LLM #19487; vLLM PR #10863, #6038",
        "Requests share a stream of random numbers, or their seed is ignored.",
        attempt("m45_shared_stream", "E230"),
        (),
        ("test_seeds", "test_batch_equals_alone"),
        "Noise is a function of seed, request and place; there is no stream.",
    ),
)

STOPS = (
    Entry(
        "M46",
        "transformers #47912, koboldcpp #1276",
        "An end of text inside an accepted block is passed over.",
        (),
        ("end-inside-a-path",),
        ("test_an_end_inside_a_block",),
        "`commit` feeds the stop machine token by token.",
    ),
    Entry(
        "M47",
        "transformers #48039",
        "A stop string or criterion that is met inside a block is passed over.",
        (),
        ("end-inside-a-path",),
        ("test_any_condition_inside_a_block",),
        "`commit` feeds the stop machine token by token.",
    ),
    Entry(
        "M48",
        "openvino.genai PR #3293",
        "A drafted end of text ends the text, though the target rejects it.",
        wrong("m48_ended_by_a_draft"),
        ("ended-by-a-draft",),
        ("test_a_drafted_end_is_no_end",),
    ),
    Entry(
        "M49",
        "ORT-genai #2528",
        "More tokens are returned than were requested.",
        (Program("m49_overshoot_right", "proved"),),
        ("limit-overshoot",),
        ("test_never_more_than_asked_for",),
        "A commit is cut where the text ends; a program cannot go past it.",
    ),
    Entry(
        "M50",
        "vLLM #56101, SGLang #11572",
        "Rates of acceptance above 1, and counts past the end of the text.",
        tests=("test_numbers_of_a_run",),
        why="Counts of accepted drafts are those of verification, tokens those that were committed.",
    ),
)

REQUESTS = (
    Entry(
        "M51",
        "SGLang PR #33643",
        "Of the tokens of a step the penalty's state sees the last alone.",
        wrong("m51_last_token_of_a_step", models=4),
        ("shaping-of-the-root's-path",),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M52",
        "SGLang PR #40244, Luce #374",
        "One state of the penalties serves the whole block.",
        wrong("m52_penalty_of_the_root"),
        ("shaping-of-the-root's-path",),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M53",
        "vmlx-swift #361",
        "Rejected drafts are recorded in the penalty's state.",
        wrong("m53_rejected_recorded", models=4),
        (),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M54",
        "TRT-LLM #17701, SGLang #22049",
        "Penalties hold for the first token of a block, or for none.",
        wrong("m54_unpenalised"),
        ("shaping-at-the-root-only",),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M55",
        "lmdeploy #4551, vLLM #34241",
        "The grammar does not advance with each accepted draft.",
        (),
        ("constraints-at-the-root-only",),
        ("test_what_is_allowed_at_every_node",),
        "A node's constraints are a function of its path.",
    ),
    Entry(
        "M56",
        "llama.cpp #27972",
        "Log-probabilities are 0 for every token, or those of other rows.",
        tests=("test_no_log_probabilities_are_handed_out",),
        why="No result has log-probabilities.",
    ),
    Entry(
        "M57",
        "Automodel #2447, verl-SpeCo #66, EAGLE #222",
        "A drafter's token i is read as the target's token i, though their vocabularies differ.",
        (Program("m57_first_tokens", "E210"),),
        (),
        ("test_another_vocabulary_is_refused",),
    ),
)

RULES = (
    Entry(
        "R1",
        "Sun et al., 2024, appendix; HSD's repository",
        "Block verification in its sequential form, ended at the first token that a position has, not the last.",
        wrong("m12_block_first", models=8),
    ),
    Entry(
        "R2",
        "Leviathan et al., 2023; lucidrains",
        "Lenience is not lossless; its twin claims the target's support, and no more.",
        wrong("x_lenience", models=6),
    ),
    Entry(
        "R3",
        "SpecInfer, as in Sequoia's repository",
        "Siblings without replacement, tested with the distribution of siblings with replacement.",
        wrong("x_multi_round"),
    ),
    Entry(
        "R4",
        "SpecHub (Sun et al., 2024)",
        "Only the kind of pair that was drawn is taken out of p, not both.",
        wrong("x_spechub", models=6),
    ),
)

GROUPS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    ("Acceptance and residuals", RESIDUALS),
    ("The bonus token", BONUS),
    ("Caches", CACHES),
    ("Positions and masks", POSITIONS),
    ("Many at a time", BATCHES),
    ("Where texts end", STOPS),
    ("Penalties, grammars, vocabularies", REQUESTS),
    ("Other rules of verification", RULES),
)
ENTRIES = tuple(e for _, group in GROUPS for e in group)
