"""Searches over whole texts: conditional Poisson beams, best-first beam search, constrained beams, MCTS over tokens,
LiteSearch, superposed decoding."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from fidelity.given_noise import given
from fidelity.transcribed.compared import Columns, Compared, after, best, replayed
from fidelity.watched import Watched, run

import decgraph
from decgraph.passes.plan import Plan
from decgraph.runtime.models.interface import mixture
from decgraph.runtime.models.table import TableModel
from decgraph.runtime.request import Request
from lab.recordings import tabled
from lab.recordings.tables import Letters, Stream, untied


def target(case: Mapping[str, Any]) -> TableModel:
    return untied(case["size"], case["seed"], window=case.get("window", 2), sharp=case.get("sharp", 1.0))


def beams(done: Watched, case: Mapping[str, Any]) -> Columns:
    """The texts that a search finds, best first, and the texts after which each call asked."""
    return {"texts": [tuple(path) for path in done.result.results], "calls": asked_after(done, case)}


def asked_after(done: Watched, case: Mapping[str, Any]) -> list[list[tuple[int, ...]]]:
    """By call, the texts behind the prompt after which it asked."""
    n = len(case["prompt"])
    return [sorted({row[n:] for row in c.rows}) for c in done.calls]


beams_of = partial(replayed, models=lambda case: {"target": target(case)}, columns=beams)


def poisson_beam(case: Mapping[str, Any]) -> Columns:
    """One sample of 2 k sets of a step by their odds; the sums over sets are written out."""
    k, noise, eos, prompt = case["k"], Stream(case["seed"]), case["eos"], case["prompt"]
    beam: list[tuple[tuple[int, ...], float, float]] = [((), 0.0, 0.0)]
    over: list[tuple[tuple[int, ...], float]] = []
    calls = []
    for _ in range(case["limit"]):
        calls.append(sorted(text for text, _, _ in beam))
        cands = []
        for text, like, drawn in beam:
            q = after(target(case), (*prompt, *text)) ** (1 / case["heat"])
            cands += [((*text, v), like + math.log(x), drawn) for v, x in enumerate(q / q.sum())]
        cands.sort(key=lambda c: -c[1])
        p = np.exp([c[1] for c in cands])
        p /= p.sum()
        inside = int((np.cumsum(p) <= case["mass"]).sum())
        n = inside if inside >= 2 * k else 2 * k
        w = p[:n] / (1 - p[:n])
        m = min(2 * k, n)
        sums = {(i, r): total(w[:i], r) for i in range(n + 1) for r in range(m + 1)}
        picked, r = [], m
        for i in range(n, 0, -1):
            if noise.flip(w[i - 1] * sums[i - 1, r - 1] / sums[i, r]):
                picked.append(i - 1)
                r -= 1
                if not r:
                    break
        picked.sort()
        share = {i: w[i] * total(np.delete(w, i), m - 1) / sums[n, m] for i in picked}
        new = [(cands[i][0], cands[i][1], cands[i][2] + math.log(share[i])) for i in picked]
        ends = [(text, drawn) for text, _, drawn in new[:k] if text[-1] in eos]
        beam = [c for c in new if c[0][-1] not in eos][:k]
        over = sorted(over + ends, key=lambda c: -c[1])[:k]
        if ends and len(over) == k and over[-1][1] >= max(c[2] for c in new):
            break
    else:
        over = sorted(over + [(text, drawn) for text, _, drawn in beam], key=lambda c: -c[1])[:k]
    return {"texts": [text for text, _ in over], "calls": calls}


def total(w: np.ndarray, size: int) -> float:
    """The sum over all sets of a size of their products."""
    return float(sum(math.prod(s) for s in combinations(w.tolist(), size)))


def best_first(case: Mapping[str, Any]) -> Columns:
    """A queue for each length, which holds as many texts as the beam has left there; the best of all queues is next. A text
    that ended is the answer."""
    k, limit, prompt = case["k"], case["limit"], case["prompt"]
    queues: list[list[tuple[float, tuple[int, ...]]]] = [[(0.0, ())], *([] for _ in range(limit))]
    left = [1] + [k] * limit
    calls = []
    while True:
        _, t = max((max(q)[0], t) for t, q in enumerate(queues) if q)
        score, text = max(queues[t])
        queues[t].remove((score, text))
        left[t] -= 1
        if text and text[-1] in case["eos"]:
            return {"texts": text, "calls": [[c] for c in calls]}
        assert t < limit, "the published loop gives this text up"
        calls.append(text)
        p = after(target(case), (*prompt, *text))
        queues[t + 1] += [(score + math.log(p[v]), (*text, v)) for v in best(p, k)]
        queues[t + 1] = sorted(queues[t + 1], reverse=True)[: left[t + 1]]
        if not left[t]:
            queues[: t + 1] = [[] for _ in range(t + 1)]


def seen(program: str, *names: str, asked: str, **more: Any) -> Any:
    """Ours: the text, and the texts of which the caller's function was asked, in order; of each it is asked once."""

    def ours(case: Mapping[str, Any], backend: str) -> Columns:
        asks: list[str] = []

        def said(text: str) -> float:
            asks.append(text)
            return value(text)

        with given(case["seed"]):
            done = run(
                program,
                case["prompt"],
                {"target": target(case)},
                backend,
                max_tokens=case["limit"],
                eos=case["eos"],
                temperature=case.get("temperature", 0),
                externs={asked: said, **more},
                tokenizer=Letters("\n"),
                **{name: case[name] for name in names},
            )
        return {"text": done.tokens[len(case["prompt"]) :], "asked": list(dict.fromkeys(asks))}

    return ours


