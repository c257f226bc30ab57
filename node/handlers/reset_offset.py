"""Where a group goes on: INVOKE_BROKER_TO_RESET_OFFSET, CLONE_GROUP_OFFSET.

The new offset is committed at once. Consumers that run learn of it with their next pull, which is
answered PULL_OFFSET_MOVED, and those whose pull is held are answered now. Clients of all languages
understand that; so RESET_CONSUMER_CLIENT_OFFSET is not sent.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.resetOffsetInner (useServerSideResetOffset, which is
the default), cloneGroupOffset.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec
import trio

from node.errors import RequestError
from node.handlers.pull_request_hold_service import PullRequestHoldService
from node.handlers.settled import answer_when_settled
from node.receive.pop_service import PopService
from node.remoting.connection import Connection
from node.security.access import Action, Resource
from node.security.request import of_group, of_topic, serves
from node.tables.names import check_group_of_clients
from node.tables.reset_offsets import ResetOffsets
from node.tables.tables import Tables
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import CloneGroupOffsetRequestHeader, ResetOffsetRequestHeader
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import MessageQueueBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import RETRY_GROUP_TOPIC_PREFIX

_log = logging.getLogger(__name__)

ALL_QUEUES: Final = -1
BY_TIME: Final = -1
"""In place of an offset: each queue goes on at the first message stored at the time given."""


class ResetOffset:
    """Serves changes of where groups go on."""

    def __init__(
        self,
        store: MessageStore,
        tables: Tables,
        resets: ResetOffsets,
        holds: PullRequestHoldService,
        pop: PopService,
        broker_name: str,
        *,
        timeout_seconds: float,
    ) -> None:
        """Change what these hold; a change has `timeout_seconds` to be settled."""
        self._store = store
        self._tables = tables
        self._resets = resets
        self._holds = holds
        self._pop = pop
        self._broker_name = broker_name
        self._timeout_seconds = timeout_seconds

    @serves(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        (Resource.OFFSETS, Action.WRITE),
        of_topic("topic", Right.UPDATE),
        of_group("group", Right.UPDATE),
        header=ResetOffsetRequestHeader,
    )
    def reset(self, connection: Connection, command: RemotingCommand) -> None:
        """INVOKE_BROKER_TO_RESET_OFFSET: answered with the new offset of each queue."""
        header = command.decode_header(ResetOffsetRequestHeader)
        self._tables.check_change()
        check_group_of_clients(header.group)
        offsets = self._wanted(header)
        self._tables.groups.find(header.group)
        self._resets.check_room()
        for queue_id, offset in offsets.items():
            self._pop.reset(header.group, header.topic, queue_id, offset)
            self._tables.commit(header.group, header.topic, queue_id, offset)
        self._resets.put(header.group, header.topic, offsets)
        for queue_id in offsets:
            self._holds.run_again(header.topic, queue_id)
        _log.info(
            "offsets of group %s in topic %s reset by %s: %d queues",
            header.group,
            header.topic,
            connection.peer,
            len(offsets),
        )
        self._answer(connection, command, self._body(header.topic, offsets))

    def _wanted(self, header: ResetOffsetRequestHeader) -> dict[int, int]:
        config = self._tables.topics.get(header.topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        count = max(config.read_queue_nums, config.write_queue_nums)
        queue_id = ALL_QUEUES if header.queue_id is None else header.queue_id
        if queue_id == ALL_QUEUES:
            return {each: self._by_time(header, each) for each in range(count)}
        if not 0 <= queue_id < count:
            raise RequestError(ResponseCode.INVALID_PARAMETER, f"queueId[{queue_id}] is illegal")
        if header.offset is None or header.offset == BY_TIME:
            return {queue_id: self._by_time(header, queue_id)}
        first = self._store.reads.min_offset_in_queue(header.topic, queue_id)
        end = self._store.reads.max_offset_in_queue(header.topic, queue_id)
        if not first <= header.offset <= end:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Target offset {header.offset} not in consume queue range [{first}-{end}]",
            )
        return {queue_id: header.offset}

    def _by_time(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """The end of the queue for a negative time, which is what skipping all of it sends."""
        if header.timestamp < 0:
            return self._store.reads.max_offset_in_queue(header.topic, queue_id)
        return self._store.reads.offset_in_queue_by_time(header.topic, queue_id, header.timestamp)

    def _body(self, topic: str, offsets: dict[int, int]) -> bytes:
        """By queue, the way Java writes a map whose keys are objects."""
        entries = (
            b"%b:%d"
            % (msgspec.json.encode(MessageQueueBody(self._broker_name, queue_id, topic)), offset)
            for queue_id, offset in offsets.items()
        )
        return b'{"offsetTable":{%b}}' % b",".join(entries)

    @serves(
        RequestCode.CLONE_GROUP_OFFSET,
        (Resource.OFFSETS, Action.WRITE),
        of_topic("topic", Right.UPDATE),
        of_group("src_group", Right.GET),
        of_group("dest_group", Right.UPDATE),
        header=CloneGroupOffsetRequestHeader,
    )
    def clone(self, connection: Connection, command: RemotingCommand) -> None:
        """CLONE_GROUP_OFFSET: a group gets the offsets of another, in one topic or in all."""
        header = command.decode_header(CloneGroupOffsetRequestHeader)
        self._tables.check_change()
        check_group_of_clients(header.dest_group)
        offsets = self._tables.offsets.offsets()
        topics = [header.topic] if header.topic else self._topics_of(header.src_group)
        for topic in topics:
            for queue_id, offset in offsets.get(f"{topic}@{header.src_group}", {}).items():
                self._pop.reset(header.dest_group, topic, queue_id, offset)
                self._tables.commit(header.dest_group, topic, queue_id, offset)
        self._answer(connection, command, b"")

    def _topics_of(self, group: str) -> list[str]:
        """Without the retry topic, which is the group's own."""
        return [
            topic
            for topic in self._tables.offsets.topics_of(group)
            if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        ]

    def _answer(self, connection: Connection, command: RemotingCommand, body: bytes) -> None:
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline, body)
