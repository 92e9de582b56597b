"""What changes about a module after its first use is seen at the next: transformers' `generate` says what is right.

Each change is made to a module that decgraph has decoded with already, through one object, and is taken back where that can be
done. A change must show: `generate` itself gives other tokens after it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lib.lazily import masked_modules
from lib.models.hf_models import llama, noisy
from torch.nn.utils import parametrize

import decgraph
from decgraph.errors import DecError

PROMPT = torch.tensor([[5, 9, 50, 5, 9, 50, 5, 9]])
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 12, "eos_token_id": None, "pad_token_id": 0}
Change = Callable[[Any], Any]


def shifted(module: Any, args: Any, out: Any) -> Any:
    return (out[0] * 0.1 + 1, *out[1:]) if isinstance(out, tuple) else out * 0.1 + 1


@contextlib.contextmanager
def hooked(module: Any, register: str, hook: Any, **how: Any) -> Iterator[None]:
    handle = getattr(module, register)(hook, **how)
    yield
    handle.remove()


@contextlib.contextmanager
def put(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    yield
    setattr(owner, name, before)


@contextlib.contextmanager
def forward_of_its_own(module: Any) -> Iterator[None]:
    before = module.forward
    module.forward = lambda *args, **named: before(*args, **named) * 0.3
    yield
    del module.forward


@contextlib.contextmanager
def forward_of_the_class(module: Any) -> Iterator[None]:
    before = type(module).forward
    type(module).forward = lambda self, x: before(self, x) * 0.3
    yield
    type(module).forward = before


@contextlib.contextmanager
def parametrized(module: Any) -> Iterator[None]:
    class Half(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0.3

    parametrize.register_parametrization(module, "weight", Half())
    yield
    parametrize.remove_parametrizations(module, "weight", leave_parametrized=False)


def sharper() -> str:
    """The name of an attention that is not the library's: three times as sharp."""
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    def attention(module: Any, q: Any, k: Any, v: Any, mask: Any, **named: Any) -> Any:
        return sdpa_attention_forward(module, 3 * q, k, v, mask, **named)

    AttentionInterface.register("tests_sharper", attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register("tests_sharper", ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])
    return "tests_sharper"


def new_linear(old: Any) -> Any:
    made = torch.nn.Linear(old.in_features, old.out_features, bias=False)
    made.weight.data.normal_(0, 0.4)
    return made


def trained(m: Any, **how: Any) -> None:
    made = torch.optim.AdamW(m.parameters(), lr=0.05, **how)
    for _ in range(2):
        m(input_ids=PROMPT, labels=PROMPT).loss.backward()
        made.step()
        made.zero_grad()


def in_place(m: Any, write: Callable[[Any], Any]) -> None:
    with torch.no_grad():
        for p in m.parameters():
            write(p)


def moved(m: Any) -> None:
    for p in m.parameters():
        p.data = p.detach() * torch.linspace(0.5, 1.5, p.shape[-1])


