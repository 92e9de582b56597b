"""Every algorithm of static shape commits the reference's tokens as steps on the device, with the reference's statistics."""

from __future__ import annotations

import pytest
from step_runs import STATIC, Runs, parameters, requests

from decgraph.backends.triton.step import captured
from decgraph.runtime.request import Request


@pytest.mark.quick("eagle2", "speculative")
@pytest.mark.parametrize("name", STATIC)
def test_sampled(name: str) -> None:
    runs, asked = Runs(name), requests(count=3 if name in ("autoregressive", "speculative") else 2)
    runs.compare(asked, runs.program(asked).run(asked))


@pytest.mark.parametrize("name", ["eagle2", "medusa", "speculative"])
def test_greedy(name: str) -> None:
    runs, asked = Runs(name), requests(0, 2)
    runs.compare(asked, runs.program(asked).run(asked))


@pytest.mark.slow
def test_races_of_whole_paths() -> None:
    """With these seeds a key without the path's own log-probability chooses other prefixes."""
    runs = Runs("rsd_s", 4, parameters("rsd_s", width=2, depth=3))
    asked = [Request(prompt=(1, 2), limit=8, seed=4), Request(prompt=(3,), limit=8, seed=4, request_id=5)]
    runs.compare(asked, runs.program(asked).run(asked))


def test_shaping_bans_and_bias() -> None:
    runs = Runs("speculative")
    asked = requests(0.7, 2, top_k=3, top_p=0.9, min_p=0.05, bans={2}, bias={3: 1.5})
    runs.compare(asked, runs.program(asked).run(asked))


def test_places_that_stay_empty_and_other_requests_afterwards() -> None:
    runs, asked = Runs("medusa_match"), requests(count=2)
    program = runs.program(asked, batch=3, every=2)
    runs.compare(asked, program.run(asked))
    others = [Request(prompt=(3, 3, 2), limit=3, seed=9, request_id=77), Request(prompt=(2, 0), limit=1, seed=9, request_id=78)]
    runs.compare(others, program.run(others))


@pytest.mark.slow
def test_replayed_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses that a captured iteration reads and writes stay the same from one batch of requests to the next, and no
    iteration runs beside the captured one."""
    runs, asked = Runs("speculative"), requests(count=2)
    program = runs.program(asked, graphs=True)
    step, turns = program.step, []

    def replay() -> None:
        turns.append(1)
        body()

    body = step.body
    monkeypatch.setattr(captured, "warm", lambda iteration, device: iteration())
    monkeypatch.setattr(captured, "captured", lambda iteration, device: (replay, None))
    monkeypatch.setattr(step, "body", lambda: (turns.append(0), body()))
    runs.compare(asked, program.run(asked))
    assert turns[0] == 0 and all(turns[1:]), "one iteration before the capture"
    lasting = [
        step.tokens,
        step.length,
        step.base,
        step.limit,
        step.iteration,
        step.done,
        step.lost,
        step.request,
        step.seeds,
        step.ends,
        step.tally.tested,
        step.tally.accepted,
        *[h.cached for h in step.caches.values()],
        *step.site_columns.values(),
    ]
    places = [t.data_ptr() for t in lasting]
    turns.clear()
    others = [Request(prompt=(3, 3, 2), limit=4, seed=9, request_id=77), Request(prompt=(2,), limit=2, seed=9, request_id=78)]
    runs.compare(others, program.run(others))
    assert all(turns) and step.reusable
    assert places == [t.data_ptr() for t in lasting]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize("name", STATIC)
def test_more_worlds(name: str, seed: int) -> None:
    runs = Runs(name, seed)
    for temperature, more in ((1, {}), (0.4, {"top_k": 4})) if name == "rsd_s" else ((1, {}), (0, {}), (0.4, {"top_k": 4})):
        for count in (1, 3):
            asked = requests(temperature, count, **more)
            program = runs.program(asked, every=3)
            outcomes = program.run(asked)
            kept = [i for i, o in enumerate(outcomes) if not o.lost]
            assert kept or more, "only a smaller support loses requests"
            runs.compare([asked[i] for i in kept], [outcomes[i] for i in kept])
