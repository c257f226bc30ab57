"""Asks the name servers where the master is, and the master how it is set and how far it got."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import trio

from node.remoting.remoting_client import RemotingClient, RequestFailedError, open_client
from node.shadow.config import ShadowConfig
from node.shadow.master_place import (
    LogRange,
    MasterPlace,
    chosen_broker,
    master_of,
    place_of,
    range_of,
)
from store.machine.errors import ConnectionLost
from store.machine.network import Network
from tandem.wire.admin_headers import settings_of
from tandem.wire.errors import WireError
from tandem.wire.message import Host
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import KVTable
from tandem.wire.route import ClusterInfo, decode_json_body

ANSWER_SECONDS_MAX: Final = 3.0
"""Source: BrokerOuterAPI, timeoutMills."""

PASSING: Final = (WireError, RequestFailedError, trio.TooSlowError)
"""What may be well in a moment; `ConnectionLost` is, too."""


class MasterSearch:
    """Finds one broker's master again and again. Without name servers there is nothing to find.

    Attributes:
        place: Where the master was last; None until it was found, and without name servers.
    """

    def __init__(self, config: ShadowConfig, network: Network, known: str) -> None:
        """`known`: the name of the broker that was followed before; empty if none was."""
        self._config = config
        self._network = network
        self._broker_name = config.broker_name or known
        self._is_known = bool(known) and known == self._broker_name
        """Whether it was there once. Then a name server that does not know it is waited for: it
        forgets brokers that are gone."""
        self._first: Host | None = None
        self.place: MasterPlace | None = None

    @property
    def is_possible(self) -> bool:
        """Whether there is somebody to ask."""
        return bool(self._config.name_servers)

    async def ha_address(self) -> Host:
        """Return where to dial.

        While the master is where it was at the start, that is the configured address: the way there
        may go through a tunnel that the master knows nothing of.

        Raises:
            ConnectionLost: no name server answers, or the broker has no master now.
            ShadowError: see `chosen_broker`.
        """
        if not self.is_possible:
            return self._config.master
        place = await self.find()
        return self._config.master if place.client == self._first else place.ha

    async def find(self) -> MasterPlace:
        """Ask where the master is. Errors: as for `ha_address`."""
        cluster = await self._cluster()
        if not self._is_known:
            self._broker_name = chosen_broker(cluster, self._broker_name, self._config.master)
            self._is_known = True
        client = master_of(cluster, self._broker_name)
        if client is None:
            raise ConnectionLost(f"broker {self._broker_name} has no master now")
        if self.place is None or self.place.client != client:
            async with self._asked(client) as broker:
                answer = await broker.request(RequestCode.GET_BROKER_CONFIG)
                self.place = place_of(self._broker_name, client, settings_of(answer.body))
        self._first = self._first or client
        return self.place

    async def log_range(self) -> LogRange | None:
        """Ask the master what its log holds; None if it does not say, or was not found yet.

        Raises:
            ConnectionLost: it does not answer.
        """
        if self.place is None:
            return None
        async with self.master() as broker:
            answer = await broker.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            return range_of(decode_json_body(answer.body, KVTable).table)

    @asynccontextmanager
    async def master(self) -> AsyncIterator[RemotingClient]:
        """Have a connection to the master's client port.

        Raises:
            ConnectionLost: it was not found yet, does not answer, or says what nobody understands.
        """
        if self.place is None:
            raise ConnectionLost("the master was not found yet")
        async with self._asked(self.place.client) as client:
            yield client

    async def _cluster(self) -> ClusterInfo:
        troubles = []
        for server in self._config.name_servers:
            try:
                async with self._asked(server) as client:
                    answer = await client.request(RequestCode.GET_BROKER_CLUSTER_INFO)
                    return decode_json_body(answer.body, ClusterInfo)
            except ConnectionLost as error:
                troubles.append(f"{server}: {error}")
        raise ConnectionLost(f"no name server answers ({'; '.join(troubles)})")

    @asynccontextmanager
    async def _asked(self, peer: Host) -> AsyncIterator[RemotingClient]:
        try:
            with trio.fail_after(ANSWER_SECONDS_MAX):
                async with open_client(
                    self._network,
                    peer.ip,
                    peer.port,
                    source=None,
                    timeout_seconds=ANSWER_SECONDS_MAX,
                    sign=None if self._config.user is None else self._config.user.signed,
                ) as client:
                    yield client
        except trio.TooSlowError as error:
            raise ConnectionLost(f"no answer within {ANSWER_SECONDS_MAX:g} s") from error
        except PASSING as error:
            raise ConnectionLost(str(error)) from error


class Found(msgspec.Struct, frozen=True):
    """What a shadow learns before it opens its store; sizes are 0 where nobody said."""

    broker_name: str = ""
    commit_log_file_bytes: int = 0
    max_message_bytes: int = 0
