"""A worker's decoder: what a row commits, what a bad row does, what can be pickled."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from lib.models.table_decoders import table_decoder

import decgraph
from decgraph.errors import DecError
from decgraph.runtime.prompt_files import Text
from decgraph.scale.decoder import Decoder
from decgraph.scale.rows import PromptLine, noise_key

ROWS = [PromptLine(f"r{n}", "", Text("prompts", ids=(n % 4, n % 3))) for n in range(9)]


def decoded(decoder: Decoder, rows: list[PromptLine]) -> dict[Any, Any]:
    records: list[dict[str, Any]] = []
    decoder.decode(rows, records.append)
    assert len({r["id"] for r in records}) == len(records) == len(rows)
    return {record["id"]: record for record in records}


def test_a_rows_tokens_depend_on_no_batch_order_or_process(decoder: Decoder) -> None:
    together = decoded(decoder, ROWS)
    assert len({tuple(record["tokens"]) for record in together.values()}) > 5
    other = pickle.loads(pickle.dumps(decoder))
    other.batch = 1
    assert decoded(other, ROWS[::-1]) == together
    assert decoded(decoder, ROWS[4:5])["r4"] == together["r4"]
    result = decoder.session.run(
        decgraph.Request(ROWS[4].prompt.ids, request_id=noise_key("r4"), max_tokens=6)  # type: ignore[union-attr]
    )
    assert list(result.tokens) == together["r4"]["tokens"]


def test_a_bad_row_has_an_error_and_harms_no_other(decoder: Decoder) -> None:
    bad = [PromptLine("token", "", Text("prompts", ids=(9,))), PromptLine("text", "", Text("prompts", "x")),
           PromptLine("chat", "", Text("prompts", messages=({"role": "user", "content": "x"},)))]  # fmt: skip
    records = decoded(decoder, [bad[0], *ROWS, *bad[1:]])
    assert {name for name, record in records.items() if record["error"]} == {"token", "text", "chat"}
    assert "4 tokens" in records["token"]["error"] or "vocabulary" in records["token"]["error"]
    assert {name: records[name] for name in (row.id for row in ROWS)} == decoded(decoder, ROWS)


def test_columns_of_a_table(decoder: Decoder) -> None:
    lists = np.empty(3, dtype=object)
    lists[:] = [np.array([0, 1]), np.array([2]), np.array([7])]
    out = decoder({"ids": lists, "id": np.array(["r1", "b", "c"]), "more": np.array([1, 2, 3])})
    assert set(out) == {"ids", "id", "more", "text", "tokens", "reason", "target_calls", "error"}
    alone = decoded(decoder, [PromptLine("r1", "", Text("prompts", ids=(0, 1)))])["r1"]
    assert out["tokens"][0].tolist() == alone["tokens"] and out["target_calls"][0] == alone["target_calls"]
    assert out["error"][:2].tolist() == ["", ""] and "7" in out["error"][2]
    assert out["tokens"][2].tolist() == [] and out["reason"][2] == "error"


def test_two_rows_of_one_id_in_a_table_have_a_result_each(decoder: Decoder) -> None:
    lists = np.array([[0, 1], [0, 1], [1, 1]])
    out = decoder({"ids": lists, "id": np.array([3, 3, 3])})
    assert out["tokens"][0].tolist() == out["tokens"][1].tolist() and len(out["tokens"]) == 3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: table_decoder(max_token=3), "did you mean max_tokens"),
        (lambda: table_decoder(request_id=3), "has no `request_id`"),
        (lambda: table_decoder()({"text": np.array(["a"])}), "columns text"),
        (lambda: Decoder("speculative", params={"gama": 1}).session, "did you mean gamma"),
    ],
)
def test_what_no_decoder_can_be_made_of(make: Any, words: str) -> None:
    with pytest.raises(DecError, match=words):
        make()


def test_what_can_be_pickled_and_what_says_why_not(decoder: Decoder) -> None:
    algorithm = decgraph.load("speculative")
    algorithm.optimised({"gamma": 2})  # what was made of it may be in its memo
    again = pickle.loads(pickle.dumps(algorithm))
    assert (again.ir(), again.params.keys()) == (algorithm.ir(), algorithm.params.keys())
    with pytest.raises(DecError, match=r"decgraph.scale.Decoder"):
        pickle.dumps(decoder.session)


def test_a_door_into_transformers_can_be_pickled() -> None:
    door = decgraph.hf("speculative", drafter="drafter", gamma=3, seed=4)
    again = pickle.loads(pickle.dumps(door))
    assert vars(again).keys() == vars(door).keys()
