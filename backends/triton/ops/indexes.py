"""The index of the lane's own text: what followed the end of the text where it stood before. It is searched, not built: one
comparison of the text with its shifted self says how long the match is at every place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from decgraph.backends.indexes import ROOM
from decgraph.backends.triton.evaluate import step
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Context, Draws, Operand, Shared, Vec, is_static
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
    if len(sizes) > 1 and s.text_size > room or s.frame.capacity > room:
        raise NotSteppable(f"an index that forgets all but {room} tokens", op)
    return TokenIndex(int(sizes[0]) if sizes and int(sizes[0]) else 64)


@step("index.learn")
def learn(s: Step, op: Op, index: TokenIndex, tokens: Operand, *more: Operand) -> TokenIndex:
    """An index of the text from the prompt on."""
    if not isinstance(index, TokenIndex) or index.prompt or not (isinstance(tokens, Vec) and tokens.data is s.tokens):
        raise NotSteppable("an index of other texts than the request's", op)
    return TokenIndex(index.depth, True)


def matches(s: Step, index: TokenIndex) -> Tensor:
    """int64[B, S]: how many of the last tokens stand before every place of the text behind which something follows."""
    text = s.tokens[:, :-1]
    size = int(text.shape[1])
    first = torch.zeros_like(s.length) if index.prompt else s.base
    place = s.steps(size)[None]
    good = (place >= first[:, None]) & (place < s.length[:, None] - 1)
    out = torch.zeros_like(text)
    for d in range(min(index.depth, size)):
        at = s.length[:, None] - 1 - d
        shifted = torch.cat([text.new_full((text.shape[0], d), -1), text[:, : size - d]], 1)
        good = good & (shifted == s.tokens.gather(1, at.clamp(min=0))) & (at >= 0) & (place - d >= first[:, None])
        out = out + good.long()
    return out


@step("index.ask")
def ask(s: Step, op: Op, index: Operand, *args: Operand) -> Draws:
    """What followed the end of the text."""
    what, named = op.attrs["what"], op.attrs.get("named", ())
    options = dict(zip(named, args[len(args) - len(named) :], strict=True))
    least, most, pick = options.get("at_least", 1), options.get("at_most", 16), str(options.get("pick", "last"))
    text = args[0] if len(args) > len(named) else None
    if not isinstance(index, TokenIndex) or not isinstance(text, Context) or text.parent:
        raise NotSteppable("an index is asked about something else than the request's text", op)
    if what != "path" or pick == "likeliest" or not is_static(most):
        raise NotSteppable("an index is asked for something else than what followed the first or last time", op)
    found = matches(s, index)
    longest = found.amax(1)
    hit = (found >= longest[:, None]) & (found > 0)
    size = int(hit.shape[1])
    at = hit.long().argmax(1) if pick == "first" else size - 1 - hit.flip(1).long().argmax(1)
    where = at[:, None] + 1 + s.steps(int(most))
    live = (where < s.length[:, None]) & (longest >= s.tensor(least).clamp(min=1))[:, None]
    return Draws(s.tokens.gather(1, where.clamp(max=size)), point=True, live=live)
