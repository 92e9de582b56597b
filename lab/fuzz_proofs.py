"""Edit programs that have a derivation at random, and enumerate in exact worlds what is still derived.

    python -m lab fuzz_proofs --edits 20000 --seconds 3600
    python -m lab fuzz_proofs --facts 5000 --seconds 3600
    python -m lab fuzz_proofs --beside 20000 --seconds 3600

Every edit that is a valid program and whose claim still has a derivation is run through the exact enumeration, in up to 20
small worlds. With `--facts` what the kernel says of values is compared with the values of runs, whether or not there is a
derivation of the claim (proof_facts.py). With `--beside` programs are given something that outlives a request, or that
sequences share; what is still derived is run as the second of two requests, and beside another one (proof_beside.py). One
difference is a rule of the kernel that is wrong. The programs that show one are written to `build/fuzz/`.
"""

from __future__ import annotations

import hashlib
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import decgraph
from decgraph import stdlib
from decgraph.backends.exact.choices import TooMany
from decgraph.backends.exact.reals import NotSeparated
from decgraph.backends.exact.world import Unlikely
from decgraph.check.claims import Failure, decide
from decgraph.check.distributions import OutOfTime, RunTally
from decgraph.check.exploration import reduced
from decgraph.check.plans import first_plans
from decgraph.check.proof.claims import prove
from decgraph.check.proof.derive import Derivation
from decgraph.check.proof.judgments import digest as rule_digest
from decgraph.check.worlds import world
from decgraph.dsl.lower import load_text
from decgraph.errors import DecError, InternalError
from decgraph.ir.parsing import IRTextError
from decgraph.ir.text import parse_module, print_module
from decgraph.ir.values import Claim, Module, Region, Value
from decgraph.ir.verify import verify
from lab.proof_beside import beside_fails, shared_scope, shares, with_memory
from lab.proof_edits import Pool, edited, edited_text
from lab.proof_facts import Compared, compare, walked

FOUND = Path(__file__).parents[1] / "build" / "fuzz"
WORLDS = 20
RUNS = 80
"""Most runs of a program in one world; worlds that take more are tried with smaller sizes."""


@dataclass
class Original:
    """A program of stdlib of which a claim has a derivation."""

    name: str
    module: Module
    text: str
    ir: str


@dataclass
class Counts:
    """What was tried, what became of it, and what is wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """The counts in a line."""
        return ", ".join(f"{what} {n}" for what, n in self.counts.items())

    def new(self, module: Module, claim: Claim, proof: Derivation) -> str | None:
        """The digest of a derived claim; None where it was tried before: of programs that commit the same own draws, twice."""
        key = digest(module, claim, proof)
        alike = self.seen[key] > (proof.mode == "own")
        self.counts["alike"] += alike
        self.seen[key] += not alike
        return None if alike else key


def originals(names: list[str] | None = None) -> list[Original]:
    """The programs of stdlib (or those of these names) that have a derivation."""
    found = []
    for name in names or stdlib.names():
        try:
            algorithm = decgraph.load(name)
            claims = algorithm.function.claims
        except DecError:
            continue  # a helper or rule is no algorithm
        if any(isinstance(prove(algorithm.module, claim), Derivation) for claim in claims):
            module = algorithm.module
            found.append(Original(name, module, algorithm.text, print_module(module, locs=True)))
    return found


def edits(rng: random.Random, programs: list[Original]) -> Iterator[tuple[str, Module | None]]:
    """Edited programs without end, by name: None where an edit is no valid program."""
    pool = Pool()
    for program in programs:
        pool.learn(program.module)
    while True:
        program = rng.choice(programs)
        try:
            if rng.random() < 0.25:
                yield program.name, load_text(edited_text(rng, program.text), f"{program.name}.dec")
                continue
            text = program.ir
            for _ in range(1 if rng.random() < 0.6 else 2):
                text = edited(rng, text, program.module.main, pool)
            module = parse_module(text)
            verify(module)
            yield program.name, module
        except (DecError, InternalError, IRTextError):
            yield program.name, None


class Spent(RunTally):
    """A tally that ends when so many seconds of this process are over: beside other work those of the clock say little."""

    def check_time(self) -> None:
        if self.until is not None and time.process_time() > self.until:
            raise OutOfTime


def contradicted(module: Module, claim: Claim, *, worlds: int = WORLDS, seconds: float = 2.0) -> tuple[Failure | None, int]:
    """The first of some small worlds in which a claim does not hold, and how many were decided."""
    tally = Spent(until=time.process_time() + seconds)
    with limited(4 * seconds):
        return _contradicted(module, claim, worlds, tally)


class Endless(BaseException):
    """Something took too long. No Exception: machines turn these into errors of the program."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises Endless where what runs in it takes more seconds of CPU."""

    def late(*_: object) -> None:
        raise Endless

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _contradicted(module: Module, claim: Claim, worlds: int, tally: RunTally) -> tuple[Failure | None, int]:
    decided = 0
    for n, plan in enumerate(first_plans(module, claim, 3, worlds)):
        plan = replace(plan, runs=RUNS, limit=min(plan.limit, 3), steps=1 + n % 2)
        for size in (1, 2, 3):
            try:
                case = reduced(world(module, claim, plan), size)
                failure = decide(replace(case, limit=RUNS), tally, far=False)
            except (TooMany, Unlikely, NotSeparated):
                continue
            except OutOfTime:
                return None, decided
            except DecError:
                break  # it ends in an error, of which a derivation says nothing
            if failure is not None:
                return failure, decided
            decided += 1
            break
    return None, decided


