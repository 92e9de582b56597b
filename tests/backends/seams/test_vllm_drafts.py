"""Exported drafters of vLLM under faked callers of both model runners: the drafts of the program, for the requests that want
some, with nothing read back on V2."""

from __future__ import annotations

import inspect
import random
import sys
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from lib.devices.without_sync import nothing_read
from lib.engines import fake_vllm as fake
from lib.engines.published_seams import VLLM_DEFAULTS, VLLM_METHODS, VLLM_V2_KEYWORDS, VLLM_V2_METHODS, VLLM_V2_POSITIONAL

import decgraph
from decgraph.backends.seams.file import Exported, exported

VOCAB, ROWS, LONGEST, MOST = 50, 6, 40, 4


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    fake.install(monkeypatch)


@cache
def made_of(name: str) -> Exported:
    return exported("vllm", decgraph.load(name).module, {}, key="drafts")


def file_of(name: str) -> Any:
    made = made_of(name)
    module = ModuleType(made.name)
    exec(compile(made.text, made.name, "exec"), vars(module))
    return module


def looked_up(text: list[int], most: int) -> list[int]:
    """Prompt lookup, as stdlib/prompt_lookup.dec describes it: the text's last tokens, three of them, else fewer, are looked
    for, and what followed them first is the draft."""
    for n in (3, 2, 1):
        places = [i for i in range(len(text) - n) if text[i : i + n] == text[-n:]] if len(text) > n else []
        if places:
            return text[places[0] + n :][:most]
    return []


def texts() -> list[list[int]]:
    rng = random.Random(4)
    made = [[rng.randrange(3, 8) for _ in range(rng.randrange(2, 20))] for _ in range(ROWS - 2)]
    return [*made, [9, 10, 11], [5, 6] * (LONGEST // 2 - 1)]  # the last has room for two tokens more


def expected(text: list[int]) -> list[int]:
    return looked_up(text, min(MOST, LONGEST - len(text)))


def test_drafts_over_texts_of_the_host() -> None:
    drafter = file_of("prompt_lookup").PromptLookup(fake.config(ROWS, VOCAB, LONGEST, MOST))
    held = np.zeros((ROWS + 2, LONGEST), dtype=np.int32)
    for row, text in enumerate(texts()):
        held[row, : len(text)] = text
    lengths = np.array([*map(len, texts()), 0, 0], dtype=np.int32)
    sampled = [[1], [1, 2], [], [1], [1], [1]]  # the third is a part of a prompt
    got = drafter.propose(sampled, lengths, held)
    assert got == [expected(text) if some else [] for text, some in zip(texts(), sampled, strict=True)]
    assert max(map(len, got)) == MOST
    assert drafter.propose([[], []], lengths, held) == [[], []]


def on_device(drafter: Any, order: list[int], sampled: list[int], state: Any, dummy: bool = False) -> torch.Tensor:
    batch = SimpleNamespace(
        num_reqs=len(order), idx_mapping=torch.tensor(order, dtype=torch.int32),
        seq_lens_cpu_upper_bound=torch.tensor([len(texts()[n]) for n in order], dtype=torch.int32),
    )  # fmt: skip
    last = torch.tensor([[text[-1]] for text in texts()])
    arguments = (batch, {}, {}, None, None, torch.tensor(sampled), torch.zeros(len(order)), last, None, None, None)
    with nothing_read():
        return drafter.propose(*arguments, dummy_run=dummy, num_speculative_tokens=MOST)


def test_drafts_over_texts_of_the_device() -> None:
    state = fake.slots(ROWS, VOCAB, LONGEST)
    for slot, text in enumerate(texts()):
        state.all_token_ids.np[slot, : len(text)] = text
        state.total_len.np[slot] = len(text)
    drafter = file_of("prompt_lookup").speculator(fake.config(ROWS, VOCAB, LONGEST, MOST), torch.device("cpu"), state)
    order, sampled = [3, 0, 5, 4], [1, 2, 1, 0]
    for _ in range(2):  # what was drafted before changes nothing
        got = on_device(drafter, order, sampled, state)
        assert got.dtype == torch.int64
        for slot, some, row in zip(order, sampled, got.tolist(), strict=True):
            wanted = expected(texts()[slot]) if some else []
            assert row == wanted + [texts()[slot][-1]] * (MOST - len(wanted))
    assert on_device(drafter, order, sampled, state, dummy=True).tolist() == [[texts()[n][-1]] * MOST for n in order]


def test_a_drafter_takes_what_the_engine_hands_over() -> None:
    module = file_of("prompt_lookup")
    for name, given in VLLM_METHODS.items():
        signature = inspect.signature(getattr(module.PromptLookup, name))
        signature.bind(*given)
        signature.bind(*[argument for argument in given if argument not in VLLM_DEFAULTS])
    drafter = module.speculator(fake.config(ROWS, VOCAB, LONGEST, MOST), torch.device("cpu"), fake.slots(ROWS, VOCAB, LONGEST))
    assert all(callable(getattr(drafter, name)) for name in VLLM_V2_METHODS)
    inspect.signature(drafter.propose).bind(*VLLM_V2_POSITIONAL, **dict.fromkeys(VLLM_V2_KEYWORDS))


def test_v2_makes_it_where_the_worker_extension_is_the_files() -> None:
    file_of("prompt_lookup")
    made = sys.modules["vllm.v1.worker.gpu.spec_decode"].init_speculator  # type: ignore[attr-defined]
    config, state = fake.config(ROWS, VOCAB, LONGEST, MOST), fake.slots(ROWS, VOCAB, LONGEST)
    assert made(config, torch.device("cpu"), state) == "theirs"
    config.parallel_config.worker_extension_cls = "prompt_lookup_vllm.V2"
    assert hasattr(made(config, torch.device("cpu"), state), "propose")


def test_what_reads_where_prompts_end_is_refused_by_v1() -> None:
    name = "input_guided_aggressive"
    module = file_of(name)
    with pytest.raises(ValueError, match="where a prompt ends, which V1 does not say"):
        module.InputGuidedAggressive(fake.config(ROWS, VOCAB, LONGEST, MOST))


def test_the_file_says_what_is_left_of_the_claim() -> None:
    assert "claim `in tokens` is one `in distribution`" in made_of("prompt_lookup").text
