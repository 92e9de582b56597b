"""Programs that draft: over an engine's own buffer of token ids, or with their own verification by the engine's logits.

`Drafts.draft` runs a program up to its call of the target, for all rows of the engine's buffer at once; the engine verifies.
Nothing is copied by request, hashed or read back. In the other use requests are entered in lanes: `propose` gives the nodes at
which the program calls its target, `finish` goes on with the engine's logits there, to another call or to what was committed.
Each request is a session of its own, as in `decgraph serve`: no request's tokens depend on which others there are.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from decgraph.backends.seams.seam import NO_LIMIT, PLAIN, EngineSlots, Lanes, Seam, read
from decgraph.backends.triton.ops.nodes import last_token
from decgraph.backends.triton.state import Step
from decgraph.backends.triton.support import NotSteppable
from decgraph.backends.triton.values import Array, NodeSet, Operand, Path, Tree, Vec, is_static
from decgraph.backends.triton.vectors import fitted
from decgraph.errors import DecError
from decgraph.ir.values import Module, Op, Region
from decgraph.runtime.arguments import ParamValue
from decgraph.runtime.request import Request


@dataclass(frozen=True)
class Asked:
    """What the target is asked about. tokens: int64[n, N], the first of them the engine's last; parents: int64[n, N], 0 for the
    root and for what is not there; live: bool[n, N]; height: the most that a node can be below the root."""

    tokens: Tensor
    parents: Tensor
    live: Tensor
    height: int

    def laid_out(self, size: int) -> tuple[Tensor, Tensor]:
        """Tokens int64[n, size], and which nodes each of them sees, bool[n, size, size]: itself and those above it. Nodes that
        are not there, and those that are put behind the others, stand under the root."""
        tokens, up = fitted(self.tokens, size), fitted(self.parents, size)
        seen = torch.eye(size, dtype=torch.bool, device=tokens.device).expand(len(up), -1, -1)
        for _ in range(max(1, self.height).bit_length()):  # every round doubles how far up they see
            seen, up = seen | seen.gather(1, up[..., None].expand(-1, -1, size)), up.gather(1, up)
        return tokens, seen


@dataclass(frozen=True)
class NewTokens:
    """What a step gave the engine. tokens: int64[n, m], of which the first counts int64[n] are new. nodes: int64[n, m], the
    node of the last call that each of them stands behind: their keys and values are the text's."""

    tokens: Tensor
    counts: Tensor
    nodes: Tensor


class NodeSlots(EngineSlots):
    """The slots of a target that is called at trees of drafts."""

    def states(self, tree: Tree | None, nodes: NodeSet | Array, known: Tensor | None = None) -> Tensor:
        """The engine's logits [B, n, V] at nodes. Raises NotSteppable where it was asked for none."""
        logits = cast(Drafting, self.s).logits
        if logits is None:
            raise NotSteppable("the target is called where the engine cannot be asked", self.s.place)
        return self.s.take(logits, nodes)

    def committed(self, before: Tensor, accepted: Tensor, most: int, path: Path | None) -> None:
        s = cast(Drafting, self.s)
        if path is None or s.at is None or path.tree.token is not s.at.token:  # not the tokens that the target read
            s.lead = max(s.lead, most - 1)


