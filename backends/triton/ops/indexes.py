"""Indexes of the lane's own text: what followed the end of the text where it stood before. They are searched, not built: one
comparison of the text with its shifted self says how long the match is at every place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decgraph.backends.indexes import ROOM
from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Draws, Nodes, Operand, Path, Shared, Vec, is_static
from decgraph.ir.values import Op


@dataclass(frozen=True)
class TokenIndex(Shared):
    """An index of the lane's committed tokens, from the prompt's first one on, or (prompt False) of those behind the prompt.
    depth: the most tokens that are looked up."""

    depth: int
    prompt: bool = False


@step("index.new")
def new(s: Step, op: Op, *sizes: int) -> TokenIndex:
    """An empty index."""
    if op.attrs["kind"] == "lru":
        raise NotSteppable("a table of entries", op)
    room = int(sizes[1]) if len(sizes) > 1 else ROOM
    if s.frame.capacity > room:
        raise NotSteppable(f"an index that forgets all but {room} tokens", op)
    return TokenIndex(int(sizes[0]) if sizes and int(sizes[0]) else 64)


@step("index.learn")
def learn(s: Step, op: Op, index: TokenIndex, tokens: Operand, *more: Operand) -> TokenIndex:
    """An index of the text from the prompt on."""
    if not isinstance(index, TokenIndex) or index.prompt or not (isinstance(tokens, Vec) and tokens.data is s.tokens):
        raise NotSteppable("an index of other texts than the request's", op)
    return TokenIndex(index.depth, True)


def end_of(s: Step, place: Operand, depth: int) -> tuple[Tensor, Tensor]:
    """The last tokens of a text, int64[B, depth], the last one first, and bool[B, depth], which there are."""
    if isinstance(place, Context):
        length = place.length - int(place.parent)
        at = length[:, None] - 1 - s.steps(depth)
        return s.tokens.gather(1, at.clamp(min=0)), at >= 0
    x, operands = s.packed(s.tokens_of(place)), s.place.operands if s.place is not None else ()
    named = len(operands) < 2 or operands[1].type.elem == "node"
    if isinstance(x, Nodes) or named and not isinstance(place, Path):
        raise NotSteppable("an index is asked at a node", s.place)
    t, n = s.lanes(x), s.lives(x).sum(1)
    at = n[:, None] - 1 - s.steps(depth)
    if not t.shape[1]:
        return torch.zeros_like(at), at < -1
    return t.gather(1, at.clamp(0, int(t.shape[1]) - 1)), at >= 0


def matches(s: Step, index: TokenIndex, key: Tensor, there: Tensor) -> Tensor:
    """int64[B, S]: how many of the last tokens of a key stand before every place of the text behind which something follows."""
    text = s.tokens[:, :-1]
    size = int(text.shape[1])
    first = torch.zeros_like(s.length) if index.prompt else s.base
    place = s.steps(size)[None]
    good = (place >= first[:, None]) & (place < s.length[:, None] - 1)
    out = torch.zeros_like(text)
    for d in range(min(index.depth, int(key.shape[1]), size)):
        shifted = torch.cat([text.new_full((text.shape[0], d), -1), text[:, : size - d]], 1)
        good = good & (shifted == key[:, d : d + 1]) & there[:, d : d + 1] & (place - d >= first[:, None])
        out = out + good.long()
    return out


@step("index.ask")
def ask(s: Step, op: Op, index: Operand, *args: Operand) -> Operand:
    """What followed the end of a text."""
    if not isinstance(index, TokenIndex):
        raise NotSteppable("an index of other texts than the request's", op)
    what, named = op.attrs["what"], op.attrs.get("named", ())
    options = dict(zip(named, args[len(args) - len(named) :], strict=True))
    if len(op.operands) < 2 or not args or op.operands[1].type.elem == "int" and not op.operands[1].type.dims:
        raise NotSteppable("an index is asked for what followed so many tokens", op)
    key, there = end_of(s, args[0], index.depth)
    found = matches(s, index, key, there)
    longest = found.amax(1)
    if what == "matched":
        return longest
    if what == "has":
        return (longest >= there.sum(1)) & (s.lives(s.tokens_of(args[0])).sum(1) <= index.depth)
    if what != "path":
        raise NotSteppable(f"an index that is asked for `{what}`", op)
    least, most, pick = options.get("at_least", 1), options.get("at_most", 16), str(options.get("pick", "last"))
    if not is_static(most):
        raise NotSteppable("a path of a length that data chooses", op)
    if pick == "likeliest":
        return likeliest(s, index, key, there, least, int(most))
    enough = longest >= s.tensor(least).clamp(min=1)
    hit = (found >= longest[:, None]) & (found > 0)
    size = int(hit.shape[1])
    at = hit.long().argmax(1) if pick == "first" else size - 1 - hit.flip(1).long().argmax(1)
    where = at[:, None] + 1 + s.steps(int(most))
    live = (where < s.length[:, None]) & enough[:, None]
    return Draws(s.tokens.gather(1, where.clamp(max=size)), point=True, live=live)


def likeliest(s: Step, index: TokenIndex, key: Tensor, there: Tensor, least: Operand, most: int) -> Draws:
    """Token by token what followed most often, the smaller of equals. key: int64[B, n]; there: bool[B, n]."""
    tokens, lives = [], []
    going = torch.ones_like(s.done)
    for _ in range(most):
        found = matches(s, index, key, there)
        longest = found.amax(1)
        going = going & (longest >= s.tensor(least).clamp(min=1))
        hit = (found >= longest[:, None]) & (found > 0)
        after = torch.cat([s.tokens[:, 1:-1], s.tokens[:, :1]], 1)
        count = torch.zeros((s.frame.batch, s.vocab_size), dtype=torch.int64, device=s.device)
        best = count.scatter_add(1, torch.where(hit, after, 0).clamp(0, s.vocab_size - 1), hit.long()).argmax(1)
        tokens.append(best)
        lives.append(going)
        key = torch.cat([best[:, None], key[:, :-1]], 1)
        there = torch.cat([torch.ones_like(there[:, :1]), there[:, :-1]], 1)
    return Draws(torch.stack(tokens, 1), point=True, live=torch.stack(lives, 1))
