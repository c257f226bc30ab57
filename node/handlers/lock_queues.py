"""LOCK_BATCH_MQ and UNLOCK_BATCH_MQ: consumers that read in order, one client a queue."""

from __future__ import annotations

from typing import Final

import trio

from ha.replication import Replication
from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_group, of_topic, serves
from node.tables.queue_locks import QueueLocks
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import LockBatchRequestBody, LockBatchResponseBody
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body

QUEUES_PER_REQUEST_MAX: Final = 8_192
BYTES_MAX: Final = 4 * 1024 * 1024
"""Of one request, before it is read: to read and to lock these takes some tens of milliseconds, in
which nobody else is served. A client asks for all its queues of one broker at once."""


class LockQueues:
    """Serves the locks of a master; any other node refuses, as two must not grant."""

    def __init__(self, locks: QueueLocks, replication: Replication) -> None:
        self._locks = locks
        self._replication = replication

    @serves(
        RequestCode.LOCK_BATCH_MQ,
        (Resource.CLIENTS, Action.WRITE),
        of_topic(lambda command: _topics(_asked(command.body)), Right.SUB),
        of_group(lambda command: [_asked(command.body).consumer_group], Right.SUB),
    )
    def lock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """LOCK_BATCH_MQ: answered with the queues that the client holds.

        Source: AdminBrokerProcessor.lockBatchMQ.
        """
        self._check_master()
        asked = _asked(command.body)
        granted = self._locks.lock(
            asked.consumer_group, asked.client_id, asked.mq_set, trio.current_time()
        )
        return response_to(command, body=encode_json_body(LockBatchResponseBody(granted)))

    @serves(
        RequestCode.UNLOCK_BATCH_MQ,
        (Resource.CLIENTS, Action.WRITE),
        of_topic(lambda command: _topics(_asked(command.body)), Right.SUB),
        of_group(lambda command: [_asked(command.body).consumer_group], Right.SUB),
    )
    def unlock(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UNLOCK_BATCH_MQ.

        Source: AdminBrokerProcessor.unlockBatchMQ.
        """
        asked = _asked(command.body)
        self._locks.unlock(asked.consumer_group, asked.client_id, asked.mq_set)
        return response_to(command)

    def _check_master(self) -> None:
        if refusal := self._replication.refusal():
            raise RequestError(refusal.code, refusal.text)


def _asked(body: bytes) -> LockBatchRequestBody:
    """Read a request, unless it names more than can be locked without holding others up."""
    # Its queues and itself; a brace in a name counts, too.
    if (count := body.count(b"{") - 1) > QUEUES_PER_REQUEST_MAX or len(body) > BYTES_MAX:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"{count} queues in {len(body)} bytes, the most allowed in one request are"
            f" {QUEUES_PER_REQUEST_MAX} in {BYTES_MAX}; nothing was changed",
        )
    return decode_json_body(body, LockBatchRequestBody)


def _topics(asked: LockBatchRequestBody) -> set[str]:
    return {queue.topic for queue in asked.mq_set}
