"""The handlers of all requests that look at a broker from outside.

Statistics, progress of groups, topics, settings; and the few orders that belong to them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from node.broker.parts import BrokerParts
from node.handlers.broker_config import BrokerConfig
from node.handlers.broker_runtime_info import BrokerRuntimeInfo
from node.handlers.clean_up import CleanUp
from node.handlers.consume_stats import ConsumeStatsRequests
from node.handlers.delay_offset import DelayOffset
from node.handlers.query_assignment import QueryAssignment
from node.handlers.topic_stats import TopicStats
from node.handlers.view_broker_stats import ViewBrokerStats
from store.delayed.timer_metrics import TimerMetricsSerializeWrapper
from store.delayed_delivery import DelayedDelivery
from tandem.wire.route import TopicRouteData


def inspections(
    parts: BrokerParts,
    *,
    route_of: Callable[[str], TopicRouteData | None],
    delayed: Callable[[], DelayedDelivery | None],
    spawn: Callable[[Callable[[], Awaitable[None]]], None],
) -> tuple[object, ...]:
    """Return one object for each family of these requests; see `handlers_of`."""
    store, tables, clients, stats = parts.store, parts.tables, parts.clients, parts.stats
    node, cluster = parts.config.node, parts.config.cluster.cluster

    def delay_progress() -> dict[int, int]:
        found = delayed()
        return {} if found is None else found.delay_progress()

    def timer_checkpoint() -> bytes | None:
        found = delayed()
        return None if found is None else found.timer_checkpoint()

    def timer_metrics() -> TimerMetricsSerializeWrapper | None:
        found = delayed()
        return None if found is None else found.timer_metrics()

    return (
        ConsumeStatsRequests(
            store,
            tables,
            clients,
            stats,
            broker_name=node.group,
            broker_address=node.broker_address,
            wall_clock_ms=parts.wall_clock_ms,
        ),
        TopicStats(
            store,
            tables,
            clients,
            stats,
            cluster_name=cluster.name,
            broker_name=node.group,
        ),
        BrokerRuntimeInfo(parts.sources(), delay_progress=delay_progress),
        ViewBrokerStats(stats),
        BrokerConfig(parts.config, store, tables, parts.replication),
        CleanUp(store, spawn),
        QueryAssignment(clients, tables, route_of, timeout_seconds=parts.timeout_seconds),
        DelayOffset(delay_progress, timer_checkpoint, timer_metrics),
    )
