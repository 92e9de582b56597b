"""Parameters of recordings that no entry looks at, each with the reason or with the only values that the program stands for.

What is neither looked at by an entry nor here makes its case fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

LENGTH = "the recorded text is as long as it says"
CALLS = "the recorded calls hold it"
QUOTA = "a threshold decides how many go: upstream's quota is not read then"
ONLY: Mapping[str, Mapping[str, str | tuple[Any, ...]]] = {
    "*": {
        **dict.fromkeys(("max_new_tokens", "gen_length", "max_len_b", "max_steps", "max_length", "decode_depth"), LENGTH),
        **dict.fromkeys(("max_target_length", "num_tokens", "max_len", "blocks"), LENGTH),
        "do_sample": (False,),
        "num_assistant_tokens_schedule": ("constant",),
        "assistant_confidence_threshold": (0.0,),
    },
    "authors/momentum": {"function": "`resistance` has its values"},
    "authors/constrained_beam": {"first": "rows of its first step that stand for nothing"},
    "authors/grammar": {"lark": "the same language as `g`"},
    "authors/uscd": {"rows": "whether both rows have one reply or each its own"},
    "authors/alignment_enhanced": {"system": "it reads as `preamble`"},
    "logits/beam_search": {"num_return_sequences": "all beams are compared"},
    "ar/hf_assisted_eos": {"eos_is_output_index": "where the end stands in the recorded text"},
    "ar/specdecpp": {"num_assistant_tokens": "the schedule `ada` asks the head, and drafts `bound`; read where it is constant"},
    "ar/mcsd_greedy": {"tree_attn": "a tree in one row or in a row a path: the same drafts and the same tokens"},
    "ar2/cs_drafting": {"drafts": "`k_matrix` has a row for each"},
    "logits/context_aware_decoding": {"projection_top_p": (0.0,)},
    "logits/contrastive_decoding": {"num_beams": (1,), "teacher_student": (True,)},
    "heads/*": {"tree_choices": CALLS, "tree": CALLS},
    "ar/medusa_*": {"tree": CALLS, "fast": (True,), "sampling": ("typical",)},
    "ar/copyspec": {"delta": "read where a draft model is used"},
    "ar/ouroboros": {"window_size": "of the drafter's lookahead, which the program does without", "guess_set_size": "as that"},
    "logits/mirostat_llama_cpp": {"seed": "the recorded uniforms are the noise"},
    "logits/kgw_watermark_official": {"z_threshold": "of the detector", "seeding_scheme": ("simple_1",)},
    "logits/synthid": {"sampling_table_seed": "the table is recorded", "sampling_table_size": "the table is recorded"},
    "logits/mbr": {"metric": ("chrf",), "char_order": (6,), "word_order": (0, 2), "beta": (2,)},
    "logits/awrs": {"algorithm": ("recursive",)},
    "ar2/hf_universal_assisted": {"target_lookbehind": "tokens of two tokenizers are lined up by their text"},
    "authors/exspec": {"cache": "whether the target has a cache"},
    "authors/jacobi": {"cache": "whether the tokens that no longer change are computed again"},
    "ar/lookahead": {"POOL_FROM_PROMPT": "texts are compared"},
    "ar2/sequoia_greedy": {"growmap": CALLS, "size": CALLS},
    "logits/filters_llama_cpp": {"seed": "the only coin is certain: `p` is 1"},
    "logits/filters": dict.fromkeys(
        (
            *("top_k", "top_p", "min_p", "min_tokens_to_keep", "mass", "epsilon", "top_h", "temperature", "epsilon_cutoff"),
            *("eta_cutoff", "typical_p"),
        ),
        "transformers' own filter is made with all of a case's parameters",
    ),
    "logits/penalties": {"renormalize_logits": "a softmax follows"},
    "logits/grammar_constrained": {"grammar": "the name of the recorded automaton"},
    "authors/overfill": {"cut": "the layers that `pruned` leaves without their MLPs"},
    "authors/hyperschedule": {"kind": "which of the authors' functions ran", "width": "a schedule's: `steps`, `block` say it"},
    "dllm/adablock_dream_*": {"steps": QUOTA, "delimiter_ids": "upstream reads a list of its own"},
    "dllm/dream_entropy": {"alg": ("entropy",)},
    "dllm/dream_maskgit_plus": {"alg": ("maskgit_plus",)},
    "dllm/dream_topk_margin": {"alg": ("topk_margin",)},
    "dllm2/dream_noise": {"alg_temp": (0.0,)},
    "dllm/fast_dllm_v1_*": {"steps": QUOTA},
    "dllm/fast_dllm_dream_*": {"steps": QUOTA, "alg": ("confidence_threshold",)},
    "dllm/freedave_*": {
        "dual_cache": "the file is of one cache",
        "draft_mode": ("batch_expanding",),
    },
    "dllm/llada2*": {"steps_per_block": QUOTA, "eos_id": "no end stands in a recorded text"},
    "dllm/dkv_cache_dream_prefill": {
        "cache_steps": "upstream reads it in the variant that decides with a cache, not in this one",
        "shift_type": "as that",
    },
    "dllm/dkv_cache_greedy": {"seed": "the recorded order is the noise"},
    "dllm2/d3llm_*": {"decoded_token_threshold": "upstream decides cells that are not activated too"},
    "dllm/r2_dllm": {
        "steps": QUOTA,
        "token_cluster": ("confidence",),
        "confidence_cluster_unmasked": (1,),
        "temporal_eval": ("last", "max"),
    },
    "dllm/apd": {"kv_window": "of the keys and values that upstream computes anew; decisions are compared"},
    "dllm/dparallel_*": {"steps": QUOTA},
    "dllm/localleap": {"steps": QUOTA},
    "dllm2/dpad_*": {
        "steps": QUOTA,
        **dict.fromkeys(("dropout", "window", "sigma", "scale", "preserved_tokens"), "the kept positions are handed over"),
    },
    "authors/eoser_ass": {"block": "one, as long as the canvas"},
    "dllm/sdlm_*": {
        "use_cache": "the file is of one cache",
        "eos_id": "no end stands in a recorded text",
    },
}


def surprising(file: str, unread: Mapping[str, Any]) -> dict[str, Any]:
    """Of the parameters of a recording that an entry did not look at, those that no line of the table excuses."""
    lines = {name: line for pattern, lines in ONLY.items() if fnmatch(file, pattern) for name, line in lines.items()}
    return {n: v for n, v in unread.items() if n not in lines or isinstance(lines[n], tuple) and v not in lines[n]}
