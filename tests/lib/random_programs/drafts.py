"""Drafts of random causal programs: the models they are drawn from, the stores they are looked up in, and how trees grow."""

from __future__ import annotations

from decgraph.ir.data.topology import Topology
from lib.random_programs.rules import hashed
from lib.random_programs.text import V, Values, Writer

SHAPES = ("2x1", "2", "1x1x1", "[[0],[1],[0,0],[1,0]]", "[[0],[0,0],[0,1]]", "3x2")


class Drafts:
    """Where the drafts of one program come from. `stores`: names of its states by what they hold."""

    def __init__(self, w: Writer) -> None:
        self.w, self.v = w, Values(w)
        self.derived: list[str] = []
        self.stores: dict[str, str] = {}

    # -- laws
    def small(self) -> str:
        """A model derived from the target."""
        w = self.w
        if self.derived and w.chance(0.6):
            return w.one(*self.derived)
        what = w.one(
            "exit(1)",
            "exit(2)",
            "skip([1])",
            "skip([0, 2])",
            "skip(drop)",
            "head(target.upto(1))",
            "head(target.upto(deep))",
            "head(adapter(target.upto(1)))",
            "skip(attention = drop, mlp = [1])",
            "skip(mlp = drop)",
            "quantized(8)",
        )
        if "drop" in what:
            w.param("drop", "set", "", value=frozenset(w.rng.sample(range(3), w.rng.randint(0, 2))))
        if "deep" in what:
            w.param("deep", "int in 1..2", "1")
        if "adapter" in what:
            w.model("adapter: layers(target)")
        name = w.name("small")
        w.made.append(f"model {name} = target.{what}")
        w.has("derived " + what.split("(")[0])
        self.derived.append(name)
        return name

    def memory(self) -> str:
        w = self.w
        w.has("memory given")
        base = w.one("ctx.parent", "ctx.parent", "ctx")
        return f"target.memory({base})"

    def call(self, places: str) -> str:
        """A model's rows at places: a drafter, a derived model, a head, the target."""
        w = self.w

        def drafter() -> str:
            return f"{w.model('drafter: causal')}({places})"

        def derived() -> str:
            given = f", given = {self.memory()}" if w.chance(0.4) else ""
            return f"{self.small()}({places}{given})"

        def head() -> str:
            w.has("features head")
            w.model("head: features(target)")
            return f"head({places}, given = target.memory(ctx.parent))"

        def target() -> str:
            return f"target({places})"

        return str(w.maker((5, drafter), (4, derived), (1.5, head), (2, target)))

    def law(self, places: str) -> str:
        """Rows of a law at places."""
        w = self.w
        a = self.call(places)
        if w.chance(0.65):
            return a
        w.has("mixed laws")
        form = w.one(
            "normalize({a} * {r} + {b} * 0.5 + 0.01)",
            "renorm_topk({a}, {k})",
            "softmax({a}.logits * {r})",
            "renorm_topp({a}, 0.7)",
            "normalize({a}.raw ^ 2)",
            "normalize(relu({a} - {b} * 0.3) + 0.001)",
            "{a}.raw",
        )
        return form.format(
            a=a, b=self.call(places) if "{b}" in form else "", r=w.one("0.5", self.v.prob(1) + " + 0.1"), k=self.v.small(4)
        )

    # -- stores and other sources of chains
    def index(self) -> str:
        w = self.w
        kind = w.one("suffixes", "ngrams")
        if kind not in self.stores or w.chance(0.3):
            start = "prompt" if w.chance(0.7) else ""
            self.stores[kind] = w.state("seen", f"{kind}({w.rng.randint(2, 3)})", start)
        return self.stores[kind]

    def table(self) -> str:
        w = self.w
        if "table" not in self.stores:
            self.stores["table"] = w.state("next", "token[vocab, 2]", "0", session=0.5)
        return self.stores["table"]

    def pool(self) -> str:
        w = self.w
        if "pool" not in self.stores:
            self.stores["pool"] = w.state("pool", "lru[token, 3] -> token[2]", "")
        return self.stores["pool"]

    def guesses(self) -> str:
        w = self.w
        if "guesses" not in self.stores:
            self.stores["guesses"] = w.state("ahead", "token[<= 4]", w.one("[]", "first(prompt, 2)"))
        return self.stores["guesses"]

    def chain(self, at: str) -> str:
        """Tokens or draws to hang one below the other at a node."""
        w = self.w

        def path() -> str:
            w.has("drafts of an index")
            pick = w.one("", ', pick = "first"')
            return f"{self.index()}.path({at}, at_least = 1, at_most = {self.v.small(4)}{pick})"

        def tokens() -> str:
            return f"point({self.v.tokens()})"

        def given() -> str:
            w.has("drafts of an extern")
            name = w.extern("guess", "guess(int, int) -> int on host", lambda a, b: hashed(a, b) % V)
            w.has("extern tokens")
            return f"point([x for x in prompt if {name}(1, 2) > 1])"

        def ran() -> str:
            w.has("drafts of a run")
            until = w.one("len(path) > 9", "ended(path)", "path.length > 2", "last(path.token) == pad")
            until = until.replace("len(path) > 9", "path.length > 20")
            return f"run autoregressive({w.model('drafter: causal')}) from {at} until {until} at most {self.v.small(4)}"

        def kept() -> str:
            return f"point({self.guesses()})"

        return str(w.maker((3, path), (2, tokens), (1, given), (2, ran), (1.5, kept)))

    # -- growing
    def grow(self, t: str) -> None:
        """The body of `draft t:`."""
        w = self.w
        w.maker(
            (4, lambda: self._levels(t)),
            (2.5, lambda: self._samples(t)),
            (1.5, lambda: self._shape(t)),
            (2, lambda: self._chain(t)),
            (0.8, lambda: self._race(t)),
            (0.8, lambda: self._table(t)),
            (0.8, lambda: self._pool(t)),
            (0.6, lambda: self._best_first(t)),
            (0.5, lambda: self._extern(t)),
        )
        if w.chance(0.15):
            w.has("two ways of growing")
            self._levels(t) if w.chance(0.5) else w.put(
                f"for leaf in {t}.leaves:", f"    grow chain({self.chain('leaf')}) at leaf"
            )
        if w.chance(0.25):
            w.has("prune")
            by = w.one(f"{t}.logprob", f"{t}.depth", f"{t}.prob", f"-{t}.depth")
            w.put(f"prune {t} to top({t}.drafted, {self.v.small(4)}, by = {by})")

    def times(self) -> str:
        w = self.w
        if w.chance(0.5):
            return w.param("gamma", "int in 1..4", "3", "int", w.rng.randint(1, 4))
        return self.v.small(3) if w.chance(0.5) else str(w.rng.randint(1, 3))

    def _levels(self, t: str) -> None:
        w = self.w
        w.has("levels of topk")
        places = w.one(f"{t}.leaves", f"{t}.frontier")
        n = self.times()
        with w.suite(f"repeat {n}:" if w.chance(0.8) else f"repeat {n} while {self.v.bool_(1)}:"):
            q = w.let("law", self.law(places), "q")
            w.names["law"].remove(q)  # rows: a law at every place
            k = self.v.small(3) if w.chance(0.4) else w.one("1", "2")
            draw = w.one(
                f"topk({q}.raw, {k})",
                f"topk({q}.raw, {k})",
                f"sample({q}, {k})",
                f"distinct({q}, {k})",
                f"sample({q}, {k}, replace = no)",
                f"point(argmax({q}))",
            )
            column = ""
            if w.chance(0.2):
                w.has("own columns")
                column = f" with worth = {w.one(self.v.prob(1), self.v.int_(1))}"
            w.put(f"grow {draw}{column}")
            if places.endswith("frontier") and w.chance(0.7):
                w.put(
                    f"{t}.frontier = top({t}.new, {self.v.small(3)}, "
                    f"by = {w.one(f'{t}.logprob', f'-{t}.logprob', f'{t}.prob')})"
                )
            if w.chance(0.3):
                w.has("break in drafting")
                w.put(
                    "break if "
                    + w.one(
                        f"any(max({q}.raw) < {self.v.prob(1)})",
                        f"all(entropy({q}) > 1.2)",
                        self.v.bool_(1),
                        f"{t}.size > 5",
                        f"any(ended({t}.new))",
                    )
                )

    def _samples(self, t: str) -> None:
        w = self.w
        w.has("chain of draws")
        with w.suite(f"repeat {self.times()}:"):
            places = w.one(f"{t}.leaves", f"{t}.leaves", f"{t}.frontier")
            w.put(f"x ~ {self.law(places)}{w.one('', '', ' as output')}", "grow x")
            if w.chance(0.35):
                w.put(
                    "break if "
                    + w.one(self.v.bool_(1), "any(x == pad)", f"any(x.prob < {self.v.prob(1)})", "any(x.law.raw[x] < 0.2)")
                )

    def _shape(self, t: str) -> None:
        w = self.w
        w.has("shape")
        shape = w.param("shape", "topology", '"2x1"', value=Topology.of(w.one(*SHAPES)))
        with w.suite(f"for level in {shape}:"):
            w.put(f"break if len({t}.frontier) == 0 or any(level.parent >= len({t}.frontier))")
            w.put(
                f"xs = {w.one('distinct', 'sample', 'topk')}({self.law(f'{t}.frontier')}, level.width)",
                f"grow xs[level.parent, level.rank] at {t}.frontier[level.parent]",
            )

    def _chain(self, t: str) -> None:
        self.w.has("chain at once")
        self.w.put(f"grow chain({self.chain('ctx' if self.w.chance(0.6) else 'root')})")

    def _race(self, t: str) -> None:
        w = self.w
        w.has("race")
        w.put(f"{t}.race[root] = 0.0")
        with w.suite(f"repeat {self.times()}:"):
            w.put(
                f"xs = race({self.call(f'{t}.frontier')}, under = {t}.race[{t}.frontier])",
                f"best = top(xs, {self.v.small(3)}, by = xs.race)",
                "grow best with race = best.race",
            )

    def _table(self, t: str) -> None:
        w = self.w
        w.has("table of successors")
        with w.suite(f"repeat {self.times()}:"):
            w.put(f"grow point({self.table()}[{t}.token[{t}.leaves]])")
            w.put(f"break if {t}.size > 6")

    def _pool(self, t: str) -> None:
        w = self.w
        w.has("pool of n-grams")
        with w.suite(f"for gram in {self.pool()}[{self.v.token()}]:"):
            w.put("grow chain(gram) at root" if w.chance(0.5) else "grow chain(point(gram)) at root")

    def _best_first(self, t: str) -> None:
        w = self.w
        w.has("best first")
        name = w.state("past", "suffixes(3)", "prompt")
        w.put(f"grow best_first({name}.after({w.rng.randint(1, 2)}), size = {self.v.small(4)}, above = {self.v.prob(0)})")

    def _extern(self, t: str) -> None:
        w = self.w
        w.has("extern scores")
        name = w.extern("worth", "worth(int, int) -> float on host", lambda a, b: hashed(a, b, 5) % 17 / 17)
        w.put("grow topk(target(root).raw, 3)")
        with w.suite(f"if {name}(ctx.length, {self.v.int_(1)}) > 0.4:"):
            w.put(f"{t}.frontier = top({t}.new, 2, by = {t}.logprob)", f"grow topk({self.call(f'{t}.frontier')}.raw, 2)")
