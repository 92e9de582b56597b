"""The drafts of an exported program, from the tokens of a text: the program's own steps up to the verification, interpreted.

What an exported file runs inside another engine. It needs NumPy and no torch. A text that goes on where it was asked for
before goes on with its indexes: an index learns each token once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from decgraph.backends.reference.machine import ReferenceMachine
from decgraph.backends.run import Stop
from decgraph.errors import DecError, InternalError
from decgraph.ir.data.tree import Tree, edge_token
from decgraph.ir.text import parse_module, print_module
from decgraph.ir.values import Module, Op
from decgraph.runtime.models.interface import Vocab
from decgraph.runtime.request import Request
from decgraph.runtime.session import check_params

KEPT = 512
"""How many texts are kept at a time; the one that was asked for longest ago is forgotten first."""
NO_LIMIT = 1 << 40


class TargetWanted(Stop):
    """The program would call the target now, to verify this tree."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree


class _Elsewhere:
    """In the place of the target, which the engine has: nothing of it is asked."""

    name, kind, context, mask = "target", "causal", None, None
    vocab = Vocab("V", 1 << 31)


class _Drafting(ReferenceMachine):
    """One text."""

    def begin(self) -> None:
        self.values = self.arguments()
        self.env.update((p.value, v) for p, v in zip(self.function.params, self.values, strict=True))
        self.start_states(self.values)

    def evaluate(self, op: Op, model: Any, place: Any, extra: dict[str, Any]) -> NoReturn:
        raise TargetWanted(place)

    def go_on(self, tokens: Sequence[int]) -> None:
        """What the engine committed since."""
        self.tokens += tokens
        self.learn_committed(tokens)

    def drafts(self) -> list[int]:
        """The chain that the next step drafts. Raises InternalError for a tree with branches."""
        try:
            self.region(self.function.body, self.values)
        except TargetWanted as drafted:
            nodes = drafted.tree.nodes[1:]
            if [n.parent for n in nodes] != list(range(len(nodes))):
                raise InternalError(f"{self.function.name} was exported as a chain, and drafted a tree") from None
            return [int(edge_token(n.edge)) for n in nodes]
        return []


class Drafter:
    """The drafts of an exported program.

    program: a module's text form (`ir/text.py`). params: values of the algorithm's parameters; the others have their defaults.
    Raises DecError for values that the program does not take.
    """

    def __init__(self, program: str, params: Mapping[str, Any] | None = None) -> None:
        self.module: Module = parse_module(program)
        function = self.module.entry
        self.params = check_params(function, dict(params or {}))
        self.target = next(p.name for p in function.params if p.value.type.elem == "model")
        self.live: OrderedDict[int, _Drafting] = OrderedDict()
        self.serial = 0

    def propose(self, tokens: Sequence[int], most: int) -> list[int]:
        """At most `most` tokens that may follow a text of token ids. Raises DecError for an empty text."""
        if not tokens:
            raise DecError("there is no text to draft after", hint="at least one token")
        if most < 1:
            return []
        machine = self.of(list(tokens))
        return machine.drafts()[:most]

    def of(self, tokens: list[int]) -> _Drafting:
        """The run of a text: of the longest kept beginning of it, or a new one."""
        best = max(
            (n for n, m in self.live.items() if len(m.tokens) <= len(tokens) and m.tokens == tokens[: len(m.tokens)]),
            key=lambda n: len(self.live[n].tokens),
            default=None,
        )
        if best is None:
            self.serial = best = self.serial + 1
            request = Request(prompt=tuple(tokens), max_tokens=NO_LIMIT, request_id=best)
            models: dict[str, Any] = {self.target: _Elsewhere()}
            self.live[best] = machine = _Drafting(self.module, self.module.main, models, self.params, request)
            machine.begin()
        else:
            machine = self.live[best]
            machine.go_on(tokens[len(machine.tokens) :])
        self.live.move_to_end(best)
        while len(self.live) > KEPT:
            self.live.popitem(last=False)
        return machine


def carried(module: Module) -> str:
    """The text of what an exported file carries of a module: its algorithm without claims, and nothing else."""
    return print_module(Module({module.main: replace(module.entry, claims=())}, module.main, module.path))
