"""What engines' interfaces ask for, typed by hand from their public sources: names and parameters, no code.

vLLM 0.32.0's logits processors: `vllm/v1/sample/logits_processor/interface.py` (V1) and
`vllm/v1/worker/gpu/sample/logits_processor/interface.py` (V2); a nightly test compares them with an installed vLLM.

Drafters of vLLM: `vllm/v1/spec_decode/custom_class_proposer.py` and its call in `gpu_model_runner.py`; for model runner V2
`vllm/v1/worker/gpu/spec_decode/speculator.py` and its call in `vllm/v1/worker/gpu/model_runner.py`. SGLang 0.5.23:
`python/sglang/srt/speculative/spec_registry.py` and `ngram_worker.py`; `python/sglang/srt/dllm/algorithm/base.py` and
`python/sglang/srt/sampling/custom_logit_processor.py`.
"""

from __future__ import annotations

VLLM_METHODS = {
    "__init__": ("self", "vllm_config"),
    "propose": ("self", "sampled_token_ids", "num_tokens_no_spec", "token_ids_cpu", "slot_mappings"),
}
VLLM_DEFAULTS = {"slot_mappings": None}
VLLM_V2_METHODS = ("init_cudagraph_manager", "capture", "propose")
VLLM_V2_POSITIONAL = (
    "input_batch", "attn_metadata", "slot_mappings", "last_hidden_states", "aux_hidden_states", "num_sampled", "num_rejected",
    "last_sampled", "next_prefill_tokens", "temperature", "seeds",
)  # fmt: skip
VLLM_V2_KEYWORDS = ("num_speculative_tokens", "dp_sync_state", "mm_inputs")
SGLANG_REGISTER = {"supports_overlap": False, "validate_server_args": None, "spec_class": None}
SGLANG_SPEC_ARGUMENTS = ("name", "factory", "supports_overlap", "validate_server_args")
SGLANG_WORKER_ARGUMENTS = ("server_args", "gpu_id", "nccl_port", "target_worker")
SGLANG_METHODS = {"_prepare_draft_tokens": ("self", "batch"), "_update_ngram_corpus": ("self", "batch")}
VLLM_LOGITS = {
    "__init__": ("self", "vllm_config", "device", "is_pin_memory"),
    "apply": ("self", "logits"),
    "is_argmax_invariant": ("self",),
    "update_state": ("self", "batch_update"),
    "validate_params": ("sampling_params",),
}
VLLM_UPDATE = ("batch_size", "removed", "added", "moved")
VLLM_LOGITS_V2 = {
    "__init__": ("self", "vllm_config", "req_states"),
    "add_request": ("self", "req_idx", "sampling_params"),
    "apply": ("self", "logits", "ctx"),
    "apply_staged_writes": ("self",),
    "validate_params": ("sampling_params",),
}
VLLM_CONTEXT = (
    "expanded_idx_mapping", "idx_mapping", "idx_mapping_np", "expanded_local_pos", "input_ids", "pos",
    "seq_lens_upper_bound_np",
)  # fmt: skip
VLLM_STATE = ("device", "max_num_reqs", "vocab_size", "all_token_ids", "prompt_len", "prefill_len", "total_len")
SGLANG_TREES = {
    "alloc_memory_pool": ("self", "kwargs"),
    "_prepare_draft_tokens": ("self", "batch"),
    "_prepare_for_speculative_decoding": ("self", "batch"),
    "_update_ngram_corpus": ("self", "batch"),
}
SGLANG_SAMPLE = ("verify_input", "batch", "logits_output", "grammar_mask")
"""The positional arguments of the verification that the n-gram worker hands over; more follow by keyword."""
SGLANG_DLLM_METHODS = {
    "__init__": ("self", "config"),
    "init_step_state": ("self", "forward_batch"),
    "max_steps": ("self", "block_size"),
    "prepare_inputs": ("self", "model_runner", "forward_batch", "states"),
    "step": ("self", "forward_batch", "full_logits", "states"),
    "validate_request": ("req",),
}
SGLANG_LOGITS_METHODS = {"__call__": ("self", "logits", "custom_param_list")}
