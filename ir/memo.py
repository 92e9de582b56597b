"""What is computed of an object once and belongs to it: the engine of a model, the kernels of an operation.

Such a value refers back to its object, so a table with weak keys would keep both alive for ever. Kept by the object itself they
are a cycle, which the garbage collector frees. A memo belongs to one object: copies, deep copies and pickles start without.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """Values by name, each computed on first use. owner: whose they are; None where that cannot be mistaken (a field of a
    frozen dataclass, which `replace` creates again)."""

    __slots__ = ("__weakref__", "_owner", "_values")

    def __init__(self, owner: object | None = None) -> None:
        self._owner = None if owner is None else weakref.ref(owner)
        self._values: dict[Hashable, Any] = {}

    def once(self, name: Hashable, make: Callable[[], T]) -> T:
        """The value called `name`, computed on first use."""
        if name not in self._values:
            self._values[name] = make()
        value: T = self._values[name]
        return value

    def get(self, name: Hashable) -> Any:
        """The value called `name`, or None."""
        return self._values.get(name)

    def forget(self, name: Hashable) -> None:
        """Drop a value."""
        self._values.pop(name, None)

    def __copy__(self) -> Memo:
        return Memo()

    def __deepcopy__(self, memo: object) -> Memo:
        return Memo()

    def __reduce__(self) -> tuple[type[Memo], tuple[()]]:
        return Memo, ()


_ATTRIBUTE = "_decgraph_memo"


def memo_of(owner: object) -> Memo:
    """The memo of an object, in an attribute of it. An object that copy.copy returns has its own."""
    found = getattr(owner, _ATTRIBUTE, None)
    if not isinstance(found, Memo) or found._owner is None or found._owner() is not owner:
        found = Memo(owner)
        setattr(owner, _ATTRIBUTE, found)
    return found