def value(text: str) -> float:
    """What a text is worth, between 0 and 1."""
    return sum((5 * ord(c) + 3 * i) * (i + 1) % 17 for i, c in enumerate(text)) * 7 % 101 / 101


def spelt(text: tuple[int, ...]) -> str:
    """The letters of tokens; 0 ends a line."""
    return "".join("\n" if x == 0 else chr(96 + x) for x in text)


def mcts(case: Mapping[str, Any]) -> Columns:
    """Statistics by text; a text that has children was expanded. The rollout goes on greedily."""
    model, noise, prompt, limit, eos = target(case), Stream(case["seed"]), case["prompt"], case["limit"], case["eos"]
    visits: dict[tuple[int, ...], int] = {(): 0}
    paid: dict[tuple[int, ...], float] = {(): 0.0}
    prior: dict[tuple[int, ...], float] = {}
    children: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    asks, answers = [], []

    def over(text: tuple[int, ...]) -> bool:
        return len(text) == limit or text[-1:] in [(e,) for e in eos]

    for _ in range(case["rolls"]):
        leaf: tuple[int, ...] = ()
        way: list[tuple[int, ...]] = [leaf]
        while leaf in children:
            up = math.sqrt(1 + visits[leaf])
            score = [paid[c] / (1 + visits[c]) + case["c"] * up * prior[c] / (1 + visits[c]) for c in children[leaf]]
            leaf = children[leaf][int(np.argmax(score))]
            way.append(leaf)
        if not over(leaf):
            p = after(model, (*prompt, *leaf))
            children[leaf] = [(*leaf, x) for x in best(p, case["k"])]
            for c in children[leaf]:
                visits[c], paid[c], prior[c] = 0, 0.0, float(p[c[-1]])
            if leaf == () and case["noise_"]:
                rest, n = 1.0, len(children[()])
                for i, c in enumerate(children[()]):  # a Dirichlet draw, stick by stick
                    stick = rest * (noise.beta(0.03, 0.03 * max(1, n - 1 - i)) if i < n - 1 else 1.0)
                    if i == n - 1:
                        noise.beta(0.03, 0.03)
                    prior[c] = (1 - case["noise_"]) * prior[c] + case["noise_"] * stick
                    rest -= stick
        whole = leaf
        while not over(whole):
            whole = (*whole, best(after(model, (*prompt, *whole)), 1)[0])
        asks.append(spelt(whole))
        answers.append((value(spelt(whole)), whole))
        for node in way:
            visits[node] += 1
            paid[node] += answers[-1][0]
    top = max(a[0] for a in answers)
    return {"text": next(w for r, w in answers if r == top), "asked": list(dict.fromkeys(asks))}


