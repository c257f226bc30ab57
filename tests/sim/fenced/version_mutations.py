"""Mistakes in how members of two versions live in one group; see `engine.mutation`."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

import ha.fenced.candidacy
import ha.fenced.level_raising
from tests.sim.engine.mutation import Mutation
from tests.sim.fenced.checker import Kind


def _forgets_the_level(real: Callable[..., Any]) -> Callable[..., Any]:
    def state_if_won(*arguments: object, **more: object) -> object:
        return msgspec.structs.replace(real(*arguments, **more), level=1)

    return state_if_won


def _asks_nobody(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_: None


VERSION_MUTATIONS: Final = {
    "a new master forgets the level": Mutation(
        ha.fenced.candidacy,
        "state_if_won",
        _forgets_the_level,
        caught_as=frozenset({Kind.TOO_OLD}),
    ),
    "a level is raised that a member does not know": Mutation(
        ha.fenced.level_raising,
        "why_not_raised",
        _asks_nobody,
    ),
}
