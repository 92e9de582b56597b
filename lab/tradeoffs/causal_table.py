"""The sweeps of lossy causal programs: by program its knob, the values, and the shape that its paper leads one to expect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lab.tradeoffs import causal_standins as standins
from lab.tradeoffs.causal_measures import Ids, Ran, likeness, mean, read
from lab.tradeoffs.sweeps import Sweep, exceeds, falls, rises, stays

LEFT_OUT = {
    "autoregressive": "what the lossless programs refine: nothing is traded",
    "self_contrast_moe": "needs a trained mixture of experts, and none is shipped",
    "pe_rank": "commits a ranking and no text; its effect needs a model that was tuned to rank",
    "best_of_n": "adaptive_compute, which is swept, makes the same choice among as many texts as it predicts",
    "self_consistency": "votes for answers, and no shipped model answers questions",
    "weighted_voting": "votes for answers, and no shipped model answers questions",
    "parallel_branches": "has no knob, and the shipped target was not trained to fork",
    "rebase": "shares its width by rewards of steps of reasoning, which no shipped model writes",
    "spec_rl": "needs two epochs of one policy, and none is shipped",
    "proxy_tuning": "needs a small model before and after its tuning, and none is shipped",
    "iterative_elimination": "commits a ranking and no text; its effect needs a model that was tuned to rank",
}
"""Lossy causal programs without a sweep, and why."""


@dataclass(frozen=True)
class Setting:
    """What a program is called with at one value of its knob."""

    params: Mapping[str, Any] = field(default_factory=dict)
    heads: standins.Heads = field(default_factory=dict)
    externs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry(Sweep):
    """A sweep on causal models. prompts: a set of causal.PROMPTS. answers: functions of the caller, given the answer of the
    prompt's task. at: what the program is called with at a value, where that is not the parameter `knob`. eos: a text ends with
    its line. also: measures beside those of the shapes. beside: a program that is compared at the same values."""

    prompts: str = "code"
    limit: int = 32
    heads: standins.Heads = field(default_factory=dict)
    externs: Mapping[str, Any] = field(default_factory=dict)
    answers: Callable[[str], Mapping[str, Any]] | None = None
    at: Callable[[Any], Setting] | None = None
    eos: bool = False
    also: tuple[str, ...] = ()
    score: Callable[[Ran], float] | None = None
    views: Callable[[Ran, Callable[[str], Ids]], tuple[Ids, Ids]] | None = None
    stored: Callable[[Mapping[str, Any], int, int], float] | None = None
    green: Callable[[Any], Callable[[Ids, Ids], tuple[int, int]]] | None = None
    beside: str = ""

    def called_with(self, value: Any) -> Setting:
        """What the program is called with at a value of its knob."""
        given = self.at(value) if self.at else Setting({self.knob: value})
        return Setting({**self.fixed, **given.params}, {**self.heads, **given.heads}, {**self.externs, **given.externs})


STEP: dict[str, Any] = {"mark": "\n", "reach": 12}
QUALITY = ("log p", "greedy")


def _relaxed() -> list[Entry]:
    oracle = "the head is the target's own likelihood of the step, an oracle"
    return [
        Entry("judge_decoding", "tau", (1.0, 0.5, 0.2, 0.05, 0.0), (rises("tokens/call", 0.5), falls("log p", 0.05)),
            "a laxer judge keeps longer drafts: more tokens a call, at a small loss against strict verification",
            heads={"judge": standins.judge}, also=("greedy",), note="the judge is p(token) / max p of the target"),
        Entry("fly", "eta", (4.0, 1.0, 0.6, 0.3, 0.0), (rises("tokens/call", 0.02), falls("log p", 0.002)),
            "a lower gate lets more mismatches wait for their window: more tokens a call, at a small loss",
            fixed={"window": 2}, also=("greedy",)),
        Entry("relaxed_acceptance", "delta", (0.0, 0.6, 1.5, 3.0, 6.0), (rises("tokens/call", 0.1), falls("log p", 0.02)),
            "a wider margin keeps longer drafts: more tokens a call, at a loss against strict verification",
            fixed={"begin": 315, "end": -1}, also=("greedy",), note="the model thinks from a token on that all prompts have"),
        Entry("arbitrage", "tau", (0.0, 0.55, 0.6, 0.65, 1.0), (falls("target calls", 0.3), falls("log p", 0.05)),
            "the target rewrites fewer steps as the router's threshold rises: fewer of its calls, worse text", fixed=STEP,
            heads={"router": standins.advantage}, also=("greedy",), note=oracle),
        Entry("reward_guided_sd", "delta", (0.0, 0.35, 0.4, 0.45, 1.0), (rises("target calls", 0.3), rises("log p", 0.05)),
            "a stricter reward lets the target rewrite more steps: more of its calls, better text", fixed=STEP,
            heads={"reward": standins.reward_of_step}, also=("greedy",), note=oracle),
        Entry("foreal", "gate", (0.0, 0.25, 0.5, 0.75, 1.0), (rises("target calls", 0.2), rises("log p", 0.02)),
            "the more sentences the large model leads, the better the text and the more of its calls",
            fixed={"mark": "\n", "reach": 24, "lead": 6}, seeds=2, also=("greedy",)),
        Entry("lookahead_reasoning", "depth", (1, 2, 4, 8),
            (falls("commits", 0.05), rises("rows", 0.2), stays("greedy", 0.001)),
            "more steps drafted ahead: fewer rounds, with diminishing returns, for more rows; greedy text stays the target's",
            fixed={"mark": " ", "reach": 4}, externs={"alike": lambda a, b: a == b}),
        Entry("discriminator_guided", "beta", (0.0, 0.5, 1.0), (rises("reward", 0.03), falls("log p", 0.05)),
            "a heavier discriminator finds steps that it scores higher, at less likelihood", fixed={"k": 4, **STEP},
            temperature=0.8, limit=24, heads={"discriminator": standins.plain}, score=standins.varied,
            note="the discriminator is the share of different tokens among the last 24"),
        Entry("monitoring", "tau", (0.0, 0.01, 0.1, 0.3, 0.6), (rises("log p", 0.1), rises("target calls", 0.1)),
            "a stricter monitor replaces more of the small model's text: likelier to the large one, at more of its calls",
            also=("greedy",), why="a span is replaced by the path with the largest ratio of the two models' probabilities, "
            "which need not be a likely one"),
    ]  # fmt: skip


def _typical(epsilon: float) -> Setting:
    return Setting({"epsilon": epsilon, "delta": min(0.9, epsilon**0.5)})


def _heads() -> list[Entry]:
    text = "a higher threshold of typical acceptance: fewer tokens a call, likelier text (delta is the root of epsilon)"
    return [
        Entry(n, "epsilon", (0.005, 0.05, 0.2, 0.5, 0.8), (falls("tokens/call", 0.1), rises("log p", 0.05)), text,
            temperature=1, seeds=2, limit=48, at=_typical, also=("greedy",))
        for n in ("medusa", "hydra")
    ]  # fmt: skip


def _depth() -> list[Entry]:
    fewer = (falls("layers", 0.2), falls("greedy", 0.05))
    untrained = "the paper trains the model for this; the shipped target is not"
    return [
        Entry("unified_skip", "speedup", (1.0, 1.2, 1.5, 2.0, 3.0), fewer, "fewer layers, gradually worse text",
            also=("log p",)),
        Entry("depth_decay", "alpha", (1.0, 0.99, 0.97, 0.95, 0.9), fewer,
            "fewer layers for later tokens, little lost at first", fixed={"least": 1}, also=("log p",)),
        Entry("direct_multi_token", "horizon", (1, 2, 4, 8), fewer, "longer cycles compute the middle layers less often and "
            "lose a little", also=("log p",), note=untrained),
        Entry("ffn_skip", "skips", (0, 1, 2, 3), fewer, "more MLPs skipped after one that changes little; little is lost at "
            "first", fixed={"alike": 0.8, "warm": 1}, also=("log p",)),
        Entry("first_router", "tau", (0.0, 0.12, 0.16, 0.2, 0.3), fewer, "a higher threshold drops more layers for the whole "
            "request", also=("log p",), note="the router is what the target's head says of the state: its largest probability"),
        Entry("free", "tau", (1.0, 0.9, 0.6, 0.3, 0.0), fewer, "a lower threshold lets more tokens exit early; agreement "
            "falls slowly", also=("log p",), note="the shallow module is not trained"),
        Entry("overfill", "pruned", (0.0, 0.2, 0.5, 0.8), fewer, "a more pruned decoder on the whole model's prefill loses "
            "gradually", also=("log p",), note=untrained),
    ]  # fmt: skip


def _budget(n: int) -> Setting:
    return Setting({"window": 4, "prefill": n, "heavy": n // 2, "recent": max(1, n // 2)})


def _caches() -> list[Entry]:
    more = (rises("stored", 0.3), rises("greedy", 0.03))
    common: dict[str, Any] = {"prompts": "long", "limit": 24, "also": ("log p",)}
    return [
        Entry("kv_evict", "budget", (4, 16, 64, 1024), more, "a larger budget nears the whole cache; a small one already "
            "keeps most", at=_budget, stored=standins.evicted, **common),
        Entry("kv_frequency", "capacity", (8, 32, 96, 1024), more, "old text grows coarser in a smaller cache, and the model "
            "loses by it", stored=standins.compressed, **common),
        Entry("kv_quantized", "bits", (1, 2, 4, 8), (rises("stored", 0.1), *more[1:]),
            "4 bits lose nearly nothing, 2 and fewer do", fixed={"residual": 4}, stored=standins.quantized, **common),
        Entry("kv_sparse_read", "heavy", (1, 8, 32, 1024), more, "the heaviest positions of the context nearly suffice",
            stored=standins.sparsely, **common),
        Entry("parallel_context", "length", (8, 32, 96, 1024), more, "contexts read apart lose what they would have said of "
            "each other", stored=standins.parallel, **common),
        Entry("sparse_prefill", "budget", (8, 32, 96, 1024), more, "a budget of critical blocks nears the whole prefill",
            fixed={"segment": 16, "block": 8, "dense": 0}, stored=standins.prefilled, **common),
        Entry("cache_augmentation", "latents", (0, 2, 4, 8), (rises("log p", 0.01),), "more latents make the text likelier",
            also=("greedy",), why="the coprocessor is no trained one but the drafter, whose tokens at padding queries are "
            "noise in the target's context"),
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
    adheres = (rises("contrast", 0.05),)
    return [
        Entry("cfg", "scale", (0.0, 1.0, 1.5, 2.5, 4.0), adheres, "more guidance makes the text depend more on its prompt",
            views=_alone, also=(*QUALITY, "distinct-2")),
        Entry("context_aware_decoding", "alpha", (0.0, 0.5, 1.0, 2.0), adheres,
            "more weight makes the text depend more on the evidence", fixed={"context": EVIDENCE}, views=_evidence,
            also=QUALITY),
        Entry("context_aware_decoding", "alpha", (0.0, 0.5, 1.0), (rises("reward", 0.1),),
            "what the evidence says wins over what the model knows", prompts="evidence", model="smollm2", limit=8,
            fixed={"context": 12}, score=lambda r: float(r.answer in r.text), also=QUALITY,
            why="half of four texts say what the evidence says at every weight; too few prompts to tell more"),
        Entry("contrastive_decoding", "weight", (0.0, 0.25, 0.5, 1.0, 2.0),
            (rises("over drafter", 0.1), falls("repeated-4", 0.02), falls("log p", 0.05)),
            "a heavier amateur: less repetition, at less likelihood by the expert", limit=64, also=("distinct-2",)),
        Entry("dola", "alpha", (1.0, 0.3, 0.1, 0.01), (falls("greedy", 0.05), falls("log p", 0.05)),
            "a wider plausible set lets the contrast of layers change more, at less likelihood", also=("repeated-4",)),
        Entry("adversarial_contrastive", "alpha", (0.0, 0.2, 0.4, 0.8), adheres,
            "more contrast: likelier under the guard than under its opposite", fixed={"guard": GUARD, "adversary": ADVERSARY},
            views=_opposite, also=QUALITY),
        Entry("alignment_enhanced", "bias", (16.0, 4.0, 1.0, 0.0), adheres, "a lower bias gives the safe view more weight",
            fixed={"system": SYSTEM}, views=_system, also=QUALITY),
        Entry("anchored", "budget", (0.0, 0.1, 0.3, 1.0, 4.0), (rises("over drafter", 0.2), falls("drafter log p", 0.2)),
            "a larger budget goes from the safe model's text to the risky one's: less likely to the safe one", temperature=1,
            seeds=2, limit=48, also=("log p",), note="the safe model is the drafter, whose samples are the surer ones, so "
            "that utility cannot be read off log p"),
        Entry("controlled_decoding", "k", (1, 2, 4, 8), (rises("reward", 2.0), falls("log p", 0.02)),
            "more blocks to choose from: more reward, a text less like the target's", temperature=1, seeds=3,
            externs={"prefix_score": lambda text: len(set(text))}, score=lambda r: len(set(r.text)), also=("rows",),
            note="the reward is how many different characters the text has"),
        Entry("instructive_decoding", "epsilon", (0.0, 0.1, 0.3, 0.6), adheres,
            "more contrast: the text depends more on its instruction", views=_alone, also=QUALITY),
        Entry("transfer_q", "alpha", (16.0, 8.0, 4.0, 1.0), (rises("reward", 2.0), falls("log p", 0.1)),
            "a smaller alpha: more reward, a text less like the target's", temperature=1, seeds=2,
            fixed={"k": 6, "horizon": 3}, limit=24, externs={"reward": len}, score=standins.long_text,
            note="the reward is the text's length in characters", why="up to a point long texts are likely code: the reward "
            "costs likelihood at the last value alone"),
        Entry("uscd", "weight", (0.0, 0.2, 0.4, 0.8), adheres, "more contrast: the text depends more on what the lame prompt "
            "lacks", fixed={"sure": 1.0}, views=_alone, also=QUALITY),
    ]  # fmt: skip


SOURCE = "class Queue:\n    def __init__(self):\n        self.queue = []\n\n    def append(self, value):\n"


def _source(r: Ran, ids: Callable[[str], Ids]) -> tuple[Ids, Ids]:
    return ids(SOURCE) + r.prompt, r.prompt


def _heat(value: float) -> Setting:
    return Setting({}, {"heat": standins.says(value), "mass": standins.says(1.0)})


def _sampling() -> list[Entry]:
    often: dict[str, Any] = {"temperature": 1, "seeds": 2}
    return [
        Entry("adadec", "tau", (20.0, 3.0, 2.0, 1.0, 0.3), (rises("rows", 0.5), rises("log p", 0.01)),
            "pausing at more tokens finds likelier code, at more calls", also=("greedy",)),
        Entry("autodeco", "heat", (0.05, 0.25, 0.5, 0.75), (rises("all distinct-2", 0.1), falls("log p", 0.5)),
            "hotter heads: more diverse, less likely", at=_heat, note="the heads are constants, not trained", **often),
        Entry("bregman_topk", "price", (0.0, 0.001, 0.01, 0.1), (falls("all distinct-2", 0.1), rises("log p", 0.3)),
            "dearer tokens: a smaller support, likelier and less diverse text", **often),
        Entry("cautious", "most", (1, 3, 6), (rises("log p", 0.2), rises("rows", 1.0)),
            "more trials where the model is unsure: likelier text, at more calls",
            also=("all distinct-2",), temperature=1, limit=16),
        Entry("diver", "weight", (0.0, 0.5, 1.0, 4.0), (rises("reward", 0.01), falls("log p", 0.01)),
            "more mutual information: texts after which their prompt is likelier",
            score=lambda r: mean(read("target", r.tokens, r.prompt)[0]), why="a span that makes the prompt likelier when it "
            "is chosen need not do so behind the whole text; and a model of code hardly reads back from a text to what stood "
            "before it"),
        Entry("frustratingly_simple", "alpha", (0.0, 0.2, 0.4, 0.65, 0.9), (falls("repeated-4", 0.1), falls("log p", 0.1)),
            "a heavier n-gram penalty: less repetition, less likely", limit=64, also=("distinct-2",)),
        Entry("momentum", "alpha", (0.0, 0.1, 0.2, 0.5, 1.0), (falls("repeated-4", 0.1), falls("log p", 0.1)),
            "more resistance: less repetition, less likely", limit=64, also=("distinct-2",)),
        Entry("momentum", "alpha", (0.0, 0.2, 0.5), (falls("repeated-4", 0.1), falls("log p", 0.1)),
            "more resistance: less repetition, less likely", limit=40, also=("distinct-2",), prompts="prose", model="smollm2",
            why="in 40 tokens greedy text of this model hardly repeats itself yet: there is nothing to lower"),
        Entry("mirostat", "tau", (0.5, 1.5, 2.5, 3.5), (rises("bits", 1.0), rises("all distinct-2", 0.1)),
            "the text's surprise follows tau; low tau repeats", limit=64, **often),
        Entry("mirostat_v1", "tau", (0.5, 1.5, 2.5, 3.5), (rises("bits", 1.0), rises("all distinct-2", 0.1)),
            "the text's surprise follows tau; low tau repeats", limit=64, **often),
        Entry("top_n_sigma", "n", (0.0, 0.5, 1.0, 2.0, 4.0), (rises("all distinct-2", 0.1), falls("log p", 0.3)),
            "more deviations: more diverse, less likely", **often),
        Entry("typical", "mass", (0.2, 0.5, 0.8, 0.95, 1.0), (falls("log p", 0.3),),
            "less mass: texts that are likelier, though the likeliest tokens need not stay", also=("all distinct-2",), **often),
        Entry("xtc", "chance", (0.0, 0.25, 0.5, 1.0), (falls("repeated-4", 0.02), falls("log p", 0.1)),
            "more often without the top choices: less of it repeated, less likely", also=("all distinct-2",), temperature=0.5,
            seeds=3, limit=64),
        Entry("contrastive_search", "alpha", (0.0, 0.2, 0.4, 0.6, 0.8), (falls("repeated-4", 0.1), falls("log p", 0.1)),
            "a heavier penalty of likeness: less repetition, less likely", limit=64, also=("distinct-2",)),
        Entry("windowed_penalties", "factor", (1.0, 1.1, 1.3, 1.6, 2.0), (falls("repeated-4", 0.1), falls("log p", 0.1)),
            "a larger factor: less repetition, less likely", limit=64, also=("distinct-2",)),
        Entry("dynamic_temperature", "heat", (0.2, 0.6, 1.0, 1.4), (rises("all distinct-2", 0.1), falls("log p", 0.3)),
            "hotter: more diverse, less likely", fixed={"spread": 0.2}, **often),
        Entry("repetition_aware", "most", (0.0, 0.1, 0.3, 1.0), (rises("repeated-4", 0.02),),
            "sparing the redraw lets loops stand: more repetition", temperature=0.5, seeds=3, limit=64, fixed={"mass": 0.8},
            also=("log p",)),
        Entry("phi_decoding", "n", (1, 2, 4), (rises("log p", 0.1), rises("rows", 1.0)),
            "more steps with foresight: better text, at more calls", fixed={"reach": 8, "ahead": 4},
            externs={"alike": lambda a, b: a == b}, temperature=1, limit=16, why="a step is drawn by what is likely to follow "
            "it, which four texts of 16 tokens are too few to show"),
        Entry("self_infilling", "tau", (0.0, 0.1, 0.25, 0.5), (rises("log p", 0.02),),
            "where it is unsure it writes the suffix first, for better code", fixed={"opening": "return", "length": 8},
            also=("greedy",), why="the shipped target was not trained to infill: a suffix written before the middle does not "
            "fit it"),
        Entry("superposed", "k", (1, 2, 3, 6), (falls("rows/text", 5.0), stays("all log p", 0.3)),
            "more drafts from one call a token, all about as likely", also=("texts", "different")),
        Entry("wait_k", "k", (1, 4, 16, 64), (rises("contrast", 0.05),), "reading further ahead before writing: a text that "
            "fits the source better", fixed={"source": SOURCE}, views=_source, also=("greedy",)),
    ]  # fmt: skip


def _verifier(answer: str) -> Mapping[str, Any]:
    """A verifier that knows the task's answer: how alike the text is to it."""
    return {"reward": lambda text: likeness(text, answer)}


