"""Which trees may hold the token behind the last position: those whose nodes are asked about only where they have not ended."""

from __future__ import annotations

import pytest

from decgraph.backends.registry import machine
from decgraph.check.worlds import models_for
from decgraph.dsl.lower import load_text
from decgraph.passes.manager import optimise
from decgraph.runtime.request import Request
from decgraph.runtime.session import Session

C = 6
HEAD = "algorithm a(target: causal, k: int in 1..4 = 1):\n    draft t:\n        now = t.leaves\n"
GUARDED = {
    "by a condition": """\
        repeat room while not any(ended(now)):
            grow topk(target(now).raw, 1) at now
            now = t.new
""",
    "by what is left": """\
        repeat room while len(now) > 0:
            grow topk(target(now).raw, 1) at now
            now = t.new where not ended(t.new)
""",
    "by what is left of each": """\
        repeat room while len(now) > 0:
            grow topk(target(now).raw, 1) at now
            over = [ended(n) or k > 3 for n in t.new]
            now = t.new where not over
""",
    "by an if": """\
        repeat room:
            n = now[0]
            if not ended(n):
                grow topk(target(n).raw, 1) at n
                now = t.new
""",
}
UNGUARDED = {
    "nothing is looked at": """\
        repeat room:
            grow topk(target(now).raw, 1) at now
            break if len(t.new) == 0
            now = t.new
""",
    "all instead of any": """\
        now = tile(root, 2)
        repeat room while not all(ended(now)):
            grow topk(target(now).raw, 1) at now
            break if len(t.new) == 0
            now = t.new
""",
    "another vector is looked at": """\
        repeat room while len(now) > 0:
            grow topk(target(now).raw, 1) at now
            now = t.new where not ended(t.parent[t.new])
""",
    "the wrong branch": """\
        repeat room:
            n = now[0]
            if ended(n):
                grow topk(target(n).raw, 1) at n
            else:
                grow topk(target(now).raw, 1) at now
            break if len(t.new) == 0
            now = t.new
""",
}
END = "    commit t.leaves[0]\n"


def tokens(text: str, backend: str) -> tuple[int, ...]:
    module = load_text(text)
    models = models_for(module.entry, 4, 2, free=True, context=C)
    run = module if backend == "reference" else optimise(module)[0]
    result = Session(run, models, {}, machine=machine(backend)).run(Request(prompt=(1, 2), max_tokens=50, temperature=0))
    assert result.error is None, str(result.error)
    return result.tokens


def unread(text: str) -> list[bool]:
    return [bool(op.attrs.get("unread")) for op in load_text(text).entry.body.walk() if op.opcode == "tree.new"]


@pytest.mark.parametrize("body", GUARDED.values(), ids=list(GUARDED))
def test_a_tree_of_which_open_nodes_are_asked_ends_where_decoding_does(body: str) -> None:
    assert unread(HEAD + body + END) == [True]
    for backend in ("reference", "torch"):
        assert len(tokens(HEAD + body + END, backend)) == C - 1


@pytest.mark.parametrize("body", UNGUARDED.values(), ids=list(UNGUARDED))
def test_a_tree_of_which_any_node_is_asked_ends_where_its_model_does(body: str) -> None:
    assert unread(HEAD + body + END) == [False]
    for backend in ("reference", "torch"):
        assert len(tokens(HEAD + body + END, backend)) == C - 2


def test_what_else_is_read() -> None:
    """Verified trees, memories of nodes, calls at all nodes."""
    body = GUARDED["by what is left"]
    assert unread(HEAD + body + "    verify t by match against target(t)\n    commit t.accepted\n") == [False]
    assert unread(HEAD + body + "    m = target.memory(t.leaves[0])\n    commit t.leaves[0]\n") == [False]
    assert unread(HEAD + body + "    q = target(t).raw\n    commit argmax(q[t.leaves[0]])\n    commit t.leaves[0]\n") == [False]
