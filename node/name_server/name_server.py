"""The name server of a node: routes, on a port of their own and on the client port as well.

It outlives the rounds of the broker beside it.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from node.name_server.name_server_admin import NameServerAdmin
from node.name_server.newcomers import Newcomers
from node.name_server.readiness import Readiness
from node.name_server.route_table import RouteTable
from node.name_server.topic_route import TopicRoute
from node.remoting.connection import Connection, Outbox
from node.remoting.dispatcher import Dispatcher
from node.remoting.server import Server
from node.security.guard import Guard
from node.tables.kv_config_table import KvConfigTable
from store.machine.disk import Disk
from store.machine.network import Network
from store.machine.table_file import TableFile
from tandem.cluster_file.cluster_config import NodeConfig

_log = logging.getLogger(__name__)

SCAN_SECONDS: Final = 1.0
"""Between two looks for silent brokers. RocketMQ: 5 s."""


class NameServer:
    """Routes, and the port of their own on which they are served."""

    def __init__(self, config: NodeConfig, guard: Guard, disk: Disk) -> None:
        """Read what operators have kept here.

        Raises:
            TableFileError: the file is damaged.
        """
        broker = config.cluster.broker
        self.routes = RouteTable(broker.broker_expired_timeout_ms / 1000)
        self.guard = guard
        """Asks who may send a request; the same for the client port."""
        self.newcomers = Newcomers()
        self._groups = {
            group: [node.broker_address for node in config.cluster.nodes if node.group == group]
            for group in config.cluster.groups
        }
        self._values = KvConfigTable(TableFile(disk, f"{config.directory}/config/kvConfig.json"))
        self._readiness: Readiness | None = None
        self._node = config.node
        self._outbox = Outbox()
        self._server = Server(
            self._outbox,
            connections_max=broker.connections_max,
            after_round=self._outbox.flush,
            on_closed=self.connection_closed,
        )

    def families(self) -> tuple[object, ...]:
        """Return the handlers of all that a name server answers."""
        return (
            TopicRoute(self.routes, self.newcomers.add, self._why_not_ready),
            NameServerAdmin(self.routes, self._values, self._node.name_server_port),
        )

    async def run(
        self, network: Network, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Serve until cancelled. Started once it listens.

        Raises:
            AddressInUseError: the port is taken.
        """
        node = self._node
        self._readiness = Readiness(self.routes, self._groups, trio.current_time())
        listener = await network.listen(node.address, node.name_server_port)
        async with trio.open_nursery() as nursery:
            dispatcher = Dispatcher(self.guard.guarded(*self.families()))
            nursery.start_soon(self._server.listen, listener, dispatcher, nursery)
            nursery.start_soon(self._server.close_idle)
            nursery.start_soon(self._forget_the_silent)
            nursery.start_soon(self.guard.quotas.run)
            task_status.started()

    def connection_closed(self, connection: Connection) -> None:
        """Forget the brokers that registered by this connection, and its place; at all ports."""
        self.guard.quotas.connection_closed(connection)
        for address in self.routes.connection_closed(connection):
            _log.info("broker at %s left: its connection closed", address)

    def _why_not_ready(self, is_known: bool) -> str | None:  # noqa: FBT001  by position, as a callable
        if self._readiness is None:
            return None
        return self._readiness.why_not(trio.current_time(), is_known=is_known)

    async def _forget_the_silent(self) -> None:
        while True:
            await trio.sleep(SCAN_SECONDS)
            for address in self.routes.expire(trio.current_time()):
                _log.warning("broker at %s left: not heard of for too long", address)
