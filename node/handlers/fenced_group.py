"""What a node of a fenced group answers in ways of its own: its state, and changes of tables.

A change is answered when it is confirmed, so that no change of master takes it back. A committed
offset is told by the master alone: another node may not know yet what was committed last.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import trio

from ha.fenced.replica_role import ReplicaRole
from node.errors import RequestError
from node.remoting.dispatcher import response_to
from node.tables.consumer_offset_table import TOPIC_GROUP_SEPARATOR
from store.results import PutMessageStatus
from tandem.coordinator.interface import CoordinatorError
from tandem.wire.ha_status import FencedCommand, FencedCommandResult
from tandem.wire.remoting_command import ONEWAY_FLAG
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from node.handlers.admin import Admin
    from node.handlers.consumer_offset import ConsumerOffset
    from node.remoting.connection import Connection
    from node.remoting.dispatcher import Handler
    from node.tables.journal.group_journal import GroupJournal
    from tandem.wire.ha_status import FencedStatus
    from tandem.wire.remoting_command import RemotingCommand

_log = logging.getLogger(__name__)


class Replica(Protocol):
    """What these requests need to know of a `FencedHAService`."""

    role: ReplicaRole
    admission_status: PutMessageStatus

    def admission(self) -> str:
        """Why no change is taken now; empty if changes are taken."""

    def status(self) -> FencedStatus:
        """What this node knows of its group."""

    async def command(self, command: FencedCommand) -> FencedCommandResult:
        """Carry out an operator's order, or say why not."""


class FencedGroup:
    """Serves those requests for one round of a node.

    Args:
        ha: The replica.
        journal: Where changes are written.
        offsets: Serves offsets of a node that is allowed to.
        admin: Serves changes of topics of a node that is allowed to.
        spawn: Starts a task that ends with the round.
        send: Sends off what was written to connections outside of a round of requests.
        timeout_seconds: How long a change waits to be confirmed.
    """

    def __init__(
        self,
        ha: Replica,
        journal: GroupJournal,
        offsets: ConsumerOffset,
        admin: Admin,
        *,
        spawn: Callable[[Callable[..., Awaitable[Any]], Connection, RemotingCommand], None],
        send: Callable[[], None],
        timeout_seconds: float,
    ) -> None:
        self._ha = ha
        self._journal = journal
        self._offsets = offsets
        self._admin = admin
        self._spawn = spawn
        self._send = send
        self._timeout_seconds = timeout_seconds

    def status_handlers(self) -> dict[int, Handler]:
        """What is answered in every state of the node."""
        return {
            RequestCode.FENCED_STATUS: self.status,
            RequestCode.FENCED_COMMAND: self.command,
            RequestCode.GET_BROKER_HA_STATUS: self._admin.ha_status,
        }

    def status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """FENCED_STATUS: what this node knows of its group."""
        return response_to(command, body=msgspec.json.encode(self._ha.status()))

    def command(self, connection: Connection, command: RemotingCommand) -> None:
        """FENCED_COMMAND: an operator's order. It is answered when it is carried out."""
        connection.parked_puts += 1
        self._spawn(self._carry_out, connection, command)

    async def _carry_out(self, connection: Connection, command: RemotingCommand) -> None:
        try:
            order = msgspec.json.decode(command.body, type=FencedCommand)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            answer = response_to(
                command, ResponseCode.INVALID_PARAMETER, f"this is no FencedCommand: {error}"
            )
        else:
            _log.warning("%s asks: %s %s", connection.peer, order.command, order.node)
            try:
                result = await self._ha.command(order)
            except CoordinatorError as error:
                result = FencedCommandResult(
                    done=False, text=f"it is not known whether it was done: {error}"
                )
            answer = response_to(command, body=msgspec.json.encode(result))
        connection.respond(command, answer)
        connection.puts_answered(1)
        self._send()

    def topic_configs(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_CONFIG: for RocketMQ's slaves, which copy tables beside the log."""
        return self._admin.topic_configs(connection, command)

    def consumer_offsets(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_CONSUMER_OFFSET: for RocketMQ's slaves."""
        return self._admin.consumer_offsets(connection, command)

    def create_topic(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_TOPIC, answered when no change of master can take it back."""
        self._check_admitted()
        self._admin.create_topic(connection, command)
        self._answer_when_confirmed(connection, command)

    def update_offset(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        """UPDATE_CONSUMER_OFFSET: one-way ones are gathered, others answered when confirmed."""
        self._check_admitted()
        header = self._offsets.checked_update(command)
        self.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        if not command.flag & ONEWAY_FLAG:
            self._answer_when_confirmed(connection, command)
        return None

    def query_offset(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """QUERY_CONSUMER_OFFSET: what is confirmed, and by the master only."""
        ha = self._ha
        refusal = ha.admission()
        is_short = ha.admission_status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        if ha.role is not ReplicaRole.MASTER or (refusal and not is_short):
            raise RequestError(
                ResponseCode.SERVICE_NOT_AVAILABLE, f"only the master knows offsets: {refusal}"
            )
        return self._offsets.query(connection, command)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Take in an offset nobody waits for. Nodes that are not the master ignore it."""
        if self._journal.is_master:
            self._journal.commit(f"{topic}{TOPIC_GROUP_SEPARATOR}{group}", queue_id, offset)

    def _check_admitted(self) -> None:
        """Refuse a change where a put would be refused.

        Raises:
            RequestError: With the reason.
        """
        refusal = self._ha.admission()
        if refusal:
            raise RequestError(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)

    def _answer_when_confirmed(self, connection: Connection, command: RemotingCommand) -> None:
        connection.parked_puts += 1

        def done(trouble: str) -> None:
            code = ResponseCode.SYSTEM_ERROR if trouble else ResponseCode.SUCCESS
            connection.respond(command, response_to(command, code, trouble or None))
            connection.puts_answered(1)

        self._journal.when_confirmed(trio.current_time() + self._timeout_seconds, done)


def refuse_all(reason: Callable[[], str]) -> Handler:
    """Return what answers every request of a node that takes no part."""

    def refuse(connection: Connection, command: RemotingCommand) -> RemotingCommand:
        return response_to(command, ResponseCode.SERVICE_NOT_AVAILABLE, reason())

    return refuse
