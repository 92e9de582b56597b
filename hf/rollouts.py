"""Rollouts of reinforcement learning: an algorithm behind TRL's `rollout_func`, and behind the rollout server of verl.

The ratio of two policies' probabilities assumes that a text was drawn from one of them. So an algorithm is refused unless it is
proved to draw from its target, and each token comes with its log-probability by the target as the request shapes it: what both
trainers call the sampling log-probabilities. Written for TRL 1.16 and verl 0.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from decgraph.errors import DecError
from decgraph.hf.generate import custom_generate, drawn_seed
from decgraph.runtime.arguments import AlgorithmLike
from decgraph.runtime.session import Result

SHAPING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""What TRL's trainers and verl's sampling parameters shape the policy with, by the names of a request."""


@dataclass
class TokenOutput:
    """What verl's agent loops read of an answer; the fields are those of its class of this name.

    token_ids: the new tokens. log_probs: a number for each of them, or None where none were asked for.
    """

    token_ids: list[int]
    log_probs: list[float] | None = None
    routed_experts: Any = None
    stop_reason: str | None = "completed"
    num_preempted: int | None = None
    extra_fields: dict[str, Any] = field(default_factory=dict)


class Rollouts:
    """An algorithm that writes rollouts. The object is TRL's `rollout_func`; `generate` and `update_weights` are what verl
    calls of a rollout server.

    algorithm, given: as for `decgraph.hf`, `require` among them, which is "proved" here; with None any algorithm is taken, for
    those who correct for what a lossy one writes. draft: a parameter of the algorithm that gets the text which the latest call
    with this prompt wrote, the last epoch's as a rule. model: the policy, a module; TRL's side takes its trainer's. Weights
    that change in place are seen by the next call.

    last: the results of the latest call, a `Result` for each text.

    Raises DecError for what `decgraph.hf` and `require` refuse, and for a `draft` that is no parameter of tokens.
    """

    def __init__(
        self,
        algorithm: AlgorithmLike,
        *,
        require: Literal["proved", "holds"] | None = "proved",
        draft: str = "",
        model: Any = None,
        **arguments: Any,
    ) -> None:
        self.decoder = custom_generate(algorithm, require=require, **arguments)
        takes = {name: p for name, p in self.decoder.algorithm.params.items() if p.value.type.elem == "token"}
        if draft and draft not in takes:
            raise DecError(
                f"{self.decoder.algorithm.name} has no parameter `{draft}` for a text",
                hint=f"draft={next(iter(takes))!r}" if takes else "predicted_outputs and spec_rl have one",
            )
        self.draft, self.model = draft, model
        self.most = takes[draft].value.type.dims[0].bound if draft else 0
        self.written: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        self.last: list[Result] = []
        self._lock = asyncio.Lock()

    def run(self, model: Any, prompts: Sequence[Sequence[int]], seed: int | None = None, **fields: Any) -> list[Result]:
        """A text for each of `prompts` (token ids), with log-probabilities by the distributions that its tokens were drawn
        from (at temperature 0 the model's own). fields: of a `Request`. Raises DecError for those and what a run raises."""
        from decgraph.runtime.request import Request

        key = drawn_seed() if seed is None else seed
        fields = {"logprobs": 0, "shaped": fields.get("temperature", 1) > 0, "seed": key, **fields}
        requests = [Request(tuple(p), request_id=n, **fields) for n, p in enumerate(prompts)]
        drafts: list[tuple[int, ...]] = []
        seen: dict[tuple[int, ...], list[int]] = {}
        for n, request in enumerate(requests):
            same = seen.setdefault(request.prompt, [])
            before = self.written.get(request.prompt) or [()]
            drafts.append(before[len(same) % len(before)][: self.most])
            same.append(n)
        self.last = self.decoder.results(model, requests, self.draft, drafts if self.draft else None)
        for prompt, places in seen.items() if self.draft else ():
            self.written[prompt] = [tuple(self.last[n].tokens) for n in places]
        return self.last

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, Any]:
        """TRL: a completion for each of `prompts`, texts or messages, which the trainer has repeated as often as it wants
        completions. The settings are the trainer's. Returns prompt_ids, completion_ids and logprobs, a list for each prompt."""
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        ids = [
            tokenizer(p)["input_ids"]
            if isinstance(p, str)
            else tokenizer.apply_chat_template(
                p, add_generation_prompt=True, tokenize=True, return_dict=True, **trainer.chat_template_kwargs
            )["input_ids"]
            for p in prompts
        ]
        shaping = {name: getattr(trainer, name) for name in SHAPING}
        model = trainer.accelerator.unwrap_model(trainer.model)
        results = self.run(model, ids, max_tokens=trainer.max_completion_length, eos=trainer.eos_token_ids, **_shaping(shaping))
        return {
            "prompt_ids": ids,
            "completion_ids": [list(r.tokens) for r in results],
            "logprobs": [_logprobs(r) for r in results],
        }

    async def generate(
        self, prompt_ids: Sequence[int], sampling_params: Mapping[str, Any], request_id: str = "", **more: Any
    ) -> TokenOutput:
        """verl: what its servers and their client answer. sampling_params: SHAPING, `max_tokens` or `max_new_tokens`,
        `seed`, `stop_token_ids`, `ignore_eos`, `logprobs`. One request runs at a time. Raises DecError for others, and for
        images, video and audio."""
        asked = dict(sampling_params)
        limits = [limit for name in ("max_tokens", "max_new_tokens") if (limit := asked.pop(name, None)) is not None]
        stops, logprobs = asked.pop("stop_token_ids", None) or (), asked.pop("logprobs", False)
        ignore, seed = asked.pop("ignore_eos", False), asked.pop("seed", None)
        shaping = {name: asked.pop(name) for name in SHAPING if name in asked}
        if extra := [name for name, value in {**asked, **more}.items() if value is not None]:
            raise DecError(f"`{extra[0]}` is not supported in a rollout", hint=f"it takes {', '.join(SHAPING)}")
        ends = getattr(self._policy().generation_config, "eos_token_id", None)
        eos = {*stops, *(() if ignore or ends is None else [ends] if isinstance(ends, int) else ends)}
        fields = {"max_tokens": limits[0] if limits else 512, "eos": eos, **_shaping(shaping)}
        async with self._lock:
            (result,) = await asyncio.to_thread(self.run, self.model, [list(prompt_ids)], seed, **fields)
        return TokenOutput(list(result.tokens), _logprobs(result) if logprobs not in (None, False) else None)

    def _policy(self) -> Any:
        if self.model is None:
            raise DecError("there is no policy to generate with", hint="Rollouts(..., model=module)")
        return self.model

    async def update_weights(self, weights: Iterable[tuple[str, Any]], wire_format: str = "named_tensors", **_: Any) -> None:
        """verl: the policy's new weights, as (name, tensor) pairs, copied in place. Raises DecError for differences of weights
        and for a name that the module lacks."""
        import torch

        if wire_format != "named_tensors":
            raise DecError(f"weights come as {wire_format!r}", hint="named_tensors: whole weights by name")
        async with self._lock:
            own = self._policy().state_dict(keep_vars=True)  # tied weights under each of their names
            with torch.no_grad():
                for name, value in weights:
                    if name not in own:
                        raise DecError(f"the policy has no weight {name!r}")
                    own[name].copy_(value)


def _shaping(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a request has them: 0 and -1 turn top_k off in both trainers, None and 1 the others."""
    out = {name: value for name, value in settings.items() if value is not None}
    if out.get("top_k", 1) <= 0:
        del out["top_k"]
    return out


def _logprobs(result: Result) -> list[float]:
    assert result.logprobs is not None
    return list(result.logprobs.tokens)
