"""Deliberately broken variants of the real code, to show that the simulation would notice.

Each is a mistake that somebody could make. It is put in by replacing a function for as long as a
run lasts; nothing in the real code knows of it. A mutation that no seed catches means that the
simulation is blind there.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from enum import Enum
from typing import Any

import msgspec

Replacement = Callable[[Callable[..., Any]], Any]
"""Given the real function, returns the broken one."""


class Mutation(msgspec.Struct, frozen=True):
    """One mistake.

    `owner.name` is what is replaced. `caught_as` are the findings that show it; empty: any. `shows`
    says which runs can show it at all; trying the others would be a waste. `also` is a second
    replacement, of what would make up for the first.
    """

    owner: object
    name: str
    replacement: Replacement
    caught_as: frozenset[Enum] = frozenset()
    shows: Callable[[Any], bool] = lambda _: True
    also: "Mutation | None" = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the code for as long as the context lasts."""
        real = vars(self.owner)[self.name]
        setattr(self.owner, self.name, self.replacement(real))
        try:
            with self.also.applied() if self.also else nullcontext():
                yield
        finally:
            setattr(self.owner, self.name, real)
