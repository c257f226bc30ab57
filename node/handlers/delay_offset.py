"""How far the delivery of delayed messages is, for a RocketMQ slave to copy.

GET_ALL_DELAY_OFFSET     the next offset of each delay level
GET_TIMER_CHECK_POINT    messages with a time of their own
GET_TIMER_METRICS        how many of the latter wait for each topic

Only a master delivers anything, so only a master has timers.
"""

from __future__ import annotations

from collections.abc import Callable

from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from store.delayed.delay_offset_table import DelayOffsetSerializeWrapper
from store.delayed.timer_metrics import TimerMetricsSerializeWrapper
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import DataVersion
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body


class DelayOffset:
    """Serves them.

    `progress` is the next offset by delay level, `timer_checkpoint` how far timers are, and
    `timer_metrics` how many wait for each topic; both are None where there are none.
    """

    def __init__(
        self,
        progress: Callable[[], dict[int, int]],
        timer_checkpoint: Callable[[], bytes | None],
        timer_metrics: Callable[[], TimerMetricsSerializeWrapper | None],
    ) -> None:
        self._progress = progress
        self._timer_checkpoint = timer_checkpoint
        self._timer_metrics = timer_metrics

    @serves(
        RequestCode.GET_ALL_DELAY_OFFSET,
        (Resource.OFFSETS, Action.READ),
        of_cluster(Right.GET),
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_DELAY_OFFSET. Source: AdminBrokerProcessor.getAllDelayOffset."""
        body = DelayOffsetSerializeWrapper(DataVersion(), self._progress())
        return response_to(command, body=encode_json_body(body))

    @serves(
        RequestCode.GET_TIMER_CHECK_POINT,
        (Resource.OFFSETS, Action.READ),
        of_cluster(Right.GET),
    )
    def timer_checkpoint(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_CHECK_POINT: seven numbers of eight bytes.

        Source: AdminBrokerProcessor.getTimerCheckPoint.
        """
        data = self._timer_checkpoint()
        if data is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "The checkpoint is null: this node delivers no timers (timer_wheel_enable, and only"
                " a master does)",
            )
        return response_to(command, body=data)

    @serves(
        RequestCode.GET_TIMER_METRICS,
        (Resource.OFFSETS, Action.READ),
        of_cluster(Right.GET),
    )
    def timer_metrics(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_TIMER_METRICS. Source: AdminBrokerProcessor.getTimerMetrics."""
        metrics = self._timer_metrics()
        if metrics is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                "The timerMessageStore is null: this node delivers no timers (timer_wheel_enable,"
                " and only a master does)",
            )
        return response_to(command, body=encode_json_body(metrics))
