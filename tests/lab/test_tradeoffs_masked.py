"""Trade-offs of masked programs: what is measured, and cheap shapes live."""

from __future__ import annotations

from dataclasses import replace

import pytest

from decgraph.runtime.trace import ModelCall, Unmasked
from lab.tradeoffs import masked, sweeps


def test_the_order_of_decisions_is_counted_by_pairs_of_calls() -> None:
    call = ModelCall("m", 4, 4)
    a, b, c = (Unmasked(position, 5, 1.0) for position in (0, 1, 2))
    assert masked.left_first([call, a, call, b, call, c]) == 1
    assert masked.left_first([call, c, call, b, call, a]) == 0
    assert masked.left_first([call, a, b, c]) == 0.5, "one call decides no order"


LIVE = {
    "llada.steps": ("1", "32"), "fast_dllm_uncached.tau": ("0.3", "1.0"), "eb_sampler.gamma": ("0", "8"),
    "learn2pd.tau": ("0.3", "0.99"), "code_var.drafted": ("0", "2", "4"), "adablock.trust": ("0.0", "1.0"),
}  # fmt: skip


@pytest.mark.budget(5)
@pytest.mark.slow
@pytest.mark.parametrize("label", LIVE)
def test_a_shape_measured_again(label: str) -> None:
    sweep = next(s for s in masked.SWEEPS if s.label == label)
    assert set(LIVE[label]) <= set(sweep.values)
    sweep = replace(sweep, values=LIVE[label])
    row = sweeps.measured(sweep, masked.Masked(asked=2, each=1))
    assert not sweep.failed(row), row


def test_keys_and_values_are_counted_layer_by_layer() -> None:
    measure = masked.Masked(asked=0, each=1)
    half, every = (measure.texts(f"sparse_dllm:length=16,block=8,steps=16,keep={keep}").counts for keep in ("0.5", "1.0"))
    whole = measure.texts("llada:length=16,block=8,steps=16").counts
    assert half["calls"] == every["calls"] == whole["calls"] and half["computed"] == every["computed"] < whole["computed"]
    assert half["kv"] < every["kv"] == whole["kv"] == whole["computed"], "all that is kept is read, all is computed without one"


def test_a_decoder_at_a_value_of_its_knob() -> None:
    sweep = sweeps.Sweep("fast_dllm", "tau", ("0.5",), (), "", fixed={"block": "8"})
    assert masked.spec_of(sweep, "0.5") == "fast_dllm:block=8,tau=0.5"
