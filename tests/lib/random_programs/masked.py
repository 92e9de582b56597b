"""Random programs over canvases: unmask loops, schedules, cache policies, memories, masking again, speculative steps on trees
of canvases, canvases that grow, and canvases inside a causal loop."""

from __future__ import annotations

from lib.random_programs.rules import hashed
from lib.random_programs.text import Values, Writer

POLICIES = ("prefix", "dual", "all_", "exact", "edges", "fresh", "counted", "settled_")
OWN_POLICIES = {
    "exact": "policy exact():\n    otherwise:  recompute all",
    "all_": "policy all_(b: span):\n    on enter b:  recompute all\n    otherwise:   recompute from 0, reuse the rest",
    "edges": "policy edges(b: span):\n    on enter b:  recompute from b.start\n    otherwise:   recompute b, reuse the rest",
    "fresh": "policy fresh(b: span):\n    when b.calls < 2:  recompute all\n    otherwise:         recompute b, reuse the rest",
    "counted": "policy counted(c: canvas, reload: int in 1..8 = 2):\n    on every reload:  recompute all\n"
    "    otherwise:        recompute all - settled(c, 1), reuse the rest",
    "settled_": "policy settled_(c: canvas):\n    on every 3:  recompute all\n"
    "    otherwise:   recompute all - settled(c, 2), reuse the rest",
}
CALLS = {"counted": "counted(c, reload = 2)", "settled_": "settled_(c)"}
SPANS = {"prefix", "dual", "all_", "edges", "fresh"}
"""Policies about the span that a call names: every call says `at = b`."""