def litesearch(case: Mapping[str, Any]) -> Columns:
    """Nodes as lists of text, value, depth, children left; a text that ended is a leaf."""
    model, noise, prompt, limit, eos = target(case), Stream(case["seed"]), case["prompt"], case["limit"], case["eos"]
    asks = []

    def worth(text: tuple[int, ...]) -> float:
        asks.append(spelt(text))
        return value(spelt(text))

    def over(text: tuple[int, ...]) -> bool:
        return len(text) == limit or text[-1:] in [(e,) for e in eos]

    def step(text: tuple[int, ...], greedily: bool) -> tuple[int, ...]:
        start = len(text)
        while not over(text) and len(text) - start < case["reach"] and (len(text) == start or text[-1] != 0):
            p = after(model, (*prompt, *text))
            q = p ** (1 / case["temperature"])
            text = (*text, best(p, 1)[0] if greedily else noise.draw(q / q.sum()))
        return text

    greedy: tuple[int, ...] = ()
    while not over(greedy):
        greedy = (*greedy, best(after(model, (*prompt, *greedy)), 1)[0])
    goal = worth(greedy)

    def budget(v: float, depth: int) -> int:
        if v <= 0:
            return 0
        v, c = (v + goal / depth) / (1 + 1 / depth), 1
        while c < case["most"] and 1 - (1 - v) ** c <= case["sure"]:
            c += 1
        return min(max(round(c / depth), 2), case["most"])

    v = worth(())
    nodes: list[list[Any]] = [[(), v, 1, budget(v, 1)]]
    for _ in range(case["rounds"]):
        leaves = [n for n in nodes if over(n[0])]
        able = [n for n in nodes if n[3] > 0 or over(n[0])]
        node = max(able, key=lambda n: n[1]) if able else None
        if node is None or over(node[0]) or (node[0] and node[1] < 0.01) or len(leaves) >= case["ends"]:
            break
        if leaves and max(n[1] for n in leaves) > max(case["goal"], goal - 0.01):
            break
        for j in range(node[3]):
            text = step(node[0], j == 0)
            v = worth(text)
            nodes.append([text, v, node[2] + 1, budget(v, node[2] + 1)])
        node[3] = 0
    leaves = [n for n in nodes if over(n[0])]
    found = max(leaves, key=lambda n: n[1]) if leaves else [(), -1.0]
    return {"text": found[0] if found[1] >= goal else greedy, "asked": list(dict.fromkeys(asks))}