def doubled(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def swapped(m: Any) -> None:
    """The same numbers in other places."""
    w = m.model.embed_tokens.weight.data
    w.copy_(w.flip(0).clone())


def new_layer(m: Any) -> None:
    m.model.layers[1] = llama(9).model.layers[1]


CHANGES: dict[str, Change] = {
    "hook of a layer": lambda m: hooked(m.model.layers[1], "register_forward_hook", shifted),
    "pre-hook of a layer": lambda m: hooked(
        m.model.layers[1], "register_forward_pre_hook", lambda mod, a: (a[0] + 1.5, *a[1:])
    ),
    "hook with keywords": lambda m: hooked(
        m.model.layers[0].mlp, "register_forward_hook", lambda mod, a, k, o: o + 1.5, with_kwargs=True
    ),
    "hook of the embedding": lambda m: hooked(m.model.embed_tokens, "register_forward_hook", lambda mod, a, o: o + 1.5),
    "hook of the output matrix": lambda m: hooked(m.lm_head, "register_forward_hook", lambda mod, a, o: o.flip(-1)),
    "hook that tells the modules apart": lambda m: hooked(
        m.model.layers[1], "register_forward_hook", lambda mod, a, o: shifted(mod, a, o) if mod is m.model.layers[1] else o
    ),
    "forward of an object": lambda m: forward_of_its_own(m.model.layers[1].mlp),
    "forward of a class": lambda m: forward_of_the_class(m.model.layers[1].mlp),
    "activation": lambda m: put(m.model.layers[0].mlp, "act_fn", torch.nn.Tanh()),
    "parametrization": lambda m: parametrized(m.model.layers[0].mlp.down_proj),
    "attribute": lambda m: put(m.model.layers[0].self_attn, "scaling", 2.0),
    "configuration": lambda m: put(m.config, "num_hidden_layers", 1),
    "buffer": lambda m: put(m.model.rotary_emb, "inv_freq", m.model.rotary_emb.inv_freq * 3),
    "buffer in place": lambda m: m.model.rotary_emb.inv_freq.data.mul_(3),
    "child": lambda m: put(m.model.layers[0].mlp, "gate_proj", new_linear(m.model.layers[0].mlp.gate_proj)),
    "output matrix": lambda m: put(m, "lm_head", new_linear(m.lm_head)),
    "layer": new_layer,
    "tying": lambda m: put(m.lm_head, "weight", torch.nn.Parameter(m.lm_head.weight.detach().flip(0))),
    "AdamW": trained,
    "fused AdamW": lambda m: trained(m, fused=True),
    "foreach AdamW": lambda m: trained(m, foreach=True),
    "data in place": lambda m: [p.data.mul_(torch.linspace(0.5, 1.5, p.shape[-1])) for p in m.parameters()],
    "one number in place": lambda m: m.model.layers[0].mlp.down_proj.weight.data[3, 5].add_(40),
    "rows that change places": swapped,
    "copy_": lambda m: in_place(m, lambda p: p.copy_(p * torch.linspace(0.5, 1.5, p.shape[-1]))),
    "other data": moved,
    "load_state_dict": lambda m: m.load_state_dict(noisy(llama(5), 0.7).state_dict()),
    "dtype": lambda m: m.to(torch.float64).to(torch.bfloat16).float(),
    "embeddings resized": lambda m: (m.resize_token_embeddings(m.config.vocab_size - 4), trained(m)),
}


def right(m: Any) -> Any:
    return m.generate(input_ids=PROMPT, **GREEDY).tolist()


def door_of(algorithm: str) -> Any:
    if algorithm == "speculative":
        return decgraph.hf("speculative", drafter=noisy(llama(5), 0.02), gamma=3)
    return decgraph.hf(algorithm)


@pytest.mark.budget(15)
@pytest.mark.quick(("autoregressive",), ("prompt_lookup", "fused AdamW"), ("prompt_lookup", "hook of a layer"))
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("algorithm", ["autoregressive", "prompt_lookup", "speculative"])
def test_a_change_is_seen(algorithm: str, change: str) -> None:
    if (algorithm, change) == ("speculative", "embeddings resized"):
        pytest.skip("the drafter keeps its vocabulary, so the two are refused together")
    m, door = llama(5), door_of(algorithm)

    def ours() -> Any:
        return m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist()

    before = right(m)
    assert ours() == before
    done = CHANGES[change](m)
    with done if isinstance(done, contextlib.AbstractContextManager) else contextlib.nullcontext():
        after = right(m)
        assert after != before, "the change does not show"
        assert ours() == after
    assert ours() == right(m)
    assert all(p.is_contiguous() for p in m.parameters())


SESSIONS = (
    "hook of a layer",
    "forward of a class",
    "attribute",
    "child",
    "fused AdamW",
    "other data",
    "rows that change places",
)


@pytest.mark.budget(6)
@pytest.mark.quick("hook of a layer", "fused AdamW")
@pytest.mark.parametrize("change", SESSIONS)
@pytest.mark.parametrize("backend", ["torch", "reference"])
def test_a_session_sees_a_change(backend: str, change: str) -> None:
    m = llama(5)
    session = decgraph.load("autoregressive").session(target=m, backend=backend)
    request = decgraph.Request(tuple(PROMPT[0].tolist()), max_tokens=12, temperature=0, eos=())

    def same() -> bool:
        return [[*request.prompt, *session.run(request, cache_key="kept").tokens]] == right(m)

    assert same() and same()
    done = CHANGES[change](m)
    with done if isinstance(done, contextlib.AbstractContextManager) else contextlib.nullcontext():
        assert same()
    assert same()


def test_a_kept_prefix_does_not_outlive_the_weights() -> None:
    m, door = llama(5), decgraph.hf("autoregressive", reuse_prefix=True)
    for change in (lambda: None, lambda: trained(m, fused=True), lambda: CHANGES["data in place"](m)):
        change()
        assert m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist() == right(m)


def test_a_changed_drafter_is_seen() -> None:
    """Its drafts are accepted as often as those of a session that never saw it before."""
    m, drafter = llama(5), noisy(llama(5), 0.0)
    door = decgraph.hf("speculative", drafter=drafter, gamma=3)

    def accepted(of: Any) -> float:
        assert m.generate(input_ids=PROMPT, custom_generate=of, **GREEDY).tolist() == right(m)
        return float(of.last[0].stats.tokens_per_call)

    first = accepted(door)
    drafter.lm_head.weight.data.normal_(0, 1)
    now = accepted(door)
    assert now == accepted(decgraph.hf("speculative", drafter=drafter, gamma=3)) < first


def test_a_hook_runs_in_every_call() -> None:
    m, door, seen = llama(5), decgraph.hf("autoregressive"), []
    m.model.layers[1].register_forward_hook(lambda mod, args, out: seen.append(mod))
    for _ in range(2):
        count = len(seen)
        m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY)
        assert len(seen) >= count + 12
    assert all(mod is m.model.layers[1] for mod in seen)


