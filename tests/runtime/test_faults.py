"""Whatever is raised inside a run, by whatever the run calls, ends that run alone: what was committed stays, the error
names the request and the line, and what was raised is its cause. Failures are put at every kind of place, on every backend."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from lib.models.hf_models import llama

import decgraph
from decgraph.backends.registry import machine
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError, InternalError
from decgraph.hf import custom_generate
from decgraph.ir.opdef import OpError
from decgraph.runtime.faults import fault
from decgraph.runtime.models.hf_live import from_module
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from decgraph.runtime.session import Result, Session
from decgraph.runtime.trace import Committed
from decgraph.stdlib import text

V, BAD = 5, 3
BACKENDS = ["reference", "torch", "triton"]


class Odd(Exception):
    """An exception that decgraph has never heard of."""


RAISED: list[Callable[[], BaseException]] = [
    lambda: MemoryError("none left"),
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
    lambda: RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
    lambda: AssertionError(),
    lambda: OSError(28, "No space left on device"),
    lambda: RecursionError("maximum recursion depth exceeded"),
    lambda: NotImplementedError("later"),
    lambda: StopIteration(),
    lambda: InternalError("an invariant of ours"),
    lambda: Odd("nobody's"),
    lambda: DecError("the model's own words", hint="its own hint"),
]


class Failing(TableModel):
    """A table that raises at texts that begin with BAD and have some length."""

    def __init__(self, made: Callable[[], BaseException], after: int = 6, **more: Any) -> None:
        super().__init__(V, **{"seed": 1, "vocab": "V", **more})
        self.made, self.least = made, after

    def eval(self, paths: Sequence[tuple[int, ...]], memory: Any = None) -> Any:
        if any(path[0] == BAD and len(path) >= self.least for path in paths):
            raise self.made()
        return super().eval(paths, memory)

    def eval_canvas(self, cells: Any, at: Any, memory: Any = None) -> Any:
        if cells[0] == BAD and sum(isinstance(c, int) for c in cells) >= self.least:
            raise self.made()
        return super().eval_canvas(cells, at, memory)


def session(name: str, backend: str, models: dict[str, Any], source: str = "", externs: Any = None, **params: Any) -> Session:
    module = load_text(source or text(name), f"{name}.dec")
    if backend != "reference":  # as users run it: the calls of several requests go together
        module = decgraph.parse(source or text(name), path=f"{name}.dec", main=name).optimised()
    return Session(module, models, params, machine=machine(backend), externs=externs)


def asked(bad: int = 2, count: int = 4) -> list[Request]:
    return [Request(prompt=(BAD if i == bad else i % 3, 1, 2), max_tokens=6, request_id=i, seed=9) for i in range(count)]


def check(s: Session, sound: Session, *, cause: type[BaseException] | None = None, line: str, bad: int = 2) -> Result:
    """One request of several fails and the others do not, alone, one after the other and together; the failed result."""
    whole = sound.generate(asked(bad))
    assert all(r.error is None for r in whole)
    runs = [s.run(r) for r in asked(bad)]
    for got in (runs, s.generate(asked(bad), batch=4), s.generate(asked(bad), batch=1)):
        assert [r.error is not None for r in got] == [n == bad for n in range(len(got))], [r.error for r in got]
        assert [r.tokens for n, r in enumerate(got) if n != bad] == [r.tokens for n, r in enumerate(whole) if n != bad]
        failed = got[bad]
        assert isinstance(failed.error, DecError) and failed.reason == "error"
        assert re.search(rf"{line}:\d+:\d+: ", str(failed.error)), str(failed.error)
        assert f"request {bad}" in str(failed.error) and failed.error.request == f"request {bad}"
        assert failed.tokens == whole[bad].tokens[: len(failed.tokens)] and len(failed.tokens) < len(whole[bad].tokens)
        assert failed.stats.tokens == len(failed.tokens)
        if cause is not None:
            assert isinstance(failed.error.__cause__, cause), repr(failed.error.__cause__)
    assert len(runs[bad].tokens) > 0
    return runs[bad]


@pytest.mark.quick("reference", "torch", ("triton", "InternalError"))
@pytest.mark.parametrize(
    ("backend", "made"),
    [(b, made) for b in BACKENDS for made in (RAISED if b != "triton" else RAISED[1:9:7])],
    ids=lambda x: x if isinstance(x, str) else type(x()).__name__,
)
def test_a_target_that_raises(backend: str, made: Callable[[], BaseException]) -> None:
    drafter = TableModel(V, seed=2, vocab="V")
    s = session("speculative", backend, {"target": Failing(made, 7), "drafter": drafter}, gamma=2)
    sound = session("speculative", backend, {"target": TableModel(V, seed=1, vocab="V"), "drafter": drafter}, gamma=2)
    kind = type(made())
    if kind is InternalError:  # it has no line: the passes' validation wants it as it is
        got = s.generate(asked(), batch=4)
        assert [r.error is not None for r in got] == [False, False, True, False]
        assert isinstance(got[2].error, DecError) and "bug in decgraph" in str(got[2].error)
        return
    failed = check(s, sound, cause=kind, line="speculative.dec")
    if kind is DecError:
        assert "the model's own words" in str(failed.error) and "try: its own hint" in str(failed.error)


@pytest.mark.quick("reference", "torch")
@pytest.mark.parametrize(
    ("backend", "name"),
    [*product(BACKENDS[:2], ["speculative", "recursive_sd", "pearl", "block_verification"]), ("triton", "pearl")],
)
def test_a_drafter_that_raises(backend: str, name: str) -> None:
    params: dict[str, Any] = {"shape": "2x1"} if name == "recursive_sd" else {"gamma": 2}
    target = TableModel(V, seed=1, vocab="V")
    s = session(name, backend, {"target": target, "drafter": Failing(lambda: Odd("here"), 7, seed=2)}, **params)
    sound = session(name, backend, {"target": target, "drafter": TableModel(V, seed=2, vocab="V")}, **params)
    check(s, sound, cause=Odd, line=f"{name}.dec")


@pytest.mark.quick("reference", "torch")
@pytest.mark.parametrize(
    ("backend", "name"), [*product(BACKENDS[:2], ["llada", "fast_dllm", "static_masked"]), ("triton", "fast_dllm")]
)
def test_a_masked_model_that_raises(backend: str, name: str) -> None:
    """Blocks that were committed stay."""
    params: dict[str, Any] = {"length": 6, "block": 3}
    known = {p.name for p in load_text(text(name), name).entry.params}
    params = {k: v for k, v in {**params, "steps": 6}.items() if k in known}
    s = session(name, backend, {"model": Failing(lambda: Odd("here"), 5, kind="masked")}, **params)
    got = s.generate(asked(), batch=4)
    sound = session(name, backend, {"model": TableModel(V, seed=1, vocab="V", kind="masked")}, **params).generate(asked())
    assert [r.error is not None for r in got] == [False, False, True, False]
    assert [r.tokens for n, r in enumerate(got) if n != 2] == [r.tokens for n, r in enumerate(sound) if n != 2]
    assert re.search(rf"{name}.dec:\d+:\d+: request 2: ", str(got[2].error)) and isinstance(got[2].error.__cause__, Odd)


CAREFUL = '''
extern sure(p: prob) -> bool

algorithm careful(target: causal):
    """Greedy where a function of the caller is sure."""
    while not done:
        q = target(ctx)
        y = argmax(q.raw)
        x ~ q as output
        commit y if sure(q.raw[y]) else x
'''


@pytest.mark.parametrize("backend", ["reference", "torch", "triton"])
def test_an_extern_that_raises(backend: str) -> None:
    target = TableModel(V, seed=1, vocab="V")

    def calm(p: Any) -> bool:
        return True

    calls = 0

    def sure(p: Any) -> bool:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise Odd("not sure")
        return True

    sound = session("careful", backend, {"target": target}, CAREFUL, {"sure": calm}).run(asked()[2])
    s = session("careful", backend, {"target": target}, CAREFUL, {"sure": sure})
    got = s.run(asked()[2])
    assert got.tokens == sound.tokens[: len(got.tokens)] and 3 <= len(got.tokens) < len(sound.tokens) == 6
    assert re.search(r"careful.dec:\d+:\d+: request 2: .*Odd: not sure", str(got.error))
    assert got.error is not None and isinstance(got.error.__cause__, Odd)
    calls = 0
    together = s.generate(asked(), batch=4)
    assert sum(r.error is not None for r in together) == 1


@pytest.mark.quick("reference", "torch")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_processor_or_an_until_that_raises(backend: str) -> None:
    models = {"target": TableModel(V, seed=1, vocab="V"), "drafter": TableModel(V, seed=2, vocab="V")}

    def processor(path: tuple[int, ...], logits: np.ndarray) -> np.ndarray:
        if len(path) >= 7:
            raise Odd("a processor")
        return logits

    def until(path: tuple[int, ...]) -> bool:
        if len(path) >= 7:
            raise Odd("a condition")
        return False

    s = session("speculative", backend, models, gamma=2)
    for more in ({"processors": (processor,)}, {"until": (until,)}):
        bad = Request(prompt=(1, 1, 2), max_tokens=6, request_id=2, seed=9, **more)  # type: ignore[arg-type]
        plain = [s.run(r) for r in asked()]
        for got in (s.run(bad), s.generate([*asked()[:2], bad], batch=3)[2]):
            assert isinstance(got.error, DecError) and isinstance(got.error.__cause__, Odd)
            assert re.search(r"(speculative|rules).dec:\d+:\d+: request 2: ", str(got.error))
            assert 0 < len(got.tokens) < 6 or len(got.tokens) == 5
        assert [r.tokens for r in s.generate([*asked()[:2], bad], batch=3)[:2]] == [r.tokens for r in plain[:2]]


class Decoder:
    """A tokenizer and detokenizer that fail where they are told to."""

    def __init__(self, start: int = 99, feed: int = 99, decode: bool = False) -> None:
        self.at, self.left, self.fails = start, feed, decode
        self.detokenizer, self.special = self, dict[int, str]()

    def start(self) -> bytes:
        if self.at == 0:
            raise Odd("at the start")
        return b""

    def feed(self, pending: bytes, token: int) -> tuple[bytes, str]:
        self.left -= 1
        if self.left < 0:
            raise Odd("fed")
        return b"", "ab"[token % 2]

    def decode(self, tokens: Sequence[int]) -> str:
        if self.fails:
            raise Odd("decoding")
        return "".join("ab"[t % 2] for t in tokens)

    def text(self, tokens: Sequence[int]) -> str:
        return self.decode(tokens)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tokenizer_that_raises(backend: str) -> None:
    module = load_text(text("autoregressive"), "autoregressive.dec")
    models = {"target": TableModel(V, seed=1, vocab="V")}
    request = Request(prompt=(0, 1), max_tokens=5, seed=4, stop=("never",))
    whole = Session(module, models, machine=machine(backend), tokenizer=Decoder()).run(request)
    assert whole.error is None and len(whole.text) == 5
    fed = Session(module, models, machine=machine(backend), tokenizer=Decoder(feed=3)).run(request)
    assert fed.tokens[:3] == whole.tokens[:3] and 3 <= len(fed.tokens) < 5, "the token that could not be read may stay"
    assert re.search(r"autoregressive.dec:\d+:\d+: request 0: .*Odd: fed", str(fed.error))
    unread = Session(module, models, machine=machine(backend), tokenizer=Decoder(decode=True)).run(request)
    assert unread.tokens == whole.tokens and unread.text == "" and "request 0" in str(unread.error)
    begun = Session(module, models, machine=machine(backend), tokenizer=Decoder(start=0))
    with pytest.raises(DecError, match="request 0: Odd: at the start"):
        begun.run(request)
    assert all("Odd: at the start" in str(r.error) for r in begun.generate([request] * 2))


@pytest.mark.quick("reference", "torch")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_listener_that_raises_at_each_event_in_turn(backend: str) -> None:
    models = {"target": TableModel(V, seed=1, vocab="V"), "drafter": TableModel(V, seed=2, vocab="V")}
    s = session("speculative", backend, models, gamma=2)
    sound = [s.run(r) for r in asked()]
    most = len(sound[2].events)
    for at in range(0, most, {"reference": 1, "torch": 3, "triton": 11}[backend]):
        heard = 0

        def listener(event: Any, at: int = at) -> None:
            nonlocal heard
            heard += 1
            if heard > at:
                raise Odd("heard enough")

        got = s.run(asked()[2], listener=listener)
        assert isinstance(got.error, DecError) and isinstance(got.error.__cause__, Odd) and "request 2" in str(got.error)
        assert got.tokens == sound[2].tokens[: len(got.tokens)]
        heard = 0

        def numbered(number: int, event: Any, listener: Any = listener) -> None:
            if number == 2:
                listener(event)

        many = s.generate(asked(), batch=3, listener=numbered)
        assert [r.error is not None for r in many] == [n == 2 for n in range(4)]
        assert [r.tokens for n, r in enumerate(many) if n != 2] == [r.tokens for n, r in enumerate(sound) if n != 2]
        assert sum(len(e.tokens) for e in got.events if isinstance(e, Committed)) == len(got.tokens)


@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_stream_gives_the_result_and_not_the_exception(backend: str) -> None:
    drafter = TableModel(V, seed=2, vocab="V")
    s = session("speculative", backend, {"target": Failing(lambda: Odd("here"), 7), "drafter": drafter}, gamma=2)
    *events, result = list(s.stream(asked()[2]))
    assert isinstance(result, Result) and isinstance(result.error, DecError) and isinstance(result.error.__cause__, Odd)
    assert sum((e.tokens for e in events if isinstance(e, Committed)), ()) == result.tokens


WRONG = {
    "too few rows": lambda rows: rows[:-1],
    "no rows": lambda rows: None,
    "rows of another size": lambda rows: [type(r)(logits=r.to_float().logits[:-1]) for r in rows],
}


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("how", sorted(WRONG))
def test_an_answer_of_another_shape(backend: str, how: str) -> None:
    class Wrong(TableModel):
        def eval(self, paths: Any, memory: Any = None) -> Any:
            rows = super().eval(paths, memory)
            return WRONG[how](rows) if any(p[0] == BAD and len(p) >= 7 for p in paths) else rows  # type: ignore[no-untyped-call]

    drafter = TableModel(V, seed=2, vocab="V")
    s = session("speculative", backend, {"target": Wrong(V, 1, vocab="V"), "drafter": drafter}, gamma=2)
    sound = session("speculative", backend, {"target": TableModel(V, 1, vocab="V"), "drafter": drafter}, gamma=2)
    check(s, sound, line="(speculative|rules).dec")


# --- Hugging Face modules


def test_a_batch_that_does_not_fit_is_answered_one_by_one() -> None:
    """Memory for one sequence and not for four: nobody fails, and nobody's tokens change."""
    of = llama(3)
    s = session("autoregressive", "torch", {"target": from_module(of, name="small")})
    requests = [Request(prompt=(1, 5 + i), max_tokens=5, request_id=i, seed=9) for i in range(4)]
    whole = [s.run(r).tokens for r in requests]
    heads: list[int] = []
    from decgraph.runtime.models.engine.of import engine_of

    engine = engine_of(s.models["target"])
    head = engine.head

    def small(states: Any) -> Any:
        heads.append(int(states.shape[0]))
        if states.shape[0] > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return head(states)

    engine.head = small
    got = s.generate(requests, batch=4)
    assert [r.error for r in got] == [None] * 4 and [r.tokens for r in got] == whole
    assert max(heads) > 1, "they were asked together"
    assert not engine._slots