def _process(answer: str) -> Mapping[str, Any]:
    """A process reward model that knows the answer; a step is two characters."""

    def worth(text: str) -> float:
        return likeness(text, answer[: max(1, len(text.strip()))] if "\n" not in text else answer)

    return {"worth": worth, "step_ends": lambda text: len(text.strip()) % 2 == 0}


def _value(answer: str) -> Mapping[str, Any]:
    """The same as a value network that is never quite without hope, so that bad steps do not get the largest budgets."""
    made = _process(answer)
    return {**made, "worth": lambda text: 0.3 + 0.7 * made["worth"](text)}


def _searches() -> list[Entry]:
    better = (rises("reward", 0.05), rises("all rows", 3.0))
    oracle = "the reward is how alike the text is to the task's answer: an oracle"
    ends: dict[str, Any] = {"prompts": "tasks", "limit": 12, "eos": True}
    tasks = {**ends, "temperature": 1, "score": standins.answered, "note": oracle}
    return [
        Entry("a_star", "k", (1, 2, 4, 8), better, "more steps tried at a node: better answers for more tokens",
            answers=_process, fixed={"reach": 4}, seeds=2, also=("text log p",), **tasks),
        Entry("adaptive_compute", "cost", (0.5, 0.1, 0.03, 0.005), better, "cheaper samples: more of them, better answers, "
            "less and less gained", answers=_verifier, externs={"difficulty": lambda text: 0.7}, also=("text log p",), **tasks),
        Entry("iterative_agent", "rounds", (0, 1, 3, 7), better, "more rounds: better answers", answers=_verifier,
            fixed={"reach": 12}, also=("text log p",), why="the shipped target follows no instructions: behind shown answers "
            "it writes something else", **tasks),
        Entry("litesearch", "sure", (0.05, 0.5, 0.9, 0.99), better, "more budget for nodes: better answers for more tokens",
            answers=_value, fixed={"reach": 4, "goal": 0.95, "rounds": 24}, also=("text log p",),
            why="rows grow with the budget, but the answers stay as good; why was not looked into", **tasks),
        Entry("mcts", "rolls", (1, 4, 16), better, "more rolls: better answers", answers=_verifier, also=("text log p",),
            **tasks),
        Entry("mbr", "n", (1, 2, 4, 8, 16), (rises("text log p", 0.2), rises("all rows", 3.0)),
            "more samples: a text nearer to what all samples say, and so likelier, for more tokens",
            externs={"utility": likeness}, seeds=2, also=("reward",), **tasks),
        Entry("first_finish", "n", (1, 2, 4, 8), (falls("length", 0.5), rises("all rows", 3.0)),
            "the first of more texts to end is shorter", prompts="lines", limit=48, eos=True, temperature=1, seeds=4,
            also=("log p",)),
        Entry("arithmetic_sampling", "n", (2, 4, 8), (exceeds("over independent", 0.0),),
            "the texts of one request stay more different than independent ones (mbr's)", temperature=1, seeds=3,
            prompts="tasks", limit=6, also=("different",), beside="mbr"),
        Entry("beam", "k", (1, 2, 4, 8), (rises("text log p", 0.3), rises("rows", 1.0)),
            "wider beams find likelier texts, for more rows", also=("repeated-4",)),
        Entry("beam_patience", "patience", (0.25, 0.5, 1.0, 2.0), (rises("log p", 0.01), rises("all rows", 1.0)),
            "more patience: a better score of the best ended text, for more rows", **ends),
        Entry("diverse_beam", "penalty", (0.0, 0.5, 1.0, 4.0), (rises("apart", 0.05), falls("all log p", 0.02)),
            "a larger penalty: groups that differ more, less likely", also=("different",),
            why="beams of two are far from the likeliest texts, and groups that are pushed away find likelier ones"),
        Entry("constrained_beam", "k", (1, 2, 4, 8), (rises("text log p", 1.0), rises("rows", 1.0)),
            "wider beams place the words better", fixed={"words": " value"}, limit=16),
        Entry("lattice", "budget", (1, 4, 16), (rises("texts", 3.0), falls("rows/text", 2.0)),
            "recombination: texts for fewer and fewer calls each", fixed={"grams": 2}, limit=24,
            also=("different", "all log p")),
        Entry("poisson_beam", "n", (4, 6, 10, 16), (rises("all distinct-2", 0.05), falls("text log p", 0.5)),
            "from beam search to samples: texts of several seeds differ more, less likely", fixed={"k": 4}, temperature=1,
            seeds=3, limit=16),
    ]  # fmt: skip