def test_the_state_of_a_hook_is_read_in_every_call() -> None:
    m, door, strength = llama(5), decgraph.hf("autoregressive", reuse_prefix=True), [0.0]
    m.model.layers[0].register_forward_pre_hook(lambda mod, args: (args[0] + strength[0], *args[1:]))
    for strength[0] in (0.0, 2.0, -1.0):
        assert m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist() == right(m)


def test_hooks_that_cannot_be_run_are_refused_by_name() -> None:
    m, door = llama(5), decgraph.hf("autoregressive")
    assert m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist() == right(m)
    hook = hooked(m, "register_forward_hook", lambda mod, args, out: setattr(out, "logits", out.logits.flip(-1)))
    with hook, pytest.raises(DecError, match="hook"):
        m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY)
    handle = torch.nn.modules.module.register_module_forward_hook(lambda mod, args, out: None)
    try:
        with pytest.raises(DecError, match="hooks of every module"):
            m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY)
    finally:
        handle.remove()
    assert m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist() == right(m)


@pytest.mark.parametrize("algorithm", ["autoregressive", "ffn_skip"])
@pytest.mark.parametrize("of_class", [True, False])
def test_scores_that_are_more_than_the_layers_make_are_refused(of_class: bool, algorithm: str) -> None:
    class Banning(type(llama(5))):  # type: ignore[misc]
        def forward(self, *args: Any, **named: Any) -> Any:
            return rolled(super().forward, *args, **named)

    m, door = llama(5), decgraph.hf(algorithm)
    m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY)
    if of_class:
        m.__class__ = Banning
    else:
        own = m.forward
        m.forward = lambda input_ids=None, **named: rolled(own, input_ids, **named)
    with pytest.raises(DecError, match="more than"):
        m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY)


def rolled(own: Any, *args: Any, **named: Any) -> Any:
    out = own(*args, **named)
    out.logits = out.logits.roll(1, -1)
    return out


def test_another_attention_is_refused() -> None:
    m, door = llama(5), decgraph.hf("autoregressive")
    assert m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist() == right(m)
    with put(m.config, "_attn_implementation", sharper()), pytest.raises(DecError, match="is not supported"):
        m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY)
    assert m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY).tolist() == right(m)


def test_inputs_that_other_code_prepares_are_refused() -> None:
    m = llama(5)
    m.prepare_inputs_for_generation = lambda input_ids, attention_mask=None, **named: {}
    with pytest.raises(DecError, match="prepare_inputs_for_generation"):
        m.generate(input_ids=PROMPT, custom_generate=decgraph.hf("autoregressive"), **GREEDY)


def test_nothing_is_made_again_where_nothing_changed() -> None:
    m, door = llama(5), decgraph.hf("autoregressive")
    models = []
    for use in (lambda: None, lambda: right(m), m.train, m.eval, lambda: m(input_ids=PROMPT, labels=PROMPT).loss.backward()):
        use()
        m.generate(input_ids=PROMPT, custom_generate=door, **GREEDY)
        models.append(door._session_for(m).models["target"])
    assert all(model is models[0] for model in models)


def test_a_module_that_is_cut_over_ranks_is_refused(tmp_path: Path) -> None:
    """Tensor parallelism, here of one rank: parameters are DTensors. Causal, by its layers, and masked."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_module

    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        for algorithm, module in (("autoregressive", llama(5)), ("swift", llama(5)), ("llada", masked_modules.llada())):
            matrix = next(part for part in module.modules() if isinstance(part, torch.nn.Linear))
            distribute_module(matrix, init_device_mesh("cpu", (1,)))
            with pytest.raises(DecError, match="is cut over ranks"):
                decgraph.load(algorithm).session(module, device="cpu")
        module = llama(5)
        distribute_module(module.lm_head, init_device_mesh("cpu", (1,)))
        with pytest.raises(DecError, match="is cut over ranks"):
            module.generate(torch.tensor([[1, 2, 3]]), custom_generate=decgraph.hf("autoregressive"), max_new_tokens=2)
    finally:
        dist.destroy_process_group()
