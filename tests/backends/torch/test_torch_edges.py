"""Steps at the edges, on torch as on the reference: quotients by zero, numbers that are none, draws that found no mass,
calls behind the context window, and names that generated Python has for something else."""

from __future__ import annotations

from types import ModuleType

import pytest

import decgraph
from decgraph.backends.torch.generated import driven_by
from decgraph.backends.torch.program import printed
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session

REQUEST = Request((1, 2, 3), max_tokens=4, seed=5)
STEP = """
algorithm {name}(target: causal, drafter: causal):
    while not done:
        {lines}
"""


def session(text: str, backend: str, context: int | None = None) -> Session:
    algorithm = decgraph.parse(text)
    models = {p: TableModel(6, n, context=context, name=p) for n, p in enumerate(algorithm.models)}
    return algorithm.session(models, backend=backend)


def as_on_the_reference(text: str, context: int | None = None) -> Result:
    got, want = (session(text, backend, context).run(REQUEST) for backend in ("torch", "reference"))
    assert (got.tokens, got.reason, str(got.error)) == (want.tokens, want.reason, str(want.error))
    assert context is None or got.stats.calls == want.stats.calls
    return got


def step(*lines: str, name: str = "edges") -> str:
    return STEP.format(name=name, lines="\n        ".join(lines))


REST = ("p = target(ctx)", "z = relu(p.raw - drafter(ctx).raw)", "most = argmax(z)", "least = argmin(z)")
NONE = "none = z[least] / z[least]"


@pytest.mark.parametrize(
    ("line", "token"),
    [
        ("commit 1 if z[most] / z[least] > 5 else 2", 1),
        (f"{NONE}\n        commit 1 if min(1.0, none) <= 1 else 2", 2),
        (f"{NONE}\n        commit 1 if max(none, 1.0) >= 1 else 2", 2),
        (f"{NONE}\n        commit 1 if min(z[most], none) <= 1 else 2", 2),
    ],
)
def test_numbers(line: str, token: int) -> None:
    assert set(as_on_the_reference(step(*REST, line)).tokens) == {token}


@pytest.mark.parametrize("what", ["xs", "xs[-1]"])
def test_a_draw_without_a_token_is_not_committed(what: str) -> None:
    error = as_on_the_reference(step("xs = sample(target(ctx), 7, replace = no)", f"commit {what}")).error
    assert "a draw has no token" in str(error)
    looked = step("xs = sample(target(ctx), 7, replace = no)", "commit xs[-1] if xs[-1].prob > 0 else xs[0]")
    assert as_on_the_reference(looked).error is None


@pytest.mark.parametrize("line", ["argmax(w)", "argmin(w)", "topk(w, 3)[0]", "argmax([w[most] - w[least], w[most]]) + 1"])
def test_numbers_that_are_none_come_last(line: str) -> None:
    as_on_the_reference(step(*REST, "w = z / z", f"commit {line}"))


def test_the_token_of_no_context() -> None:
    for backend in ("torch", "reference"):
        result = session(step("x ~ target(ctx)", "commit ctx.parent.token"), backend).run(Request((1,), max_tokens=2))
        assert "look before" in str(result.error)


def test_a_log_probability_that_is_set_leaves_those_below() -> None:
    got = as_on_the_reference(
        step(
            "draft t:",
            "    grow topk(drafter(root).raw, 2)",
            "    grow topk(drafter(t.frontier).raw, 2)",
            "    t.logprob[t.children[root]] = 0 - 50",
            "commit 1 if min(t.logprob[t.leaves]) > 0 - 40 else 2",
        )
    )
    assert set(got.tokens) == {1}


def test_a_call_behind_the_context_window_is_not_counted() -> None:
    text = step("x ~ target(ctx)", "commit x", "y ~ target(ctx)", "commit y")
    assert as_on_the_reference(text, context=5).reason == "context"


@pytest.mark.parametrize("name", ["tree", "emi", "torch", "np", "stacked"])
def test_names(name: str) -> None:
    """`trees` and `emit` are imported, `torch.relu` and `np.array` are written, `stacked` makes vectors."""
    text = step(
        "p = target(ctx)",
        "q = drafter(ctx)",
        f"{name if name == 'stacked' else 'one'} = 1",
        "ys = [exp(p[x]) for x in topk(p.raw, 2)] ++ [1, 2]",
        "draft t:",
        "    grow topk(q.raw, 2)",
        "verify t by rejection against target(t)",
        "z ~ normalize(relu(p - q))",
        f"if sum(ys) > {name if name == 'stacked' else 'one'} + 4:",
        "    commit z",
        "else:",
        "    commit t.accepted",
        name=name,
    )
    assert as_on_the_reference(text).error is None


def test_a_printed_module_keeps_states_of_one_name_apart() -> None:
    text = """
algorithm inner(target: causal):
    state n: int = 1
    while not done:
        commit n
        n += 1

algorithm print(target: causal):
    state n: int = 3
    while not done:
        s = run inner(target) from ctx until ended(path) at most 1
        commit s
        commit n
"""
    module = ModuleType("module")
    module.__file__ = "module.py"
    exec(printed(decgraph.parse(text).module), vars(module))
    result = driven_by(module, session(text, "torch")).run(REQUEST)
    assert result.error is None, result.error
    assert result.tokens == session(text, "reference").run(REQUEST).tokens


def test_a_path_with_backslashes() -> None:
    module = decgraph.parse(step("x ~ target(ctx)", "commit x"), path="C:\\Users\\new.dec").module
    compile(printed(module), "printed", "exec")


def test_all_cells_of_a_canvas_index_what_has_more_elements() -> None:
    """Of a vector over the canvas they are all elements; of another one, as many as there are cells."""
    text = """algorithm indexed(target: causal, model: masked):
    canvas c: 2
    while not done:
        draft t:
            grow topk(target(root).raw, 3)
        commit sum(t.depth[c.all])
"""
    got = []
    for backend in ("reference", "torch"):
        models = {"target": TableModel(4, 1, name="target"), "model": TableModel(4, 2, kind="masked", name="model")}
        done = decgraph.parse(text).session(models=models, backend=backend).run(Request((0, 1), max_tokens=2, temperature=0))
        assert done.error is None, done.error
        got.append(done.tokens)
    assert got == [(1, 1), (1, 1)]


@pytest.mark.parametrize(("condition", "token"), [("(ns > 0) and no", 0), ("(ns > 9) or not no", 3)])
def test_a_condition_that_is_known_decides_a_vector_element_by_element(condition: str, token: int) -> None:
    """A parameter's value is written into the program: one that decides `and` or `or` is not the vector itself."""
    text = f"""algorithm known(target: causal, no: bool = false):
    while not done:
        ns = [ctx.length, 2]
        commit int(ratio({condition}) * 3)
"""
    for backend in ("reference", "torch"):
        session = decgraph.parse(text).session(models={"target": TableModel(4, 1, name="target")}, backend=backend)
        done = session.run(Request((0, 1), max_tokens=2, temperature=0))
        assert done.error is None and done.tokens == (token, token), (backend, done)
