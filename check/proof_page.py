"""`decgraph check NAME --proof`: derivations beside the program, to be read by somebody who has never seen one."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from decgraph.check.verdicts import Proof

if TYPE_CHECKING:
    from decgraph.check.report import Report

WIDTH = 118
LEAST_BESIDE = 40
"""Columns that a conclusion needs to the right of the program; where there are fewer it stands below its line."""
SHOWN = {
    "own": "the tokens that it commits are the draws of `{}` itself: with the same seed, the same tokens",
    "drawn": "the tokens that it commits are distributed exactly as those of `{}` alone",
    "inside": "each token that it commits has a probability above 0 under `{}`",
    "scheduled": "the canvas that it commits is distributed exactly as that of {}",
    "same": "the canvas that it commits is that of {}: with the same seed, the same tokens",
    "spends": "no request spends more than what is claimed, {}",
}
RULES = {
    "rule-matching": (
        "At each node the target's own draw is made. The rule goes on to a child only if the child's token equals that "
        "draw, and what it emits is that draw. So whatever was drafted, every token of the path is the target's own draw."
    ),
    "rule-lossless": (
        "At each node let p be the target's distribution. A child that was drawn from q is accepted with probability "
        "min(1, p/q), which commits min(p, q) of each token's mass. A rejection happens with probability R, the sum of "
        "max(p - q, 0), and then the rest is owed: max(p - q, 0) / R. Together min(p, q) + R * max(p - q, 0) / R = p, for "
        "each token, of any vocabulary; where R is 0 nothing is rejected. (Of a rule of another form the same algebra "
        "checks that what it accepts, and its chance to go on times what it owes then, add up to p, at each of any number "
        "of children; rules of a whole tree, as `block_rejection` and `traverse`, are known by a theorem about the rule "
        "as it stands.) That q is what the draft was drawn from, with noise that nothing else reads, and that nothing "
        "chose it by what it is, is checked along the way."
    ),
    "rule-support": (
        "Every token that the rule accepts or emits was drawn from the target's distribution or tested to have mass in it."
    ),
    "jacobi": (
        "In each iteration a token becomes what the target says after the ones before it. So after one iteration the first "
        "is the target's own, after two the second too; where nothing changes any more each is, since each stands after the "
        "ones that it was drawn after. There are no more guesses than iterations."
    ),
    "run-drawn": (
        "The run draws each token as the model does, with noise that nothing else reads, until a condition holds of what it "
        "has drawn. Where it stops is decided by what is there and not by what would come next, so what it committed is the "
        "beginning of a text of the model's."
    ),
    "condition": (
        "Numbers and lengths here are sums of parameters, the prompt's length, the room and the context's length, as the "
        "lines before compute them. Inequalities between such sums, with the claim's condition, leave one outcome; the other "
        "is never reached."
    ),
    "whole-memory": (
        "By the same inequalities all positions of the text that the memory is of are among those that are kept, so that it "
        "holds what the model computed for that text, and a call on it returns what a call without it does."
    ),
    "whole-model": "By the same inequalities no layer is left out, so that the model is the target itself.",
    "tree-inside": (
        "The target gives mass to every edge of the tree, after the text above it: each was drawn from it where it is grown. "
        "So it gives mass to all tokens on the way to any node."
    ),
    "commit-own": ("A token that is the target's own draw after the committed text is what the specification commits there."),
    "commit-drawn": (
        "A path with the target's distribution after the committed text is committed, whatever it is: nothing that it "
        "could tell decides whether it is. So one step commits what the specification would, and by induction all of them "
        "do."
    ),
    "commit-inside": (
        "The model gives mass to every token of it: after the text that is committed before it or, of a canvas, where and "
        "when its cell was decided."
    ),
    "cells-drawn": (
        "Which cells are decided here is fixed beforehand, by the parameters and by how many cells are decided, and not by "
        "what was drawn. Each gets a fresh draw of the model's row there on this very canvas: where a call is given a memory, "
        "it holds nothing and all cells are computed."
    ),
    "cells-surest": (
        "Which of the masked cells are decided is a function of the canvas and of what was drawn for it: those whose drawn "
        "tokens the model finds most probable there, of equals the first. Each gets the fresh draw that it was chosen by."
    ),
    "cells-agreed": (
        "A draft is accepted if it is the edit that one-at-a-time decoding makes on the canvas before it, with its own draws, "
        "whose noise goes by how many cells are decided. So what is accepted is decided as it would have been."
    ),
    "commit-scheduled": (
        "What the canvas becomes depends on nothing but the order in which cells are decided. The specification, followed in "
        "the same way, decides them in the same order, so the two agree."
    ),
    "spent": "This is what the claim counts. Lines without such a remark spend nothing of it.",
    "credit": (
        "What may still be spent is never below 0: a loop spends no more than its most iterations do, or no more than a number "
        "that it carries pays for; and an iteration of `while not done` that commits no token is the last."
    ),
}
"""Rules of the kernel in words (docs/proof.md)."""
BESIDES = (
    "Lines without a remark choose drafts, or keep what later steps choose drafts by. No conclusion above depends on what "
    "they compute: not on the drafter, a threshold, a counter or a table."
)
RESTS = (
    "It rests on the meaning of the program's lines, on the rules above (docs/proof.md), and on "
    "the program that applied them. It speaks of exact arithmetic."
)
NO_ERRORS = (
    "No run ends in an error of the program's own: nothing outside drafts can fail, and an error in a draft ends that draft."
)


def proof_page(report: Report) -> str:
    """The derivations of a report's claims, and where there are none the line at which they stopped."""
    told = {True: derivation, False: without}
    parts = [told[proof.derived](report.name, proof, report.text) for proof in report.proofs]
    return "\n\n".join(parts or [f"{report.name} claims nothing, so there is nothing to derive"])


