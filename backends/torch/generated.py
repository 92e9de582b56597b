"""What generated drivers import besides the ops (backends/torch/ops), and how a printed driver is run in decgraph.

    $ decgraph compile speculative --emit python > my_speculative.py

    import my_speculative
    from decgraph.backends.torch.generated import driven_by

    session = driven_by(my_speculative, decgraph.load("speculative").session())

A generated module is read and edited like any other; decgraph computes its model calls, alone or with those of other requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING

from decgraph.backends.torch.lowering import Computes, lower
from decgraph.backends.torch.protocols import Machine
from decgraph.backends.torch.walk import Taken, Token, Verdict, walk
from decgraph.errors import DecError
from decgraph.ir.table import lookup
from decgraph.ir.types import parse_dim, parse_type
from decgraph.ir.values import Function, Op, Value

if TYPE_CHECKING:
    from decgraph.runtime.session import Session

__all__ = ["accept", "driven_by", "emit", "parse_dim", "parse_type", "reject", "typed_op", "until_done", "walk"]


class _Nothing:
    """What `accept` is given by a rule that goes on."""


_NOTHING = _Nothing()


def accept(child: Taken, emit: Token | _Nothing = _NOTHING) -> Verdict:
    """Go on at a child; with `emit`, end there with a token."""
    return (True, child, False, None) if isinstance(emit, _Nothing) else (True, child, True, emit)


def emit(token: Token) -> Verdict:
    """End at this node, with a token after it."""
    return False, None, True, token


def reject() -> Verdict:
    """End at this node, without a token."""
    return False, None, False, None


def until_done(m: Machine, where: str) -> Iterator[int]:
    """The number of each decoding step until the request has ended. Raises DecError where a step commits nothing."""
    step = 0
    while not m.done():
        m.check_progress(where, step)
        yield step
        step += 1


def typed_op(opcode: str, *operands: str, results: tuple[str, ...] = (), **attrs: object) -> Computes:
    """The torch lowering of an op that depends on the types of its operands, such as how two vectors line up:
    `typed_op("gather", "real[nodes.t]", "node<t>")` is a function of the machine and the two."""
    types = tuple(map(parse_type, operands))
    made = tuple(map(parse_type, results)) or tuple(lookup(opcode).type(types, attrs, ()))
    lowered = lower(Op(opcode, tuple(Value(t) for t in types), attrs, (), tuple(Value(t) for t in made)))
    fn = lowered.fn
    if lowered.machine and not lowered.kwargs:
        return fn

    def call(m: Machine, *values: object) -> object:
        return fn(m, *values, **lowered.kwargs) if lowered.machine else fn(*values)

    return call


def driven_by(printed: ModuleType, session: Session) -> Session:
    """The session, with its requests run by a printed module: by one function for each algorithm, named after it.

    `session` is of the algorithm that was printed. A request that runs an algorithm for which the module has no
    function ends with a DecError.
    """
    from decgraph.backends.torch.driver import Driver
    from decgraph.backends.torch.kit import Kit
    from decgraph.backends.torch.machine import TorchMachine

    class Printed(Kit):
        def program(self, function: Function) -> Driver:
            wanted = [function.name, *(f"start_{s.name}" for s in function.states)]
            for name in wanted:
                if not hasattr(printed, name):
                    raise DecError(f"{printed.__name__} has no function {name}", hint="print it again with --emit python")
            driver, *starts = (getattr(printed, name) for name in wanted)
            states = dict(zip((s.name for s in function.states), starts, strict=True))
            return Driver(function.name, "", str(printed.__file__), driver, states)

    session.machine = type("PrintedMachine", (TorchMachine,), {"kit": Printed(), "__doc__": TorchMachine.__doc__})
    return session