@pytest.mark.parametrize("drafts", [False, True])
def test_a_module_that_raises_from_some_forward_on(drafts: bool) -> None:
    from decgraph.runtime.models.engine.of import engine_of

    target, drafter = from_module(llama(3), name="big"), from_module(llama(4), name="small")
    s = session("speculative", "torch", {"target": target, "drafter": drafter}, gamma=3)
    requests = [Request(prompt=(1, 5 + i, 9), max_tokens=12, request_id=i, seed=9) for i in range(3)]
    whole = [s.run(r).tokens for r in requests]
    engine = engine_of(drafter if drafts else target)
    step, calls = engine.step, 0

    class Step:
        def __call__(self, *args: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > 3:
                raise RuntimeError("the size of tensor a must match the size of tensor b")
            return step(*args)

    engine.step = Step()
    for got in ([s.run(requests[0])], s.generate(requests, batch=3)):
        calls = 0
        for n, r in enumerate(got):
            assert isinstance(r.error, DecError) and isinstance(r.error.__cause__, RuntimeError)
            assert re.search(rf"speculative.dec:\d+:\d+: request {n}: ", str(r.error))
            assert r.tokens == whole[n][: len(r.tokens)]
    engine.step = step
    assert [r.tokens for r in s.generate(requests, batch=3)] == whole, "nothing half made is left behind"
    assert not engine._slots


def test_generate_raises_a_decerror_and_keeps_the_other_rows() -> None:
    model = llama(3)
    custom = custom_generate("autoregressive")
    ids = torch.tensor([[1, 5, 9], [1, 44, 3], [1, 7, 8]])
    whole = model.generate(ids, max_new_tokens=6, custom_generate=custom, do_sample=False)
    with torch.no_grad():
        model.model.embed_tokens.weight[44] = float("nan")
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
    with pytest.raises(DecError, match=r"row 1 of the batch: .*request 1"):
        model.generate(ids, max_new_tokens=6, custom_generate=custom, do_sample=False)
    assert [r.error is not None for r in custom.last] == [False, True, False]
    for n in (0, 2):
        assert list(custom.last[n].tokens) == whole[n, 3 : 3 + len(custom.last[n].tokens)].tolist()


def test_a_streamer_of_generate_that_raises() -> None:
    class Streamer:
        ended = 0

        def put(self, value: Any) -> None:
            if value.numel() == 1:
                raise Odd("full")

        def end(self) -> None:
            self.ended += 1

    streamer, custom = Streamer(), custom_generate("autoregressive")
    ids = torch.tensor([[1, 5, 9]])
    with pytest.raises(DecError, match="Odd: full"):
        llama(3).generate(ids, max_new_tokens=4, custom_generate=custom, do_sample=False, streamer=streamer)
    assert streamer.ended == 1 and len(custom.last[0].tokens) == 1


# --- the message


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("bad"), "error: a.dec:3:5: request 7: draw cannot go on: ValueError: bad"),
        (AssertionError(), "error: a.dec:3:5: request 7: draw cannot go on: AssertionError"),
        (OpError("no mass", "draw else"), "error: a.dec:3:5: request 7: draw cannot go on: no mass\n  = try: draw else"),
        (DecError("a.dec:1:1: a turn committed nothing"), "error: a.dec:1:1: request 7: a turn committed nothing"),
        (DecError("no room for request 7"), "error: a.dec:3:5: no room for request 7"),
        (DecError("no room for request 71"), "error: a.dec:3:5: request 7: no room for request 71"),
    ],
)
def test_the_message(error: Exception, said: str) -> None:
    made = fault(error, request="request 7", place="a.dec:3:5", op="draw")
    assert str(made) == said and made.__cause__ is error
    assert fault(made, request="request 8", place="b.dec:1:1") is made


def test_long_messages_are_cut() -> None:
    assert len(str(fault(RuntimeError("x" * 10_000), request="request 0"))) < 1000


def test_an_interrupt_is_no_fault() -> None:
    s = session("autoregressive", "torch", {"target": Failing(KeyboardInterrupt, 6)})
    got = s.run(asked()[2])
    assert got.reason == "interrupted" and len(got.tokens) == 3
    assert [r.reason for r in s.generate(asked(), batch=4)][2] == "interrupted"


def test_what_was_raised_can_be_seen(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What is said in other words may be a bug of a backend's own: the first words are one variable away."""
    from decgraph.cli.output import report

    problem = fault(
        IndexError("index 7 is out of bounds for axis 0 with size 6"), request="request 0", place="a.dec:1:1", op="gather"
    )
    report(problem)
    assert "IndexError" not in capsys.readouterr().err
    monkeypatch.setenv("DECGRAPH_TRACEBACK", "1")
    report(problem)
    said = capsys.readouterr().err
    assert "there is no element 7 among 6" in said and "IndexError: index 7 is out of bounds" in said
