"""Bugs of the museum in verification: acceptance, residuals, the bonus token, and other rules."""

from __future__ import annotations

from entry import Entry, Program, wrong

RESIDUALS = (
    Entry(
        "M01",
        "Spec-RL #14",
        "After a rejection the token is drawn from p, not from what the draft left of it.",
        wrong("m01_no_residual"),
    ),
    Entry(
        "M02",
        "transformers #47932",
        "Drafts are drawn from the filtered distribution and tested with the unfiltered one.",
        wrong("m02_raw_law", twin="holds"),
        why="A draw carries the distribution that it was drawn from; the program has to hand another one to its rule.",
    ),
    Entry(
        "M03",
        "transformers PR #30778, jaymody #3",
        "The drafter's likeliest token is tested as if it had been drawn.",
        wrong("m03_greedy_draft"),
    ),
    Entry(
        "M04",
        "xLLM PR #2175",
        "Only the drafted token is taken out of p, not the drafter's whole distribution.",
        wrong("m04_one_token_residual"),
    ),
    Entry(
        "M05",
        "vllm-ascend #2881",
        "A row of p is changed in place, and later positions read the change.",
        wrong("m05_zeroed_in_place", twin="holds"),
    ),
    Entry(
        "M06",
        "vLLM #9834, PR #10198",
        "Temperature, top-k and top-p reach the drafter and not the target.",
        wrong("m06_one_side_shaped"),
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
        wrong("m08_shared_noise", twin="holds"),
    ),
    Entry(
        "M09",
        "openvino.genai #4190",
        "After a rejection the token is read from the next row, which knows the rejected draft.",
        wrong("m09_next_row", twin="holds"),
    ),
    Entry(
        "M10",
        "lattice #243",
        "The first draft is committed without a test.",
        wrong("m10_first_unchecked"),
    ),
    Entry(
        "M11",
        "jaymody #9",
        "A draft is accepted where p >= q, at temperature 0 too, and without a coin for the rest.",
        (*wrong("m11_where_likelier"), Program("m11_where_likelier_greedy", "refuted")),
    ),
    Entry(
        "M12",
        "vllm-ascend #7807, PR #7808",
        "Block verification by a product of uniforms; and its repair, whose thresholds stand one position early.",
        (
            *wrong("m12_block_product", models=8),
            *wrong("m12_block_early", models=8),
            *wrong("m12_block_first", twin="holds", models=8),
        ),
    ),
    Entry(
        "M13",
        "EAGLE #183, #221, #74, #93",
        "The likeliest children of a node are tested as if they had been drawn.",
        (*wrong("m13_children_as_drawn"), *wrong("x_multi_round")),
    ),
    Entry(
        "M14",
        "EAGLE; SpecHub's repository",
        "A rejected sibling's mass stays, or a second draft of the same token is skipped.",
        (*wrong("m14_sibling_kept"), *wrong("m14_equal_siblings_skipped"), Program("m14_better_first", "E031")),
    ),
    Entry(
        "M15",
        "vLLM PR #29274",
        "A row after the last draft reads as token 0, and the bonus token is compared with it.",
        wrong("m15_padded_row"),
    ),
    Entry(
        "M16",
        "transformers, _speculative_sampling",
        "A uniform of exactly 0 accepts a draft that the target excludes.",
        wrong("m16_accepts_impossible"),
        ("test_a_coin_of_probability_nothing",),
    ),
    Entry(
        "M17",
        "TorchCode #16",
        "Where p is q the residual is 0/0, and no number or the uniform distribution comes of it.",
        wrong("m17_empty_residual"),
        ("test_nothing_is_left_of_p",),
    ),
    Entry(
        "M18",
        "SGLang PR #31214, #39253",
        "One backend emits the likeliest token at every temperature.",
        wrong("m18_argmax_instead"),
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
        ("test_what_is_allowed_at_every_node",),
    ),
    Entry(
        "M21",
        "vLLM #42744",
        "Biases and min-p reach the bonus token alone.",
        wrong("m21_bonus_alone_shaped"),
        ("test_shaping_counts_each_nodes_path",),
    ),
)

RULES = (
    Entry(
        "R1",
        "Sun et al., 2024, appendix; HSD's repository",
        "Block verification in its sequential form, ended at the first token that a position has, not the last.",
        wrong("m12_block_first", twin="holds", models=8),
    ),
    Entry(
        "R2",
        "Leviathan et al., 2023; lucidrains",
        "Lenience is not lossless; its twin claims the target's support, and no more.",
        wrong("x_lenience", twin="holds", models=6),
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
        wrong("x_spechub", twin="holds", models=6),
    ),
)
