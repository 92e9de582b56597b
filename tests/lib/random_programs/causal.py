"""Steps of random causal programs: what is drafted (drafts.py), what verifies it, and what is learnt after it."""

from __future__ import annotations

from lib.random_programs.drafts import Drafts
from lib.random_programs.rules import OWN_RULES, automaton
from lib.random_programs.text import Writer


class Causal:
    """A causal program's step."""

    def __init__(self, w: Writer) -> None:
        self.w, self.drafts, self.grammar = w, Drafts(w), ""
        self.v = self.drafts.v

    # -- verifying
    def rule(self) -> str:
        w = self.w
        name = w.one(
            "match", "match", "rejection", "rejection", "match_longest", "typical_longest", "block_rejection", *OWN_RULES
        )
        if name in OWN_RULES:
            w.item(OWN_RULES[name])
            w.has("own rule")
        w.has(f"rule {name}")
        args = {
            "typical_longest": w.one("", "(0.1, 0.3)", f"({self.v.prob(0)}, 0.2)"),
            "likely": f"({self.v.prob(1)})",
            "coin": f"({self.v.prob(1)})",
            "longest_likely": f"({self.v.prob(1)})",
        }
        return name + args.get(name, "")

    def evidence(self, t: str) -> str:
        w = self.w
        if w.chance(0.75):
            return f"target({t})"
        w.has("mixed evidence")
        return w.one(
            f"normalize(target({t}) * 0.7 + {self.drafts.call(t)} * 0.3)",
            f"renorm_topk(target({t}), 3)",
            f"target({t}).raw",
            f"softmax(target({t}).logits * 0.8)",
            f"renorm_topp(target({t}), 0.8)",
        )

    # -- a step
    def step(self) -> None:
        """One turn of the loop."""
        w = self.w
        if w.chance(0.7):
            w.let("law", w.one("target(ctx)", "target(ctx)", self.drafts.law("ctx") if w.chance(0.5) else "target(ctx.parent)"))
        self.numbers(w.rng.randint(0, 2))
        if w.chance(0.12):
            w.has("branches")
            with w.suite(f"if {self.v.bool_()}:"):
                self.single()
            with w.suite("else:"):
                self.drafted()
        else:
            w.maker((8, self.drafted), (1.5, self.single), (0.6, self.lanes), (0.7, self.several))

    def numbers(self, count: int) -> None:
        w = self.w
        for _ in range(count):
            kind = w.one("int", "prob", "bool", "token")
            w.let(kind, {"int": self.v.int_, "prob": self.v.prob, "bool": self.v.bool_, "token": self.v.token}[kind]())

    def single(self) -> None:
        """Draw and commit."""
        w = self.w
        if w.chance(0.3):
            w.has("allow")
            g = w.param("g", "automaton", "", value=automaton(w.rng.randrange(99)))
            if not self.grammar:
                self.grammar = w.name("at")
                w.states.append(f"state {self.grammar}: g.state = g.start")
            w.put(
                f"x ~ target(ctx, allow = {g}.allowed({self.grammar})) as output",
                f"{self.grammar} = {g}.step({self.grammar}, x)",
                "commit x",
            )
            return
        w.has("one draw")
        law = w.one(*w.names["law"], self.drafts.law("ctx"), "target(ctx)")
        w.put(f"x ~ {law}{w.one('', ' as output')}")
        if w.chance(0.3):
            with w.suite(f"if {law if law in w.names['law'] else 'target(ctx)'}.raw[x] < {self.v.prob(1)}:"):
                w.put("x ~ target(ctx)")
        w.put("commit x")

    def several(self) -> None:
        """Tokens of a run, of a vector, or a few draws."""
        w = self.w
        form = w.one("run", "two", "pick")
        w.has(f"commit of {form}")
        if form == "run":
            w.put(
                f"s = run autoregressive({w.one('target', w.model('drafter: causal'))}) from ctx "
                f"until {w.one('ended(path)', 'path.length > 6')} "
                f"at most {self.v.small(3)}",
                "commit s",
            )
        elif form == "two":
            w.put("x ~ target(ctx)", "commit x", "y ~ target(ctx) as output", "commit y")
        else:
            w.put(f"commit {self.v.token()} if {self.v.bool_()} else {self.v.token()}")

    def lanes(self) -> None:
        """Several continuations of which the best is committed."""
        w = self.w
        w.has("lanes")
        n = self.v.small(3)
        with w.suite(f"lanes i in {n}:"):
            w.put(
                f"s[i] = run autoregressive(target) from ctx until ended(path) at most {w.rng.randint(1, 3)}",
                "ppl[i] = -mean(log(s[i].prob))",
            )
        w.put("commit s[argmin(ppl)]")

    def drafted(self) -> None:
        """Draft, verify, learn, commit."""
        w, t = self.w, "t"
        with w.suite(f"draft {t}:"):
            self.drafts.grow(t)
        if w.chance(0.06):
            w.has("across batch")
            w.shared = True
            w.put(
                "across batch:", f"    keep = top({t}.drafted, {w.rng.randint(2, 5)}, by = {t}.logprob)", f"prune {t} to keep"
            )
        evidence = self.evidence(t)
        if "table" in self.drafts.stores or w.chance(0.3):
            w.put(f"e = {evidence}")
            evidence = "e"
        w.put(f"verify {t} by {self.rule()} against {evidence}")
        self.learn(t, evidence)
        w.put(f"commit {t}.accepted")

    def learn(self, t: str, evidence: str) -> None:
        """Writes of states between verification and commit."""
        w = self.w
        if "table" in self.drafts.stores:
            w.put(f"{self.drafts.stores['table']}[{t}.token[{t}.nodes]] = topk({evidence}.raw, 2).token")
        if "pool" in self.drafts.stores:
            w.put(f"{self.drafts.stores['pool']}[{self.v.token()}] += [{self.v.token()}, {self.v.token()}]")
        if "guesses" in self.drafts.stores:
            w.put(
                f"{self.drafts.stores['guesses']} = "
                + w.one(
                    f"first({t}.accepted.token, {w.rng.randint(1, 4)})",
                    "ctx.last(2)",
                    f"{t}.token[first({t}.drafted, {w.rng.randint(1, 4)})]",
                )
            )
        if w.chance(0.3):
            n = w.state("steps", "int", w.one("0", "1"))
            w.put(f"{n} += {w.one('1', f'{t}.accepted.depth', f'{t}.size - {t}.accepted.depth', f'{t}.height')}")
        if w.chance(0.15):
            r = w.state("rate", "float", "0.5")
            w.put(f"{r} = 0.9 * {r} + 0.1 * {w.one(f'{t}.accepted.depth / (1 + {t}.size)', self.v.prob(1))}")
