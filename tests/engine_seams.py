"""What engines' seams for drafters ask for, typed by hand from their public sources: names and parameters, no code.

vLLM, `vllm/v1/spec_decode/custom_class_proposer.py` and its call in `gpu_model_runner.py` (pull request 39487, release 0.28.0):
https://github.com/vllm-project/vllm/pull/39487. SGLang, `python/sglang/srt/speculative/spec_registry.py` (pull request
23991) and `ngram_worker.py` of that time: https://github.com/sgl-project/sglang/pull/23991.
"""

from __future__ import annotations

VLLM_METHODS = {
    "__init__": ("self", "vllm_config"),
    "propose": ("self", "sampled_token_ids", "num_tokens_no_spec", "token_ids_cpu", "slot_mappings"),
}
VLLM_DEFAULTS = {"slot_mappings": None}
SGLANG_REGISTER = {"supports_overlap": False, "validate_server_args": None, "spec_class": None}
SGLANG_SPEC_ARGUMENTS = ("name", "factory", "supports_overlap", "validate_server_args")
SGLANG_WORKER_ARGUMENTS = (
    "server_args", "gpu_id", "tp_rank", "dp_rank", "moe_ep_rank", "attn_cp_rank", "moe_dp_rank", "nccl_port", "target_worker",
)  # fmt: skip
SGLANG_METHODS = {"_prepare_draft_tokens": ("self", "batch"), "_update_ngram_corpus": ("self", "batch")}
