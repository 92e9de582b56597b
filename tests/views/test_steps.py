"""Steps, the page's data and the trace for Perfetto, for every family of algorithms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lib.stdlib.recorded_runs import REVOKING, traced

from decgraph import stdlib
from decgraph.runtime.recording import Recording, Stamped
from decgraph.runtime.trace import Accepted, Committed, Drafted, Emitted, Event, ModelCall, Pruned, Rejected, Remasked, Unmasked
from decgraph.views.chrome import chrome_trace
from decgraph.views.document import Trace, document
from decgraph.views.page import embedded
from decgraph.views.steps import RecordedStep, steps_of

FAMILIES = [
    "autoregressive",
    "speculative",
    "sequoia",
    "eagle2",
    "lookahead",
    "prompt_lookup",
    "beam",
    "staged_speculative",
    "cascaded",
    "llada",
    "fast_dllm",
    "remdm_loop",
    "saber",
    "freedave",
]

OTHER_MODELS = {
    *("amphista", "arbitrage", "autodeco", "discriminator_guided", "falcon", "first_router", "graph_constrained"),
    *("hydra", "judge_decoding", "knn_ssd", "medusa", "medusa_match", "reward_guided_sd", "sam_decoding", "specdec_pp"),
    *("dspark_confident", "joint_sampler", "token_recycling"),
}
"""They need another vocabulary, or heads, that the table models of `traced` do not have."""


@pytest.mark.parametrize("name", FAMILIES)
def test_steps_hold_every_event_and_every_token(name: str) -> None:
    run = traced(name)
    steps = run.steps
    assert [s for step in steps for s in step.events] == list(run.recording.events)
    assert sum(step.count for step in steps) == len(run.tokens)
    assert [step.first for step in steps] == [sum(s.count for s in steps[:i]) for i in range(len(steps))]
    assert sum(len(step.origins) for step in steps) == len(run.tokens)
    assert len(steps) > 1 or name in ("fast_dllm", "saber")
    data = document(run)
    assert len(data["texts"]) == len(data["tokens"]) == len(data["origins"])
    assert "".join(data["texts"]) == run.detokenizer.text(run.tokens)
    assert json.loads(embedded(data)) == data
    for step in steps:
        assert {s.line for s in step.events} - {0} <= set(step.ran)
        for tree in step.trees:
            assert all(-1 <= node.parent < i for i, node in enumerate(tree.nodes))
    drafted = sum(isinstance(s.event, Drafted) for s in run.recording.events)
    shown = sum(node.state != "emitted" for step in steps for tree in step.trees for node in tree.nodes)
    assert shown >= drafted
    for backend in ("reference", "torch"):
        check_perfetto_counts(traced(name, backend))


def check_perfetto_counts(run: Trace) -> None:
    """The steps of the trace for Perfetto have the drafts of the run's own statistics, and nothing that is no draft."""
    counted = [e["args"] for e in chrome_trace([run])["traceEvents"] if e.get("cat") == "step"]
    stats = {"drafted": run.stats.drafted, "verified": sum(run.stats.tested), "accepted": sum(run.stats.accepted)}
    assert {name: sum(step[name] for step in counted) for name in stats} == stats
    assert sum(step["tokens"] for step in counted) == run.stats.tokens


@pytest.mark.quick("mcts", "litesearch", "phi_decoding", "constrained_beam", "lattice")
@pytest.mark.parametrize("name", [name for name in stdlib.names() if name not in OTHER_MODELS])
def test_every_algorithm_has_steps(name: str) -> None:
    """Whatever an algorithm does to its trees; a search goes back to nodes of steps long past."""
    run = traced(name, max_tokens=8)
    data = document(run)
    check_perfetto_counts(run)
    assert sum(step["n"] for step in data["steps"]) == len(run.tokens)
    for step in run.steps:
        for tree in step.trees:
            assert all(-1 <= node.parent < i for i, node in enumerate(tree.nodes))


