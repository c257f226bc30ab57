"""Ways to break classic groups: an answer too early, a check left out, one byte more.

See `engine.mutation`. Each has to be caught as what it is: other findings do not count.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np
import trio

import store.log.log_end
import store.recovery.opening
import tandem.client.producer
from ha.classic.group_transfer_service import GroupTransferService
from ha.classic.ha_client import HAClient
from ha.classic.ha_service import HAService
from ha.classic.master_follower import MasterFollower
from store.log.commit_log import CommitLog
from store.messages.message_reads import MessageReads
from store.results import PutMessageStatus
from store.services.flush_service import FlushService
from tandem.client.session import Session
from tandem.wire.record_scan import RecordColumns, read_columns, walk_records
from tests.sim.classic.checker import Kind
from tests.sim.classic.settings import ClassicSettings
from tests.sim.engine.mutation import Mutation


def _loses(role: str) -> Callable[[ClassicSettings], bool]:
    def loses(settings: ClassicSettings) -> bool:
        return any(i.verb == "power-off" and i.arguments[0].endswith(role) for i in settings.plan)

    return loses


def _master_loses_power(settings: ClassicSettings) -> bool:
    return _loses("-0")(settings)


def _slave_loses_parts_of_bodies(settings: ClassicSettings) -> bool:
    has_large_bodies = any(producer.body_bytes_max > 1_000 for producer in settings.producers)
    return has_large_bodies and (_loses("-1")(settings) or _loses("-2")(settings))


def _sync_flush(settings: ClassicSettings) -> bool:
    return settings.store.flush_disk_type.value == "SYNC_FLUSH"


def _breaks_connections(settings: ClassicSettings) -> bool:
    return any(i.verb in ("kill", "cut", "half-cut", "power-off") for i in settings.plan)


def _reports_one_byte_more(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, log_end: real(self, log_end + 1)


def _reports_what_it_received(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, log_end: real(self, max(log_end, self._records.end))


def _compares_nothing(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, log_end, _: real(self, log_end, b"")


def _any_ack_answers_all(real: Callable[..., Any]) -> Callable[..., Any]:
    def slave_acked(self: GroupTransferService, name: str, offset: int) -> None:
        if self._waiting:
            offset = max(offset, self._waiting._waiting[-1][0])
        real(self, name, offset)

    return slave_acked


def _waits_for_nobody(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda _, _ack: None


def _answers_before_the_sync(_: Callable[..., Any]) -> Callable[..., Any]:
    def submit(
        _: FlushService,
        _end_offset: int,
        _deadline: float,
        done: Callable[[PutMessageStatus, str], None],
    ) -> None:
        done(PutMessageStatus.PUT_OK, "")

    return submit


def _believes_lengths(_: Callable[..., Any]) -> Callable[..., Any]:
    def intact_records(buffer: bytes, _base_offset: int, **_settings: bool) -> RecordColumns:
        columns = read_columns(buffer, walk_records(buffer).starts)
        return columns.take(slice(0, int(np.argmin([*columns.sound, False]))))

    return intact_records


def _uses_a_queue_offset_again(real: Callable[..., Any]) -> Callable[..., Any]:
    def append_message(
        self: CommitLog, message: object, topic: bytes, queue_offset: int, now_ms: int
    ) -> object:
        return real(self, message, topic, queue_offset - (queue_offset % 8 == 7), now_ms)

    return append_message


def _skips_a_message(real: Callable[..., Any]) -> Callable[..., Any]:
    def get_message(
        self: MessageReads, topic: str, queue_id: int, offset: int, *rest: object, **named: object
    ) -> object:
        return real(self, topic, queue_id, offset + (offset % 8 == 7), *rest, **named)

    return get_message


def _answers_no_run(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, topic, queue_id, offset: None


def _says_it_never_left(real: Callable[..., Any]) -> Callable[..., Any]:
    def forget(self: Session[object], opaque: int) -> object:
        abandoned = real(self, opaque)
        return abandoned and msgspec.structs.replace(abandoned, outcome_unknown=False)

    return forget


def _always_tries_again(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda group, wait, _, *rest: real(group, wait, 2, *rest)


def _dials_once(real: Callable[..., Any]) -> Callable[..., Any]:
    dialled: set[int] = set()

    async def dial(self: MasterFollower) -> object:
        if id(self) in dialled:
            await trio.sleep_forever()
        dialled.add(id(self))
        return await real(self)

    return dial


def _loses_its_first_file(settings: ClassicSettings) -> bool:
    return any(i.verb == "rot" and i.arguments[1] == "lose-first" for i in settings.plan)


def _misses_no_first_file(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda config, disk, _log_start, **named: real(config, disk, -1, **named)


MUTATIONS: Final[dict[str, Mutation]] = {
    "the slave reports one byte more than it has": Mutation(
        HAClient, "heartbeat", _reports_one_byte_more, frozenset({Kind.FALSE_ACK})
    ),
    "the slave reports what it received, not what it appended": Mutation(
        HAClient, "report", _reports_what_it_received, frozenset({Kind.FALSE_ACK})
    ),
    "the slave does not compare its log with the master's": Mutation(
        HAClient,
        "connected",
        _compares_nothing,
        frozenset({Kind.DIVERGED}),
        _master_loses_power,
    ),
    "an acknowledgement answers every waiting put": Mutation(
        GroupTransferService,
        "slave_acked",
        _any_ack_answers_all,
        frozenset({Kind.UNREPLICATED}),
    ),
    "puts do not wait for slaves": Mutation(
        HAService, "waits", _waits_for_nobody, frozenset({Kind.UNREPLICATED})
    ),
    "puts are answered before the sync": Mutation(
        FlushService,
        "submit",
        _answers_before_the_sync,
        frozenset({Kind.LOST, Kind.UNFLUSHED}),
        _sync_flush,
    ),
    "recovery believes a torn record": Mutation(
        store.log.log_end,
        "intact_records",
        _believes_lengths,
        frozenset({Kind.DIVERGED, Kind.CORRUPT, Kind.CRASHED}),
        _slave_loses_parts_of_bodies,
    ),
    "a queue offset is used again": Mutation(
        CommitLog, "append_message", _uses_a_queue_offset_again, frozenset({Kind.REORDERED})
    ),
    "a pull skips a message": Mutation(
        MessageReads,
        "get_message",
        _skips_a_message,
        frozenset({Kind.MISREAD, Kind.UNREAD}),
        also=Mutation(MessageReads, "run_units", _answers_no_run),
    ),
    "the client says of a lost request that it never left": Mutation(
        Session,
        "forget",
        _says_it_never_left,
        frozenset({Kind.PHANTOM}),
        _breaks_connections,
    ),
    "the client sends again what the answer says not to": Mutation(
        tandem.client.producer,
        "SendSettings",
        _always_tries_again,
        frozenset({Kind.DUPLICATED}),
        _breaks_connections,
    ),
    "the slave never dials again": Mutation(
        MasterFollower, "_dial", _dials_once, frozenset({Kind.DIVERGED}), _breaks_connections
    ),
    "a first file that is missing is taken for retention": Mutation(
        store.recovery.opening,
        "missing_files",
        _misses_no_first_file,
        frozenset({Kind.UNNOTICED}),
        _loses_its_first_file,
    ),
}
