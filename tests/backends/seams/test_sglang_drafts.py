"""Exported workers for SGLang: their signatures are the interface's, and a caller that does what SGLang's n-gram worker does
gets the tokens of `decgraph.run`, with requests that come and go, and keys and values of accepted nodes alone."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Iterator
from hashlib import sha256
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from lib.engines.published_seams import SGLANG_REGISTER, SGLANG_SAMPLE, SGLANG_TREES, SGLANG_WORKER_ARGUMENTS
from transformers import LlamaConfig, LlamaForCausalLM

import decgraph
from decgraph.backends.seams import sglang_drafts
from decgraph.backends.seams.file import Exported, _written
from decgraph.backends.seams.fits import trial

VOCAB = 61
QUICK = (("token_recycling", True),)
PROGRAMS: dict[str, dict[str, Any]] = {
    "anpd": {},
    "ems_sd": {},
    "fastcot": {"window": 4},
    "flexdraft": {"gamma": 3},
    "jacobi": {"length": 4},
    "lexical_unit": {"alpha": 0.02},
    "pass": {},
    "ppd": {},
    "prompt_lookup": {},
    "space": {"gamma": 3},
    "token_recycling": {"shape": "[[0],[1],[0,0],[0,1],[1,0]]"},
}
CASES = [
    pytest.param(name, late, marks=() if (name, late) in QUICK else pytest.mark.slow if late else pytest.mark.nightly)
    for name in PROGRAMS
    for late in (True, False)
]


class Mode:
    """A forward mode."""

    def __init__(self, name: str) -> None:
        self.name = name

    def is_target_verify(self) -> bool:
        return self.name == "verify"

    def is_decode(self) -> bool:
        return self.name == "decode"


DECODE, VERIFY = Mode("decode"), Mode("verify")


class Worker:
    """What SGLang's n-gram worker does, as far as the exported one takes part in it."""

    def __init__(self, server_args: Any, gpu_id: Any, nccl_port: Any, target_worker: Any) -> None:
        self.draft_token_num, self.enable_overlap = server_args.speculative_num_draft_tokens, server_args.overlap
        self.target_worker, self.device = target_worker, "cpu"
        config = SimpleNamespace(vocab_size=VOCAB, context_len=128)
        self.model_runner = SimpleNamespace(model_config=config)

    def alloc_memory_pool(self, **kwargs: Any) -> None:
        self.max_batch_size = 3

    def _prepare_draft_tokens(self, batch: Any) -> Any:
        raise AssertionError("the corpus of n-grams")

    def _update_ngram_corpus(self, batch: Any) -> None:
        raise AssertionError("the corpus of n-grams")

    def _prepare_for_speculative_decoding(self, batch: Any) -> None:
        assert batch.forward_mode.is_decode()
        tokens, seen = self._prepare_draft_tokens(batch)
        n = self.draft_token_num
        assert tokens.shape == (len(batch.reqs) * n,) and str(tokens.dtype) == "int64"
        assert seen.shape == (len(batch.reqs) * n * n,) and str(seen.dtype) == "bool"
        batch.forward_mode = VERIFY
        batch.spec_info = SimpleNamespace(tokens=tokens.reshape(-1, n), seen=seen.reshape(-1, n, n))

    def forward_batch_generation(self, batch: Any) -> list[list[int]]:
        """The new tokens of every request."""
        self._prepare_for_speculative_decoding(batch)
        result = self.target_worker.forward_batch_generation(batch, is_verify=True)
        sample = sys.modules["sglang.srt.speculative.ngram_worker"].eagle_sample
        predict, lengths, index = sample(batch.spec_info, batch, result.logits_output, None, watermark_state=None)
        n, out = self.draft_token_num, []
        assert predict.shape == (len(batch.reqs) * n,) and index.shape == (len(batch.reqs), n)
        assert predict.dtype == index.dtype == lengths.dtype == torch.int32
        tokens = predict[index]
        for row, request in enumerate(batch.reqs):
            count = int(lengths[row])
            nodes = (index[row] - row * n).tolist()
            assert count >= 1 and nodes[0] == 0 and index[row, count:].eq(-1).all()
            request.kept += [int(batch.spec_info.tokens[row, node]) for node in nodes[:count]]
            out.append(tokens[row, :count].tolist())
        self._update_ngram_corpus(batch)
        batch.forward_mode = DECODE
        batch.spec_info = SimpleNamespace(accept_tokens=tokens.flatten(), accept_lens=lengths)
        return out


