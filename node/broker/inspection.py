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

    from node.broker.parts import BrokerParts
    from tandem.wire.route import TopicRouteData


class Inspection:
    """One object for each family of these requests; what they look at is of one broker."""

    def __init__(
        self,
        parts: BrokerParts,
        *,
        route_of: Callable[[str], TopicRouteData | None],
        delay_progress: Callable[[], dict[int, int]],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        store, tables, clients, stats = parts.store, parts.tables, parts.clients, parts.stats
        node, cluster = parts.config.node, parts.config.cluster.cluster
        self.consume = ConsumeStatsRequests(
            store,
            tables,
            clients,
            stats,
            broker_name=node.group,
            broker_address=node.broker_address,
            wall_clock_ms=parts.wall_clock_ms,
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
            parts.disk,
            refresh=parts.counting.refresh,
            delay_progress=delay_progress,
            put_times=parts.put_times,
            not_served=parts.unsupported.counts,
            wall_clock_ms=parts.wall_clock_ms,
        )
        self.items = ViewBrokerStats(stats)
        self.settings = BrokerConfig(parts.config, store, tables, parts.replication)
        self.clean = CleanUp(store, spawn)
        self.assignment = QueryAssignment(clients, route_of)
        self.delays = DelayOffset(delay_progress)