def _constrained() -> list[Entry]:
    return [
        Entry("awrs", "tries", (1, 2, 4, 16, 64), (rises("reward", 0.3), stays("target calls", 0.001)),
            "more tries: the constraint holds, at calls of the constraint and not of the model",
            externs={"valid": lambda text: "e" not in text}, temperature=1, seeds=3, limit=24, score=standins.no_e,
            also=("log p",)),
        Entry("graph_constrained", "k", (1, 2, 4, 8), (rises("text log p", 0.05), rises("rows", 0.2)),
            "wider beams find likelier chains", limit=24,
            fixed={"g": "(self|value|data)(\\.(name|items|value|append|get))*(\\(\\))?\n"}, eos=True),
    ]  # fmt: skip


def _watermarks() -> list[Entry]:
    often: dict[str, Any] = {"temperature": 1, "limit": 48}
    return [
        Entry("kgw_watermark", "delta", (0.0, 2.0, 4.0, 8.0), (rises("z", 4.0), falls("log p", 0.2)),
            "a larger delta: easier to detect, less likely text", externs={"green": lambda t: standins.green((int(t),))},
            green=lambda value: standins.kgw_hits, **often),
        Entry("synthid", "depth", (1, 4, 12), (rises("z", 3.0), stays("log p", 0.3)),
            "more layers: easier to detect, at about the same likelihood", externs={"ones": standins.ones},
            green=standins.synthid_hits, why="the published claim is of an average over keys; with one key and four texts of "
            "48 tokens it varies more", **often),
    ]  # fmt: skip


