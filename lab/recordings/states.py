"""Tables where the authors' code passes hidden states: a state is a number that names what was read up to a place.

The stand-in for a network looks a state up again, so what a head is asked about follows from the states, tokens, masks and
positions that the authors' code hands it. Two channels hold the number, so that half precision keeps it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from transformers import DynamicCache

from decgraph.runtime.models.interface import Memory, Path, Scores
from decgraph.runtime.models.table import TableFeatures, TableModel
from decgraph.runtime.noise import exponentials, output_key, race
from lab.recordings.tables import TableLM, untied

Text = tuple[int, ...]
Key = tuple[Any, ...]


class TableHead(TableFeatures):
    """A head on a table's features: a row for the tokens whose features it has and those below them, a part of it (share)
    the target's own, so that drafts are often accepted. below: of how many tokens below the root it knows more than that they
    are there."""

    def __init__(self, target: TableModel, seed: int, *, share: float = 0.6, below: int | None = None) -> None:
        super().__init__(target, seed)
        self.share, self.below = Fraction(share), below
        self.rows: dict[Key, tuple[Fraction, ...]] = {}

    def row(self, known: Sequence[Any], path: Sequence[Any]) -> tuple[Fraction, ...]:
        """The probabilities below a path, of which the features of `known` are there."""
        seen = tuple(path) if self.below is None else (*path[: self.below + 1], *(0 for _ in path[self.below + 1 :]))
        key = (tuple(known), seen)
        if key not in self.rows:
            r = random.Random(f"{self.name} {key!r}")
            own = [int(10**4 * 2.718281828 ** r.gauss(0, 1)) + 1 for _ in range(self.vocab.size)]
            said = self.target.eval([(*known, *seen)])[0].weights or ()
            rest = (1 - self.share) / sum(own)
            self.rows[key] = tuple(self.share * t + rest * w for t, w in zip(said, own, strict=True))
        return self.rows[key]

    def eval(self, paths: Sequence[Path], memory: Memory | None = None) -> list[Scores]:
        """See `Model.eval`."""
        found = []
        for path in paths:
            past = self.target.memory(path[:-1]) if memory is None else memory
            n = min(past.length, len(path) - 1)
            found.append(Scores(weights=self.row([past.cells[i] for i in range(n)], path[n:])))
        return found


class TableHeads(TableModel):
    """A target with heads beside each other: half of a row is what the target says after its own likeliest tokens, and half
    the head's own. count: how many."""

    def __init__(self, size: int, seed: int, count: int) -> None:
        super().__init__(size, seed, heads=count, vocab="t", name="target")
        self._table = untied(size, seed, window=None)._table
        self.rows: dict[Key, tuple[Fraction, ...]] = {}

    def row(self, number: int, text: tuple[Any, ...]) -> tuple[Fraction, ...]:
        """What a head says at the last token of a text."""
        if (number, text) not in self.rows:
            r = random.Random(f"{self.seed} {number} {text!r}")
            own = [int(10**4 * 2.718281828 ** r.gauss(0, 1)) + 1 for _ in range(self.vocab.size)]
            ahead = text
            for _ in range(number + 1):
                said = self.eval([ahead])[0].weights or ()
                ahead = (*ahead, said.index(max(said)))
            said = self.eval([ahead])[0].weights or ()
            self.rows[number, text] = tuple((t + Fraction(w, sum(own))) / 2 for t, w in zip(said, own, strict=True))
        return self.rows[number, text]

    def heads(self, path: Path) -> list[Scores]:
        """See `Model.heads`."""
        return [Scores(weights=self.row(i, tuple(path))) for i in range(self.heads_count)]


class States:
    """Numbers for what was read, and the rows that are read out of them."""

    width = 2

    def __init__(self) -> None:
        self.keys, self.numbers = list[Key](), dict[Key, int]()
        self.readers = dict[str, Callable[..., Sequence[Fraction]]]()

    def of(self, keys: Sequence[Key]) -> torch.Tensor:
        """float32[len(keys), 2]: the states."""
        for key in keys:
            if key not in self.numbers:
                self.numbers[key] = len(self.keys)
                self.keys.append(key)
        return torch.tensor([divmod(self.numbers[key], 1024) for key in keys], dtype=torch.float32)

    def read(self, states: torch.Tensor) -> list[Key]:
        """What states [..., 2] stand for, in order."""
        rows = states.detach().float().reshape(-1, self.width).tolist()
        return [self.keys[round(a) * 1024 + round(b)] for a, b in rows]

    def scores(self, states: torch.Tensor) -> torch.Tensor:
        """float32[..., V]: logits of states [..., 2], by the reader that their key names first."""
        rows = [self.readers[key[0]](*key[1:]) for key in self.read(states)]
        logits = torch.tensor([[float(w) for w in row] for row in rows], dtype=torch.float64).log().float()
        return logits.reshape(*states.shape[:-1], -1)


