"""VIEW_BROKER_STATS_DATA: one item of the statistics, in its three windows."""

from __future__ import annotations

from node.errors import RequestError
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from node.tables.broker_stats import BrokerStats
from tandem.wire.access_control import Right
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import encode_json_body
from tandem.wire.stats_requests import BrokerStatsData, ViewBrokerStatsDataRequestHeader


class ViewBrokerStats:
    """Serves what `statsAll` asks for."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats

    @serves(
        RequestCode.VIEW_BROKER_STATS_DATA,
        (Resource.BROKER, Action.READ),
        of_cluster(Right.GET),
        header=ViewBrokerStatsDataRequestHeader,
    )
    def handle(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """VIEW_BROKER_STATS_DATA. Source: AdminBrokerProcessor.viewBrokerStatsData."""
        header = command.decode_header(ViewBrokerStatsDataRequestHeader)
        item = self._stats.find(header.stats_name, header.stats_key)
        if item is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{header.stats_name}> <{header.stats_key}> not exist",
            )
        body = BrokerStatsData(stats_day=item.day, stats_hour=item.hour, stats_minute=item.minute)
        return response_to(command, body=encode_json_body(body))