def test_a_draft_hangs_below_the_node_it_was_grown_at() -> None:
    """Over many steps without a commit, at old nodes and new ones: all of them show one tree as it was then."""
    parents = {1: 0, 2: 1, 3: 2, 4: 3, 5: 4, 6: 5, 7: 1, 8: 0, 9: 7, 10: 6}
    events: list[Event] = []
    for node, parent in parents.items():
        events += [ModelCall("t", 1, node), Drafted(node, parent, 100 + node, 0.5, "t")]
    found = steps_of(Recording(tuple(Stamped(e, i / 10) for i, e in enumerate(events)), (), 1.0), 3)
    assert len(found) == len(parents)
    (tree,) = {id(tree): tree for step in found for tree in step.trees}.values()
    assert [node.born for node in tree.nodes] == list(range(len(parents)))
    for place, (node, parent) in enumerate(parents.items()):
        assert tree.nodes[place].token == 100 + node and tree.nodes[place].parent == parent - 1


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_search_has_a_step_for_each_roll_and_what_its_nodes_hold(backend: str) -> None:
    """Every roll adds one visit to the root's children, and each of the answer's nodes is marked as committed."""
    run = traced("mcts", backend, max_tokens=6, rolls=9)
    assert len(run.steps) == 9
    (tree,) = {id(tree): tree for step in run.steps for tree in step.trees}.values()
    visits = [
        sum(([0.0, *(x for s, x in node.columns["visits"] if s <= step)])[-1] for node in tree.nodes if node.parent < 0)
        for step in range(9)
    ]
    assert visits == list(range(9)), "the first roll ends at the root"
    assert [node.token for node in tree.nodes if node.state == "committed"] == list(run.tokens)
    beams = traced("beam", backend, max_tokens=5)
    (tree,) = {id(tree): tree for step in beams.steps for tree in step.trees}.values()
    for node in tree.nodes:
        above = tree.nodes[node.parent].columns["logprob"][-1][1] if node.parent >= 0 else 0.0
        assert node.columns["logprob"][-1][1] <= above + 1e-9


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_probabilities_before_the_requests_shaping(backend: str) -> None:
    """At temperature 0 p is 0 or 1, and what the target gave it stands beside it."""
    nodes = [
        n for s in traced("speculative", backend, temperature=0.0).steps for t in s.trees for n in t.nodes if n.p is not None
    ]
    assert {n.p for n in nodes} <= {0.0, 1.0} and all(n.raw is not None and 0 < n.raw < 1 for n in nodes)
    nodes = [n for s in traced("speculative", backend).steps for t in s.trees for n in t.nodes if n.p is not None]
    assert nodes and all(n.p == pytest.approx(n.raw) for n in nodes)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("name", ["speculative", "fast_dllm", "remdm_loop"])
def test_header_time_line_and_perfetto_count_the_same_calls(name: str, backend: str) -> None:
    run = traced(name, backend, max_tokens=6)
    data = document(run)
    shown = {kind: sum(span[3] for span in data["spans"] if data["roles"][span[0]] == kind) for kind in ("target", "draft")}
    assert shown == {"target": data["stats"]["target_calls"], "draft": data["stats"]["draft_calls"]}
    logged = [e for step in data["steps"] for e in step["log"] if e[3] == "ModelCall"]
    exported = [e["args"]["calls"] for e in chrome_trace([run])["traceEvents"] if e.get("cat") == "model"]
    assert sum(exported) == len(logged) == sum(shown.values()) > 0


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_draft_that_was_chosen_has_a_score_and_no_q(backend: str) -> None:
    for name, drawn in (("speculative", True), ("eagle2", False), ("prompt_lookup", False)):
        nodes = [n for step in traced(name, backend).steps for t in step.trees for n in t.nodes if n.state != "emitted"]
        assert nodes and all((n.q is not None) == drawn for n in nodes)
        assert all((n.score is not None) == (name != "prompt_lookup") for n in nodes), "a token of the text has no score"


@pytest.mark.parametrize("name", ["speculative", "llada"])
def test_a_trace_for_perfetto_is_valid(name: str) -> None:
    """As the Trace Event Format has it: phases, numbers, names; complete events of one thread do not cross."""
    run = traced(name)
    found = json.loads(json.dumps(chrome_trace([run, run]), allow_nan=False))
    assert found["displayTimeUnit"] in ("ms", "ns")
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in found["traceEvents"]:
        assert isinstance(event["name"], str) and isinstance(event["pid"], int) and isinstance(event["tid"], int)
        assert event["ph"] in ("X", "M", "C")
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and event["args"]["name"]
        else:
            assert all(isinstance(value, int) for value in event["args"].values())
    assert {pid for pid, _ in threads} == {1, 2}
    for spans in threads.values():
        for (_, end), (start, _) in zip(sorted(spans), sorted(spans)[1:]):
            assert start >= end - 0.01


def steps(*events: Event) -> list[RecordedStep]:
    """Steps of events, of which each `Committed` ends an iteration."""
    stamped, iteration = [], 0
    for i, event in enumerate(events):
        stamped.append(
            Stamped(event, i / 10, iteration=iteration, canvas=(3, 4) if isinstance(event, Unmasked | Remasked) else None)
        )
        iteration += isinstance(event, Committed)
    return steps_of(Recording(tuple(stamped), (), 1.0), 3)


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize(
    ("name", "kind"), [("speculative", "residual"), ("eagle2", "own"), ("lookahead", "own"), ("block_verification", "residual")]
)
def test_a_token_in_place_of_drafts_is_what_its_rule_emits(name: str, kind: str, backend: str) -> None:
    """A rule that draws from what was left has a residual, one that takes the target's own token has none; also a rule over a
    whole tree, whose token hangs below the last accepted draft."""
    run = traced(name, backend, max_tokens=20)
    emitted = [s.event for s in run.recording.events if isinstance(s.event, Emitted)]
    assert (
        {"residual", "own"} & {event.kind for event in emitted} == {kind} == {"residual", "own"} & set(document(run)["origins"])
    )
    nodes = [node for step in run.steps for tree in step.trees for node in tree.nodes if node.state == "emitted"]
    assert nodes and all(node.source in ("plain", "bonus", kind) and node.p for node in nodes)


