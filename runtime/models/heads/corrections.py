"""What is added to the scores of a DFlash head's places for the tokens drafted before: DSpark's Markov heads, DFlash 2's
selector, Domino's recurrent network. Each is in the head's own folder.

Such a correction reads the state of which the head makes the scores of a place, and a row that each token makes of the row
before it. The block is computed once for both: see `Correction.drafter`.

Cheng et al., DSpark, 2026. Chen et al., DFlash, 2026. Huang et al., Domino, 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from decgraph.errors import DecError
from decgraph.runtime.models.config import whole
from decgraph.runtime.models.heads.base import DraftOutput
from decgraph.runtime.models.heads.eagle import draft_tokens
from decgraph.runtime.models.heads.layout import Beside, Config, HeadFolder, ReadHead, renamed
from decgraph.runtime.models.heads.rooted import Before, Rooted
from decgraph.runtime.native.products import NativeLinear

MARKOV, CONFIDENCE = "markov_head", "confidence_head"
_W1, _W2 = f"{MARKOV}.markov_w1.weight", f"{MARKOV}.markov_w2.weight"


class Correction(Rooted):
    """Options: `hidden_size` and `vocab_size` of the head. memoryless: whether a row is a function of its token alone."""

    memoryless = True

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        self.hidden = whole(config, "hidden_size")
        self._drafter: tuple[Rooted, ...] = ()  # no part of this module

    @property
    def drafter(self) -> Rooted:
        """The head whose places are corrected."""
        return self._drafter[0]

    def on(self, drafter: Rooted) -> None:
        """Correct this head's places."""
        self._drafter = (drafter,)
        self.reads, self.depth = drafter.reads, drafter.depth

    def prepare(self, states: Tensor, positions: Tensor, before: Before | None = None) -> Before:
        return self.drafter.prepare(states, positions, before)

    def nothing(self) -> Before:
        return self.drafter.nothing()

    def next_row(self, tokens: Tensor, above: Tensor, here: Tensor) -> Tensor:
        """Rows [..., width] of tokens int64[...] from those of the tokens before them and the states [..., hidden] of the
        places behind them; a root's is made of zeros."""
        raise NotImplementedError

    def states(self, before: Before, tokens: Tensor, position: int) -> Tensor:
        places = self.drafter.places(before, tokens[:, 0], position)
        row = places.new_zeros(len(tokens), self.width)
        for n, column in enumerate(tokens.T):
            row = self.next_row(column, row, places[:, n])
        return torch.cat((places[:, tokens.shape[1] - 1], row), dim=-1)

    def forward(self, states: Tensor, tokens: Tensor) -> Tensor:
        """Logits [n, V] of places by their states [n, hidden] and the tokens int64[n] before them, of one without memory."""
        return self.read_out(torch.cat((states, self.next_row(tokens, states[:, :0], states)), dim=-1))


class MarkovCorrection(Correction):
    """The row of the last token in one matrix, times another one: as it is (`vanilla`), gated by a Linear of the place's state
    and itself (`gated`), or in its place what a recurrent network gives, whose state goes from token to token (`rnn`). Options:
    `rank`, `markov`: which of them, `draft_vocab_size` and `mapped` as of an output matrix."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        rank, self.form = whole(config, "rank"), str(config.get("markov"))
        self.memoryless = self.form != "rnn"
        self.rank, self.width = rank, rank if self.memoryless else 2 * rank
        self.markov_w1 = nn.Embedding(self.vocab, rank)
        rows = whole(config, "draft_vocab_size", self.vocab)
        self.markov_w2 = DraftOutput(rank, rows, self.vocab, mapped=bool(config.get("mapped")))
        if self.form == "gated":
            self.gate_proj = NativeLinear(self.hidden + rank, rank)
        if self.form == "rnn":
            self.joint_proj = NativeLinear(2 * rank + self.hidden, 3 * rank)

    def next_row(self, tokens: Tensor, above: Tensor, here: Tensor) -> Tensor:
        last: Tensor = self.markov_w1(tokens)
        if self.memoryless:
            return last
        state = above[..., : self.rank]
        gate, candidate, out = self.joint_proj(torch.cat((state, last, here), dim=-1)).chunk(3, dim=-1)
        gate = torch.sigmoid(gate)
        return torch.cat((gate * state + (1 - gate) * torch.tanh(candidate), torch.tanh(out)), dim=-1)

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        row = states[..., -self.rank :]
        if self.form == "gated":
            row = torch.sigmoid(self.gate_proj(states)) * row
        made: Tensor = self.markov_w2(row)
        return made


class Selector(Correction):
    """How well a token follows the one before it at a place: a product of three, a row of each in a matrix of its own and a
    projection of the place's state. Option: `rank`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        self.width = whole(config, "rank")
        self.predecessor_codebook = nn.Embedding(self.vocab, self.width)
        self.successor_codebook = NativeLinear(self.width, self.vocab, bias=False)
        self.hidden_projection = NativeLinear(self.hidden, self.width, bias=False)

    def next_row(self, tokens: Tensor, above: Tensor, here: Tensor) -> Tensor:
        made: Tensor = self.predecessor_codebook(tokens)
        return made

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        here, row = states.split([self.hidden, self.width], dim=-1)
        made: Tensor = self.successor_codebook(row * self.hidden_projection(here))
        return made