def seen_by(keys: torch.Tensor, slots: Sequence[bool]) -> Text:
    """The tokens by position of the slots that a row sees. keys: float[S, 2], token and position of each."""
    at = sorted((int(p), i, int(t)) for i, ((t, p), s) in enumerate(zip(keys.tolist(), slots, strict=True)) if s)
    return tuple(token for _, _, token in at)


def visible(before: int, n: int, i: int, tree: torch.Tensor | None) -> list[bool]:
    """The slots that row i of n new ones sees: those up to its own, of the last ones those that a tree mask lets through."""
    slots = [j <= before + i for j in range(before + n)]
    if tree is not None:
        width = tree.shape[-1]
        slots[-width:] = [a and bool(b) for a, b in zip(slots[-width:], tree[0, 0, i - n] != 0, strict=True)]
    return slots


class KeptLM:
    """A target as the forks of Medusa and EAGLE call it: `model` writes into their own KV cache and gives states, under a tree
    mask that is an attribute of `model`; `lm_head` reads them. calls: by call, the rows' texts."""

    def __init__(self, table: TableModel, states: States, mask: str = "tree_mask", room: int = 512) -> None:
        self.table, self.states, self.calls = table, states, list[list[Text]]()
        states.readers["target"] = self.row
        self.config = SimpleNamespace(
            vocab_size=table.vocab.size, num_hidden_layers=1, num_key_value_heads=1, num_attention_heads=1, hidden_size=2,
            max_position_embeddings=room, pretraining_tp=1,
        )  # fmt: skip
        self.device, self.dtype = torch.device("cpu"), torch.float32
        self.lm_head = states.scores
        self.model = _Kept(self, mask)

    def __call__(self, *args: Any, **more: Any) -> Any:
        """The layers and the head."""
        (states,) = self.model(*args, **more)
        return SimpleNamespace(logits=self.lm_head(states), past_key_values=more.get("past_key_values"))

    def row(self, text: Text) -> Sequence[Fraction]:
        """The table's row after a text."""
        return self.table.eval([text])[0].weights or ()


class _Kept:
    """The layers of a KeptLM."""

    def __init__(self, of: KeptLM, mask: str) -> None:
        self.of, self.mask = of, mask
        # as many forks find their device
        self.layers = [SimpleNamespace(self_attn=SimpleNamespace(q_proj=SimpleNamespace(weight=torch.zeros(1))))]
        setattr(self, mask, None)

    def __call__(
        self,
        input_ids: torch.Tensor,
        attention_mask: Any = None,
        past_key_values: Any = None,
        position_ids: Any = None,
        **_: Any,
    ) -> Any:
        ((keys, values),) = past_key_values
        before, n = int(keys.shape[2]), input_ids.shape[1]
        position_ids = torch.arange(before, before + n) if position_ids is None else position_ids.reshape(-1)
        rows = torch.stack([input_ids[0].float(), position_ids.float()], -1)[None, None]
        held = keys.cat(rows, dim=2)[0, 0]
        values.cat(rows, dim=2)
        tree = getattr(self, self.mask)
        texts = []
        for i in range(n):
            texts.append(seen_by(held, visible(before, n, i, tree)))
        self.of.calls.append(texts)
        return Outputs((self.of.states.of([("target", t) for t in texts])[None],))


class Outputs(tuple[Any, ...]):
    """A model's outputs, by number or by name."""

    @property
    def last_hidden_state(self) -> Any:
        """The first."""
        return self[0]


