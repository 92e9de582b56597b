"""The index of the lane's own text: what followed the end of the text where it stood before. It is searched, not built: one
comparison of the text with its last tokens says how long the match is at every place."""

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
    if s.as_driver and (len(sizes) > 1 and s.text_size > room or s.frame.capacity > room):
        raise NotSteppable(f"an index that forgets all but {room} tokens", op)
    return TokenIndex(int(sizes[0]) if sizes and int(sizes[0]) else 64)


@step("index.learn")
def learn(s: Step, op: Op, index: TokenIndex, tokens: Operand, *more: Operand) -> TokenIndex:
    """An index of the text from the prompt on."""
    if not isinstance(index, TokenIndex) or index.prompt or not (isinstance(tokens, Vec) and tokens.data is s.tokens):
        raise NotSteppable("an index of other texts than the request's", op)
    return TokenIndex(index.depth, True)


def last_tokens(s: Step, n: int) -> Tensor:
    """int[B, n]: the last tokens of the text, the last one first; -1 where there are fewer."""
    at = s.length[:, None] - 1 - s.steps(n)
    return torch.where(at >= 0, s.tokens.gather(1, at.clamp(min=0)), -1)


def matches(s: Step, index: TokenIndex, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """int8[B, S]: how many of the last tokens of a key end at every place of the text; bool[B, S], the places that the index
    knows, and those of them behind which something follows. key: int[B, n], the last one first, -1 where there are fewer."""
    text, end = s.tokens[:, :-1], s.length[:, None] - 1
    place = s.steps(int(text.shape[1]))[None]
    known = (place <= end) & (place >= (torch.zeros_like(end) if index.prompt else s.base[:, None]))
    run = torch.zeros_like(known, dtype=torch.int8)
    for d in reversed(range(int(key.shape[1]))):
        run = longer(run, (text == key[:, d : d + 1]) & known, int(key.shape[1]))
    return run, known, known & (place < end)


def longer(run: Tensor, here: Tensor, depth: int) -> Tensor:
    """The same of a key with one more token at its end, of which `depth` are looked up. here: bool[B, S], where that one
    stands."""
    return torch.nn.functional.pad(run[:, :-1], (1, 0)).clamp_(max=depth - 1).add_(1).mul_(here)


@step("index.ask")
def ask(s: Step, op: Op, index: Operand, *args: Operand) -> Draws:
    """What followed the end of the text."""
    what, named = op.attrs["what"], op.attrs.get("named", ())
    options = dict(zip(named, args[len(args) - len(named) :], strict=True))
    least, most, pick = options.get("at_least", 1), options.get("at_most", 16), str(options.get("pick", "last"))
    text = args[0] if len(args) > len(named) else None
    if not isinstance(index, TokenIndex) or not isinstance(text, Context) or text.parent:
        raise NotSteppable("an index is asked about something else than the request's text", op)
    if what != "path" or not is_static(most):
        raise NotSteppable("an index is asked for something else than what followed", op)
    enough = s.tensor(least).clamp(min=1)
    key = last_tokens(s, min(index.depth, s.frame.capacity))
    if pick == "likeliest":
        return likeliest(s, index, key, enough, int(most))
    run, _, follows = matches(s, index, key)
    found = run * follows
    longest = found.amax(1)
    hit = ((found == longest[:, None]) & (found > 0)).to(torch.int8)
    size = int(hit.shape[1])
    at = hit.argmax(1) if pick == "first" else size - 1 - hit.flip(1).argmax(1)
    where = at[:, None] + 1 + s.steps(int(most))
    live = (where < s.length[:, None]) & (longest >= enough)[:, None]
    return Draws(s.tokens.gather(1, where.clamp(max=size)), point=True, live=live)


def likeliest(s: Step, index: TokenIndex, key: Tensor, enough: Tensor, most: int) -> Draws:
    """Token by token what followed the longest end that is known most often, the least of equals. key: int[B, n], as `matches`
    has it; enough: int64[B or 1], how many tokens have to be known."""
    run, known, follows = matches(s, index, key)
    text, after = s.tokens[:, :-1], s.tokens[:, 1:]
    tokens, lives, going = [], [], torch.ones_like(s.done)
    for _ in range(most):
        found = run * follows
        longest = found.amax(1)
        going = going & (longest >= enough)
        tokens.append(most_often(s, (found == longest[:, None]) & (found > 0), after))
        lives.append(going)
        run = longer(run, (text == tokens[-1].to(text.dtype)[:, None]) & known, int(key.shape[1]))
    return Draws(torch.stack(tokens, 1), point=True, live=torch.stack(lives, 1))


def most_often(s: Step, hit: Tensor, tokens: Tensor) -> Tensor:
    """int64[B]: the token that stands most often at the places bool[B, S] of tokens int[B, S], the least of equals."""
    v = int(s.vocab_size)
    if s.device.type == "cpu" and not s.recording:  # places are few, and a vocabulary is large
        row, at = hit.nonzero(as_tuple=True)
        found, count = torch.unique(row * v + tokens[row, at], return_counts=True)
        best = torch.zeros(s.batch, dtype=torch.int64).scatter_reduce(0, found // v, (count + 1) * v - 1 - found % v, "amax")
        return v - 1 - best % v
    counts = torch.zeros((s.batch, v), dtype=torch.int32, device=s.device)
    return counts.scatter_add(1, torch.where(hit, tokens, 0).clamp(0, v - 1).long(), hit.int()).argmax(1)
