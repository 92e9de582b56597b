"""The sweeps of searches, constraints, watermarks and programs that write several tokens in one call unverified."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab import tradeoffs_causal_standins as standins
from lab.tradeoffs_causal_entry import Entry, Setting, Shape
from lab.tradeoffs_causal_measures import likeness


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


def searches() -> list[Entry]:
    """Searches that a reward or a value leads, and search widths."""
    better: tuple[Shape, ...] = (("reward", "rises", 0.05), ("all rows", "rises", 3.0))
    oracle = "the reward is how alike the text is to the task's answer: an oracle"
    tasks: dict[str, Any] = {
        "prompts": "tasks",
        "limit": 12,
        "eos": True,
        "temperature": 1,
        "score": standins.answered,
        "note": oracle,
    }
    ends: dict[str, Any] = {"prompts": "tasks", "limit": 12, "eos": True}
    return [
        Entry("a_star", "search", "k", (1, 2, 4, 8), "more steps tried at a node: better answers for more tokens", better,
              answers=_process,
              params={"reach": 4}, seeds=2, also=("text log p",), **tasks),
        Entry("adaptive_compute", "search", "cost", (0.5, 0.1, 0.03, 0.005),
              "cheaper samples: more of them, better answers, less and less gained",
              better, answers=_verifier, params={}, externs={"difficulty": lambda text: 0.7}, also=("text log p",), **tasks),
        Entry("iterative_agent", "search", "rounds", (0, 1, 3, 7), "more rounds: better answers", better, answers=_verifier,
              params={"reach": 12}, also=("text log p",),
              why="the shipped target follows no instructions: behind shown answers it writes something else", **tasks),
        Entry("litesearch", "search", "eps", (0.9, 0.5, 0.2, 0.05), "more budget for nodes: better answers for more tokens",
              better,
              answers=_value, params={"reach": 4, "goal": 0.95, "rounds": 24}, also=("text log p",),
              why="24 rounds are what all nodes share: beyond a point larger budgets only widen nodes that are poor", **tasks),
        Entry("mcts", "search", "rolls", (1, 4, 16), "more rolls: better answers", better, answers=_verifier,
              also=("text log p",), **tasks),
        Entry("mbr", "search", "n", (1, 2, 4, 8, 16),
              "more samples: a text nearer to what all samples say, and so likelier, for more tokens",
              (("text log p", "rises", 0.2), ("all rows", "rises", 3.0)), externs={"utility": likeness}, seeds=2,
              also=("reward",), **tasks),
        Entry("first_finish", "search", "n", (1, 2, 4, 8), "the first of more texts to end is shorter", (("length", "falls",
              0.5),
              ("all rows", "rises", 3.0)), prompts="lines", limit=48, eos=True, temperature=1, seeds=4, also=("log p",)),
        Entry("arithmetic_sampling", "search", "n", (2, 4, 8),
              "the texts of one request stay more different than independent ones (mbr's)",
              (("over independent", "exceeds", 0.0),), temperature=1, seeds=3, prompts="tasks", limit=6, also=("different",),
              beside="mbr", externs={}),
        Entry("beam", "search", "k", (1, 2, 4, 8), "wider beams find likelier texts, for more rows", (("text log p", "rises",
              0.3),
              ("rows", "rises", 1.0)), also=("repeated-4",)),
        Entry("beam_patience", "search", "patience", (0.25, 0.5, 1.0, 2.0),
              "more patience: a better score of the best ended text, for more rows",
              (("log p", "rises", 0.01), ("all rows", "rises", 1.0)), **ends),
        Entry("diverse_beam", "search", "penalty", (0.0, 0.5, 1.0, 4.0),
              "a larger penalty: groups that differ more, less likely",
              (("apart", "rises", 0.05), ("all log p", "falls", 0.02)), also=("different",),
              why="beams of two are far from the likeliest texts, and groups that are pushed away find likelier ones"),
        Entry("constrained_beam", "search", "k", (1, 2, 4, 8), "wider beams place the words better", (("text log p", "rises",
              1.0),
              ("rows", "rises", 1.0)), params={"words": " value"}, limit=16),
        Entry("lattice", "search", "budget", (1, 4, 16), "recombination: texts for fewer and fewer calls each", (("texts",
              "rises", 3.0),
              ("rows/text", "falls", 2.0)), params={"grams": 2}, limit=24, also=("different", "all log p")),
        Entry("poisson_beam", "search", "n", (4, 6, 10, 16),
              "from beam search to samples: texts of several seeds differ more, less likely",
              (("all distinct-2", "rises", 0.05), ("text log p", "falls", 0.5)), params={"k": 4}, temperature=1, seeds=3,
              limit=16),
        Entry("awrs", "constrained", "tries", (1, 2, 4, 16, 64),
              "more tries: the constraint holds, at calls of the constraint and not of the model",
              (("reward", "rises", 0.3), ("target calls", "stays", 0.001)), externs={"valid": lambda text: "e" not in text},
              temperature=1, seeds=3,
              limit=24, score=standins.no_e, also=("log p",)),
        Entry("graph_constrained", "constrained", "k", (1, 2, 4, 8), "wider beams find likelier chains", (("text log p",
              "rises", 0.05),
              ("rows", "rises", 0.2)), limit=24,
              params={"g": "(self|value|data)(\\.(name|items|value|append|get))*(\\(\\))?\n"}, eos=True),
    ]  # fmt: skip


def watermarks() -> list[Entry]:
    """Watermarks: how surely they are detected against how likely their texts are."""
    often: dict[str, Any] = {"temperature": 1, "limit": 48}
    return [
        Entry("kgw_watermark", "watermark", "delta", (0.0, 2.0, 4.0, 8.0),
              "a larger delta: easier to detect, less likely text",
              (("z", "rises", 4.0), ("log p", "falls", 0.2)), externs={"green": lambda t: standins.green((int(t),))},
              green=lambda value: standins.kgw_hits, **often),
        Entry("synthid", "watermark", "depth", (1, 4, 12), "more layers: easier to detect, at about the same likelihood",
              (("z", "rises", 3.0), ("log p", "stays", 0.3)), externs={"ones": standins.ones}, green=standins.synthid_hits,

              why="the published claim is of an average over keys; with one key and four texts of 48 tokens it varies more",
              **often),
    ]  # fmt: skip


def _hard(least: int) -> Setting:
    return Setting({}, {}, {"hard": lambda text: len(text) >= least, "needs": lambda text, j: False})


def parallel() -> list[Entry]:
    """Programs that decode several tokens, or parts of a text, at the same time."""
    return [
        Entry("fastcot", "parallel", "rounds", (64, 24, 20, 16),
              "fewer rounds: approximate tokens stand, more of them a call, less exact",
              (("tokens/call", "rises", 0.1), ("greedy", "falls", 0.05)), also=("log p",)),
        Entry("lexical_unit", "parallel", "alpha", (1.0, 0.9, 0.6, 0.3),
              "a lower threshold: more tokens a call, gradually less exact",
              (("tokens/call", "rises", 0.1), ("greedy", "falls", 0.02)), also=("log p",), params={"mask": 1},
              note="the shipped target was not tuned to guess behind padding"),
        Entry("cascaded", "parallel", "order", (1, 2), "longer contexts: likelier texts, for more calls", (("log p",
              "rises", 0.1),
              ("target calls", "rises", 1.0)), params={"length": 4, "k": 2, "mask": 1}, limit=8, also=("greedy",)),
        Entry("skeleton_graph", "parallel", "hard from", (0, 16, 32, 999),
              "fewer points that the large model writes: fewer of its calls, worse text",
              (("target calls", "falls", 0.1), ("log p", "falls", 0.02)), at=_hard, params={"ask": "# ", "points": 3,
              "reach": 16}, limit=48,
              note="a point is hard if its line has as many characters"),
    ]  # fmt: skip