def superposed(case: Mapping[str, Any]) -> Columns:
    """Drafts that go on and drafts that ended, k of each; the model reads the mixture of the last tokens. The n-gram model is
    what followed the longest end of a draft in the prompt."""
    model, prompt, k, size = target(case), case["prompt"], case["k"], case["size"]
    alive: list[tuple[tuple[int, ...], float]] = [((), 0.0)] * k
    fin: list[tuple[tuple[int, ...], float]] = []
    read: tuple[Any, ...] = prompt
    calls = 0

    def followed(text: tuple[int, ...]) -> np.ndarray:
        for n in range(5, -1, -1):
            after_it = [prompt[i + n] for i in range(len(prompt) - n) if prompt[i : i + n] == text[len(text) - n :]]
            if after_it:
                return np.bincount(after_it, minlength=size) / len(after_it)
        return np.zeros(size)

    for step in range(case["limit"]):
        p = after(model, read) ** (1 / case["heat"])
        calls += 1
        keep = best(p, case["pool"])
        cands = []
        for text, like in alive[: k if step else 1]:
            g = followed((*prompt, *text))
            with np.errstate(divide="ignore"):
                llm = np.log([p[v] / p[keep].sum() if v in keep else 0.0 for v in range(size)])
                s = (1 - case["alpha"]) * llm + case["alpha"] * np.log(g)
            s = s if (s > -np.inf).any() else (1 - case["alpha"]) * llm - case["penalty"]
            cands += [((*text, v), like + float(s[v])) for v in range(size)]
        cands = sorted(cands, key=lambda c: -c[1])[: 2 * k]
        fin = sorted(fin + [c for c in cands if c[0][-1] in case["eos"]], key=lambda c: -c[1])[:k]
        alive = [c for c in cands if c[0][-1] not in case["eos"] and c[1] > -np.inf][:k]
        if not alive or (len(fin) == k and alive[0][1] <= fin[-1][1]):  # none of them can win any more
            break
        w = np.exp([c[1] - alive[0][1] for c in alive])
        mixed = np.zeros(size)
        for (text, _), x in zip(alive, w / w.sum(), strict=True):
            mixed[text[-1]] += x
        read = (*read, mixture((*mixed.tolist(), 0)))
    both = sorted(fin + alive, key=lambda c: -c[1])[:k]
    return {"texts": [c[0] for c in both], "calls": calls}


def drafts(case: Mapping[str, Any], backend: str) -> Columns:
    """Ours: the texts and how many calls. It is not watched: a mixture has no token."""
    params = {name: case[name] for name in ("k", "pool", "heat", "alpha", "penalty")}
    session = decgraph.load("superposed").session({"target": target(case)}, plan=Plan(backend=backend), **params)
    request = Request(tuple(case["prompt"]), max_tokens=case["limit"], eos=frozenset(case["eos"]), temperature=0)
    result = session.run(request)
    assert result.error is None, result.error
    return {"texts": [tuple(path) for path in result.results], "calls": result.stats.target_calls}


def committed(done: Watched, case: Mapping[str, Any]) -> Columns:
    """The text that a search commits, and the texts after which each call asked."""
    return {"texts": done.tokens[len(case["prompt"]) :], "calls": asked_after(done, case)}


best_text = partial(replayed, models=lambda case: {"target": target(case)}, columns=committed)