class Target:
    """The target's worker: logits at nodes by the keys and values that requests have."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = LlamaConfig(
            vocab_size=VOCAB, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.3, **sizes
        )
        self.whole, self.known = LlamaForCausalLM(config).eval(), dict[tuple[int, ...], torch.Tensor]()

    @torch.no_grad()
    def after(self, text: list[int]) -> torch.Tensor:
        key = tuple(text)
        if key not in self.known:
            self.known[key] = self.whole(torch.tensor([text])).logits[0, -1]
        return self.known[key]

    def forward_batch_generation(self, batch: Any, is_verify: bool) -> Any:
        assert is_verify and batch.forward_mode.is_target_verify()
        rows = []
        for request, tokens, seen in zip(batch.reqs, batch.spec_info.tokens, batch.spec_info.seen, strict=True):
            for node in range(len(tokens)):
                above = [int(tokens[j]) for j in range(len(tokens)) if seen[node, j]]
                assert seen[node, node] and seen[node, 0] and not seen[node, node + 1 :].any()
                rows.append(self.after([*request.kept, *above]))
        return SimpleNamespace(logits_output=SimpleNamespace(next_token_logits=torch.stack(rows)))


@pytest.fixture(scope="module")
def target() -> Target:
    return Target()


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Modules with the names of SGLang's that the exported file imports; what it registers."""
    found: dict[str, Any] = {}

    class SpeculativeAlgorithm:
        @staticmethod
        def register(
            name: str, *, supports_overlap: bool = False, validate_server_args: Any = None, spec_class: Any = None
        ) -> Any:
            def decorator(factory: Any) -> Any:
                found[name] = spec_class(name, factory, supports_overlap)
                return factory

            return decorator

    class CustomSpecAlgo:
        def __init__(self, name: str, factory: Any, supports_overlap: bool) -> None:
            self.name, self.factory, self.supports_overlap = name, factory, supports_overlap

    def eagle_sample(verify_input: Any, batch: Any, logits_output: Any, grammar_mask: Any = None, **more: Any) -> str:
        return "the engine's own"

    assert tuple(inspect.signature(SpeculativeAlgorithm.register).parameters)[1:] == tuple(SGLANG_REGISTER)
    assert tuple(inspect.signature(Worker).parameters) == SGLANG_WORKER_ARGUMENTS
    assert tuple(inspect.signature(eagle_sample).parameters)[:4] == SGLANG_SAMPLE
    names: dict[str, dict[str, Any]] = {
        "model_executor.forward_batch_info": {"ForwardMode": SimpleNamespace(DECODE=DECODE)},
        "speculative.ngram_worker": {"NGRAMWorker": Worker, "eagle_sample": eagle_sample},
        "speculative.spec_info": {"SpeculativeAlgorithm": SpeculativeAlgorithm},
        "speculative.spec_registry": {"CustomSpecAlgo": CustomSpecAlgo},
    }
    for part in ("sglang", "sglang.srt", "sglang.srt.speculative", "sglang.srt.model_executor"):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    for part, content in names.items():
        module = ModuleType(f"sglang.srt.{part}")
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        outer, _, inner = module.__name__.rpartition(".")
        setattr(sys.modules[outer], inner, module)
    yield found


def exported(name: str) -> Exported:
    chosen = decgraph.load(name)
    found = trial(chosen.module, PROGRAMS[name], "trees")
    assert not found.misfits
    return _written(sglang_drafts.INTERFACE, chosen.module, PROGRAMS[name], found, "", "")


def loaded(file: Exported) -> Any:
    module = ModuleType(file.name)
    exec(compile(file.text, f"{file.name}.py", "exec"), module.__dict__)
    return module


def made(target: Target, spec: Any, late: bool) -> Any:
    """A worker, as the server makes it."""
    server = SimpleNamespace(
        page_size=1, attention_backend=None, speculative_ngram_max_bfs_breadth=10, max_running_requests=None
    )
    spec.handle_server_args(server)
    server.overlap = late
    worker = spec.factory(server)(server, 0, 0, target)
    worker.alloc_memory_pool()
    return worker


