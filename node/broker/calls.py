"""The gRPC service of one broker, put together out of its parts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from node.grpc.acknowledgements import Acknowledgements
from node.grpc.call_counts import CallCounts
from node.grpc.entrance import Entrance
from node.grpc.link_signer import LinkSigner
from node.grpc.links import Link, Links
from node.grpc.receives import Receives
from node.grpc.renewals import Renewals
from node.grpc.routes import Routes
from node.grpc.sends import Sends
from node.grpc.service import methods_of
from node.grpc.telemetry import Telemetry
from node.grpc.topic_types import TopicTypes
from node.grpc.ways import Ways
from tandem.cluster_file.choices import ClientAccess
from tandem.wire.secret_keys import operator_secret_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from node.broker.parts import BrokerParts
    from node.name_server.route_table import RouteTable
    from node.remoting.connection import Connection
    from node.remoting.dispatcher import Dispatch
    from node.security.guard import Guard
    from store.machine.network import Network
    from tandem.cluster_file.cluster_config import ClusterConfig
    from tandem.wire.remoting_command import RemotingCommand
    from tandem.wire.request_headers import TopicConfig

RENEWAL_SECONDS: Final = 1.0
"""Between two looks for messages that are to be renewed, or given back."""

REGISTER_SECONDS: Final = 10.0
"""Between two heartbeats for the producers of this node's streams. A new master knows them then."""


class Calls:
    """What a broker has of the gRPC service.

    Attributes:
        entrance: Serves its connections.
        telemetry: The streams of its clients.
        counts: Of its calls.
    """

    def __init__(
        self,
        parts: BrokerParts,
        network: Network,
        routes: RouteTable,
        guard: Guard,
        local: Callable[[], Dispatch],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        after_round: Callable[[], None],
        on_closed: Callable[[Connection], None],
    ) -> None:
        """Put it together; nothing happens before `run` and the first connection.

        Args:
            parts: Those of the broker.
            network: Dials masters.
            routes: The name server beside the broker.
            guard: Asks who may send a request.
            local: What this node answers.
            spawn: Starts a task that ends with the broker.
            after_round: Called when requests were handled, or answered.
            on_closed: Called with a connection that handlers know, when it is over.
        """
        config = parts.config
        node, cluster = config.node, config.cluster
        self._after_round = after_round
        self._links = Links(
            lambda broker_name: Link(
                broker_name,
                network,
                node.address,
                routes.master_address,
                partial(_new_signer, cluster),
                self._questioned,
                after_round,
            ),
            spawn,
            after_round,
        )

        ways = Ways(
            node.group,
            local,
            lambda: parts.replication.is_master and parts.replication.refusal() is None,
            guard.over,
            self._links,
            lambda name: name == node.group or routes.is_known(name),
        )
        types = TopicTypes(partial(_topic_config, parts, routes))
        group_of = parts.tables.groups.get
        body_bytes_max = cluster.store.max_message_size_bytes
        renewals = self._renewals = Renewals()
        self.telemetry = Telemetry(
            ways, routes.route, group_of, renewals, node.group, body_bytes_max
        )
        sends = Sends(ways, types, routes.route, parts.random, parts.wall_clock_ms, body_bytes_max)
        methods = methods_of(
            Routes(ways, types, group_of),
            sends,
            self.telemetry,
            Receives(ways, group_of, renewals, parts.wall_clock_ms),
            Acknowledgements(ways, renewals, parts.wall_clock_ms),
        )
        self.counts = CallCounts()
        self.entrance = Entrance(
            parts.outbox,
            methods,
            self.telemetry,
            self.counts,
            after_round=after_round,
            on_closed=on_closed,
        )

    async def run(self) -> None:
        """Do what has to be done from time to time, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._links.run)
            nursery.start_soon(self.entrance.run)
            nursery.start_soon(self._renew)
            while True:
                await trio.sleep(REGISTER_SECONDS)
                await self.telemetry.register_all()
                self._after_round()

    async def _renew(self) -> None:
        while True:
            await trio.sleep(RENEWAL_SECONDS)
            self._renewals.work(trio.current_time())

    def _questioned(self, question: RemotingCommand) -> None:
        self.telemetry.asked(None, question)


def _new_signer(cluster: ClusterConfig, address: str) -> LinkSigner | None:
    if cluster.security.clients is ClientAccess.OPEN:
        return None
    return LinkSigner(operator_secret_key(cluster.secret), address)


def _topic_config(parts: BrokerParts, routes: RouteTable, topic: str) -> TopicConfig | None:
    return parts.tables.topics.get(topic) or routes.topic_config(topic)
