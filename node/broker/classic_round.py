"""What a node of a classic group opens for its broker: there is one round, and one role."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ha.classic.ha_service import HAService
from node.broker.broker import Broker
from node.config.part_configs import ha_config, store_config
from node.figures.node_report import NodeReport
from node.name_server.name_server import NameServer
from node.tables.plain_tables import PlainFiles, PlainTables
from node.tables.replicated_modes import ModesTable
from node.tables.replicated_quotas import QuotasTable
from node.tables.replicated_users import AclsTable, UsersTable
from node.tables.slave_synchronize import SlaveSynchronize
from store import MessageStore
from store.machine.machine import Machine
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.message import Host


async def run_classic_round(
    config: NodeConfig,
    machine: Machine,
    names: NameServer,
    report: NodeReport,
    stop: trio.Event,
    started: Callable[[], None],
) -> None:
    """Serve until `stop` is set; `started` is called once this node is recovered and listens.

    Raises:
        StoreError: The store cannot be opened, or turned out to be corrupt.
        TableFileError: A table file is damaged, or cannot be written.
        AddressInUseError: A port is taken.
    """
    # Before the store: the attributes of a topic say which kind of queues it has.
    files = PlainFiles(
        machine.disk,
        str(config.directory),
        machine.wall_clock_ms,
        auto_create_groups=config.cluster.broker.auto_create_subscription_group,
    )
    store = MessageStore.open(
        store_config(config),
        disk=machine.disk,
        wall_clock_ms=machine.wall_clock_ms,
        store_host=Host(config.node.address, config.node.port),
        is_slave=not config.node.is_master,
        is_batch_topic=files.topics.is_batch,
        compacted=files.topics.compacted,
        hidden_before=files.topics.hidden_before,
    )
    with store:
        synchronize = None
        if not config.node.is_master:
            synchronize = SlaveSynchronize(
                config,
                machine.network,
                files.topics,
                files.groups,
                files.offsets,
                users=files.shown.of(UsersTable),
                acls=files.shown.of(AclsTable),
                quotas=files.shown.of(QuotasTable),
                modes=files.shown.of(ModesTable),
            )
        tables = PlainTables(files, hide=store.compaction.hide, synchronize=synchronize)
        replication = HAService(
            ha_config(config), store, machine.network_in_clear, wall_clock_ms=machine.wall_clock_ms
        )
        broker = Broker(config, machine, names, store, tables, replication, report)
        try:
            await broker.serve(stop, started)
        finally:
            broker.save()