def digest(module: Module, claim: Claim, proof: Derivation | None = None) -> str:
    """The same for programs that differ in names of values alone; where all that is committed is the target's own draws, for
    those that differ in how they draft as well: what is committed, under which loops and branches, by which rule."""
    text = print_module(module) if proof is None or proof.mode != "own" else repr(_commits(module.entry.body, ()))
    return hashlib.sha256((claim.text + text).encode()).hexdigest()


def _commits(region: Region, around: tuple[str, ...]) -> list[object]:
    made = {v: op for op in region.walk() for v in op.results}
    found: list[object] = []

    def told(v: Value, depth: int = 12) -> object:
        op = made.get(v)
        if op is None or not depth:
            return v.name.split(".")[0]
        if op.opcode == "tree.walk":
            evidence = made.get(op.operands[1])
            here = evidence is not None and op.operands[0] in evidence.operands
            return "walk", rule_digest(op), here, told(op.operands[1], depth - 1) if not here else evidence and evidence.attrs
        attrs = sorted((k, str(x)) for k, x in op.attrs.items() if k not in ("site", "capacity", "until", "bound"))
        inner = [[told(y, depth - 1) for y in r.yields] for r in op.regions]
        return op.opcode, attrs, [told(x, depth - 1) for x in op.operands if x.type.elem != "tree"], inner

    def look(inner: Region, where: tuple[str, ...]) -> None:
        for op in inner.ops:
            if op.opcode in ("commit", "return"):
                found.append((where, [told(v) for v in op.operands]))
            for n, r in enumerate(op.regions):
                condition = str(told(op.operands[0], 3)) if op.opcode == "if" else ""
                look(r, (*where, f"{op.opcode} {n} {condition}"))

    look(region, around)
    return found


def counted(
    edited: Iterator[tuple[str, Module | None]], out: Counts, count: int, seconds: float
) -> Iterator[tuple[str, Module | None]]:
    """At most `count` of some edits, within some seconds, counted; the counts are printed now and then."""
    until = time.perf_counter() + seconds
    for name, module in edited:
        if out.counts["edits"] >= count or time.perf_counter() > until:
            return
        out.counts["edits"] += 1
        if out.counts["edits"] % 500 == 0:
            print(out.line(), *out.wrong[-3:], sep="\n", flush=True)
        yield name, module


def fuzz(seed: int, count: int, *, names: list[str] | None = None, seconds: float = 1e9, each: float = 2.0) -> Counts:
    """`count` edits, and the enumeration of those that are derived, within some seconds."""
    out = Counts()
    for name, module in counted(edits(random.Random(seed), originals(names)), out, count, seconds):
        if module is None or not module.entry.claims:
            continue
        out.counts["valid"] += 1
        for claim in module.entry.claims:
            try:
                proof = prove(module, claim)
            except Exception as error:  # at IR that no program is lowered to: it derives nothing, and is to be looked at
                out.counts[f"prover {type(error).__name__}"] += 1
                kept(
                    f"prover-{type(error).__name__}-{name}",
                    digest(module, claim),
                    f"{claim.text}\n{error}\n{print_module(module)}",
                )
                continue
            if isinstance(proof, Derivation):
                out.counts["derived"] += 1
                examine(name, module, claim, proof, out, each)
    return out


