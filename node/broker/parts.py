"""What the handlers of one broker share: its store and tables, and what it remembers of clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from ha.replication import Replication
from node.figures.figure import Figure
from node.figures.sources import Sources, group_labels, topic_labels
from node.handlers.end_transaction import (
    TransactionQuestions,
    TransactionTables,
    transaction_settings,
)
from node.handlers.pull_request_hold_service import PullRequestHoldService
from node.handlers.send_properties import PropertyStamp, UniqueKeys
from node.handlers.subscription import Subscriptions
from node.receive.pop_service import PopService
from node.receive.queue_order import PriorityReading
from node.remoting.client_requests import ClientRequests
from node.remoting.connection import Outbox
from node.remoting.unsupported import UnsupportedRequests
from node.tables.broker_stats import BrokerStats, local_day
from node.tables.client_table import ClientTable
from node.tables.consumer_filter_table import ConsumerFilterTable
from node.tables.producer_table import ProducerTable
from node.tables.put_counting import PutCounting
from node.tables.put_times import PutTimes
from node.tables.queue_locks import QueueLocks
from node.tables.reset_offsets import ResetOffsets
from node.tables.tables import Tables
from store import MessageStore
from store.machine.disk import Disk
from store.machine.table_file import TableFile
from store.transactions import Transactions
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.message import Host


class BrokerParts:
    """The parts, each made once. They live as long as the store is open."""

    def __init__(
        self,
        config: NodeConfig,
        store: MessageStore,
        tables: Tables,
        replication: Replication,
        *,
        disk: Disk,
        random: Random,
        wall_clock_ms: Callable[[], int],
    ) -> None:
        """Put them together; nothing happens before somebody calls them.

        Raises:
            TableFileError: the file of filters is damaged.
        """
        cluster = config.cluster.cluster.name
        self.config = config
        self.store = store
        self.tables = tables
        self.replication = replication
        self.disk = disk
        self.random = random
        self.wall_clock_ms = wall_clock_ms
        self.timeout_seconds = config.cluster.replication.slave_timeout_ms / 1000
        """For a change of tables to be settled."""
        self.own_names = frozenset({cluster, config.node.group})
        """Topics that are named like the cluster and the broker."""
        self.host = Host(config.node.address, config.node.port)
        self.outbox = Outbox()
        self.holds = PullRequestHoldService(self.outbox.flush)
        self.filters = self._registered_filters()
        self.clients = ClientTable(on_group_gone=self.filters.unregister)
        self.producers = ProducerTable()
        self.to_clients = ClientRequests()
        self.locks = QueueLocks()
        self.unsupported = UnsupportedRequests()
        self.resets = ResetOffsets()
        self.stats = BrokerStats(cluster, local_day, wall_clock_ms())
        self.put_times = PutTimes()
        self.counting = PutCounting(store, self.stats, wall_clock_ms)
        self.stamp = PropertyStamp(cluster, UniqueKeys(self.host, wall_clock_ms, random).new)
        broker = config.cluster.broker
        self.subscriptions = Subscriptions(
            self.clients,
            self.filters,
            enable_property_filter=broker.enable_property_filter,
        )
        self.pop = self._pop_service()
        self.transaction_tables = TransactionTables(tables)
        self.transactions = Transactions(
            store,
            store_host=self.host,
            wall_clock_ms=wall_clock_ms,
            settings=transaction_settings(config.cluster),
            create_topic=self.transaction_tables.create_topic,
            ask=TransactionQuestions(self.producers, self.to_clients, config.node.group).ask,
        )

    def _pop_service(self) -> PopService:
        broker = self.config.cluster.broker
        return PopService(
            self.store,
            self.tables,
            random=self.random,
            wall_clock_ms=self.wall_clock_ms,
            timeout_seconds=self.timeout_seconds,
            priorities=PriorityReading(
                broker.priority_order_asc, broker.pop_from_retry_probability_for_priority
            ),
        )

    def sources(self, live: Callable[[], Iterable[Figure]] = tuple) -> Sources:
        """Where figures of this broker come from; `live` yields what only the broker knows."""
        return Sources(
            store=self.store,
            tables=self.tables,
            clients=self.clients,
            producers=self.producers,
            stats=self.stats,
            put_times=self.put_times,
            replication=self.replication,
            disk=self.disk,
            wall_clock_ms=self.wall_clock_ms,
            refresh=self.counting.refresh,
            live=live,
            not_served=self.unsupported.counts,
            of_topic=topic_labels(),
            of_group=group_labels(),
            with_exporter_names=self.config.cluster.metrics.exporter_names,
        )

    def _registered_filters(self) -> ConsumerFilterTable:
        store = self.store
        uses_bit_maps = self.config.cluster.broker.enable_calc_filter_bit_map
        filters = ConsumerFilterTable(
            TableFile(self.disk, f"{self.config.directory}/config/consumerFilter.json"),
            self.wall_clock_ms,
            log_end=lambda: store.max_physical_offset,
            uses_bit_maps=uses_bit_maps,
        )
        if uses_bit_maps:
            store.calculate_bit_maps(filters.bit_map)
        return filters
