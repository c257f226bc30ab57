"""END_TRANSACTION: a producer commits or rolls back one of its halves.

The answer waits for disk and replicas like that of a send. Clients of RocketMQ ask for none; who
does not know whether it got there says it again: a transaction ends once.

Source: RocketMQ 5.3.3, EndTransactionProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ha.replication import Replication
from node.errors import RequestError
from node.handlers.found_record import check_found, check_only_topic, topic_of
from node.handlers.group_topics import ensure_topic
from node.handlers.send_message import SendMessage
from node.remoting.caller import ANYBODY
from node.remoting.client_requests import ClientRequests
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_found_topic, serves
from node.tables.names import NAME_BYTES_MAX
from node.tables.producer_table import ProducerTable
from node.tables.tables import Tables
from store import MessageStore
from store.machine.tell_once import TellOnce
from store.transaction.transaction import (
    CheckTransaction,
    EndTransaction,
    EndTransactionStatus,
    TransactionSettings,
)
from store.transactions import Progress, Transactions
from tandem.cluster_file.cluster_config import ClusterConfig
from tandem.wire.access_control import Kind, Right
from tandem.wire.message import MessageExt, encode_record
from tandem.wire.message_properties import PROPERTY_UNIQUE_KEY
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tandem.wire.response_code import ResponseCode
from tandem.wire.system_topics import CID_RMQ_SYS_TRANS, RMQ_SYS_TRANS_HALF_TOPIC

_log = logging.getLogger(__name__)

_GROUPS_TOLD_MAX: Final = 1_000

_CODES: Final = {
    EndTransactionStatus.NO_SUCH_TRANSACTION: ResponseCode.SYSTEM_ERROR,
    EndTransactionStatus.TIMED_OUT: ResponseCode.ILLEGAL_OPERATION,
}


class EndTransactions:
    """Serves producers that end transactions."""

    def __init__(
        self,
        store: MessageStore,
        transactions: Transactions,
        send: SendMessage,
        replication: Replication,
    ) -> None:
        self._store = store
        self._transactions = transactions
        self._send = send
        self._replication = replication

    @serves(
        RequestCode.END_TRANSACTION,
        (Resource.MESSAGES, Action.WRITE),
        of_found_topic(Right.PUB),
        header=EndTransactionRequestHeader,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """END_TRANSACTION. A producer that does not know is answered, and asked again later."""
        header = command.decode_header(EndTransactionRequestHeader)
        if not self._replication.is_master:
            refusal = self._replication.refusal()
            text = refusal.text if refusal is not None else "this broker is a slave"
            raise RequestError(ResponseCode.SLAVE_NOT_AVAILABLE, text)
        self._send.check_takes_puts()
        self._check_half(connection, header)
        result = self._transactions.end(
            EndTransaction(
                header.producer_group,
                header.tran_state_table_offset,
                header.commit_log_offset,
                header.commit_or_rollback,
                bool(header.from_transaction_check),
            )
        )
        if result is None:
            raise RequestError(
                ResponseCode.SYSTEM_BUSY,
                "this master has just begun and reads which transactions have ended; if there is"
                " room for it, this one is ended after that",
            )
        match result.status:
            case EndTransactionStatus.UNKNOWN:
                return response_to(command)
            case EndTransactionStatus.NOT_STORED:
                assert result.put is not None, "it was tried"
                return self._send.not_stored(command, result.put)
            case EndTransactionStatus.ENDED | EndTransactionStatus.ENDED_BEFORE:
                end = result.put.end_offset if result.put else self._store.max_physical_offset
                return self._send.answer_when_stored(connection, command, end)
            case refused:
                raise RequestError(_CODES[refused], result.reason)

    def _check_half(self, connection: Connection, header: EndTransactionRequestHeader) -> None:
        """Ask for the topic of the half itself.

        Older clients name none. Newer ones name that of the system in which it is, once they were
        asked what became of it.
        """
        if connection.caller is ANYBODY and header.only_topic is None:
            return
        half = self._store.reads.look_message_by_offset(header.commit_log_offset)
        if half is not None:
            check_only_topic(half, header.only_topic)
            check_found(connection.caller, half, Right.PUB)


class TransactionQuestions:
    """Asks producers what became of their transactions (CHECK_TRANSACTION_STATE).

    Source: AbstractTransactionalMessageCheckListener.sendCheckMessage, Broker2Client.
    """

    def __init__(
        self, producers: ProducerTable, to_clients: ClientRequests, broker_name: str
    ) -> None:
        self._producers = producers
        self._to_clients = to_clients
        self._broker_name = broker_name
        self._told: TellOnce[str] = TellOnce(_GROUPS_TOLD_MAX)

    def ask(self, question: CheckTransaction) -> None:
        """Write a question to one member of the group; no answer comes but an END_TRANSACTION."""
        group = question.producer_group
        connection = self._producers.next_connection(
            group, lambda connection: _may_answer(connection, question.message)
        )
        if connection is None:
            if self._told.is_news("nobody", about=group[:NAME_BYTES_MAX]):
                _log.warning("no producer of group %.255r is there to be asked", group)
            return
        message = question.message
        unique_key = message.properties.get(PROPERTY_UNIQUE_KEY)
        header = CheckTransactionStateRequestHeader(
            topic=RMQ_SYS_TRANS_HALF_TOPIC,
            tran_state_table_offset=message.queue_offset,
            commit_log_offset=message.physical_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=message.offset_msg_id,
            broker_name=self._broker_name,
        )
        body = encode_record(message)
        self._to_clients.tell(connection, RequestCode.CHECK_TRANSACTION_STATE, header, body)


def _may_answer(connection: Connection, half: MessageExt) -> bool:
    """Whether a producer may have a half shown, and end it: groups of producers are no secret."""
    try:
        connection.caller.check(Kind.TOPIC, topic_of(half), Right.PUB)
    except RequestError:
        return False
    return True


class TransactionTables:
    """What the check keeps in the tables: its progress, and the topic of what it gives up."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._told: TellOnce[str] = TellOnce()

    def progress(self, *, is_journaled: bool) -> Progress:
        """Where progress is kept: two ordinary consumer offsets."""
        return Progress(self._query, self._commit, is_journaled)

    def create_topic(self, topic: str) -> None:
        """Make sure that people find what is given up; it is put there in any case."""
        self._try(lambda: ensure_topic(self._tables, topic, 1))

    def _query(self, topic: str, queue_id: int) -> int:
        offset = self._tables.offsets.query(CID_RMQ_SYS_TRANS, topic, queue_id)
        return -1 if offset is None else offset

    def _commit(self, topic: str, queue_id: int, offset: int) -> None:
        self._try(lambda: self._tables.commit(CID_RMQ_SYS_TRANS, topic, queue_id, offset))

    def _try(self, change: Callable[[], None]) -> None:
        try:
            change()
        except RequestError as error:
            if self._told.is_news(str(error)):
                _log.warning("the check of transactions cannot note how far it is: %s", error)
        else:
            self._told.over()


def transaction_settings(cluster: ClusterConfig) -> TransactionSettings:
    """When producers are asked, and for how long, as the cluster file says."""
    broker = cluster.broker
    return TransactionSettings(
        transaction_check_interval_ms=broker.transaction_check_interval_ms,
        transaction_timeout_ms=broker.transaction_timeout_ms,
        transaction_check_max=broker.transaction_check_max,
        file_reserved_time_ms=cluster.store.file_reserved_time_hours * 3_600_000,
    )