class RecurrentCorrection(Correction):
    """Domino's: a GRU over the target's embeddings of the tokens from the root on, whose state goes with the place's through
    two matrices. Options: `gru_width`, `inner`."""

    memoryless = False

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__(config)
        self.width, inner = whole(config, "gru_width"), whole(config, "inner")
        self.entering = NativeLinear(self.hidden, 3 * self.width, bias=False)
        self.staying = NativeLinear(self.width, 3 * self.width, bias=False)
        self.down = NativeLinear(self.hidden + self.width, inner, bias=False)
        self.up = NativeLinear(inner, self.vocab, bias=False)

    def next_row(self, tokens: Tensor, above: Tensor, here: Tensor) -> Tensor:
        reset, update, new = self.entering(self.embed(tokens).to(above.dtype)).chunk(3, dim=-1)
        old_reset, old_update, old_new = self.staying(above).chunk(3, dim=-1)
        update = torch.sigmoid(update + old_update)
        made: Tensor = (1 - update) * torch.tanh(new + torch.sigmoid(reset + old_reset) * old_new) + update * above
        return made

    def read_out(self, states: Tensor, drafted: int = 0) -> Tensor:
        made: Tensor = self.up(nn.functional.silu(self.down(states)))
        return made


class ConfidenceHead(nn.Module):
    """How likely a place's draft is accepted if all before it are: a Linear of the place's state, and perhaps the row of the
    token before it in the Markov head's first matrix. Options: `rank` (0: the state alone), `bias`."""

    def __init__(self, config: Mapping[str, object]) -> None:
        super().__init__()
        rank = whole(config, "rank", 0)
        self.proj = NativeLinear(whole(config, "hidden_size") + rank, 1, bias=bool(config.get("bias")))
        self.markov_w1 = nn.Embedding(whole(config, "vocab_size"), rank) if rank else None

    def forward(self, states: Tensor, tokens: Tensor | None = None) -> Tensor:
        """The logit [n, 1] of each place by its state [n, hidden] and the token before it int64[n]. Raises DecError where the
        head reads that token and there is none."""
        if self.markov_w1 is not None:
            if tokens is None:
                raise DecError("the confidence head reads the token before a place", hint="sure(h, token = x)")
            states = torch.cat((states, self.markov_w1(tokens)), dim=-1)
        made: Tensor = self.proj(states)
        return made


def made(config: Config) -> Correction:
    """The module of a correction's configuration."""
    kinds: dict[str, Callable[[Config], Correction]] = {
        "markov": MarkovCorrection,
        "selector": Selector,
        "recurrent": RecurrentCorrection,
    }
    return kinds[str(config["correction"])](config)