def examine(name: str, module: Module, claim: Claim, proof: Derivation, out: Counts, each: float) -> None:
    """Enumerate a derived claim, unless it was before."""
    key = out.new(module, claim, proof)
    if key is None:
        return
    try:
        failure, decided = contradicted(module, claim, seconds=each)
    except (Exception, Endless) as error:  # of the machine, at IR that no program is lowered to
        out.counts[f"fault {type(error).__name__}"] += 1
        kept(f"fault-{type(error).__name__}-{name}", key, f"{claim.text}\n{error}\n{print_module(module)}")
        return
    out.counts["enumerated"] += decided > 0
    out.counts["worlds"] += decided
    if failure is not None and failure.kind == "error" and (proof.errors or proof.mode in ("scheduled", "same", "inside")):
        out.counts["ends in an error"] += 1  # of which such a derivation says nothing
    elif failure is not None:
        out.counts["refuted"] += 1
        out.wrong.append(f"{name}: {claim.text}: {failure.kind}")
        kept(name, key, f"{claim.text}\n{failure.kind}\n{print_module(module)}")


SMALL = {
    "two_draws": """algorithm two_draws(target: causal):
    refines autoregressive(target) in distribution
    while not done:
        x ~ target(ctx)
        y ~ target(ctx)
        if ctx.length > 1:
            commit x
        else:
            commit y
""",
    "drafted": """algorithm drafted(target: causal, drafter: causal, gamma: int in 1..2 = 1):
    refines autoregressive(target) in distribution
    while not done:
        draft t:
            repeat gamma:
                x ~ drafter(t.leaves)
                grow x
        verify t by rejection against target(t)
        commit t.accepted
""",
    "siblings": """algorithm siblings(target: causal, drafter: causal):
    refines autoregressive(target) in distribution
    while not done:
        z ~ drafter(ctx)
        draft t:
            x ~ drafter(root)
            grow x
            y ~ drafter(root)
            grow y at root
        verify t by rejection against target(t)
        commit t.accepted
""",
    "own": """algorithm own(target: causal, drafter: causal):
    refines autoregressive(target) in tokens
    while not done:
        z ~ drafter(ctx)
        draft t:
            grow point(z.token)
        verify t by match against target(t)
        commit t.accepted
""",
}
"""Programs in which there is little to enumerate, for edits that let something shared decide."""


def beside_edits(rng: random.Random, programs: list[Original]) -> Iterator[tuple[str, Module | None]]:
    """Programs with something shared, by name: None where an edit is no valid program."""
    pool = Pool()
    for program in programs:
        pool.learn(program.module)
    texts = [(p.name, p.text) for p in programs if "while not done:" in p.text]
    while True:
        name, text = rng.choice(texts) if rng.random() < 0.3 else rng.choice(list(SMALL.items()))
        try:
            made = shared_scope(rng, text) if rng.random() < 0.15 else with_memory(rng, text)
            if rng.random() < 0.2:
                made = edited_text(rng, made)
            module = load_text(made, f"{name}.dec")
            if rng.random() < 0.3:
                module = parse_module(edited(rng, print_module(module, locs=True), module.main, pool))
                verify(module)
            yield name, module
        except (DecError, InternalError, IRTextError, StopIteration):
            yield name, None


def fuzz_beside(seed: int, count: int, *, names: list[str] | None = None, seconds: float = 1e9, each: float = 2.0) -> Counts:
    """`count` programs with something shared, and the laws of those that are derived where they are not alone."""
    rng, out = random.Random(seed), Counts()
    for name, module in counted(beside_edits(rng, originals(names)), out, count, seconds):
        if module is None or not shares(module):
            continue
        out.counts["valid"] += 1
        for claim in module.entry.claims:
            if claim.kind != "refines" or claim.spec != "autoregressive":
                continue
            proof = prove(module, claim)
            if not isinstance(proof, Derivation):
                continue
            out.counts[f"derived {proof.mode}"] += 1
            key = out.new(module, claim, proof)
            if key is None:
                continue
            failure, decided = _beside(module, claim, rng, each)
            out.counts["enumerated"] += decided > 0
            out.counts["ways"] += decided
            if failure is not None:
                out.counts["refuted"] += 1
                out.wrong.append(f"{name}: {claim.text}: {failure.kind}, {failure.case.start}")
                kept(f"beside-{name}", key, f"{claim.text}\n{failure.kind} {failure.case.start}\n{print_module(module)}")
    return out


