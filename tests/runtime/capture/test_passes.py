"""Every pass keeps values, can be left out, and does what it says to the operations of a layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from decgraph.runtime.models.capture.make import PASSES, capture, captured_program
from decgraph.runtime.models.capture.step import CapturedForward


def operations(model: Any, *without: str) -> Counter[str]:
    """The operations between the first attention and the second, by canonical name."""
    reasons: list[str] = []
    step = capture(model, without=frozenset(without), notice=reasons.append)
    assert step is not None, reasons
    names = [n.meta["op"] for n in step.graph.graph.nodes if n.op.startswith("call")]
    first = names.index("attention")
    return Counter(names[first : names.index("attention", first + 1)])


def kept(model: Any, without: set[str]) -> None:
    """capture compares last states, states between layers and caches with the module's at three sizes."""
    reasons: list[str] = []
    assert capture(model, without=frozenset(without), notice=reasons.append) is not None, (without, reasons)


@pytest.mark.quick(first=4)
@pytest.mark.parametrize("name", ["llama", "gemma3_text", "gpt2"])
@pytest.mark.parametrize("left_out", PASSES)
def test_without_a_pass_values_are_kept(name: str, left_out: str, random_model: Callable[..., Any]) -> None:
    kept(random_model(name), {left_out})


@pytest.mark.quick(first=4)
@pytest.mark.parametrize("only", [*PASSES, None])
def test_a_pass_alone_keeps_values(only: str | None, random_model: Callable[..., Any]) -> None:
    for name in ("qwen3", "gpt_neox", "opt", "phi3"):
        kept(random_model(name), set(PASSES) - {only})


def test_projections_are_one_product_each(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    apart, joined = operations(model, "projections", "products", "residual"), operations(model, "products", "residual")
    assert (apart["linear"], joined["linear"]) == (7, 4)


def test_norms(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    chain, short = operations(model, "norms"), operations(model)
    assert chain["rsqrt"] == chain["mean"] == 2 and chain["vector_norm"] == 0
    assert short["rsqrt"] == short["mean"] == short["pow"] == 0 and short["vector_norm"] == 2
    half = operations(random_model("llama", torch.bfloat16))
    assert half["rms_norm"] == 2 and half["rsqrt"] == 0


def test_rotations_are_rolls_of_queries_and_keys_together(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    chain = operations(model, "rotary", "heads")
    assert chain["neg"] == chain["cat"] == 2
    apart, together = operations(model, "heads"), operations(model)
    assert (apart["roll"], together["roll"]) == (2, 1) and together["neg"] == together["cat"] == 0
    normed = operations(random_model("qwen3"))  # with norms of queries and keys of different weights before
    assert normed["roll"] == 1 and normed["vector_norm"] == 3


def test_cosines_are_looked_up(random_model: Callable[..., Any]) -> None:
    model = random_model("gemma3_text")
    for without, count in ((["tables"], 2), ([], 0)):
        step = capture(model, without=frozenset(without))
        assert step is not None
        names = Counter(n.meta.get("op") for n in step.graph.graph.nodes)
        assert names["cos"] == names["sin"] == count


def test_tables_have_a_limit(random_model: Callable[..., Any]) -> None:
    step = capture(random_model("llama", max_position_embeddings=1 << 20))
    assert step is not None and any(n.meta.get("op") == "cos" for n in step.graph.graph.nodes)


def test_residuals_are_added_by_the_product(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    assert operations(model, "residual")["add"] == 2
    assert operations(model)["add"] == 0 and operations(model)["addmm"] == 2


def test_masks_are_converted_once(random_model: Callable[..., Any]) -> None:
    step = capture(random_model("gemma3_text"))
    assert step is not None
    assert Counter(n.meta.get("op") for n in step.graph.graph.nodes)["where"] == 2  # full and sliding, three layers


def test_rows_need_no_reshapes_in_a_layer(random_model: Callable[..., Any]) -> None:
    for name in ("gpt2", "opt"):
        counted = operations(random_model(name))
        assert counted["reshape"] == 1, (name, counted)  # heads merged after attention
    assert operations(random_model("gpt2"), "rows")["view"] > operations(random_model("gpt2"))["view"]


def test_gelu_is_one_operation(random_model: Callable[..., Any]) -> None:
    model = random_model("gpt2")
    assert operations(model, "activations")["tanh"] == 1
    assert operations(model)["tanh"] == 0 and operations(model)["gelu"] == 1


def test_groups_of_heads_are_rows(random_model: Callable[..., Any]) -> None:
    model = random_model("llama")
    step, plain = capture(model), capture(model, without=frozenset({"groups"}))
    assert step is not None and plain is not None
    folded = [n for n in step.graph.graph.nodes if n.meta.get("op") == "attention"]
    grouped = [n for n in plain.graph.graph.nodes if n.meta.get("op") == "attention"]
    assert not any(n.kwargs["enable_gqa"] for n in folded) and all(n.kwargs["enable_gqa"] for n in grouped)
    assert len({n.kwargs["attn_mask"] for n in folded}) == 1  # repeated once a call


@pytest.mark.parametrize(("name", "most"), [("llama", 28), ("qwen3", 32), ("gpt2", 17), ("opt", 20), ("gemma3_text", 44)])
def test_operations_of_a_layer_stay_few(name: str, most: int, random_model: Callable[..., Any]) -> None:
    counted = operations(random_model(name))
    assert sum(n for op, n in counted.items() if op not in ("item", "input")) <= most + 3


def test_writes_for_one_sequence_and_for_many(random_model: Callable[..., Any]) -> None:
    step = capture(random_model("llama"))
    assert step is not None
    one = Counter(n.meta.get("op") for n in step.module(one=True).graph.nodes)
    many = Counter(n.meta.get("op") for n in step.module(one=False).graph.nodes)
    assert (one["index_copy_"], one["index_put_"]) == (6, 0) and (many["index_copy_"], many["index_put_"]) == (0, 6)
    assert many["arange"] == 1  # the index of sequences, once a call


def test_the_code_reads_as_python(random_model: Callable[..., Any]) -> None:
    step = capture(random_model("llama"))
    assert step is not None
    assert step.code.startswith("def forward(self, ids, positions, write, keys, values, masks):")
    assert "scaled_dot_product_attention" in step.code and "self_attn_q_proj_weight_and_k_and_v" in step.code
    compile(step.code, "captured", "exec")


def test_a_program_is_not_changed_by_its_steps(random_model: Callable[..., Any]) -> None:
    program, _ = captured_program(random_model("llama"))
    before = str(program.graph)
    step = CapturedForward(program)
    assert step.upto(1).code != step.code and step.since(2).nodes < step.nodes
    assert str(program.graph) == before
