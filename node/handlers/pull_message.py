"""PULL_MESSAGE and LITE_PULL_MESSAGE: records of one queue, as stored, or "not yet: wait".

A slave serves pulls like its master, with two differences. It may only be late, so an offset beyond
its end is not corrected but waited for. And it always holds what it cannot serve: RocketMQ's slave
answers "retry immediately" while its master is dead, and the consumer spins.

A damaged record is an error that clients try again: RocketMQ's after three seconds, ours at once
at another node. It never says where to go on, for that would be past the record. No client of
RocketMQ looks at suggestWhichBrokerId in an error, so it is not there.

A held pull of a filter by properties is held again if it finds nothing, from where it has got to.

Source: RocketMQ 5.3.3, PullMessageProcessor.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
import trio

from node.errors import RequestError
from node.handlers.pull_request_hold_service import HeldPull
from node.handlers.reading import check_reader, readable_topic
from node.remoting.caller import ANYBODY
from node.remoting.dispatcher import damaged_answer, response_to
from node.security.access import Action, Resource
from node.security.request import of_group, of_topic, serves
from node.tables.names import check_group_of_clients
from store.results import GetMessageStatus
from tandem.wire.access_control import Kind, Right
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    PULL_FLAG_COMMIT_OFFSET,
    PULL_FLAG_SUSPEND,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import MASTER_ID, PERM_READ

if TYPE_CHECKING:
    from node.handlers.pull_request_hold_service import PullRequestHoldService
    from node.handlers.subscription import Subscriptions, Wanted
    from node.remoting.connection import Connection
    from node.tables.broker_stats import BrokerStats
    from node.tables.reset_offsets import ResetOffsets
    from node.tables.tables import Tables
    from store import GetMessageResult, MessageStore
    from tandem.wire.remoting_command import RemotingCommand

SUSPEND_MS_MAX: Final = 60_000
"""Longest wait a client gets. Ours: RocketMQ takes any; its clients ask for 15 and 20 s."""

RUN_TAGS_MAX: Final = 32
"""A run compares each unit with each tag; with more tags, each unit is looked up in a set."""

_CODES: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.MESSAGE_DAMAGED: ResponseCode.SERVICE_NOT_AVAILABLE,
}
"""Source: PullMessageProcessor.composeResponseHeader."""

_EMPTY_QUEUE: Final = (
    GetMessageStatus.NO_MATCHED_LOGIC_QUEUE,
    GetMessageStatus.NO_MESSAGE_IN_QUEUE,
)


class PullMessage:
    """Serves the pulls of one node."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        subscriptions: Subscriptions,
        holds: PullRequestHoldService,
        resets: ResetOffsets,
        stats: BrokerStats,
    ) -> None:
        self._store = store
        self._tables = tables
        self._commit = tables.commit
        self._subscriptions = subscriptions
        self._holds = holds
        self._resets = resets
        self._stats = stats

    @serves(
        RequestCode.PULL_MESSAGE,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB),
        of_group("consumer_group", Right.SUB),
        header=PullMessageRequestHeader,
        at_vip_channel=False,
    )
    @serves(
        RequestCode.LITE_PULL_MESSAGE,
        (Resource.MESSAGES, Action.READ),
        of_topic("topic", Right.SUB),
        of_group("consumer_group", Right.SUB),
        header=PullMessageRequestHeader,
        at_vip_channel=False,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> None:
        """Answer a pull, or hold it."""
        header = command.decode_header(PullMessageRequestHeader)
        wanted = self._allowed(header)
        if moved := self._moved(command, header):
            connection.respond(command, moved)
            return
        if header.sys_flag & PULL_FLAG_COMMIT_OFFSET:
            # A failure is not reported: the next pull commits it again, or the client does.
            with suppress(RequestError):
                check_group_of_clients(header.consumer_group)
                self._commit(
                    header.consumer_group, header.topic, header.queue_id, header.commit_offset
                )
        result = self._read(header, wanted)
        code = self._code(header, result)
        may_wait = header.sys_flag & PULL_FLAG_SUSPEND and header.suspend_timeout_millis > 0
        if code == ResponseCode.PULL_NOT_FOUND and may_wait:
            wait_ms = min(header.suspend_timeout_millis, SUSPEND_MS_MAX)
            deadline = trio.current_time() + wait_ms / 1000
            held = self._held(connection, command, header, wanted, deadline)
            if self._holds.hold(header.topic, header.queue_id, held):
                return
        if (share := connection.caller.share) is not None:  # written out: a call less
            share.read(trio.current_time(), result.body_bytes)
        connection.respond(command, self._answer(command, header, result), result.body)

    def of_run(self, header: PullMessageRequestHeader) -> Wanted | None:
        """Return what the pulls of a run want, by the first one's header.

        None: they have to be handled one by one; what is wrong is then found there.
        """
        if self._resets.are_pending:
            return None
        try:
            wanted = self._allowed(header)
        except RequestError:
            return None
        is_usual = wanted.message_filter is None and len(wanted.tags_codes or ()) <= RUN_TAGS_MAX
        return wanted if is_usual else None

    def _allowed(self, header: PullMessageRequestHeader) -> Wanted:
        """Return what a pull wants; refuse one that may not have it.

        Raises:
            RequestError: The answer is this code and remark.
        """
        group = self._tables.groups.find(header.consumer_group)
        check_reader(self._tables, group, header.topic)
        self._check_queue(header)
        return self._subscriptions.of(header, group)

    def _held(
        self,
        connection: Connection,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        wanted: Wanted,
        deadline: float,
    ) -> HeldPull:
        """Keep of a request what is needed later: there may be a hundred thousand of them.

        Its fields are still in what was received, maybe with many other requests. Names are those
        of the tables.
        """
        command = msgspec.structs.replace(command, ext=None, body=b"", remark=None, language="")
        topic = self._tables.topics.get(header.topic)
        group = self._tables.groups.get(header.consumer_group)
        header = msgspec.structs.replace(
            header,
            topic=header.topic if topic is None else topic.topic_name,
            consumer_group=header.consumer_group if group is None else group.group_name,
            subscription=None,
            expression_type=None,
            broker_name=None,
        )
        return _WaitingPull(self, connection, command, header, wanted, deadline)

    def run_again(self, held: _WaitingPull) -> None:
        """Answer a pull that has waited, or hold it once more."""
        connection, command, header = held.owner, held.command, held.header
        if connection.is_closed:
            return
        was_changed = held.caller is not ANYBODY and not held.caller.is_current
        if was_changed:
            try:
                held.caller.check(Kind.TOPIC, header.topic, Right.SUB)
                held.caller.check(Kind.GROUP, header.consumer_group, Right.SUB)
            except RequestError as error:
                connection.respond(command, response_to(command, error.code, error.remark))
                return
        if connection.is_congested:
            connection.when_drained(held.run)
            return
        if moved := self._moved(command, header):
            connection.respond(command, moved)
            return
        result = self._read(header, held.wanted)
        is_empty = was_changed and self._code(header, result) == ResponseCode.PULL_NOT_FOUND
        may_wait = is_empty or _found_nothing_new(result)
        if may_wait and trio.current_time() < held.deadline:
            further = msgspec.structs.replace(header, queue_offset=result.next_begin_offset)
            again = self._held(connection, command, further, held.wanted, held.deadline)
            again.caller = held.caller
            if self._holds.hold(header.topic, header.queue_id, again):
                return
        if (share := held.caller.share) is not None:
            share.read(trio.current_time(), result.body_bytes)
        connection.respond(command, self._answer(command, header, result), result.body)

    def _moved(
        self, command: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        """Tell the consumer of a queue, once, that an operator has moved its group."""
        offset = self._resets.take(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            return None
        ext = PullMessageResponseHeader(
            MASTER_ID,
            offset,
            self._store.reads.min_offset_in_queue(header.topic, header.queue_id),
            self._store.reads.max_offset_in_queue(header.topic, header.queue_id),
        )
        return response_to(command, ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET", ext=ext)

    def _check_queue(self, header: PullMessageRequestHeader) -> None:
        config = self._tables.topics.get(header.topic)
        if config is None or not config.perm & PERM_READ:
            config = readable_topic(self._tables, header.topic)  # which says why not
        if not 0 <= header.queue_id < config.read_queue_nums:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{config.read_queue_nums}]",
            )

    def _read(self, header: PullMessageRequestHeader, wanted: Wanted) -> GetMessageResult:
        began = trio.current_time()
        result = self._store.reads.get_message(
            header.topic,
            header.queue_id,
            header.queue_offset,
            header.max_msg_nums,
            tags_codes=wanted.tags_codes,
            message_filter=wanted.message_filter,
        )
        seconds = trio.current_time() - began
        self._stats.longest_get_seconds = max(self._stats.longest_get_seconds, seconds)
        return result

    def _code(self, header: PullMessageRequestHeader, result: GetMessageResult) -> ResponseCode:
        if result.status in _EMPTY_QUEUE and (header.queue_offset == 0 or self._store.is_slave):
            return ResponseCode.PULL_NOT_FOUND
        if result.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY and self._store.is_slave:
            return ResponseCode.PULL_NOT_FOUND
        return _CODES[result.status]

    def _answer(
        self, command: RemotingCommand, header: PullMessageRequestHeader, result: GetMessageResult
    ) -> RemotingCommand:
        if result.damaged is not None:
            return damaged_answer(command, result.damaged)
        code = self._code(header, result)
        next_offset = result.next_begin_offset
        if result.message_count:
            self._stats.handed_out(
                header.consumer_group,
                header.topic,
                header.queue_id,
                next_offset,
                result.message_count,
                result.body_bytes,
            )
        else:
            self._stats.missed += 1
        if result.status is GetMessageStatus.OFFSET_TOO_SMALL:
            # The one correction a slave makes as well: what it has deleted never comes back.
            next_offset = result.min_offset
        elif code == ResponseCode.PULL_NOT_FOUND and self._store.is_slave:
            next_offset = header.queue_offset
        return response_to(
            command,
            code,
            result.status.name,
            ext=PullMessageResponseHeader(
                MASTER_ID, next_offset, result.min_offset, result.max_offset
            ),
        )


class _WaitingPull(HeldPull):
    """One request that waits. It is part of no cycle, so it is gone when it was answered."""

    __slots__ = ("command", "header", "pulls", "wanted")

    def __init__(
        self,
        pulls: PullMessage,
        connection: Connection,
        command: RemotingCommand,
        header: PullMessageRequestHeader,
        wanted: Wanted,
        deadline: float,
    ) -> None:
        super().__init__(header.queue_offset, wanted.tags_codes, deadline, connection)
        self.pulls = pulls
        self.command = command
        self.header = header
        self.wanted = wanted

    def run(self) -> None:
        """See `HeldPull`."""
        self.pulls.run_again(self)


def _found_nothing_new(result: GetMessageResult) -> bool:
    """Whether a filter was put to every message there is, and wants none."""
    return (
        result.filtered_count > 0
        and not result.message_count
        and (result.next_begin_offset == result.max_offset)
    )
