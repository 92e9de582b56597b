"""Bugs of the museum in the engine around verification: caches, positions, batches, stop criteria, shaping of distributions."""

from __future__ import annotations

from entry import Entry, Program, attempt, wrong

CACHES = (
    Entry(
        "M22",
        "aprender #2014, Token-Print #110",
        "After a rejection the cache is not taken back.",
        wrong("m22_no_rollback"),
        ("test_any_number_of_drafts",),
    ),
    Entry(
        "M23",
        "openvino.genai #4190",
        "The cache is one row too long where the last draft alone is rejected.",
        wrong("m22_no_rollback"),
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
        ("test_a_recurrent_state_is_not_taken_back",),
        "A recurrent state is copied before every draft: what was rejected was read by the copy alone.",
    ),
    Entry(
        "M26",
        "transformers #30312, PR #45745",
        "A static cache is made anew, too small for the next request.",
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
        ("test_paths_of_trees",),
    ),
    Entry(
        "M29",
        "vLLM PR #56734, PR #26498, #46899",
        "Padded drafts write into slots that are in use.",
        (),
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
        "A head goes on from its own guesses of the target's states, after the target has made them.",
        (),
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
        ("test_draft_rows_are_those_of_the_reference",),
    ),
    Entry(
        "M36",
        "TRT-LLM PR #12962",
        "A node's position is its number, not its depth.",
        attempt("m36_tree_positions", "E260"),
        ("test_paths_of_trees",),
    ),
    Entry(
        "M37",
        "FastDeploy PR #3514, speculators PR #897",
        "The mask of a tree is a triangle: nodes see their siblings.",
        attempt("m37_triangle_mask", "E260"),
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
        why="The engine had a bug of this kind, found by the review and mended: texts that filled the context crashed.",
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
        ("test_a_row_without_drafts_draws_what_it_draws_alone",),
    ),
    Entry(
        "M45",
        "TRT-LLM #19487; vLLM PR #10863, #6038",
        "Requests share a stream of random numbers, or their seed is ignored.",
        attempt("m45_shared_stream", "E230"),
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
        ("test_an_end_inside_a_block",),
        "`commit` feeds the stop machine token by token.",
    ),
    Entry(
        "M47",
        "transformers #48039",
        "A stop string or criterion that is met inside a block is passed over.",
        (),
        ("test_any_condition_inside_a_block",),
        "`commit` feeds the stop machine token by token.",
    ),
    Entry(
        "M48",
        "openvino.genai PR #3293",
        "A drafted end of text ends the text, though the target rejects it.",
        (Program("m48_ended_by_a_draft", "E031"), Program("m48_ended_by_a_draft_right", "proved")),
        ("test_a_drafted_end_is_no_end",),
    ),
    Entry(
        "M49",
        "ORT-genai #2528",
        "More tokens are handed out than were asked for.",
        (Program("m49_overshoot_right", "holds"),),
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
        wrong("m51_last_token_of_a_step", twin="holds", models=4),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M52",
        "SGLang PR #40244, Luce #374",
        "One state of the penalties serves the whole block.",
        wrong("m52_penalty_of_the_root", twin="holds"),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M53",
        "vmlx-swift #361",
        "Rejected drafts are recorded in the penalty's state.",
        wrong("m53_rejected_recorded", twin="holds", models=4),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M54",
        "TRT-LLM #17701, SGLang #22049",
        "Penalties hold for the first token of a block, or for none.",
        wrong("m54_unpenalised"),
        ("test_shaping_counts_each_nodes_path",),
    ),
    Entry(
        "M55",
        "lmdeploy #4551, vLLM #34241",
        "The grammar does not advance with each accepted draft.",
        (),
        ("test_what_is_allowed_at_every_node",),
        "A node's constraints are a function of its path.",
    ),
    Entry(
        "M56",
        "llama.cpp #27972",
        "Log-probabilities are 0 for every token, or those of other rows.",
        tests=("test_log_probabilities_are_those_of_their_rows",),
        why="They are read after the run, from the committed text.",
    ),
    Entry(
        "M57",
        "Automodel #2447, verl-SpeCo #66, EAGLE #222",
        "A drafter's token i is read as the target's token i, though their vocabularies differ.",
        (Program("m57_first_tokens", "E240"),),
        ("test_another_vocabulary_is_refused",),
    ),
)