class Masked:
    """Pieces of a program over a canvas `c`."""

    def __init__(self, w: Writer) -> None:
        self.w, self.v = w, Values(w)
        self.policy = ""
        self.cells = ""  # the cells that are decided here: "b", or "" for all

    def body(self) -> None:
        """The whole algorithm after its head."""
        w = self.w
        w.model("model: masked")
        length = w.param("length", "int in 1..32", "6", "int", w.rng.randint(3, 8))
        grows = w.chance(0.15)
        w.put(f"canvas c: {'0 growing to ' if grows else ''}{length}")
        if not grows and w.chance(0.45):
            self.policy = w.one(*POLICIES)
            w.has(f"policy {self.policy}")
            if self.policy in OWN_POLICIES:
                w.item(OWN_POLICIES[self.policy])
            w.put(f"cache model by {CALLS.get(self.policy, self.policy)}")
        if w.chance(0.3):
            name = w.state("steps", "int", "0")
            w.names["int"].append(name)
            w.put(f"{name} += 1")
        if grows:
            self._growing(length)
        elif w.chance(0.2) and self.policy not in SPANS:
            self._whole()
        else:
            self._blocks()
        w.put("commit c")

    # -- loops over a canvas
    def _growing(self, length: str) -> None:
        w = self.w
        w.has("canvas that grows")
        with w.suite(f"while len(c.all) < {length} at most 40:"):
            w.put(f"c.extend({self.v.small(3)})")
            with w.suite("while any(c.masked):"):
                self._step("")

    def _whole(self) -> None:
        w = self.w
        if w.chance(0.3):
            w.has("noise that draws share")
            w.put("noise g[c, vocab]: race")
            with w.suite("while any(c.masked):"):
                w.put("p = model(c)", "x ~ p using g", f"unmask c where {self._choice('p', 'x', '')} with x")
            return
        w.has("whole canvas")
        with w.suite("while any(c.masked):"):
            self._step("")

    def _blocks(self) -> None:
        w = self.w
        block = w.param("block", "int in 1..16", "3", "int", w.rng.randint(1, 5))
        w.has("blocks")
        with w.suite(f"for b in blocks(c, {block}):"):
            w.maker(
                (5, self._until_full),
                (2, self._schedule),
                (1.2, self._remask),
                (1.5, self._speculative),
                (1.2, self._memories),
                (0.8, self._tree),
                (0.6, self._sweeps),
            )

    def _until_full(self) -> None:
        with self.w.suite("while any(c.masked[b]):"):
            self._step("b")

    def _call(self, b: str) -> str:
        if b and self.policy in CALLS and self.w.chance(0.7):  # a call on such a policy has scores where it recomputes
            b = f"{b} where c.masked[{b}]"
        return f"model(c, at = {b})" if b and (self.policy or self.w.chance(0.6)) else "model(c)"

    def _step(self, b: str) -> None:
        """One turn: a call, draws, and what it decides."""
        w = self.w
        w.put(f"p = {self._call(b)}")
        if w.chance(0.15):
            w.has("mixed laws on a canvas")
            form = w.one("normalize(p + 0.02)", "softmax(p.logits * 0.7)", "renorm_topk(p, 3)", "normalize(p.raw ^ 2)")
            w.put(f"p = {form}")
        w.put(f"x {w.one('~ p', '~ p', '= argmax(p)', '~ p.raw')}")
        where = f"c[{b}]" if b else "c"
        if w.chance(0.15):
            w.has("two ways of deciding")
            with w.suite(f"if {w.one(f'any(max(p.raw) > {self.v.prob(1)})', self.v.bool_(1), 'count(c.masked) > 2')}:"):
                w.put(f"unmask {where} where {self._choice('p', 'x', b)} with x")
            w.put("else:", f"    unmask {where} where first_max(p.raw[x]) with x")
        elif w.chance(0.15) and b:
            w.has("assignment to cells")
            w.put(
                f"open_ = {b} where c.masked[{b}]",
                f"some = first(sort(open_, by = p[open_].raw[x[open_]], descending = yes), {self.v.small(3)})",
                "c[some] = x[some]",
            )
        else:
            w.put(f"unmask {where} where {self._choice('p', 'x', b)} with x")

    def _choice(self, p: str, x: str, b: str) -> str:
        """A condition that holds at one cell at least."""
        w = self.w
        s = w.one(f"{p}.raw[{x}]", f"{p}.raw[{x}]", f"-entropy({p}.raw)", f"margin({p}.raw)", f"max({p}.raw)")
        tau = w.param("tau", "prob", "0.5", "prob", w.rng.choice([0.3, 0.6, 0.9])) if w.chance(0.6) else self.v.prob(0)
        kind = w.one("sure", "rank", "factor", "first", "either", "extern", "place")
        w.has(f"cells by {kind}")
        if kind == "sure":
            return f"sure({s}, {tau})"
        if kind == "rank":
            return f"rank({s}) < {self.v.small(3)}"
        if kind == "factor":
            return f"by_factor({p}.raw[{x}], {w.one('1', '1.5')})"
        if kind == "either":
            return f"{s} >= {tau} or first_max({s})"
        if kind == "extern":
            name = w.extern("pick", "pick(int) -> bool on host", lambda n: hashed(n, 3) % 2 == 0)
            return f"({name}(len(c.all)) and {s} > {tau}) or first_max({s})"
        if kind == "place" and b:
            return f"first_max({s}) or ({b}.index % 2 == 0 and rank({s}) < 2)"
        return f"first_max({s})"

    def _schedule(self) -> None:
        w = self.w
        w.has("schedule")
        steps = w.one("length", "2", self.v.small(4), "1 + len(b) / 2")
        with w.suite(f"for n in spread(len(b), int({steps})):"):
            w.put(f"p = {self._call('b')}", "x ~ p")
            s = w.one("p.raw[x]", "-entropy(p.raw)", "margin(p.raw)")
            w.put(f"unmask c[b] where rank({s}) < n with x")
            if w.chance(0.2):
                w.put("break if not any(c.masked)")

    def _remask(self) -> None:
        w = self.w
        w.has("remask")
        with w.suite(f"while any(c.masked[b]) at most {w.rng.randint(2, 4)}:"):
            w.put(
                f"p = {self._call('b')}",
                "x ~ p",
                f"unmask c[b] where {self._choice('p', 'x', 'b')} with x",
                f"remask c[b] where p.raw[{w.one('x', 'c.token[b]')}] < {self.v.prob(0)}"
                if w.chance(0.7)
                else "remask c[b] where p.raw[x] < 0.2 and rank(p.raw[x]) > 0",
            )
        w.put(f"p = {self._call('b')}", "x ~ p", "unmask c[b] with x")

    def _speculative(self) -> None:
        w = self.w
        w.has("speculative steps on canvases")
        call = "model(c, at = b)" if self.policy else w.one("model(c, at = b)", "model(c)")
        calls = call.replace("model(c", "model(v")
        drawn = w.one("as output(count(c.decided))", "as output(count(c.decided))", "")
        again = "as output(count(v.decided))" if drawn else ""
        with w.suite("while any(c.masked[b]):"):
            w.put(
                f"p = {call}",
                f"x ~ p {drawn}".rstrip(),
                "left = b where c.masked[b]",
                "order = sort(left, by = p[left].raw[x[left]], descending = yes)",
                "c[first(order, 1)] = x[first(order, 1)]",
            )
            with w.suite("if any(c.masked[b]):"):
                w.put(
                    "draft v of c:",
                    f"    for j in 1..min({self.v.small(4)}, len(order)):",
                    "        grow edit(order[j], x[order[j]])",
                    f"q = {calls}",
                    f"y ~ q {again}".rstrip(),
                    "verify v by agreed against [one(q[n], y[n], b where v.masked[n][b]) "
                    "if any(v.masked[n][b]) else none for n in v.nodes]",
                    "c = v.accepted",
                )

    def _tree(self) -> None:
        """A tree of canvases of which some branch is kept."""
        w = self.w
        w.has("trees of canvases")
        with w.suite("while any(c.masked[b]):"):
            w.put(
                f"p = {self._call('b')}",
                "x ~ p",
                "left = b where c.masked[b]",
                f"order = first(sort(left, by = p[left].raw[x[left]], descending = yes), {w.rng.randint(1, 3)})",
            )
            w.put("draft v of c:", "    for i in order:", "        grow edit(i, x[i]) at root")
            if w.chance(0.5):
                w.put(
                    "    for n in v.leaves:",
                    f"        more = first(order where v.masked[n][order], {w.rng.randint(1, 2)})",
                    "        grow edit(more, x[more]) at n",
                )
            w.put(
                "q = model(v, at = b)",
                f"worth = [{w.one('mean(max(q[n].raw))', '-mean(entropy(q[n].raw))', 'max(max(q[n].raw))')} for n in v.nodes]",
                "best = order[argmax(worth[1:]) % len(order)]",
                "c[[best]] = [x[best]]" if w.chance(0.5) else "unmask c[b] where b == best with x",
            )

    def _memories(self) -> None:
        """Calls on memories that the program keeps."""
        w = self.w
        w.has("memories of canvases")
        m = w.one("model.memory(c)", "model.memory(c)", "model.memory(c, at = b)")
        cut = w.one(
            "m.without(b)",
            "m.only(c.all - b)",
            "m.without(b)",
            "m.only(before(c, b.start))",
            "m.without(from_(c, b.start))",
            "m",
        )
        if cut == "m":
            cut = "m.without(b where c.masked[b])"
        at = w.one("b", "b", "from_(c, b.start)")
        if "from_" in cut:
            at = "from_(c, b.start)"
        w.has("memory " + cut.split("(")[0].replace("m.", "."))
        w.put(f"m = {m}")
        with w.suite("while any(c.masked[b]):"):
            w.put(f"p = model(c, at = {at}, given = {cut})", "x ~ p[b]" if at != "b" else "x ~ p")
            q = "p[b]" if at != "b" else "p"
            w.put(
                f"unmask c[b] where {w.one(f'sure({q}.raw[x], 0.4)', f'rank({q}.raw[x]) < 2', f'first_max({q}.raw[x])')} with x"
            )
            if w.chance(0.3):
                w.put("m = model.memory(c, at = b, given = m.without(b))" if w.chance(0.5) else "m = model.memory(c)")

    def _sweeps(self) -> None:
        """Everything guessed, then again what is least sure."""
        w = self.w
        w.has("guess and mask again")
        n = w.rng.randint(1, 3)
        with w.suite(f"repeat {n}:"):
            w.put(f"p = {self._call('b')}", "x ~ p", "unmask c[b] with x", f"q = {self._call('b')}")
            w.put(
                "s = q.raw[c.token[b]]" if w.chance(0.3) else "s = max(q.raw)",
                f"remask c[b] where {w.one('rank(-s) < 2', 's < 0.4')}",
            )
        w.put(f"p = {self._call('b')}", "x ~ p", "unmask c[b] with x")


__all__ = ["POLICIES", "Masked"]
