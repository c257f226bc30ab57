"""The ports at which a broker serves clients: its own, and two that a cluster file may ask for."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from node.broker.master_address import MasterAddress
from node.broker.vip_channel import VipChannel
from node.remoting.dispatcher import Dispatch
from node.remoting.server import Server
from store.machine.network import Listener, Network
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.message import Host

_log = logging.getLogger(__name__)


class Ports:
    """The listeners of one broker; all of them have the same connections."""

    def __init__(
        self,
        config: NodeConfig,
        network: Network,
        server: Server,
        master_address_changed: Callable[[str | None], None],
    ) -> None:
        """Listen as `config` says; nothing happens before `open`.

        `master_address_changed` gets the group's master address while this node has it.
        """
        self._node = config.node
        self._has_vip_channel = config.cluster.broker.vip_channel_enable
        self._network = network
        self._server = server
        self._master: MasterAddress | None = None
        if config.group.master_address is not None:
            ip, _, port = config.group.master_address.rpartition(":")
            self._master = MasterAddress(network, Host(ip, int(port)), master_address_changed)

    async def open(
        self, dispatcher: Dispatch, listeners: trio.Nursery, connections: trio.Nursery
    ) -> None:
        """Listen in `listeners`, with each connection a task in `connections`.

        Raises:
            AddressInUseError: A port of this node is taken.
        """

        async def serve(dispatch: Dispatch, listener: Listener) -> None:
            await self._server.listen(listener, dispatch, connections)

        node = self._node
        listener = await self._network.listen(node.address, node.port)
        listeners.start_soon(serve, dispatcher, listener)
        if self._has_vip_channel:
            listener = await self._network.listen(node.address, node.vip_port)
            listeners.start_soon(serve, VipChannel(dispatcher), listener)
        if self._master is not None:
            listeners.start_soon(self._master.run, partial(serve, dispatcher))
        _log.info("this node serves at %s", node.broker_address)

    def role_changed(self, *, is_master: bool) -> None:
        """Take the group's master address, or leave it."""
        if self._master is not None:
            self._master.role_changed(is_master=is_master)
