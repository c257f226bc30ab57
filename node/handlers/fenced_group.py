"""What only nodes of fenced groups answer: their state, and an operator's orders."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from node.remoting.connection import Connection, OwedAnswers
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from store import StoreError
from tandem.coordinator.interface import CoordinatorError
from tandem.wire.access_control import Right
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.untrusted import UnreadableError, decode_json

_log = logging.getLogger(__name__)


class Replica(Protocol):
    """What these requests need to know of a `FencedHAService`."""

    def status(self) -> FencedStatus:
        """What this node knows of its group."""

    async def command(self, command: FencedCommand) -> FencedCommandResult:
        """Carry out an operator's order, or say why not."""


class FencedGroup:
    """Serves those requests for one round of a node.

    Args:
        ha: The replica.
        spawn: Starts a task that ends with the round.
        send: Sends off what was written to connections outside of a round of requests.
    """

    def __init__(
        self,
        ha: Replica,
        *,
        spawn: Callable[..., None],
        send: Callable[[], None],
    ) -> None:
        self._ha = ha
        self._spawn = spawn
        self._send = send

    @serves(
        RequestCode.FENCED_STATUS,
        (Resource.REPLICATION, Action.READ),
        of_cluster(Right.GET),
    )
    def status(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """FENCED_STATUS: what this node knows of its group."""
        return response_to(command, body=msgspec.json.encode(self._ha.status()))

    @serves(
        RequestCode.FENCED_COMMAND,
        (Resource.REPLICATION, Action.ORDER),
        of_cluster(Right.UPDATE),
    )
    def command(self, connection: Connection, command: RemotingCommand) -> None:
        """FENCED_COMMAND: an operator's order. It is answered when it is carried out."""
        self._spawn(self._carry_out, connection, command, connection.owe())

    async def _carry_out(
        self, connection: Connection, command: RemotingCommand, owed: OwedAnswers
    ) -> None:
        try:
            order = decode_json(command.body, FencedCommand)
        except UnreadableError as error:
            answer = response_to(
                command, ResponseCode.INVALID_PARAMETER, f"this is no FencedCommand: {error}"
            )
        else:
            _log.warning("%s asks: %s %s", connection.peer, order.command, order.node)
            result = await self._result_of(order)
            answer = response_to(command, body=msgspec.json.encode(result))
        owed.respond(command, answer)
        self._send()

    async def _result_of(self, order: FencedCommand) -> FencedCommandResult:
        """Carry out an order; what goes wrong with it ends no node.

        Raises:
            StoreError: The node's own disk: that does end it.
        """
        try:
            return await self._ha.command(order)
        except CoordinatorError as error:
            trouble = str(error)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - the request must get an answer
            _log.exception("the order %s %s failed: a bug", order.command, order.node)
            trouble = f"{type(error).__name__}: {error}"
        return FencedCommandResult(
            done=False, text=f"it is not known whether it was done: {trouble}"
        )