class Drafting(Seam):
    """A step whose target is called at trees of drafts. An iteration is a generator: it gives the trees at which the target is
    called (None: at the text), and goes on when `logits` are there. lead: how many committed tokens the engine may have no keys
    and values of, at most."""

    slots: ClassVar = {**Step.slots, "": NodeSlots}
    lengths, as_driver = True, False
    at: Tree | None = None
    lead = 0
    asks = False
    """Whether the engine would be asked next."""
    sparing = True
    """Whether nodes are left out that no lane has, where that is known (on a CPU)."""

    def iteration_of(self) -> Generator[Tree | None, None, None]:
        """An iteration of the program's loop."""
        assert self.loop is not None
        live, arguments = self.opened()
        with self.within(live):
            self.closed(live, (yield from self.called(self.loop.regions[1], arguments)))

    def called(self, region: Region, arguments: Sequence[Operand]) -> Generator[Tree | None, None, Sequence[Operand]]:
        """The yields of a region in which the target is called, maybe in loops. Raises NotSteppable where it is elsewhere."""
        self.env.update(zip(region.args, arguments, strict=True))
        for op in region.ops:
            if op.opcode == "model.eval":
                yield next((p for v in op.operands[1:] if isinstance(p := self.env[v], Tree)), None)
                self.op(op)
                self.logits = None
            elif not any(o.opcode.startswith("model.e") for r in op.regions for o in r.walk()):
                self.op(op)
            elif op.opcode == "for":
                yield from self.looped(op)
            else:
                raise NotSteppable(f"the target is called inside `{op.opcode}`, about which data decides", op)
        return [self.env[v] for v in region.yields]

    def looped(self, op: Op) -> Generator[Tree | None, None, None]:
        """A loop with calls of the target in every iteration."""
        first, last, *carried = (self.env[v] for v in op.operands)
        if not (is_static(first) and is_static(last)):
            raise NotSteppable("a loop over calls of the target whose bounds depend on data", op)
        bodies = self.iterations(op, range(int(first), int(last)), carried, lambda i: None)
        try:
            made: Sequence[Operand] | None = None
            while True:
                self.asks = True
                arguments = bodies.send(cast(Any, made))
                self.asks = False
                made = yield from self.called(op.regions[-1], arguments)
        except StopIteration as over:
            self.env.update(zip(op.results, over.value, strict=True))
        finally:
            self.asks = False
            bodies.close()

    def quiet(self, op: Op) -> bool:
        return not any(o.opcode.startswith(("commit", "state.w")) for r in op.regions for o in r.walk())

    def idle(self, lanes: Tensor) -> bool:
        """Whether no lane is here; before the engine is asked once more, that is read."""
        return self.sparing and super().idle(lanes) or self.asks and not bool((lanes & self.active()).any())