class HeadNet:
    """The network of a head of EAGLE's kind, in the place of `self` in the authors' drafting: its input is a state, the
    target's or its own, and the token behind it; a row is about the path that these make. masked: what a row sees by mask and
    positions must be that path. What else drafting asks of `self` is an attribute."""

    def __init__(self, heads: Mapping[str, TableHead], states: States, masked: bool = True, **more: Any) -> None:
        self.states, self.masked, self.tree_mask, self.stable_kv = states, masked, None, None
        self.embed_tokens = SimpleNamespace(weight=torch.zeros(1))
        self.logsoftmax = torch.nn.LogSoftmax(dim=-1)
        for name, head in heads.items():
            states.readers[name] = head.row
        self.__dict__.update(more)

    def reset(self) -> None:
        """No tree mask."""
        self.tree_mask = None

    def reset_kv(self) -> None:
        """Of a new text."""
        self.stable_kv = None

    def paths(self, hidden_states: torch.Tensor, input_ids: torch.Tensor) -> list[tuple[Text, Text]]:
        """For each row the tokens whose features are there, and the path behind them."""
        found = []
        for key, token in zip(self.states.read(hidden_states), input_ids.reshape(-1).tolist(), strict=True):
            found.append((key[1], (token,)) if key[0] == "target" else (key[1], (*key[2], token)))
        return found

    def __call__(
        self, hidden_states: torch.Tensor, input_ids: torch.Tensor, past_key_values: Any = None, position_ids: Any = None,
        **_: Any,
    ) -> Any:  # fmt: skip
        paths = self.paths(hidden_states, input_ids)
        n, before = len(paths), 0 if past_key_values is None else past_key_values[0][0].shape[2]
        position_ids = torch.arange(before, before + n) if position_ids is None else position_ids.reshape(-1)
        rows = torch.stack([input_ids.reshape(-1).float(), position_ids.float()], -1)[None, None]
        keys = rows if past_key_values is None else torch.cat([past_key_values[0][0], rows], dim=2)
        for i, (known, path) in enumerate(paths if self.masked else []):
            slots = visible(before, n, i, self.tree_mask)
            assert seen_by(keys[0, 0], slots) == (*known, *path)[1:], "a row sees what is not on its path"
        return self.states.of([("head", *p) for p in paths])[None], [(keys, keys)]


class StatedLM(TableLM):
    """A TableLM that gives states as well, each layer's the same, and a head that reads them."""

    def __init__(self, table: TableModel, states: States, eos: int | None = None) -> None:
        super().__init__(table, eos)
        self.states = states
        states.readers["target"] = lambda text: table.eval([text])[0].weights or ()
        self.lm_head = states.scores
        embed = lambda ids: torch.stack([ids.float(), torch.zeros_like(ids).float()], -1)
        self.model = SimpleNamespace(embed_tokens=embed)

    def forward(self, *args: Any, **more: Any) -> Any:
        """See TableLM."""
        out = super().forward(*args, **more)
        (texts,) = self.calls[-1]
        states = self.states.of([("target", text) for text in texts])[None]
        out.hidden_states = (states, states)
        if more.get("logits_to_keep"):
            out.logits = out.logits[:, -more["logits_to_keep"] :]
        return out


class CroppedCache(DynamicCache):
    """A cache whose `crop` is told how many tokens stay, as transformers had it before version 5."""

    def crop(self, max_length: int) -> None:
        """Drop what is behind these tokens."""
        if (more := self.get_seq_length() - max_length) > 0:
            super().crop(-more)


@contextmanager
def drawn_by_place(model: Any, seed: int) -> Iterator[None]:
    """torch.multinomial draws a target's tokens, a row after the other, with the noise that decgraph's tokens have at the
    place: theirs draws at every row, ours at those it needs. model: whose last call gave the rows."""

    def multinomial(p: torch.Tensor, num_samples: int = 1, **_: Any) -> torch.Tensor:
        rows = p.detach().double().reshape(-1, p.shape[-1]).numpy()
        texts = [t for row in model.calls[-1] for t in (row if isinstance(row, list) else [row])][-len(rows) :]
        drawn = [race(row, noise(seed, len(text), len(row))) for row, text in zip(rows, texts, strict=True)]
        return torch.tensor(drawn).reshape(*p.shape[:-1], 1)

    with mock.patch.object(torch, "multinomial", multinomial):
        yield


def noise(seed: int, place: int, size: int) -> np.ndarray:
    """float64[size]: what decides the output's draw at a place of a request with this seed."""
    return exponentials(output_key(seed, 0, place), size)


def told(calls: Sequence[Sequence[Text]], case: Mapping[str, Any], output: Sequence[int]) -> dict[str, Any]:
    """The columns of a loop of trees: the text up to the limit or its first end, and what each call, the prompt's first,
    drafted and accepted. Calls behind an end token, which some loops see late, are left out. output: what the loop
    returns, which ends with the last accepted token."""
    start, limit = len(case["prompt"]), len(case["prompt"]) + case["limit"]
    ends = [i + 1 for i in range(start, len(output)) if output[i] in case["eos"]]
    kept = [texts for texts in calls if not ends or len(texts[0]) < ends[0]]
    lengths = [len(texts[0]) for texts in kept[1:]]
    after = min([len(texts[0]) for texts in calls[len(kept) :]] + [len(output) + 1] + [n + 1 for n in ends])
    return {
        "tokens": list(output)[: min([limit, *ends])],
        "drafted": [[], *(drafted_below(texts, n) for texts, n in zip(kept[1:], lengths, strict=True))],
        "accepted": [0, *(b - a - 1 for a, b in pairwise([*lengths, after]))],
    }


def drafted_below(texts: Sequence[Text], root: int) -> list[Text]:
    """What a verifying call read below its root, the committed text of so many tokens: paths, sorted."""
    return sorted({text[root:] for text in texts} - {()})