def _beside(module: Module, claim: Claim, rng: random.Random, each: float) -> tuple[Failure | None, int]:
    """In up to three small worlds."""
    tally, decided = Spent(until=time.process_time() + each), 0
    for plan in rng.sample(first_plans(module, claim, 3, WORLDS), 3):
        try:
            with limited(4 * each):
                case = reduced(world(module, claim, replace(plan, vocab=2, features=(), temperature=1)), rng.choice((2, 2, 3)))
                failure, ways = beside_fails(replace(case, limit=200), tally, rng, 3)
        except (TooMany, Unlikely, NotSeparated, DecError):
            continue
        except Endless:
            break
        decided += ways
        if failure is not None:
            return failure, decided
    return None, decided


def kept(name: str, key: str, text: str) -> None:
    """Writes a program that is to be looked at."""
    FOUND.mkdir(parents=True, exist_ok=True)
    (FOUND / f"{name}-{key[:8]}.txt").write_text(text)


def fuzz_facts(seed: int, count: int, *, names: list[str] | None = None, seconds: float = 1e9) -> tuple[Counts, Compared]:
    """`count` edited programs of which the kernel says something, each in two worlds, within some seconds."""
    rng, out, found, until = random.Random(seed), Counts(), Compared(), time.perf_counter() + seconds
    for name, module in edits(rng, originals(names)):
        if out.counts["programs"] >= count or time.perf_counter() > until:
            break
        for claim in module.entry.claims[:1] if module is not None else ():
            assert module is not None
            model = model_of(module, claim)
            kernel = walked(module, claim, model) if model is not None else None
            if kernel is None:
                out.counts["without facts"] += 1
                continue
            out.counts["programs"] += 1
            if out.counts["programs"] % 200 == 0:
                print(out.line(), f"facts {sum(found.counts.values())}", *out.wrong[-3:], sep="\n", flush=True)
            before = len(found.wrong)
            for plan in rng.sample(first_plans(module, claim, 3, WORLDS), 2):
                try:
                    with limited(10):
                        compare(world(module, claim, plan), kernel, found)
                except (DecError, InternalError):
                    continue
                except Endless:
                    out.counts["too long"] += 1
            if len(found.wrong) > before:
                out.wrong.append(f"{name}: {found.wrong[before]}")
                kept(name, digest(module, claim), f"{out.wrong[-1]}\n{print_module(module)}")
    return out, found


def model_of(module: Module, claim: Claim) -> str | None:
    """The model that a claim is about."""
    params = {p.name for p in module.entry.params if p.value.type.elem == "model"}
    named = [str(name) for kind, name in dict(claim.args).values() if kind == "param" and name in params]
    return next(iter([*named, *claim.models]), None)


def command(
    names: Annotated[list[str] | None, Argument(help="Programs; all of stdlib/ that have a derivation where left out.")] = None,
    edits: int = 2000,
    facts: Annotated[int, Option(help="Compare the facts of so many programs instead.")] = 0,
    beside: Annotated[int, Option(help="Try so many programs with something shared instead, beside other requests.")] = 0,
    seconds: float = 600,
    each: Annotated[float, Option(help="Most seconds of CPU for the worlds of one edit.")] = 2.0,
    seed: int = 0,
) -> None:
    """Fuzz, and print the counts as they grow."""
    if facts:
        out, found = fuzz_facts(seed, facts, names=names or None, seconds=seconds)
    elif beside:
        out, found = fuzz_beside(seed, beside, names=names or None, seconds=seconds, each=each), Compared()
    else:
        out, found = fuzz(seed, edits, names=names or None, seconds=seconds, each=each), Compared()
    print(out.line())
    print("\n".join([", ".join(f"{what} {n}" for what, n in found.counts.most_common()), *out.wrong]).strip())
