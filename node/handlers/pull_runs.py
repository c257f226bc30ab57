"""Pulls that came together, or one alone: answered as one run.

    find --> who, and what do they want? --> read --> answers
                     |                         |
                     +-- in doubt -------------+--> one by one, by PullMessage

Most pulls of a consumer that is behind are usual: found and answered by `PullRuns`, in C, with the
records copied once, from the log to what is sent. Who may read what is asked for once a run, for
its pulls are of one group and topic, and nothing happens between them. Whatever is in doubt is not
decided here: the run ends before it, and `PullMessage` handles the request.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Final

import trio

from node.errors import RequestError
from node.handlers.pull_message import PullMessage
from node.remoting.connection import Connection
from node.tables.broker_stats import BrokerStats
from node.tables.names import check_group_of_clients
from node.tables.tables import Tables
from store import MessageStore
from store.results import GetMessageStatus
from tandem.wire import native
from tandem.wire.frame_buffer import FrameBuffer
from tandem.wire.pull_run import NO_UNITS, PullRuns, QueueUnits
from tandem.wire.remoting_command import (
    FRAME_HEAD,
    RESPONSE_FLAG,
    RemotingCommand,
    SerializeType,
    encode_frame,
)
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_COMMIT_OFFSET,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID

_NEXT, _LEAST, _LARGEST, _OPAQUE = 77_000_000_001, 77_000_000_002, 77_000_000_003, 2_000_000_004
"""Numbers that are nowhere else in an answer, to take one apart at them."""


PULL_RUN_CODES: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
"""Of the requests that a run may have; as in `native_pulls.c`."""


class PullRunHandler:
    """Takes the runs of one broker, for all its connections."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        pull: PullMessage,
        stats: BrokerStats,
        runs: PullRuns | None,
    ) -> None:
        """Take runs with `runs`; without it `take` is None."""
        self._reads = store.reads
        self._topics = tables.topics
        self._commit = tables.commit
        self._wanted = pull.of_run
        self._stats = stats
        self.take = None if runs is None else partial(self._take, runs)
        """Answers usual pulls that come next; returns whether there were any."""

    def _take(self, runs: PullRuns, connection: Connection, frames: FrameBuffer) -> bool:
        if connection.one_by_one:
            connection.one_by_one -= 1
            return False
        if not runs.find(*frames.from_next_frame()):
            return False
        found, header = runs.count, runs.header()
        wanted = self._wanted(header)
        queues = None if wanted is None else self._queues(runs, header.topic)
        if wanted is None or queues is None:
            # No pull is looked at more than twice: these are now handled one by one.
            connection.one_by_one = found - 1
            return False
        began = trio.current_time()
        answers = self._reads.answer_run(runs, queues, wanted.tags_codes)
        seconds = trio.current_time() - began
        self._stats.longest_get_seconds = max(self._stats.longest_get_seconds, seconds)
        if not runs.count:
            connection.one_by_one = found - 1
            return False
        if not runs.is_full:
            connection.one_by_one = found - runs.count
        frames.skip_to(runs.end)
        if header.sys_flag & PULL_FLAG_COMMIT_OFFSET:
            self._commit_all(runs, header)
        for queue_id, pulls, messages, body_bytes, next_offset in runs.answered():
            self._stats.handed_out(
                header.consumer_group,
                header.topic,
                queue_id,
                next_offset,
                messages,
                body_bytes,
                pulls,
            )
        connection.write_now(answers)
        return True

    def _queues(self, runs: PullRuns, topic: str) -> list[QueueUnits] | None:
        """Return what may be read of each place; None: nothing of the first."""
        config = self._topics.get(topic)
        ids_end = 0 if config is None else config.read_queue_nums
        queues = [
            self._reads.run_units(topic, queue_id, offset) if queue_id < ids_end else None
            for queue_id, offset in runs.places()
        ]
        return None if queues[0] is None else [queue or NO_UNITS for queue in queues]

    def _commit_all(self, runs: PullRuns, header: PullMessageRequestHeader) -> None:
        for queue_id, offset in runs.commits():
            # A failure is not reported, as in PullMessage.
            with suppress(RequestError):
                check_group_of_clients(header.consumer_group)
                self._commit(header.consumer_group, header.topic, queue_id, offset)


def pull_runs() -> PullRuns | None:
    """Return what finds and answers the runs of a broker; None where nothing was compiled."""
    if native.loops is None:
        return None
    return PullRuns(native.loops, answers=(_in_json(), _packed()))


def _header(serialize_type: SerializeType) -> bytes:
    answer = RemotingCommand(
        ResponseCode.SUCCESS,
        _OPAQUE,
        RESPONSE_FLAG,
        GetMessageStatus.FOUND.name,
        PullMessageResponseHeader(MASTER_ID, _NEXT, _LEAST, _LARGEST),
        serialize_type=serialize_type,
    )
    return encode_frame(answer)[FRAME_HEAD.size :]


def _in_json() -> list[bytes]:
    return _taken_apart(
        _header(SerializeType.JSON),
        [str(number).encode() for number in (_NEXT, _LEAST, _LARGEST, _OPAQUE)],
    )


def _packed() -> list[bytes]:
    # As whole numbers are in MSGPACK: of four bytes, and of eight.
    marks = [b"\xce" + _OPAQUE.to_bytes(4, "big")]
    marks += [b"\xcf" + number.to_bytes(8, "big") for number in (_NEXT, _LEAST, _LARGEST)]
    return _taken_apart(_header(SerializeType.MSGPACK), marks)


def _taken_apart(header: bytes, marks: list[bytes]) -> list[bytes]:
    parts = []
    for mark in marks:
        before, found, header = header.partition(mark)
        assert found
        parts.append(before)
    return [*parts, header]
