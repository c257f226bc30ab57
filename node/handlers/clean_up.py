"""What an operator asks to have deleted now: expired files of the log and of the queues.

Each node cleans up its own files. A queue is never deleted as a whole here: on the node that does,
it would count from 0 again, and the other nodes of the group go on from where they are.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from store import MessageStore
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode

_log = logging.getLogger(__name__)


class CleanUp:
    """Serves `cleanExpiredCQ`, `cleanUnusedTopic` and `deleteExpiredCommitLog`.

    `spawn` starts a task that ends with the broker.
    """

    def __init__(
        self,
        store: MessageStore,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._store = store
        self._spawn = spawn
        self._is_cleaning = False

    # Deletes only what is past its time.
    @serves(
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        (Resource.BROKER, Action.WRITE),
        of_cluster(Right.UPDATE),
    )
    def expired_consume_queue(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE: files of queues whose messages have left the log.

        Source: AdminBrokerProcessor.cleanExpiredConsumeQueue.
        """
        if not self._is_cleaning:
            self._is_cleaning = True
            self._spawn(self._clean_queues)
        return response_to(command)

    async def _clean_queues(self) -> None:
        try:
            await self._store.clean_service.consume_queue.clean()
        except OSError as error:
            _log.warning("a file cannot be deleted: %s; check who may write there", error)
        finally:
            self._is_cleaning = False

    # Deletes only what is past its time.
    @serves(
        RequestCode.CLEAN_UNUSED_TOPIC,
        (Resource.BROKER, Action.WRITE),
        of_cluster(Right.UPDATE),
    )
    def unused_topic(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """CLEAN_UNUSED_TOPIC: the same.

        What is left of a deleted topic is hidden, and its files go with those of the log.

        Source: AdminBrokerProcessor.cleanUnusedTopic.
        """
        return self.expired_consume_queue(connection, command)

    # Deletes only what is past its time.
    @serves(
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        (Resource.BROKER, Action.WRITE),
        of_cluster(Right.UPDATE),
    )
    def expired_commit_log(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG: expired files go soon, whatever the hour.

        Source: AdminBrokerProcessor.deleteExpiredCommitLog.
        """
        self._store.clean_service.commit_log.delete_manually()
        _log.info("%s wants expired files of the commit log deleted now", connection.peer)
        return response_to(command)
