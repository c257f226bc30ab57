"""Tells every node of the cluster, again and again, that this one is alive and what it serves.

Every node is a name server, so a broker registers with all of them, itself included: at start,
every few seconds, and at once when a topic changes. When this process dies its connections close,
and everybody drops it from the route in the same moment.

Source: RocketMQ 5.3.3, BrokerController.registerBrokerAll.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from node.peer_link import PeerLink
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import RegisterBrokerBody, RegisterBrokerRequestHeader
from tandem.wire.route import encode_json_body

if TYPE_CHECKING:
    from ha.network import Network
    from node.config import NodeConfig
    from node.remoting_client import RemotingClient
    from node.route_table import RouteTable
    from node.topic_config_table import TopicConfigTable


class Registration:
    """The registrations of one node."""

    def __init__(
        self, config: NodeConfig, network: Network, routes: RouteTable, topics: TopicConfigTable
    ) -> None:
        settings = config.cluster.broker
        node = config.node
        self._interval_seconds = settings.register_broker_interval_ms / 1000
        self._routes = routes
        self._topics = topics
        self._header = RegisterBrokerRequestHeader(
            broker_name=node.group,
            broker_addr=node.broker_address,
            cluster_name=config.cluster.cluster.name,
            ha_server_addr=f"{node.address}:{node.ha_port}",
            broker_id=node.broker_id,
            heartbeat_timeout_millis=settings.broker_expired_timeout_ms,
            # Present, so that name servers take a lone slave's topics; see RouteTable.
            enable_acting_master=False,
        )
        self._links = [
            PeerLink(network, node.address, peer, "registration", self._register_with)
            for peer in config.cluster.nodes
            if peer.name != node.name
        ]

    def topics_changed(self) -> None:
        """Register the new topics everywhere now."""
        self._register_here()
        for link in self._links:
            link.hurry()

    async def run(self) -> None:
        """Register until cancelled."""
        async with trio.open_nursery() as nursery:
            for link in self._links:
                nursery.start_soon(link.run, self._interval_seconds)
            while True:
                self._register_here()
                await trio.sleep(self._interval_seconds)

    def _register_here(self) -> None:
        self._routes.register(
            self._header, self._topics.configs, connection=None, now=trio.current_time()
        )

    async def _register_with(self, client: RemotingClient) -> None:
        body = RegisterBrokerBody(self._topics.configs)
        await client.request(
            RequestCode.REGISTER_BROKER, ext=self._header, body=encode_json_body(body)
        )