def constrained_beam(case: Mapping[str, Any]) -> Columns:
    """Phrases as a list of lists. A text knows which words it has met and the last of them; scores are costs, and an ended
    text keeps its cost per token."""
    words = [w for phrase in case["phrases"] for w in phrase]
    goes_on = [i < len(phrase) - 1 for phrase in case["phrases"] for i in range(len(phrase))]
    heads = [i for i in range(len(words)) if not i or not goes_on[i - 1]]
    n, k, prompt, limit, alpha = len(words), case["k"], case["prompt"], case["limit"], case["alpha"]

    def needs(met: tuple[bool, ...], last: int) -> set[int]:
        if last >= 0 and goes_on[last]:
            return {words[last + 1]}
        return {words[i] for i in heads if not met[i]}

    def advance(met: tuple[bool, ...], last: int, token: int) -> tuple[tuple[bool, ...], int]:
        has = list(met)
        if last >= 0 and goes_on[last]:
            if token == words[last + 1]:
                has[last + 1] = True
                return tuple(has), last + 1
            while last >= 0 and goes_on[last]:
                has[last], last = False, last - 1
            return tuple(has), -1
        for i in heads:
            if words[i] == token and not has[i]:
                has[i] = True
                return tuple(has), i
        return met, last

    def ends(text: tuple[int, ...]) -> bool:
        return text[-1:] != () and (text[-1] in case["eos"] or len(text) == limit)

    beam = [((), 0.0, (False,) * n, -1)]
    calls = []
    while not all(ends(b[0]) for b in beam):
        calls.append(sorted(b[0] for b in beam if not ends(b[0])))
        costs, every = {}, []
        for r, (text, cost, _, _) in enumerate(beam):
            if ends(text):
                every.append((cost, r, None))
                continue
            p = after(target(case), (*prompt, *text))
            costs[r] = [cost - math.log(x) for x in p]
            every += [(c, r, v) for v, c in enumerate(costs[r])]
        chosen = {(r, v) for _, r, v in sorted(every, key=lambda e: e[0])[:k]}
        for r, (text, _, met, last) in enumerate(beam):
            if ends(text):
                chosen.add((r, None))
            else:
                chosen |= {(r, v) for v in {int(np.argmin(costs[r]))} | needs(met, last)}
        found = []
        for r, v in chosen:
            text, cost, met, last = beam[r]
            if v is None:
                found.append(beam[r])
            elif all(advance(met, last, v)[0]) or not ends((*text, v)):
                found.append(((*text, v), costs[r][v], *advance(met, last, v)))
        found.sort(key=lambda c: c[1])
        room = [k // (n + 1)] * (n + 1)
        room[-1] += k - sum(room)
        for b in reversed(range(n + 1)):
            spare = room[b] - sum(sum(c[2]) == b for c in found)
            if spare > 0:
                room[b] -= spare
                room[(b - 1) % (n + 1)] += spare
        fresh = []
        for c in found:
            if room[sum(c[2])] > 0:
                room[sum(c[2])] -= 1
                new = c[0] not in {b[0] for b in beam} and ends(c[0])
                fresh.append((c[0], c[1] / len(c[0]) ** alpha, *c[2:]) if new else c)
        beam = fresh
    return {"texts": [c[0] for c in sorted(beam, key=lambda c: c[1])], "calls": calls}


def with_phrases(case: Mapping[str, Any], backend: str) -> Columns:
    """Ours: which words the next one of them must follow."""
    words = [w for phrase in case["phrases"] for w in phrase]
    joined = [i for i in range(len(words)) if i + 1 not in np.cumsum([len(p) for p in case["phrases"]])]
    made: Columns = beams_of("constrained_beam", "words", "joined", "k", "alpha")(
        {**case, "words": words, "joined": frozenset(joined)}, backend
    )
    return made


SMALL = {"eos": (3,), "n": 64, "limit": 5}
COMPARED = [
    Compared(
        "poisson_beam",
        "rycolab/cpsbs f597b4d9, fairseq/search.py, CPS.step, cps_dp.pyx, sample, and sequence_generator.py, SequenceGenerator",
        poisson_beam,
        beams_of("poisson_beam", "k", "mass", "heat", "n"),
        {
            f"{seed} {k} {heat}": {**SMALL, "size": 6, "seed": seed, "prompt": (1, 2), "k": k, "mass": mass, "heat": heat}
            for seed, k, mass, heat in (
                *((s, 2, 0.99, 0.5) for s in range(1, 9)),
                (2, 2, 0.97, 1.0),
                (3, 2, 0.8, 1.0),
                (4, 1, 0.9, 1.0),
                (6, 2, 0.97, 0.8),
            )
        },
        "--unnormalized --no-early-stopping of README; the first text that ends after the k-th is no longer dropped, a bug",
    ),
    Compared(
        "best_first_beam",
        "rycolab/bfbs 0f2a4de5, decoding/dijkstra_time_sync.py, DijkstraTSDecoder.decode",
        best_first,
        best_text("best_first_beam", "k"),
        {
            f"{seed} {k}": {"size": 7, "seed": seed, "prompt": (1, 2), "eos": (3,), "limit": 12, "k": k, "sharp": 0.7}
            for seed, k in ((12, 2), (12, 3), (19, 3), (19, 4), (21, 2), (39, 1), (55, 3))
        },
        "--early_stopping True and one text, the defaults; only texts that end before the limit",
    ),
    Compared(
        "constrained_beam",
        "awslabs/sockeye b6d8d356, sockeye/lexical_constraints.py, _sequential_topk, get_bank_sizes, ConstrainedHypothesis, "
        "and beam_search.py, BeamSearch",
        constrained_beam,
        with_phrases,
        tabled(
            "{seed} {phrases} {k}",
            "seed phrases k alpha limit",
            (
                (1, [[4]], 4, 1.0, 7),
                (2, [[4, 5]], 5, 1.0, 7),
                (3, [[4, 5, 6], [7]], 5, 1.0, 9),
                (4, [[4], [4], [0, 1]], 7, 0.5, 8),
                (5, [[6, 6], [6, 7]], 6, 1.0, 9),
                (6, [[4], [5]], 2, 0.0, 8),
                (7, [[0]], 6, 1.0, 8),
                (9, [[4]], 5, 2.0, 8),
                (10, [[1]], 6, 1.0, 8),
            ),
            size=8,
            prompt=(1, 2),
            eos=(3,),
        ),
        "--beam-search-stop all; a text that the limit ends has no end token put in its last place",
    ),
    Compared(
        "mcts",
        "matthewdelorenzo/csce689 0e46a6f0, mcts_og.py, MCTSNode and MCTS.tree_search, and LLMQueryEnv_og.py",
        mcts,
        seen("mcts", "k", "rolls", "c", "noise_", asked="reward"),
        tabled(
            "{seed} {k} {noise_}",
            "seed k c noise_",
            ((1, 3, 1.38, 0.15), (2, 10, 1.38, 0.15), (3, 2, 0.3, 0.0), (4, 4, 3.0, 0.5)),
            size=6,
            prompt=(1, 2),
            eos=(3,),
            limit=6,
            rolls=14,
        ),
        "a text ends at the end token, there at 'endmodule'; tokens of comments are not left out",
    ),
    Compared(
        "litesearch",
        "DeepLearnXMU/LiteSearch 08ae85e3, LiteSearch/search_tree.py, Tree, and search_batch.py",
        litesearch,
        seen(
            "litesearch", "most", "sure", "reach", "rounds", "goal", "ends", asked="worth", step_ends=lambda t: t.endswith("\n")
        ),
        tabled(
            "{seed} {goal}",
            "seed most sure rounds goal ends",
            (
                (1, 10, 0.9, 100, 0.8, 5),
                (2, 4, 0.9, 100, 0.95, 9),
                (3, 10, 0.6, 3, 0.8, 5),
                (4, 6, 0.99, 100, 0.99, 30),
                (5, 4, 0.9, 100, 0.3, 30),
                (6, 4, 0.9, 100, 0.1, 30),
                (7, 3, 0.9, 100, 0.2, 30),
            ),
            size=6,
            prompt=(1, 2),
            eos=(3,),
            limit=9,
            reach=5,
            temperature=0.6,
        ),
        "an answer is a text that ended, there a step that begins with ####; repeated and empty steps have their values",
    ),
    Compared(
        "superposed",
        "RAIVNLab/SuperposedDecoding 33d283e6, superposed/llama/superpose.py, Superpose.forward, and superposed_generation.py",
        superposed,
        drafts,
        {
            f"{seed} {k} {alpha}": {
                "size": 7,
                "seed": seed,
                "prompt": (1, 2, 4, 1, 2, 5, 2, seed % 7, 1, 2),
                "eos": (3,),
                "limit": 8,
                "k": k,
                "pool": pool,
                "heat": heat,
                "alpha": alpha,
                "penalty": penalty,
            }
            for seed, k, pool, heat, alpha, penalty in (
                (1, 3, 5, 0.5, 0.54, 200.0),
                (2, 2, 4, 1.0, 0.3, 5.0),
                (4, 3, 6, 0.9, 0.1, 3.0),
                (5, 2, 5, 0.7, 0.54, 20.0),
            )
        },
        "n-grams of the prompt in the place of a corpus's tables; it ends where no draft can win, there at the limit",
    ),
]