def _hard(least: int) -> Setting:
    return Setting({}, {}, {"hard": lambda text: len(text) >= least, "needs": lambda text, j: False})


def _parallel() -> list[Entry]:
    return [
        Entry("fastcot", "rounds", (64, 24, 20, 16), (rises("tokens/call", 0.1), falls("greedy", 0.05)),
            "fewer rounds: approximate tokens stand, more of them a call, less exact", also=("log p",)),
        Entry("lexical_unit", "alpha", (1.0, 0.9, 0.6, 0.3), (rises("tokens/call", 0.1), falls("greedy", 0.02)),
            "a lower threshold: more tokens a call, gradually less exact", also=("log p",), fixed={"mask": 1},
            note="the shipped target was not tuned to guess behind padding"),
        Entry("cascaded", "order", (1, 2), (rises("log p", 0.1), rises("target calls", 1.0)),
            "longer contexts: likelier texts, for more calls", fixed={"length": 4, "k": 2, "mask": 1}, limit=8,
            also=("greedy",)),
        Entry("skeleton_graph", "hard from", (0, 16, 32, 999), (falls("target calls", 0.1), falls("log p", 0.02)),
            "fewer points that the large model writes: fewer of its calls, worse text", at=_hard,
            fixed={"ask": "# ", "points": 3, "reach": 16}, limit=48, note="a point is hard if its line has as many characters"),
    ]  # fmt: skip


GROUPS = {
    "Relaxed acceptance, judges, cascades": _relaxed,
    "Typical acceptance of heads' drafts": _heads,
    "Fewer layers": _depth,
    "Fewer keys and values": _caches,
    "Contrasts and guidance": _logits,
    "Sampling and repetition": _sampling,
    "Search": _searches,
    "Constraints": _constrained,
    "Watermarks": _watermarks,
    "Several tokens a call, unverified": _parallel,
}
SWEEPS = tuple(replace(entry, group=heading) for heading, made in GROUPS.items() for entry in made())