class Drafts:
    """One program. program: its module, or the text of one; rows: how many requests there are at once; capacity: tokens of a
    text in a lane (of `enter`); sparing: as `Drafting` has it. Raises NotSteppable for a program that has no such step,
    DecError for wrong values of parameters."""

    def __init__(
        self, program: str | Module, params: Mapping[str, ParamValue] | None = None, *, rows: int, vocab: int,
        device: torch.device | str = "cpu", capacity: int = 64, sparing: bool = True,
    ) -> None:  # fmt: skip
        self.module, self.params, self.rows, self.vocab = read(program), dict(params or {}), rows, vocab
        self.device, self.capacity, self.sparing = torch.device(device), capacity, sparing
        self.sizes: dict[int, Drafting] = {}
        self.lanes: Lanes[Drafting] | None = None
        self.now: tuple[int, ...] = ()
        self.lead = 0
        self._step(1)

    def _made(self, rows: int, features: frozenset[str] = PLAIN, capacity: int = 1) -> Drafting:
        made = Drafting(
            self.module, self.params, vocab=self.vocab, lanes=rows, capacity=capacity, device=self.device, features=features
        )
        made.sparing = self.sparing
        return made

    def _step(self, rows: int) -> Drafting:
        """The step over so many rows of an engine's buffer."""
        if rows not in self.sizes:
            s = self.sizes[rows] = self._made(rows)
            if s.loop is None:
                raise NotSteppable("it has no loop `while not done`")
            for row in range(rows):
                s.admit(row, Request(prompt=(0,), max_tokens=1))
            s.begin_lanes(range(rows), torch.ones_like(s.done))
        return self.sizes[rows]

    # -- over the engine's buffer
    @property
    def reads_prompt(self) -> bool:
        """Whether drafts depend on where the prompt ends, so that `draft` needs `prompts`."""
        assert (loop := self._step(1).loop) is not None
        asked = [op for r in loop.regions for op in r.walk() if op.opcode == "request"]
        return any(op.attrs["field"] in ("prompt", "room", "limit") for op in asked)

    @torch.no_grad()
    def draft(
        self, texts: Tensor, lengths: Tensor, width: int | None = None, prompts: Tensor | None = None, most: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Tokens int[n, k] that may follow texts int[n, T], and bool[n, k], which of them are there.

        lengths: int64[n]; a row of length 0, or whose text fills the buffer, gets none. width: columns that are looked at, by
        default all; prompts: int64[n], the lengths of the prompts; most: k at most. Raises NotSteppable for drafts that are no
        chain of the texts' tokens alone, DecError where `prompts` are needed."""
        n, width = len(lengths), min(int(texts.shape[1]), (width or int(texts.shape[1])) + 1)
        if prompts is None and self.reads_prompt:
            raise DecError(f"{self.module.main} reads where a prompt ends", hint="hand over the lengths of the prompts")
        s = self._step(n)
        assert s.loop is not None
        calls = [op for r in s.loop.regions for op in r.walk() if op.opcode.startswith("model.e")]
        if len(calls) > 1:
            raise NotSteppable("it calls the target once more: the engine calls it to verify", calls[-1])
        if any(isinstance(v, Tensor | Vec) for v in (*s.states.values(), *s.carried)):
            raise NotSteppable("it remembers more than the text, such as how earlier drafts were verified")
        s.tokens, s.frame = texts[:n, :width], replace(s.frame, capacity=width - 1)
        s.done.copy_((lengths == 0) | (lengths >= width))
        s.length.copy_(torch.where(s.done, 0, lengths))
        s.base.copy_(lengths if prompts is None else prompts)
        s.limit.fill_(NO_LIMIT)
        s.lost.fill_(False)
        s.longest_chain = most
        iteration = s.iteration_of()
        tree = next(iteration)
        iteration.close()
        if tree is None or not tree.fixed or list(tree.parent[1:]) != list(range(tree.size - 1)):
            raise NotSteppable("it drafts a tree: the engine takes one chain")
        return tree.token[:, 1:][:, :most], (s.lives(tree)[:, 1:] & ~s.over()[:, None])[:, :most]

    # -- with verification
    def enter(
        self, lane: int, prompt: Sequence[int], output: Sequence[int] = (), *, settings: Mapping[str, Any] | None = None
    ) -> None:
        """A request begins in a lane, with the tokens that it has generated before. settings: fields of `Request`."""
        self._leave()
        if self.lanes is None:
            self.lanes = Lanes(self.rows, lambda n, features: self._made(n, features, self.capacity), undoes=False)
            self.known = torch.zeros_like(self.lanes.table.length)
            """int64[rows]: how many tokens of a lane's text the engine has."""
        self.lanes.enter(lane, prompt, output, settings=settings)
        self.known[lane] = len(prompt) + len(output)

    def _leave(self) -> None:
        """The lanes of the last steps have what those came to."""
        if self.now and self.lanes is not None:
            at = torch.tensor(self.now, device=self.device)
            self.lanes.store(at, self.s, self.capacity)
            self.known[at] = self.engine[: len(at)]
        self.now = ()

    @torch.no_grad()
    def propose(self, at: Sequence[int]) -> Asked:
        """Begin a step of lanes: what the engine computes first. As long as the lanes are the same nothing is copied."""
        if tuple(at) != self.now:
            self._leave()
            assert self.lanes is not None, "enter a request first"
            rows = torch.tensor(at, device=self.device)
            self.s, self.now = self.lanes.step(rows), tuple(at)
            self.engine = torch.cat([self.known[rows], self.known[rows[:1]].expand(self.s.batch - len(at))])
        self.s.lead = self.lead
        self.asked: Asked | None = None
        self.iteration = self.s.iteration_of()
        return self._ask(next(self.iteration))

    def _ask(self, tree: Tree | None) -> Asked:
        """What the engine computes: the nodes of a tree, or the text's last token alone, behind the tokens that it lacks."""
        s, lead, b = self.s, self.lead, self.s.batch
        tokens, parents = last_token(s)[:, None], torch.zeros((b, 1), dtype=torch.int64, device=self.device)
        live, height = torch.ones((b, 1), dtype=torch.bool, device=self.device), 0
        if tree is not None:
            tokens = torch.cat([tokens, tree.token[:, 1:].clamp(min=0)], 1)
            parents, live, height = s.lanes(tree.parent), s.lives(tree), tree.height
        if lead:
            place, behind = s.steps(lead + 1), (s.length - self.engine)[:, None]
            chain = s.tokens.gather(1, (self.engine[:, None] - 1 + place).clamp(max=self.capacity))
            parents = torch.where(parents == 0, behind, parents + lead)[:, 1:]
            parents = torch.cat([s.lanes((place - 1).clamp(min=0)[None]), parents], 1)
            tokens, live = torch.cat([chain, tokens[:, 1:]], 1), torch.cat([place <= behind, live[:, 1:]], 1)
        new = Asked(tokens, torch.where(live, parents, 0), live, height + lead)
        old, here = self.asked, s.active()[:, None]
        if old is not None and old.tokens.shape == tokens.shape:  # lanes that have left a loop stay as they were
            new = Asked(
                torch.where(here, new.tokens, old.tokens),
                torch.where(here, new.parents, old.parents),
                torch.where(here, new.live, old.live),
                new.height,
            )
        self.asked, s.at = new, tree
        n = len(self.now)
        return Asked(new.tokens[:n], new.parents[:n], new.live[:n], new.height)

    @torch.no_grad()
    def finish(self, logits: Tensor) -> Asked | NewTokens:
        """Go on with the engine's logits [n, N, V] at the nodes: to another call of the target, or to the end of the step."""
        s, n, lead = self.s, len(logits), self.lead
        if lead:
            at = (s.length - self.engine)[:n, None]
            at = torch.cat([at, s.steps(int(logits.shape[1]))[lead + 1 :].expand(n, -1)], 1)
            logits = s.take(logits, at)
        s.logits = logits.float() if n == s.batch else logits.float()[(s.steps(s.batch) % n)]
        try:
            return self._ask(next(self.iteration))
        except StopIteration:
            return self._committed()

    def _committed(self) -> NewTokens:
        """What the engine can be given: tokens behind which the keys and values are theirs, and one more."""
        s, asked = self.s, cast(Asked, self.asked)
        most = self.lead + s.committed_now
        tokens = s.tokens.gather(1, (self.engine[:, None] + s.steps(most)).clamp(max=self.capacity))
        count = s.length - self.engine
        depth, up = (s.steps(int(asked.tokens.shape[1]))[None] > 0).long().expand_as(asked.parents), asked.parents
        ups = []
        for _ in range(asked.height.bit_length()):  # every round doubles how far up it is
            ups.append(up)
            depth, up = depth + depth.gather(1, up), up.gather(1, up)
        same = asked.live & (tokens.gather(1, (depth - 1).clamp(0, most - 1)) == asked.tokens) & (depth <= count[:, None])
        same = same | (depth == 0)
        for up in ups:
            same = same & same.gather(1, up)
        nodes = torch.zeros((s.batch, asked.height + 2), dtype=torch.int64, device=self.device)
        nodes = nodes.scatter(1, torch.where(same, depth, asked.height + 1), s.lanes(s.steps(int(depth.shape[1]))[None]))
        given = torch.minimum(count, torch.where(same, depth, 0).amax(1) + 1)
        self.engine = self.engine + given
        self.lead, self.asked = max(self.lead, s.lead), None
        n = len(self.now)
        return NewTokens(tokens[:n], given[:n], fitted(nodes, most)[:n])

    def failed(self) -> Tensor:
        """bool[n]: lanes of the last step in which the program has met an error, which `decgraph.run` would word."""
        return self.s.lost[: len(self.now)]