def test_the_worker_has_the_signatures_of_the_interface(registered: dict[str, Any], target: Target) -> None:
    file = exported("prompt_lookup")
    module = loaded(file)
    (spec,) = registered.values()
    assert (spec.name, spec.is_ngram(), spec.supports_overlap, spec.has_draft_kv()) == ("PROMPT_LOOKUP", True, True, False)
    worker = made(target, spec, False)
    for method, parameters in SGLANG_TREES.items():
        assert tuple(inspect.signature(getattr(type(worker), method)).parameters) == parameters
    assert tuple(inspect.signature(module.sample).parameters)[:4] == SGLANG_SAMPLE
    assert (
        worker.draft_token_num == 11 and module.sample(SimpleNamespace(), None, None, watermark_state=1) == "the engine's own"
    )
    with pytest.raises(ValueError, match="--page-size 1"):
        spec.handle_server_args(SimpleNamespace(page_size=16, attention_backend="triton"))
    assert "not run inside SGLang" in file.text and "0.5.23" in file.text
    module.register()


@pytest.mark.parametrize(("name", "late"), CASES)
def test_tokens_are_those_of_a_run(name: str, late: bool, registered: dict[str, Any], target: Target) -> None:
    """late: with overlap scheduling the last step's tokens come with the batch, and reach the requests a step later."""
    loaded(exported(name))
    (spec,) = registered.values()
    worker, rng = made(target, spec, late), random.Random(1)
    sampled = [] if name == "pass" else [{"temperature": 1.0}, {"temperature": 0.7, "top_k": 9}]  # rejection's noise is by step
    none: dict[str, Any] = {"sampling_seed": None, "custom_params": None}
    settings: list[dict[str, Any]] = [{"temperature": 1.0, "top_k": 1}, *sampled]
    requests = []
    for i in range(5):
        own = {"top_k": 1 << 30, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0}
        params = SimpleNamespace(**{**own, "frequency_penalty": 0.0, **none, **settings[i % len(settings)]})
        prompt = [rng.randrange(5) for _ in range(rng.randrange(2, 10))]
        chosen: dict[str, Any] = {
            "temperature": 0 if params.top_k == 1 else params.temperature,
            "seed": int.from_bytes(sha256(f"r{i}".encode()).digest()[:8], "big"),
        }
        chosen |= {"top_k": params.top_k} if params.top_k in range(2, 99) else {}
        run = decgraph.run(
            name, models={"target": target.whole}, prompt=prompt, max_tokens=14, eos=(), params=PROGRAMS[name], **chosen
        )
        want = list(run.tokens)
        if name == "lexical_unit":  # not lossless: its units are those of a run that begins behind SGLang's first token
            after = decgraph.run(
                name, models={"target": target.whole}, prompt=[*prompt, want[0]], max_tokens=13, eos=(), params=PROGRAMS[name],
                **chosen,
            )  # fmt: skip
            want = [want[0], *after.tokens]
        requests.append(
            SimpleNamespace(
                rid=f"r{i}", origin_input_ids_unpadded=prompt, output_ids=[], sampling_params=params, kept=list(prompt),
                want=want, text=want[:1], new=want[:1],
            )
        )  # fmt: skip
    waiting, running, steps = list(requests), list[Any](), 0
    while waiting or running:
        if waiting and len(running) < 3 and steps % 2 == 0:
            running.insert(rng.randrange(len(running) + 1), waiting.pop(0))
        n = worker.draft_token_num
        if not late:
            for request in running:
                request.output_ids = list(request.text)
        relayed = SimpleNamespace(
            accept_tokens=torch.tensor([[*r.new, *[7] * (n - len(r.new))] for r in running]).flatten(),
            accept_lens=torch.tensor([len(r.new) for r in running]),
        )
        batch = SimpleNamespace(
            reqs=running, spec_info=relayed, forward_mode=DECODE, sampling_info=SimpleNamespace(logit_bias=None),
            grammar_needs_sync=lambda: False,
        )  # fmt: skip
        new = worker.forward_batch_generation(batch)
        for request, tokens in zip(running, new, strict=True):
            request.output_ids, request.new = list(request.text), tokens
            request.text += tokens
            assert request.kept == [*request.origin_input_ids_unpadded, *request.text][:-1]
        running = [r for r in running if len(r.text) < 14]
        steps += 1
    for request in requests:
        assert request.text[:14] == request.want
    assert steps > 5
