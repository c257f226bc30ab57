"""The handlers of all requests that look at a broker from outside, put together in one place.

Statistics, progress of groups, topics, settings; and the few orders that belong to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.handlers.broker_config import BrokerConfig
from node.handlers.broker_runtime_info import BrokerRuntimeInfo
from node.handlers.clean_up import CleanUp
from node.handlers.consume_stats import ConsumeStatsRequests
from node.handlers.delay_offset import DelayOffset
from node.handlers.query_assignment import QueryAssignment
from node.handlers.topic_stats import TopicStats
from node.handlers.view_broker_stats import ViewBrokerStats

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ha.replication import Replication
    from node.tables.broker_stats import BrokerStats
    from node.tables.client_table import ClientTable
    from node.tables.put_counting import PutCounting
    from node.tables.tables import Tables
    from store import MessageStore
    from store.machine.disk import Disk
    from tandem.cluster_file.cluster_config import NodeConfig
    from tandem.wire.route import TopicRouteData


class Inspection:
    """One object for each family of these requests; what they look at is of one broker."""

    def __init__(
        self,
        *,
        config: NodeConfig,
        store: MessageStore,
        tables: Tables,
        clients: ClientTable,
        stats: BrokerStats,
        counting: PutCounting,
        replication: Replication,
        disk: Disk,
        route_of: Callable[[str], TopicRouteData | None],
        delay_progress: Callable[[], dict[int, int]],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        wall_clock_ms: Callable[[], int],
    ) -> None:
        node, cluster = config.node, config.cluster.cluster
        self.consume = ConsumeStatsRequests(
            store,
            tables,
            clients,
            stats,
            broker_name=node.group,
            broker_address=node.broker_address,
            wall_clock_ms=wall_clock_ms,
        )
        self.topic = TopicStats(
            store,
            tables,
            clients,
            stats,
            cluster_name=cluster.name,
            broker_name=node.group,
        )
        self.runtime = BrokerRuntimeInfo(
            store,
            stats,
            disk,
            refresh=counting.refresh,
            delay_progress=delay_progress,
            wall_clock_ms=wall_clock_ms,
        )
        self.items = ViewBrokerStats(stats)
        self.settings = BrokerConfig(config, tables, replication)
        self.clean = CleanUp(store, spawn)
        self.assignment = QueryAssignment(clients, route_of)
        self.delays = DelayOffset(delay_progress)