def test_a_search_says_what_it_left() -> None:
    (tree,) = {id(tree): tree for step in traced("beam", max_tokens=5).steps for tree in step.trees}.values()
    inner = {node.parent for node in tree.nodes}
    for place, node in enumerate(tree.nodes):
        assert node.state == "committed" or node.state == ("grown" if place in inner else "left")
    assert {"committed", "grown", "left"} == {node.state for node in tree.nodes}


def test_a_token_knows_where_it_came_from() -> None:
    one, two, three = steps(
        Drafted(1, 0, 7, 0.5, "d"), Drafted(2, 1, 8, 0.5, "d"), ModelCall("t", 3, 3),
        Accepted(1, 7, 1), Accepted(2, 8, 2), Emitted(9, "bonus"), Committed((7, 8, 9)),
        Drafted(1, 0, 4, 0.5, "d"), Drafted(2, 0, 5, 0.5, "d"), ModelCall("t", 3, 3),
        Rejected(1, 4, 1), Accepted(2, 5, 1), Emitted(6, "bonus"), Committed((5, 6)),
        Drafted(1, 0, 4, 0.5, "d"), ModelCall("t", 2, 2), Rejected(1, 4, 1), Emitted(3, "residual"), Committed((3,)),
    )  # fmt: skip
    assert one.origins == ["accepted", "accepted", "bonus"]
    assert [(n.token, n.state, n.parent) for n in two.trees[0].nodes] == [
        (4, "rejected", -1), (5, "accepted", -1), (6, "emitted", 1)]  # fmt: skip
    assert three.origins == ["residual"]
    assert (three.first, three.count) == (5, 1)


def test_the_last_of_several_verifications_counts() -> None:
    """A cascade tests a tree with a model between, and then what it accepted with the target."""
    (step,) = steps(
        Drafted(1, 0, 7, 0.5, "d"), ModelCall("middle", 2, 2, "draft"), Accepted(1, 7, 1), Emitted(8, "bonus"),
        Drafted(1, 0, 7, 0.5, "m"), Drafted(2, 1, 8, 0.5, "m"), ModelCall("t", 3, 3), Accepted(1, 7, 1), Rejected(2, 8, 2),
        Emitted(9, "residual"), Committed((7, 9)),
    )  # fmt: skip
    assert step.origins == ["accepted", "residual"]
    assert [len(tree.nodes) for tree in step.trees] == [2, 3]


def test_pruned_nodes_are_shown_and_the_others_keep_their_place() -> None:
    (step,) = steps(
        Drafted(1, 0, 4, 0.5, "d"), Drafted(2, 0, 5, 0.5, "d"), Drafted(3, 2, 6, 0.5, "d"), Pruned((0, 2, 3), 1),
        Accepted(1, 5, 1), Rejected(2, 6, 2), Committed((5,)),
    )  # fmt: skip
    assert [n.state for n in step.trees[0].nodes] == ["pruned", "accepted", "rejected"]


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_an_iteration_on_a_canvas_is_a_step(backend: str, tmp_path: Path) -> None:
    """Also where its calls are answered from memory; of two loops one after the other none shares a step."""
    file = tmp_path / "revoking.dec"
    file.write_text(REVOKING)
    run = traced(str(file), backend, max_tokens=4)
    assert run.stats.remasked == 3 and run.stats.target_calls < len(run.steps) == 3 + 4
    assert [[e.token < 0 for e in step.edits] for step in run.steps] == [[False, True]] * 3 + [[False]] * 4
    assert [[e[1] < 0 for e in step["edits"]] for step in document(run)["steps"][:3]] == [[False, True]] * 3
    low, high = run.sure
    assert low == min(e.confidence for s in run.steps for e in s.edits if e.token >= 0) <= high < 1
    run = traced("remdm_loop", backend, length=8, rounds=4, max_tokens=8)
    assert [len(step.edits) for step in run.steps] == [1] * 7 + [2] * 4 + [1]


def test_a_step_on_a_canvas_is_a_call_and_what_was_decided() -> None:
    found = steps(
        ModelCall("m", 4, 7), Unmasked(1, 5, 0.9), ModelCall("m", 4, 7), Unmasked(0, 6, 0.8), Remasked(1), Committed((6,))
    )
    assert [[(e.position, e.token) for e in s.edits] for s in found] == [[(1, 5)], [(0, 6), (1, -1)]]
    assert [s.cells for s in found] == [4, 4]
