"""GET_ALL_DELAY_OFFSET: how far the delivery of each delay level is, for a slave to copy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from store.delayed.delay_offset_table import DelayOffsetSerializeWrapper
from tandem.wire.access_control import Right
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import DataVersion
from tandem.wire.route import encode_json_body

if TYPE_CHECKING:
    from collections.abc import Callable

    from node.remoting.connection import Connection
    from tandem.wire.remoting_command import RemotingCommand


class DelayOffset:
    """Serves that request; `progress` is the next offset by delay level."""

    def __init__(self, progress: Callable[[], dict[int, int]]) -> None:
        self._progress = progress

    @serves(
        RequestCode.GET_ALL_DELAY_OFFSET,
        (Resource.OFFSETS, Action.READ),
        of_cluster(Right.GET),
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET. Source: AdminBrokerProcessor.getAllDelayOffset."""
        body = DelayOffsetSerializeWrapper(DataVersion(), self._progress())
        return response_to(command, body=encode_json_body(body))
