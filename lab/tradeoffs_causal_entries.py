"""The sweeps of lossy causal programs: by program its knob, the values, and the shape that its paper leads one to expect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab import tradeoffs_causal_standins as standins
from lab.tradeoffs_causal_entry import Entry, Setting, Shape
from lab.tradeoffs_causal_measures import Ids, Ran, mean, read
from lab.tradeoffs_causal_searches import parallel, searches, watermarks

LEFT_OUT = {
    "autoregressive": "what the lossless programs refine: nothing is traded",
    "self_contrast_moe": "needs a trained mixture of experts, and none is shipped",
    "pe_rank": "commits a ranking and no text; its effect needs a model that was tuned to rank",
    "best_of_n": "adaptive_compute, which is swept, makes the same choice among as many texts as it predicts",
    "self_consistency": "votes for answers, and no shipped model answers questions",
    "weighted_voting": "votes for answers, and no shipped model answers questions",
    "rebase": "shares its width by rewards of steps of reasoning, which no shipped model writes",
    "spec_rl": "needs two epochs of one policy, and none is shipped",
    "proxy_tuning": "needs a small model before and after its tuning, and none is shipped",
    "iterative_elimination": "commits a ranking and no text; its effect needs a model that was tuned to rank",
}
"""Lossy causal programs without a sweep, and why."""

STEP: dict[str, Any] = {"mark": "\n", "reach": 12}
QUALITY = ("log p", "greedy")


def _relaxed() -> list[Entry]:
    oracle = "the head is the target's own likelihood of the step, an oracle"
    return [
        Entry("judge_decoding", "relaxed", "tau", (1.0, 0.5, 0.2, 0.05, 0.0),
              "a laxer judge keeps longer drafts: more tokens a call, at a small loss against strict verification",
              (("tokens/call", "rises", 0.5), ("log p", "falls", 0.05)), heads={"judge": standins.judge}, also=("greedy",),
              note="the judge is p(token) / max p of the target"),
        Entry("fly", "relaxed", "eta", (4.0, 1.0, 0.6, 0.3, 0.0),
              "a lower gate lets more mismatches wait for their window: more tokens a call, at a small loss",
              (("tokens/call", "rises", 0.02), ("log p", "falls", 0.002)), params={"window": 2}, also=("greedy",)),
        Entry("relaxed_acceptance", "relaxed", "delta", (0.0, 0.6, 1.5, 3.0, 6.0),
              "a wider margin keeps longer drafts: more tokens a call, at a loss against strict verification",
              (("tokens/call", "rises", 0.1), ("log p", "falls", 0.02)), params={"begin": 315, "end": -1}, also=("greedy",),
              note="the model thinks from a token on that all prompts have"),
        Entry("arbitrage", "relaxed", "tau", (0.0, 0.55, 0.6, 0.65, 1.0),
              "the target rewrites fewer steps as the router's threshold rises: fewer of its calls, worse text",
              (("target calls", "falls", 0.3), ("log p", "falls", 0.05)), params=STEP, heads={"router": standins.advantage},
              also=("greedy",), note=oracle),
        Entry("reward_guided_sd", "relaxed", "delta", (0.0, 0.35, 0.4, 0.45, 1.0),
              "a stricter reward lets the target rewrite more steps: more of its calls, better text",
              (("target calls", "rises", 0.3), ("log p", "rises", 0.05)), params=STEP,
              heads={"reward": standins.reward_of_step},
              also=("greedy",), note=oracle),
        Entry("foreal", "relaxed", "gate", (0.0, 0.25, 0.5, 0.75, 1.0),
              "the more sentences the large model leads, the better the text and the more of its calls",
              (("target calls", "rises", 0.2), ("log p", "rises", 0.02)), params={"mark": "\n", "reach": 24, "lead": 6},
              seeds=2,
              also=("greedy",)),
        Entry("lookahead_reasoning", "relaxed", "depth", (1, 2, 4, 8),
              "more steps drafted ahead: fewer rounds, with diminishing returns, for more rows; greedy text stays the target's",
              (("commits", "falls", 0.05), ("rows", "rises", 0.2), ("greedy", "stays", 0.001)), params={"mark": " ",
              "reach": 4}, externs={"alike": lambda a, b: a == b}),
        Entry("discriminator_guided", "relaxed", "beta", (0.0, 0.5, 1.0),
              "a heavier discriminator finds steps that it scores higher, at less likelihood",
              (("reward", "rises", 0.03), ("log p", "falls", 0.05)), params={"k": 4, **STEP}, temperature=0.8, limit=24,
              heads={"discriminator": standins.plain}, score=standins.varied,
              note="the discriminator is the share of different tokens among the last 24"),
        Entry("monitoring", "relaxed", "tau", (0.0, 0.01, 0.1, 0.3, 0.6),
              "a stricter monitor replaces more of the small model's text: likelier to the large one, at more of its calls",
              (("log p", "rises", 0.1), ("target calls", "rises", 0.1)), params={"span": 8}, also=("greedy",)),
    ]  # fmt: skip


def _typical(epsilon: float) -> Setting:
    return Setting({"epsilon": epsilon, "delta": min(0.9, epsilon**0.5)})


def _heads() -> list[Entry]:
    text = "a higher threshold of typical acceptance: fewer tokens a call, likelier text (delta is the root of epsilon)"
    return [
        Entry(n, "heads", "epsilon", (0.005, 0.05, 0.2, 0.5, 0.8), text, (("tokens/call", "falls", 0.1), ("log p", "rises",
              0.05)),
              temperature=1, seeds=2, limit=48, at=_typical, also=("greedy",))
        for n in ("medusa", "hydra")
    ]  # fmt: skip


def _depth() -> list[Entry]:
    fewer: tuple[Shape, ...] = (("layers", "falls", 0.2), ("greedy", "falls", 0.05))
    untrained = "the paper trains the model for this; the shipped target is not"
    return [
        Entry("unified_skip", "depth", "speedup", (1.0, 1.2, 1.5, 2.0, 3.0), "fewer layers, gradually worse text", fewer,
              also=("log p",)),
        Entry("depth_decay", "depth", "alpha", (1.0, 0.99, 0.97, 0.95, 0.9),
              "fewer layers for later tokens, little lost at first", fewer,
              params={"least": 1}, also=("log p",)),
        Entry("direct_multi_token", "depth", "horizon", (1, 2, 4, 8),
              "longer cycles compute the middle layers less often and lose a little",
              fewer, also=("log p",), note=untrained),
        Entry("ffn_skip", "depth", "skips", (0, 1, 2, 3),
              "more MLPs skipped after one that changes little; little is lost at first", fewer,
              params={"alike": 0.8, "warm": 1},
              also=("log p",)),
        Entry("first_router", "depth", "tau", (0.0, 0.12, 0.16, 0.2, 0.3),
              "a higher threshold drops more layers for the whole request", fewer,
              also=("log p",), note="the router is what the target's head says of the state: its largest probability"),
        Entry("free", "depth", "tau", (1.0, 0.9, 0.6, 0.3, 0.0),
              "a lower threshold lets more tokens exit early; agreement falls slowly",
              fewer, also=("log p",), note="the shallow module is not trained"),
        Entry("overfill", "depth", "pruned", (0.0, 0.2, 0.5, 0.8),
              "a more pruned decoder on the whole model's prefill loses gradually", fewer,
              also=("log p",), note=untrained),
    ]  # fmt: skip


def _budget(n: int) -> Setting:
    return Setting({"window": 4, "prefill": n, "heavy": n // 2, "recent": max(1, n // 2)})


def _caches() -> list[Entry]:
    more: tuple[Shape, ...] = (("stored", "rises", 0.3), ("greedy", "rises", 0.03))
    common: dict[str, Any] = {"prompts": "long", "limit": 24, "also": ("log p",)}
    return [
        Entry("kv_evict", "cache", "budget", (4, 16, 64, 1024),
              "a larger budget nears the whole cache; a small one already keeps most",
              more, at=_budget, stored=standins.evicted, **common),
        Entry("kv_frequency", "cache", "capacity", (8, 32, 96, 1024),
              "old text grows coarser in a smaller cache, and the model loses by it",
              more, stored=standins.compressed, **common),
        Entry("kv_quantized", "cache", "bits", (1, 2, 4, 8), "4 bits lose nearly nothing, 2 and fewer do", (("stored", "rises",
              0.1), *more[1:]),
              params={"residual": 4}, stored=standins.quantized, **common),
        Entry("kv_sparse_read", "cache", "heavy", (1, 8, 32, 1024),
              "the heaviest positions of the context nearly suffice",
              more, stored=standins.sparsely, **common),
        Entry("parallel_context", "cache", "length", (8, 32, 96, 1024),
              "contexts read apart lose what they would have said of each other",
              more, stored=standins.parallel, **common),
        Entry("sparse_prefill", "cache", "budget", (8, 32, 96, 1024), "a budget of critical blocks nears the whole prefill",
              more, params={"segment": 16, "block": 8, "dense": 0}, stored=standins.prefilled, **common),
        Entry("cache_augmentation", "cache", "latents", (0, 2, 4, 8), "more latents make the text likelier",
              (("log p", "rises", 0.01),), also=("greedy",),
              why="the coprocessor is no trained one but the drafter, whose tokens at "
              "padding queries are noise in the target's context"),
    ]  # fmt: skip


def _alone(r: Ran, ids: Callable[[str], Ids]) -> tuple[Ids, Ids]:
    return r.prompt, r.prompt[-1:]


EVIDENCE = 24
"""Tokens of a prompt that context-aware decoding is told are evidence."""


def _evidence(r: Ran, ids: Callable[[str], Ids]) -> tuple[Ids, Ids]:
    return r.prompt, r.prompt[EVIDENCE:]


GUARD, ADVERSARY = "# safe, tested and documented code\n", "raise SystemError(1)\n" * 2
SYSTEM = "# documented\n"


def _opposite(r: Ran, ids: Callable[[str], Ids]) -> tuple[Ids, Ids]:
    return ids(GUARD) + r.prompt, ids(ADVERSARY) + r.prompt


def _system(r: Ran, ids: Callable[[str], Ids]) -> tuple[Ids, Ids]:
    return ids(SYSTEM) + r.prompt[-8:], r.prompt


def _logits() -> list[Entry]:
    adheres: tuple[Shape, ...] = (("contrast", "rises", 0.05),)
    return [
        Entry("cfg", "logits", "scale", (0.0, 1.0, 1.5, 2.5, 4.0), "more guidance makes the text depend more on its prompt",
              adheres,
              views=_alone, also=(*QUALITY, "distinct-2")),
        Entry("context_aware_decoding", "logits", "alpha", (0.0, 0.5, 1.0, 2.0),
              "more weight makes the text depend more on the evidence",
              adheres, params={"context": EVIDENCE}, views=_evidence, also=QUALITY),
        Entry("context_aware_decoding", "logits", "alpha", (0.0, 0.5, 1.0),
              "what the evidence says wins over what the model knows",
              (("reward", "rises", 0.1),), prompts="evidence", model="smollm2", limit=8, params={"context": 12},
              score=lambda r: float(r.answer in r.text), also=QUALITY,
              why="half of four texts say what the evidence says at every weight; too few prompts to tell more"),
        Entry("contrastive_decoding", "logits", "weight", (0.0, 0.25, 0.5, 1.0, 2.0),
              "a heavier amateur: less repetition, at less likelihood by the expert", (("over drafter", "rises", 0.1),
              ("repeated-4", "falls", 0.02),
              ("log p", "falls", 0.05)), limit=64, also=("distinct-2",)),
        Entry("dola", "logits", "alpha", (1.0, 0.3, 0.1, 0.01),
              "a wider plausible set lets the contrast of layers change more, at less likelihood",
              (("greedy", "falls", 0.05), ("log p", "falls", 0.05)), also=("repeated-4",)),
        Entry("adversarial_contrastive", "logits", "alpha", (0.0, 0.2, 0.4, 0.8),
              "more contrast: likelier under the guard than under its opposite",
              adheres, params={"guard": GUARD, "adversary": ADVERSARY}, views=_opposite, also=QUALITY),
        Entry("alignment_enhanced", "logits", "bias", (16.0, 4.0, 1.0, 0.0), "a lower bias gives the safe view more weight",
              adheres,
              params={"system": SYSTEM}, views=_system, also=QUALITY),
        Entry("anchored", "logits", "budget", (0.0, 0.1, 0.3, 1.0, 4.0),
              "a larger budget goes from the safe model's text to the risky one's: less likely to the safe one",
              (("over drafter", "rises", 0.2), ("drafter log p", "falls", 0.2)),
              temperature=1, seeds=2, limit=48, also=("log p",),
              note="the safe model is the drafter, whose samples are the surer ones, so that utility cannot be read off log p"),
        Entry("controlled_decoding", "logits", "k", (1, 2, 4, 8),
              "more blocks to choose from: more reward, a text less like the target's",
              (("reward", "rises", 2.0), ("log p", "falls", 0.02)), temperature=1, seeds=3,
              externs={"prefix_score": lambda text: len(set(text))}, score=lambda r: len(set(r.text)), also=("rows",),
              note="the reward is how many different characters the text has"),
        Entry("instructive_decoding", "logits", "epsilon", (0.0, 0.1, 0.3, 0.6),
              "more contrast: the text depends more on its instruction",
              adheres, views=_alone, also=QUALITY),
        Entry("transfer_q", "logits", "alpha", (16.0, 8.0, 4.0, 1.0),
              "a smaller alpha: more reward, a text less like the target's",
              (("reward", "rises", 2.0), ("log p", "falls", 0.1)), temperature=1, seeds=2, params={"k": 6, "horizon": 3},
              limit=24,
              externs={"reward": len}, score=standins.long_text, note="the reward is the text's length in characters",
              why="up to a point long texts are likely code: the reward costs likelihood at the last value alone"),
        Entry("uscd", "logits", "weight", (0.0, 0.2, 0.4, 0.8),
              "more contrast: the text depends more on what the lame prompt lacks", adheres,
              params={"sure": 1.0}, views=_alone, also=QUALITY),
    ]  # fmt: skip


SOURCE = "class Queue:\n    def __init__(self):\n        self.queue = []\n\n    def append(self, value):\n"


def _source(r: Ran, ids: Callable[[str], Ids]) -> tuple[Ids, Ids]:
    return ids(SOURCE) + r.prompt, r.prompt


def _heat(value: float) -> Setting:
    return Setting({}, {"heat": standins.says(value), "mass": standins.says(1.0)})


def _sampling() -> list[Entry]:
    often: dict[str, Any] = {"temperature": 1, "seeds": 2}
    return [
        Entry("adadec", "sampling", "tau", (20.0, 3.0, 2.0, 1.0, 0.3),
              "pausing at more tokens finds likelier code, at more calls",
              (("rows", "rises", 0.5), ("log p", "rises", 0.01)), also=("greedy",)),
        Entry("autodeco", "sampling", "heat", (0.05, 0.25, 0.5, 0.75), "hotter heads: more diverse, less likely",
              (("all distinct-2", "rises", 0.1),
              ("log p", "falls", 0.5)), at=_heat, note="the heads are constants, not trained", **often),
        Entry("bregman_topk", "sampling", "price", (0.0, 0.001, 0.01, 0.1),
              "dearer tokens: a smaller support, likelier and less diverse text",
              (("all distinct-2", "falls", 0.1), ("log p", "rises", 0.3)), **often),
        Entry("cautious", "sampling", "most", (1, 3, 6), "more trials where the model is unsure: likelier text, at more calls",
              (("log p", "rises", 0.2), ("rows", "rises", 1.0)), params={"reach": 8}, also=("all distinct-2",), temperature=1,
              limit=16),
        Entry("diver", "sampling", "weight", (0.0, 0.5, 1.0, 4.0),
              "more mutual information: texts after which their prompt is likelier",
              (("reward", "rises", 0.01), ("log p", "falls", 0.01)),
              score=lambda r: mean(read("target", r.tokens, r.prompt)[0]),
              why="a span that makes the prompt likelier when it is chosen need not do so behind the whole text; and a model "
              "of code hardly reads back from a text to what stood before it"),
        Entry("frustratingly_simple", "sampling", "alpha", (0.0, 0.2, 0.4, 0.65, 0.9),
              "a heavier n-gram penalty: less repetition, less likely",
              (("repeated-4", "falls", 0.1), ("log p", "falls", 0.1)), limit=64, also=("distinct-2",)),
        Entry("momentum", "sampling", "alpha", (0.0, 0.1, 0.2, 0.5, 1.0), "more resistance: less repetition, less likely",
              (("repeated-4", "falls", 0.1), ("log p", "falls", 0.1)), limit=64, also=("distinct-2",)),
        Entry("momentum", "sampling", "alpha", (0.0, 0.2, 0.5), "more resistance: less repetition, less likely",
              (("repeated-4", "falls", 0.1), ("log p", "falls", 0.1)), limit=40, also=("distinct-2",), prompts="prose",
              model="smollm2",
              why="in 40 tokens greedy text of this model hardly repeats itself yet: there is nothing to lower"),
        Entry("mirostat", "sampling", "tau", (0.5, 1.5, 2.5, 3.5), "the text's surprise follows tau; low tau repeats",
              (("bits", "rises", 1.0), ("all distinct-2", "rises", 0.1)), limit=64, **often),
        Entry("mirostat_v1", "sampling", "tau", (0.5, 1.5, 2.5, 3.5), "the text's surprise follows tau; low tau repeats",
              (("bits", "rises", 1.0), ("all distinct-2", "rises", 0.1)), limit=64, **often),
        Entry("top_n_sigma", "sampling", "n", (0.0, 0.5, 1.0, 2.0, 4.0), "more deviations: more diverse, less likely",
              (("all distinct-2", "rises", 0.1), ("log p", "falls", 0.3)), **often),
        Entry("typical", "sampling", "mass", (0.2, 0.5, 0.8, 0.95, 1.0),
              "less mass: texts that are likelier, though the likeliest tokens need not stay", (("log p", "falls", 0.3),),
              also=("all distinct-2",), **often),
        Entry("xtc", "sampling", "chance", (0.0, 0.25, 0.5, 1.0),
              "more often without the top choices: less of it repeated, less likely",
              (("repeated-4", "falls", 0.02), ("log p", "falls", 0.1)), also=("all distinct-2",), temperature=0.5, seeds=3,
              limit=64),
        Entry("contrastive_search", "sampling", "alpha", (0.0, 0.2, 0.4, 0.6, 0.8),
              "a heavier penalty of likeness: less repetition, less likely",
              (("repeated-4", "falls", 0.1), ("log p", "falls", 0.1)), limit=64, also=("distinct-2",)),
        Entry("windowed_penalties", "sampling", "factor", (1.0, 1.1, 1.3, 1.6, 2.0),
              "a larger factor: less repetition, less likely",
              (("repeated-4", "falls", 0.1), ("log p", "falls", 0.1)), limit=64, also=("distinct-2",)),
        Entry("dynamic_temperature", "sampling", "heat", (0.2, 0.6, 1.0, 1.4), "hotter: more diverse, less likely",
              (("all distinct-2", "rises", 0.1), ("log p", "falls", 0.3)), params={"spread": 0.2}, **often),
        Entry("repetition_aware", "sampling", "most", (0.0, 0.1, 0.3, 1.0),
              "sparing the redraw lets loops stand: more repetition",
              (("repeated-4", "rises", 0.02),), temperature=0.5, seeds=3, limit=64, params={"mass": 0.8}, also=("log p",)),
        Entry("phi_decoding", "sampling", "n", (1, 2, 4), "more steps with foresight: better text, at more calls",
              (("log p", "rises", 0.1), ("rows", "rises", 1.0)), params={"reach": 8, "ahead": 4},
              externs={"alike": lambda a, b: a == b}, temperature=1, limit=16,
              why="a step is drawn by what is likely to follow it, which four texts of 16 tokens are too few to show"),
        Entry("self_infilling", "sampling", "tau", (0.0, 0.1, 0.25, 0.5),
              "where it is unsure it writes the suffix first, for better code",
              (("log p", "rises", 0.02),), params={"opening": "return", "length": 8}, also=("greedy",),
              why="the shipped target was not trained to infill: a suffix written before the middle does not fit it"),
        Entry("superposed", "sampling", "k", (1, 2, 3, 6), "more drafts from one call a token, all about as likely",
              (("rows/text", "falls", 5.0), ("all log p", "stays", 0.3)), also=("texts", "different")),
        Entry("parallel_branches", "parallel", "most", (1, 2, 4, 8), "more branches side by side: more tokens a call",
              (("tokens/call", "rises", 0.1),), also=("log p",),
              params={"fork": 272, "colon": 29, "join": 354, "dots": [1049], "reach": 12},
              note="the marks are a new line of a body, a colon and an empty line",
              why="the shipped target was not trained to fork: it writes no titles behind the first mark"),
        Entry("wait_k", "sampling", "k", (1, 4, 16, 64),
              "reading further ahead before writing: a text that fits the source better",
              (("contrast", "rises", 0.05),), params={"source": SOURCE}, views=_source, also=("greedy",)),
    ]  # fmt: skip


def entries() -> list[Entry]:
    """Every sweep, by family."""
    return [*_relaxed(), *_heads(), *_depth(), *_caches(), *_logits(), *_sampling(), *searches(), *watermarks(), *parallel()]