def _rules(source: HeadFolder) -> dict[str, dict[str, str]]:
    """By the name of a part that is in a folder beside the head, its tensors: their names there -> ours."""
    has = lambda name: name in source.tensors
    found: dict[str, dict[str, str]] = {}
    if has(_W1):
        linear = {"gated": ["gate_proj"], "rnn": ["joint_proj"]}.get(_form(source), [])
        found[MARKOV] = {_W1: "markov_w1.weight", _W2: "markov_w2.matrix.weight"} | {
            f"{MARKOV}.{name}.{kind}": f"{name}.{kind}" for name in linear for kind in ("weight", "bias")
        }
    if has("candidate_selector.hidden_projection.weight"):
        names = ("predecessor_codebook", "successor_codebook", "hidden_projection")  # published folders leave out ".weight"
        there = lambda name: name if has(name) else f"{name}.weight"
        found["candidate_selector"] = {there(f"candidate_selector.{name}"): f"{name}.weight" for name in names}
    if has("prefix_gru.weight_ih_l0"):
        found["prefix_gru"] = {"prefix_gru.weight_ih_l0": "entering.weight", "prefix_gru.weight_hh_l0": "staying.weight",
                               "embed_proj.0.weight": "down.weight", "embed_proj.2.weight": "up.weight"}  # fmt: skip
    if has(f"{CONFIDENCE}.proj.weight"):
        found[CONFIDENCE] = {f"{CONFIDENCE}.proj.{kind}": f"proj.{kind}" for kind in ("weight", "bias")}
    return found


def _form(source: HeadFolder) -> str:
    """Which Markov head a folder has. Raises DecError for one that decgraph does not know."""
    found = str(source.said("markov_head_type") or "vanilla").lower()
    if found not in ("vanilla", "gated", "rnn"):
        raise DecError(f"{source.folder} has a Markov head of the type {found}", hint="known are vanilla, gated and rnn")
    return found


def parts_of(source: HeadFolder) -> dict[str, frozenset[str]]:
    """What a folder has beside the head that scores places, by name: the tensors of each part. No tensor is read. Raises
    DecError for a Markov head of an unknown type."""
    return {name: frozenset(rules) & frozenset(source.tensors) for name, rules in _rules(source).items()}


def read(source: HeadFolder, wanted: Beside) -> ReadHead:
    """The correction in a head's folder (to be bound as "features" or, where it has no memory, as "dist"), or its confidence
    head ("prob"). Raises DecError for a folder without one, and for one that such a place cannot have."""
    all_rules = _rules(source)
    name = next((n for n in all_rules if (n == CONFIDENCE) == (wanted == "prob")), None)
    if name is None:
        what = "confidence head" if wanted == "prob" else "Markov head, selector or recurrent correction"
        raise DecError(f"{source.folder} has no {what} beside its head", hint="another algorithm, or another folder")
    own = tuple({f"{tensor.partition('.')[0]}." for tensor in all_rules[name]})
    found, stored = renamed(source, all_rules[name], drop=[tensor for tensor in source.tensors if not tensor.startswith(own)])
    width = source.shape("hidden_norm.weight")[0]
    config: Config = {"hidden_size": width}
    if name == CONFIDENCE:
        rank = source.shape(f"{CONFIDENCE}.proj.weight")[1] - width
        config |= {"rank": rank, "bias": "proj.bias" in found}
        if rank:
            config["vocab_size"] = source.shape(_W1)[0]
            found["markov_w1.weight"], stored["markov_w1.weight"] = source.tensors[_W1], _W1
    elif name == MARKOV:
        (vocab, rank), rows = source.shape(_W1), source.shape(_W2)[0]
        tokens = draft_tokens(source, rows, vocab)
        if tokens is not None:
            found["markov_w2.tokens"] = tokens
        config |= {"correction": "markov", "markov": _form(source), "vocab_size": vocab, "rank": rank}
        config |= {"draft_vocab_size": rows, "mapped": tokens is not None}
    elif name == "candidate_selector":
        rank = source.shape("candidate_selector.hidden_projection.weight")[0]
        config |= {"correction": "selector", "vocab_size": len(found["predecessor_codebook.weight"]), "rank": rank}
    else:
        inner, vocab = source.shape("embed_proj.0.weight")[0], source.shape("embed_proj.2.weight")[0]
        gru = source.shape("prefix_gru.weight_hh_l0")[1]
        config |= {"correction": "recurrent", "vocab_size": vocab, "gru_width": gru, "inner": inner}
    if wanted == "dist" and (name == "prefix_gru" or config.get("markov") == "rnn"):
        raise DecError(
            f"{source.folder} has a correction with a state that goes from draft to draft ({name}), which a head over one "
            "state and one token has not",
            hint="`dspark_rnn` and `domino` take it",
        )
    kind = "decgraph_confidence" if name == CONFIDENCE else "decgraph_correction"
    return ReadHead(name, "features" if wanted == "features" else "head", kind, config, found, stored)
