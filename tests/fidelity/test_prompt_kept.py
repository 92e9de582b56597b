"""A call of the whole canvas on a memory keeps the prompt: against transformers' own Llama with transformers' own cache."""

from __future__ import annotations

import pytest
import torch
from fidelity.canvases import MASK, run
from fidelity.entry import GOLDEN
from lib.lazily import transformers

PROMPT, LENGTH = (71, 86, 8, 100, 14), 8
TEXT = """
policy {name}(b: span):
    on enter b:  recompute all
    otherwise:   {again}

algorithm twice(model: masked, length: int in 1..64 = 8):
    canvas c: length
{first}
    c[first(c.all, 3)] = argmax(p.raw)[:3]
{second}
    c[c.all where c.masked] = argmax(q.raw)
    commit c
"""
BY_HAND = ("    m = model.memory(c)\n    p = model(c)", "    q = model(c, at = c.all, given = m)")
BY_POLICY = ("    cache model by mine\n    p = model(c, at = c.all)", "    q = model(c, at = c.all)")


def plain(keep: bool) -> list[int]:
    """Both calls by transformers: everything, then the canvas on the prompt's rows of the first call, or everything."""
    folder = GOLDEN / "dllm/models/llama_bidir"
    net = transformers.LlamaForCausalLM.from_pretrained(folder, attn_implementation="eager")

    def forward(tokens: list[int], past: transformers.DynamicCache, start: int) -> torch.Tensor:
        n = len(tokens)
        with torch.no_grad():
            out = net(
                torch.tensor([tokens]),
                attention_mask=torch.zeros(1, 1, n, start + n),
                past_key_values=past,
                use_cache=True,
                position_ids=torch.arange(start, start + n)[None],
            )
        logits: torch.Tensor = out.logits[0, :, :MASK]
        return logits

    cache = transformers.DynamicCache()
    canvas = [MASK] * LENGTH
    first = forward([*PROMPT, *canvas], cache, 0)[len(PROMPT) :].argmax(-1).tolist()
    canvas[:3] = first[:3]
    if keep:
        cache.crop(-LENGTH)
        second = forward(canvas, cache, len(PROMPT))
    else:
        second = forward([*PROMPT, *canvas], transformers.DynamicCache(), 0)[len(PROMPT) :]
    return [*canvas[:3], *second[3:].argmax(-1).tolist()]


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize(
    ("way", "again", "keep"),
    [
        (BY_HAND, "recompute b, reuse the rest", True),
        (BY_POLICY, "recompute b, reuse the rest", True),
        (BY_POLICY, "recompute from 0, reuse the rest", True),
        (BY_POLICY, "recompute all", False),
    ],
)
def test_the_prompts_rows_are_those_of_the_first_call(backend: str, way: tuple[str, str], again: str, keep: bool) -> None:
    text = TEXT.format(name="mine", again=again, first=way[0], second=way[1])
    done = run("", "llama_bidir", PROMPT, LENGTH, backend, text=text)
    assert list(done.output[len(PROMPT) :]) == plain(keep)
    whole = tuple(range(len(PROMPT) + LENGTH))
    assert [c.computed for c in done.calls if not c.repeated] == [whole, whole[len(PROMPT) :] if keep else whole]


def test_the_two_differ() -> None:
    """Else the test above would say nothing."""
    assert plain(True) != plain(False)
