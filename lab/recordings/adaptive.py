"""vLLM's adaptive verification: how many drafts a step verifies, by what calls cost and what the last drafts were worth."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch

from lab.recordings import Case
from lab.recordings.tables import TableLM, untied
from lab.recordings.upstream import Upstream

FOLDER = "vllm/v1/worker/gpu/spec_decode"


def models(case: Case) -> dict[str, Any]:
    """A target and a drafter, which are often of one mind where the drafter is sure."""
    size, seed = case["size"], case["seed"]
    drafter = untied(size, seed, window=None, sharp=2.0, name="drafter", blend=(seed + 1, case["blend"]))
    return {"target": untied(size, seed, window=None, sharp=2.0), "drafter": drafter}


class Numbers:
    """A buffer of numbers on the CPU, in the place of one on both sides."""

    def __init__(self, *size: int, dtype: torch.dtype, device: Any) -> None:
        self.gpu = torch.zeros(*size, dtype=dtype)
        self.cpu = self.gpu.clone()
        self.np = self.cpu.numpy()

    def copy_to_cpu(self) -> None:
        """At once."""
        self.cpu.copy_(self.gpu)


def estimator(upstream: Upstream, case: Case) -> Any:
    """The authors' estimator, with the settings of a case."""
    import triton
    import triton.language as tl

    gpu = {"torch": torch, "triton": triton, "tl": tl}
    helper = "_compute_max_and_sumexp"
    more = upstream.names(f"{FOLDER}/rejection_sampler_utils.py", helper, **gpu)
    kernels = ("_accumulate_kernel", "_refit_kernel", "_local_max_sumexp_kernel", "_predict_kernel")
    constants = ("_MAX_LOG_ODDS", "_INIT_SLOPE", "_INIT_BIAS")
    wanted = ("OnlineAcceptanceEstimator", *kernels, *constants)
    found = upstream.names(f"{FOLDER}/acceptance_estimator.py", *wanted, **gpu, **{helper: more[helper]})
    made = found["OnlineAcceptanceEstimator"](1, case["gamma"], "cpu")
    made.REFIT_INTERVAL, made.DAMPING_OBSERVATIONS = case["interval"], case["damping"]
    return made


def manager(upstream: Upstream, case: Case) -> Any:
    """The authors' manager of a batch of one."""
    names = ("AdaptiveVerificationManager", "_assign_draft_token_budget", "build_cost_tables_from_curves")
    seen: dict[str, Any] = {"torch": torch, "np": np, "logger": mock.MagicMock(), "CpuGpuBuffer": Numbers}
    seen |= {
        "get_tp_group": lambda: SimpleNamespace(broadcast_object=lambda x, src: x),
        "stream": lambda *_: contextlib.nullcontext(),
    }
    seen |= {"gpu_sync_allowed": contextlib.nullcontext, "async_tensor_h2d": lambda x, out: out.copy_(torch.from_numpy(x))}
    annotated = "RequestState InputBatch StepTimingSample AdmittedDraftCounts Iterable Iterator AttentionGroup VllmConfig Any"
    seen |= dict.fromkeys(annotated.split(), list)
    found: Any = upstream.names(f"{FOLDER}/adaptive_verification.py", *names, **seen)
    found["_assign_draft_token_budget_compiled"] = found["_assign_draft_token_budget"]
    state = SimpleNamespace(
        num_speculative_steps=case["gamma"], device="cpu", max_num_reqs=1, max_num_batched_tokens=32,
        req_id_to_index={"one": 0}, num_computed_tokens_np=np.array([1]), prefill_len=SimpleNamespace(np=np.array([1])),
    )  # fmt: skip
    made = found["AdaptiveVerificationManager"](state, torch.zeros(2, dtype=torch.int32), 1, 1 + case["capacity"])
    made.set_cost_curves([(1, case["drafting"])], [(int(n), ms) for n, ms in case["verifying"]])
    made.add_request(0)
    return made


def adaptive_verification(upstream: Upstream, case: Case) -> dict[str, Any]:
    """The step of the engine's runner around both: drafts, the budget for them, verification, and what it teaches."""
    both, gamma, one = {name: TableLM(table) for name, table in models(case).items()}, case["gamma"], torch.tensor([0])
    with mock.patch.multiple(torch.cuda, Stream=mock.MagicMock(), Event=mock.MagicMock(), current_stream=mock.MagicMock()):
        curves, budgets = estimator(upstream, case), manager(upstream, case)
        text, verified, accepted = [*case["prompt"]], [], []
        while len(text) < len(case["prompt"]) + case["limit"]:
            chain, sure = list[int](), torch.zeros(1, gamma)
            for j in range(gamma):
                row = both["drafter"].row([*text, *chain])
                curves.predict(row[None], one, torch.tensor(j), sure, torch.zeros(1))
                chain.append(int(row.argmax()))
            budgets.record_confidences(sure, SimpleNamespace(num_reqs=1, idx_mapping=one))
            budgets.get_num_tokens({"one": 1 + gamma}, {"one": chain})
            logits, *_ = budgets.reallocate_drafts(["one"], one)
            admitted = int(logits[1]) - 1
            said = [int(both["target"].row([*text, *chain[:i]]).argmax()) for i in range(admitted + 1)]
            n = next((i for i in range(admitted) if said[i] != chain[i]), admitted)
            curves.step(one, torch.tensor([n + 1]), torch.tensor([admitted - n]))
            text += [*chain[:n], said[n]]
            verified.append(admitted)
            accepted.append(min(n, len(case["prompt"]) + case["limit"] - len(text) + n + 1))
    return {"tokens": text[: len(case["prompt"]) + case["limit"]], "verified": verified, "accepted": accepted}


RECORDINGS = {
    "adaptive_verification": adaptive_verification,
}
