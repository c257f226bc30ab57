"""The handlers of what clients send, put together: messages, replies, and recalls.

They share what a record gets beside what its client says: keys, cluster and region.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.results import PutWait
from node.handlers.recall_message import RecallMessage
from node.handlers.reply_message import ReplyMessage
from node.handlers.send_message import SendMessage
from node.handlers.send_properties import PropertyStamp, UniqueKeys
from tandem.cluster_file.choices import FlushDiskType
from tandem.wire.message import Host

if TYPE_CHECKING:
    from ha.replication import Replication
    from node.remoting.client_requests import ClientRequests
    from node.tables.producer_table import ProducerTable
    from node.tables.queue_locks import QueueLocks
    from node.tables.tables import Tables
    from store import MessageStore
    from store.machine.machine import Machine
    from tandem.cluster_file.cluster_config import NodeConfig


class Senders:
    """Makes the handlers of one broker, each of them once."""

    def __init__(
        self, config: NodeConfig, machine: Machine, store: MessageStore, tables: Tables
    ) -> None:
        self._settings = config.cluster
        self._broker_name = config.node.group
        self._host = Host(config.node.address, config.node.port)
        self._machine = machine
        self._store = store
        self._tables = tables
        keys = UniqueKeys(self._host, machine.wall_clock_ms, machine.random)
        self._stamp = PropertyStamp(config.cluster.cluster.name, keys.new)

    def send(self, replication: Replication, locks: QueueLocks) -> SendMessage:
        """The one that stores messages."""
        store, settings = self._store, self._settings
        flush = None
        if settings.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            flush = PutWait(
                store.flush_service.submit,
                lambda: store.flushed_where,
                settings.store.sync_flush_timeout_ms / 1000,
            )
        return SendMessage(
            store,
            self._tables,
            self._stamp,
            replication,
            flush,
            self._machine.random,
            locks,
            self._broker_name,
            rejects_transactions=settings.broker.reject_transaction_message,
        )

    def reply(
        self, send: SendMessage, producers: ProducerTable, to_clients: ClientRequests
    ) -> ReplyMessage:
        """The one that passes replies on."""
        return ReplyMessage(
            self._store,
            self._tables,
            send,
            self._stamp,
            producers,
            to_clients,
            self._host,
            store_reply_message_enable=self._settings.broker.store_reply_message_enable,
            wall_clock_ms=self._machine.wall_clock_ms,
        )

    def recall(self, send: SendMessage) -> RecallMessage:
        """The one that stops messages that wait."""
        return RecallMessage(
            self._tables,
            send,
            self._broker_name,
            recall_message_enable=self._settings.broker.recall_message_enable,
            wall_clock_ms=self._machine.wall_clock_ms,
        )