def derivation(name: str, proof: Proof, text: str) -> str:
    """One derivation: what it shows, the program with its conclusions, why the rules are right, what it rests on."""
    rules = list(dict.fromkeys(step.rule for step in proof.steps))
    where = [proof.when] if proof.when else [f"{k} is {v}" for k, v in proof.settings]
    where += ["the temperature is 0"] if proof.greedy and not proof.when else []
    shown = SHOWN[proof.mode].format(proof.model)
    out = [
        f"{name} {proof.claim}",
        *wrapped(
            f"Shown: for every vocabulary, model, context and request, and all parameters{' such that ' if where else ''}"
            f"{' and '.join(where)}, {shown}."
        ),
        "",
        *beside(text, {step.line: f"{step.text} [{step.rule}]" for step in proof.steps}),
        "",
    ]
    said = [NO_ERRORS] if proof.mode in ("own", "drawn") else []
    said += [f"A premise: {premise.says}." for premise in proof.premises]
    for rule in rules:
        out += wrapped(f"[{rule}] {RULES[rule]}", "    ")
    besides = [] if proof.mode == "spends" else wrapped(BESIDES)
    return "\n".join([*out, "", *besides, *wrapped(" ".join([RESTS, *said]))])


def without(name: str, proof: Proof, text: str) -> str:
    """Where a derivation stopped, in the program."""
    return "\n".join(
        [f"{name} {proof.claim}", proof.stopped(), *(["", *beside(text, {proof.line: proof.why})] if proof.line else [])]
    )


def wrapped(words: str, indent: str = "") -> list[str]:
    """A paragraph."""
    return textwrap.wrap(words, WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def beside(text: str, remarks: dict[int, str]) -> list[str]:
    """The statements of a program from the first remark's block on, with remarks to their right."""
    lines = text.splitlines()
    first = after_docstring(lines)
    rows = [(n, line) for n, line in enumerate(lines, 1) if n >= first and line.strip() or n in remarks]
    column = max((len(line) for _, line in rows), default=0) + 9
    below = WIDTH - column < LEAST_BESIDE
    out = []
    for n, line in rows:
        head = f"{n:>4}  {line}"
        told = textwrap.wrap(remarks.get(n, ""), WIDTH - 12 if below else WIDTH - column, break_on_hyphens=False)
        if below:
            out += [head, *(f"          | {part}" for part in told)]
        else:
            out += [
                f"{head:<{column - 2}}| {part}" if not i else f"{'':<{column - 2}}| {part}" for i, part in enumerate(told)
            ] or [head]
    return out


def after_docstring(lines: list[str]) -> int:
    """The number of the first line after the last docstring before the loop of the last algorithm."""
    start = max((n for n, line in enumerate(lines, 1) if line.startswith("algorithm ")), default=1)
    quotes = [n for n, line in enumerate(lines, 1) if n > start and '"""' in line]
    if not quotes:
        return start
    return quotes[0] + 1 if lines[quotes[0] - 1].count('"""') == 2 else quotes[1] + 1


__all__ = ["proof_page"]
