"""A whole node: opens what its kind of group needs, serves, and takes it down in reverse.

    name server                 its own port; outlives the rounds of the broker
      with store                locked, recovered; synced and marked clean at the end
        broker                  services, connections, client port

On `stop` the listeners close, requests in flight get their answers (bounded by the grace period),
services end, the store is closed. A crash skips all of that, which is why nothing relies on it.

Everything that touches the world is an argument, so that whole clusters run in one simulation:
no signal, thread, clock or socket is reached from here directly.
"""

from __future__ import annotations

import logging

import msgspec
import trio

from node.broker.classic_round import run_classic_round
from node.broker.fenced_rounds import run_fenced_rounds
from node.errors import ConfigError
from node.figures.node_report import NodeReport
from node.metrics.collection import Collection
from node.metrics.exporters import Exporter
from node.metrics.port import MetricsPort
from node.name_server.name_server import NameServer
from node.security.audit import Audit
from node.security.certificates import Certificates
from node.security.exposure import check_exposure
from node.security.guard import Guard
from store.machine.machine import Machine
from store.machine.service_manager import READY, STOPPING, WATCHDOG, ServiceManager
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.coordinator.interface import Coordinator
from tandem.wire import native

_log = logging.getLogger(__name__)


async def run_node(
    config: NodeConfig,
    machine: Machine,
    *,
    stop: trio.Event,
    coordinator: Coordinator | None = None,
    exporter: Exporter | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run one node until `stop` is set. Started once it is recovered and listening.

    `coordinator` keeps the record of the master of a fenced group; a classic one needs none.
    `exporter` sends figures to a collector, if there is one.

    Raises:
        ConfigError: The node is of a fenced group, and there is no coordinator; or it would be open
            to more than its cluster file allows.
        StoreError: The store cannot be opened, or turned out to be corrupt. In a fenced group a
            disk that gets full later ends a round and not the node.
        TableFileError: A table file is damaged, or cannot be written.
        NodeError: The journal cannot be read by this version.
        AddressInUseError: A port is taken.
    """
    _log.info(
        "%s of group %s, cluster %s (fingerprint %s), store %s",
        _kind(config),
        config.node.group,
        config.cluster.cluster.name,
        config.cluster.fingerprint,
        config.directory,
    )
    if native.why_not_native is not None:
        _log.warning(
            "this node does in Python what it could do in C, and is slower for it: %s",
            native.why_not_native,
        )
    if config.is_fenced and coordinator is None:
        problem = (
            f"group {config.node.group} is fenced: it needs a coordinator; name one in the cluster"
            " file"
        )
        raise ConfigError([problem], setting="coordinator")
    check_exposure(config)
    check_packages(config)
    certificates = None
    if config.cluster.tls.is_on:
        certificates = Certificates(config, machine.network, machine.wall_clock_ms)
        machine = msgspec.structs.replace(
            machine, network=certificates.network, clear_network=machine.network
        )
    audit = Audit(config.node.name, machine.wall_clock_ms, trio.current_time)
    names = NameServer(config, Guard(config, machine.random, audit), machine.disk)
    report = NodeReport()
    started = _Once(task_status, machine.service_manager)
    async with trio.open_nursery() as nursery:
        if certificates is not None:
            nursery.start_soon(certificates.watch)
        collection = Collection(config, machine, report)
        await nursery.start(MetricsPort(config, machine, report, collection).run)
        if exporter is not None:
            nursery.start_soon(exporter.run, collection)
        if exporter is not None or config.metrics_place is not None:
            nursery.start_soon(collection.watch_loop)
        nursery.start_soon(_tell_service_manager, machine.service_manager, report, stop)
        await nursery.start(names.run, machine.network)
        if not config.is_fenced or coordinator is None:
            await run_classic_round(config, machine, names, report, stop, started)
        else:
            await run_fenced_rounds(config, machine, names, report, coordinator, stop, started)
        # Also a node that was stopped before it could serve has started.
        started()
        nursery.cancel_scope.cancel()
    _log.info("this node has stopped")


def check_packages(config: NodeConfig) -> None:
    """Have what the cluster file asks for, and not every installation has.

    Raises:
        ConfigError: a package is missing.
    """
    if not config.cluster.broker.grpc_enable:
        return
    try:
        import node.broker.calls  # noqa: F401, PLC0415 - an extra
    except ModuleNotFoundError as error:
        problem = (
            f"{config.cluster.file}: broker: grpc_enable needs a package that is not installed:"
            f" {error.name}; pip install 'tandem-mq[grpc]'"
        )
        raise ConfigError([problem], setting="grpc_enable") from error


def _kind(config: NodeConfig) -> str:
    if config.is_fenced:
        return "replica"
    return "master" if config.node.is_master else "slave"


class _Once:
    """Says that the node has started, the first time it is called."""

    def __init__(
        self, task_status: trio.TaskStatus[None], service_manager: ServiceManager | None
    ) -> None:
        self._task_status: trio.TaskStatus[None] | None = task_status
        self._service_manager = service_manager

    def __call__(self) -> None:
        if self._task_status is not None:
            self._task_status.started()
            self._task_status = None
            if self._service_manager is not None:
                self._service_manager.say(READY)


async def _tell_service_manager(
    service_manager: ServiceManager | None, report: NodeReport, stop: trio.Event
) -> None:
    """Say that this node goes on, as often as is wanted, and that it stops."""
    async with trio.open_nursery() as nursery:
        if service_manager is not None and service_manager.watchdog_seconds is not None:
            nursery.start_soon(_feed_watchdog, service_manager, service_manager.watchdog_seconds)
        await stop.wait()
        report.is_stopping = True
        if service_manager is not None:
            service_manager.say(STOPPING)


async def _feed_watchdog(service_manager: ServiceManager, seconds: float) -> None:
    while True:
        service_manager.say(WATCHDOG)
        await trio.sleep(seconds / 2)
