"""RocketMQ's second port for requests, two below the first: everything but reading messages.

A reader waits, and would hold this port up. Clients of RocketMQ dial it if they are configured to
(`vipChannelEnabled`); its brokers dial it without that, when they are slaves and copy topics
and offsets.

Source: RocketMQ 5.3.3, BrokerController.initializeRemotingServer and registerProcessor
(fastRemotingServer), MixAll.brokerVIPChannel.
"""

from __future__ import annotations

from node.remoting.connection import Connection
from node.remoting.dispatcher import Dispatch, TakeRun, response_to
from node.remoting.gathering import TakeTogether
from node.security.request import REQUESTS
from tandem.wire.remoting_command import RESPONSE_FLAG, RemotingCommand
from tandem.wire.response_code import ResponseCode


class VipChannel:
    """The dispatcher of the second port: the first one's, without reads."""

    def __init__(self, dispatcher: Dispatch) -> None:
        self._dispatcher = dispatcher

    @property
    def take_run(self) -> TakeRun | None:
        """See `Dispatch`; no read is in a run."""
        return self._dispatcher.take_run

    @property
    def take_pulls(self) -> TakeRun | None:
        """See `Dispatch`."""
        return None

    @property
    def take_together(self) -> TakeTogether | None:
        """See `Dispatch`; no read is among them."""
        return self._dispatcher.take_together

    def dispatch(self, connection: Connection, command: RemotingCommand) -> None:
        """Have a request handled and answer it on its connection."""
        request = REQUESTS.get(command.code)
        if request is None or request.at_vip_channel or command.flag & RESPONSE_FLAG:
            self._dispatcher.dispatch(connection, command)
            return
        remark = f"request {command.code} is not served at this port; pull at the broker's own"
        answer = response_to(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        connection.respond(command, answer)
