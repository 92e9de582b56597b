"""The facade: algorithms as objects, sessions, and runs from Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import decgraph
from decgraph import api
from decgraph import models as binding
from decgraph.backends import registry
from decgraph.runtime.models.table import TableModel

TEXT = """algorithm one(target: causal):
    while not done:
        x ~ target(ctx)
        commit x

algorithm two(target: causal, n: int in 1..4 = 2):
    refines one(target) in distribution
    while not done:
        x ~ target(ctx)
        commit x
"""


def table(seed: int = 1, size: int = 4) -> TableModel:
    return TableModel(size, seed=seed, name="target")


def test_an_algorithm_says_what_it_is() -> None:
    one = decgraph.load("speculative")
    assert one.name == "speculative"
    assert one.models == {"target": "causal", "drafter": "causal"}
    assert (one.params["gamma"].low, one.params["gamma"].high, one.params["gamma"].default) == (1, 32, 4)
    assert [c.text for c in one.claims] == ["refines autoregressive(target) in distribution"]
    assert "Leviathan" in one.source
    assert "gamma times" in one.explain()
    assert one.cost().calls[0].model == "drafter"
    assert one.ir().startswith("module(main =")
    assert repr(one) == "<algorithm speculative(target, drafter, gamma=4)>"


def test_parse_takes_the_last_algorithm_or_the_one_named(tmp_path: Path) -> None:
    assert decgraph.parse(TEXT).name == "two"
    assert decgraph.parse(TEXT, main="one").name == "one"
    (tmp_path / "x.dec").write_text(TEXT)
    assert decgraph.load(tmp_path / "x.dec").name == decgraph.load(str(tmp_path / "x.dec")).name == "two"


def test_a_decorated_function_is_an_algorithm_too() -> None:
    from lib.programs.captured_algorithms import speculative

    one = api.of(speculative)
    assert one.name == "speculative"
    assert "gamma times" in one.explain()
    result = decgraph.run(speculative, (0, 1), {"target": table(), "drafter": table(2)}, max_tokens=5)
    assert result.tokens == decgraph.run("speculative", (0, 1), {"target": table(), "drafter": table(2)}, max_tokens=5).tokens


def test_what_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "b.dec").write_bytes(b"\xff")
    for path, word in ((tmp_path / "b.dec", "not UTF-8"), (tmp_path / "n.dec", "No such file"), (tmp_path, "directory")):
        with pytest.raises(decgraph.DecError, match=word):
            decgraph.load(path)
    with pytest.raises(decgraph.DecError, match="no algorithm called 'rules'"):
        decgraph.load("rules")
    with pytest.raises(decgraph.DecError, match="has no algorithm"):
        _ = decgraph.parse("def f(x: int) -> int:\n    return x\n").name
    with pytest.raises(decgraph.DecError, match="is not an algorithm"):
        decgraph.run(3, "x")


def test_run_with_models_of_ones_own() -> None:
    result = decgraph.run("autoregressive", (0, 1), {"target": table()}, max_tokens=6, seed=3)
    again = decgraph.load("autoregressive").run((0, 1), {"target": table()}, max_tokens=6, seed=3)
    assert len(result.tokens) == 6
    assert result.tokens == again.tokens
    assert (result.text, result.reason, result.error) == ("", "limit", None)


def test_events_are_heard_as_they_happen() -> None:
    heard: list[object] = []
    result = decgraph.run("autoregressive", (0,), {"target": table()}, max_tokens=3, listener=heard.append)
    assert heard == result.events
    assert len(heard) > 3


def test_a_session_keeps_its_state_between_requests() -> None:
    session = decgraph.load("token_recycling").session({"target": table()}, shape="2x2", k=2)
    first, second = (session.run(binding.request_for(session, (0, 1), max_tokens=12, temperature=0)) for _ in range(2))
    assert first.tokens == second.tokens
    assert second.stats.target_calls <= first.stats.target_calls


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"models": {"target": table(), "drafter": table(2, 5)}}, "vocabular"),
        ({"models": {"target": TableModel(4, seed=1, kind="masked")}}, "must be a causal model"),
        ({"models": {"other": table()}}, "takes no model `other`"),
        ({"params": {"gamma": 0}}, "must be in 1..32"),
        ({"params": {"gama": 3}}, "did you mean gamma"),
        ({"backend": "tortch"}, "no backend called"),
        ({"temprature": 1.0}, "did you mean temperature"),
        ({"top_p": 3.0}, "top_p"),
        ({"bans": [9]}, "vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict, word: str) -> None:
    given = {"models": {"target": table(), "drafter": table(2)}, **options}
    with pytest.raises(decgraph.DecError, match=word):
        decgraph.run("speculative", (0, 1), **given)


def test_texts_need_a_tokenizer_and_prompts_a_token() -> None:
    with pytest.raises(decgraph.DecError, match="needs a tokenizer"):
        decgraph.run("autoregressive", "text", {"target": table()})
    with pytest.raises(decgraph.DecError, match="prompt is empty"):
        decgraph.run("autoregressive", (), {"target": table()})


def test_shipped_models_stand_in_for_what_is_left_out() -> None:
    expected = {
        "speculative": {"target": "target", "drafter": "drafter"},
        "eagle2": {"target": "target", "head": "eagle"},
        "kangaroo": {"target": "target", "adapter": "exit"},
        "fast_dllm": {"model": "masked"},
    }
    assert {name: binding.shipped(decgraph.load(name).function) for name in expected} == expected


def test_heads_need_a_target_that_was_read_from_a_folder() -> None:
    with pytest.raises(decgraph.DecError, match="was not read from a folder"):
        decgraph.load("eagle2").session({"target": table(), "head": "eagle"})


def test_the_registry_of_backends() -> None:
    assert registry.machine().__name__ == "ReferenceMachine"
    with pytest.raises(decgraph.DecError, match="did you mean reference"):
        registry.machine("refrence")


def test_warnings_are_said_and_are_no_errors() -> None:
    path = Path(__file__).parents[1] / "dsl" / "labels" / "broken" / "out_of_order.dec"
    (warning,) = decgraph.load(path).warnings()
    assert warning.startswith("warning[E031]: these draws were drawn in another order than they are tested in")
    assert decgraph.load("speculative").warnings() == []


def test_a_python_file_is_not_read_as_dec(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import decgraph\n")
    with pytest.raises(decgraph.DecError, match=r"mine.py is Python.*\n.*import it"):
        decgraph.load(tmp_path / "mine.py")
