"""What a node of a fenced group opens for its broker, in rounds of one process.

    process    name server
      round    store (recovered, cut if it has to be) -> FencedHAService -> broker -> client port
        roles    FOLLOWER -> CANDIDATE -> OPENING -> MASTER, in place

A round ends when the node is stopped, or when its replica has to begin again as a follower: it was
master and is not any more, or its log has to be cut. Then connections are closed once the answers
owed are out, the store is closed, and all of it is opened again in the same process. What clients
ask name servers for goes on being answered meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from ha.fenced.closed_healing import ClosedHealing
from ha.fenced.completeness import Completeness
from ha.fenced.ha_service import FencedHAService
from ha.fenced.punctuality import Punctuality
from ha.learners import Learners
from node.broker.broker import Broker
from node.broker.peer_logs import ClientPeerLogs
from node.config.part_configs import fenced_config, learner_config, store_config
from node.figures.node_report import NodeReport
from node.handlers.broker_epoch_cache import BrokerEpochCache
from node.handlers.fenced_group import FencedGroup
from node.handlers.peer_log import PeerLog
from node.name_server.name_server import NameServer
from node.tables.journal.journal_tables import JournalTables, SavedTables
from node.tables.replicated_tables import tables_of
from store import MessageStore
from store.machine.errors import RecordDamagedError, StoreError, StoreFullError
from store.machine.machine import Machine
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.coordinator.interface import Coordinator
from tandem.wire.message import Host

_log = logging.getLogger(__name__)

PAUSE_SECONDS_MIN: Final = 0.05
PAUSE_SECONDS_MAX: Final = 5.0
"""Between two rounds; it doubles while rounds end soon after they began."""

SOON_SECONDS: Final = 10.0


async def run_fenced_rounds(
    config: NodeConfig,
    machine: Machine,
    names: NameServer,
    report: NodeReport,
    coordinator: Coordinator,
    stop: trio.Event,
    started: Callable[[], None],
) -> None:
    """Run rounds until `stop` is set; `started` is called each time one of them listens.

    Raises:
        StoreError: The store cannot be opened, or turned out to be corrupt. A disk that gets full
            later ends a round and not the node, and so does a damaged record that a master needs.
        NodeError: The journal cannot be read by this version.
        AddressInUseError: A port is taken.
    """
    has_started = False

    def note_started() -> None:
        nonlocal has_started
        has_started = True
        started()

    pause_seconds = PAUSE_SECONDS_MIN
    completeness, punctuality = Completeness(), Punctuality()
    while not stop.is_set():
        began = trio.current_time()
        full: BaseExceptionGroup[StoreFullError] | None = None
        damaged: BaseExceptionGroup[RecordDamagedError] | None = None
        try:
            await _run_round(
                config,
                machine,
                names,
                report,
                coordinator,
                completeness,
                punctuality,
                stop,
                note_started,
            )
        except* StoreFullError as group:
            full = group
        except* RecordDamagedError as group:
            damaged = group
        if damaged is not None:
            _log.error("this node begins again as a follower: %s", _first(damaged))
        if full is not None:
            if not has_started:
                raise full
            _log.error("%s. Trying again until there is room", _first(full))
        if stop.is_set():
            return
        if trio.current_time() - began > SOON_SECONDS:
            pause_seconds = PAUSE_SECONDS_MIN
        with trio.move_on_after(pause_seconds):
            await stop.wait()
        pause_seconds = min(2 * pause_seconds, PAUSE_SECONDS_MAX)


async def _run_round(
    config: NodeConfig,
    machine: Machine,
    names: NameServer,
    report: NodeReport,
    coordinator: Coordinator,
    completeness: Completeness,
    punctuality: Punctuality,
    stop: trio.Event,
    started: Callable[[], None],
) -> None:
    saved = SavedTables(
        machine.disk,
        str(config.directory),
        machine.wall_clock_ms,
        auto_create_groups=config.cluster.broker.auto_create_subscription_group,
        registered=tables_of(config.level_max),
    )
    host = Host(config.node.address, config.node.port)
    peer_logs = ClientPeerLogs(config, machine.network)
    settings = store_config(config)
    open_store = partial(
        MessageStore.open,
        settings,
        disk=machine.disk,
        wall_clock_ms=machine.wall_clock_ms,
        store_host=host,
        is_slave=True,
        is_batch_topic=saved.topics.is_batch,
        compacted=saved.topics.compacted,
        hidden_before=saved.topics.hidden_before,
        confirm_bounds_reads=True,
    )
    closed = ClosedHealing(fenced_config(config), settings, machine, peer_logs)
    with await closed.open(open_store) as store:
        ha = FencedHAService(
            fenced_config(config), store, machine, coordinator, completeness, peer_logs, punctuality
        )
        tables = JournalTables(
            saved,
            store,
            ha,
            born_host=host.packed,
            wall_clock_ms=machine.wall_clock_ms,
            level=lambda: ha.feature_level,
        )
        broker = Broker(config, machine, names, store, tables, ha, report)
        group = FencedGroup(ha, spawn=broker.spawn, send=broker.send)
        learners = Learners(
            learner_config(config), store, machine.network_in_clear, ha.won_an_epoch
        )
        own = (group, PeerLog(config, ha), BrokerEpochCache(config, ha))
        try:
            await broker.serve(stop, started, own_families=own, own_tasks=(learners.run,))
        finally:
            broker.save()
    if store.disk_trouble is None:
        ha.stopped_clean()


def _first(group: BaseExceptionGroup[StoreError]) -> BaseException:
    """One of the errors; they are all of the same disk."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
