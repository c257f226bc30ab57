"""Ways to break what those are promised that receive by POP. See `engine.mutation`."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from node.pop.deliveries import Deliveries
from node.pop.due_times import DueTimes
from node.receive.pop_service import PopService
from node.receive.put_again import Outcome, PutAgain
from node.receive.queue_order import PriorityReading
from node.receive.taking import Taking
from node.tables.replicated_pop import DeliveriesTable
from tests.sim.engine.mutation import Mutation
from tests.sim.engine.settings import Settings
from tests.sim.pop.checker import Kind
from tests.sim.pop.settings import FencedPopSettings

Real = Callable[..., Any]


def _hurts_nodes(settings: Settings) -> bool:
    verbs = ("kill", "power-off", "freeze", "revoke", "resign")
    return any(each.verb.startswith(verbs) for each in settings.plan)


def _has_several_queues_with_priorities(settings: Settings) -> bool:
    return isinstance(settings, FencedPopSettings) and (
        settings.has_priorities and settings.workload.queue_nums > 1
    )


def _never_waits(settings: Settings) -> bool:
    return isinstance(settings, FencedPopSettings) and settings.never_waits


def _answers_at_once(_: Real) -> Real:
    return lambda self, done: done(None)


def _calls_done_what_was_not_put(_: Real) -> Real:
    return lambda self, over, offset: Outcome.PUT


def _is_over_soon(real: Real) -> Real:
    def note(self: Any, fresh: Any, now: float, deliveries: Any) -> None:  # noqa: ANN401
        real(self, fresh, now - 1.0, deliveries)

    return note


def _retries_by(more: int) -> Callable[[Real], Real]:
    def broken(real: Real) -> Real:
        def put_record(self: Any, key: Any, pop_time_ms: int, record: Any) -> Any:  # noqa: ANN401
            times = record.reconsume_times
            return real(
                self,
                key,
                pop_time_ms,
                msgspec.structs.replace(record, reconsume_times=times - more),
            )

        return put_record

    return broken


def _begins_one_later(real: Real) -> Real:
    def begin(self: Any, key: Any, queue: Any, *, starts_at_end: bool) -> int:  # noqa: ANN401
        at: int = real(self, key, queue, starts_at_end=starts_at_end)
        return at + (at == 5)

    return begin


def _never(_: Real) -> Real:
    return lambda self, *_: None


def _hands_out_without_a_look(real: Real) -> Real:
    def take(self: Any, request: Any) -> Any:  # noqa: ANN401
        self._look_in_time = lambda: None
        try:
            return real(self, request)
        finally:
            del self._look_in_time

    return take


def _forgets_a_tenth(real: Real) -> Real:
    def popped(self: Any, change: Any) -> None:  # noqa: ANN401
        if change.pop_time_ms % 10 == 0:
            change = msgspec.structs.replace(change, runs=[])
        real(self, change)

    return popped


MUTATIONS: Final = {
    "what changes is answered before it is confirmed": Mutation(
        PopService,
        "_when_settled",
        _answers_at_once,
        frozenset({Kind.TWICE, Kind.BACK}),
        _hurts_nodes,
    ),
    "what is over is called done and is not put": Mutation(
        PutAgain, "put", _calls_done_what_was_not_put, frozenset({Kind.LOST})
    ),
    "a time is over a second too soon": Mutation(
        DueTimes, "note", _is_over_soon, frozenset({Kind.TWICE})
    ),
    "a message is given up one try too soon": Mutation(
        PutAgain, "_put_record", _retries_by(-1), frozenset({Kind.DEAD_TOO_EARLY})
    ),
    "a message is given up one try too late": Mutation(
        PutAgain, "_put_record", _retries_by(1), frozenset({Kind.TRIED_TOO_OFTEN, Kind.TWICE})
    ),
    "a pop skips a message": Mutation(Taking, "_begin", _begins_one_later, frozenset({Kind.LOST})),
    "followers do not follow what is with consumers": Mutation(
        DeliveriesTable, "show", _never, frozenset({Kind.TWICE, Kind.BACK}), _hurts_nodes
    ),
    "what has no priority comes first": Mutation(
        PriorityReading,
        "queues",
        lambda _: lambda self, count: range(count),
        frozenset({Kind.UNORDERED}),
        _has_several_queues_with_priorities,
    ),
    "a queue in order is always open": Mutation(
        DueTimes,
        "is_open",
        lambda _: lambda self, key, handouts: True,
        frozenset({Kind.TWICE, Kind.UNORDERED}),
    ),
    "a changed time is not changed": Mutation(
        Deliveries, "_moved", _never, frozenset({Kind.TWICE, Kind.BACK})
    ),
    "some of what was handed out is called done": Mutation(
        Deliveries, "_popped", _forgets_a_tenth, frozenset({Kind.LOST})
    ),
    "nobody looks at times while nobody waits": Mutation(
        PopService, "_take", _hands_out_without_a_look, frozenset({Kind.LOST}), _never_waits
    ),
}
