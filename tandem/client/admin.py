"""Topics, and what cluster and replication look like: `Admin` for trio, `BlockingAdmin` else."""

import time
from collections.abc import Sequence
from typing import Final, Self

from tandem.client.admin_flow import ALL_PERMISSIONS, DEFAULT_QUEUE_NUMS, Administration
from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.blocking_shell import BlockingShell, SocketOpener, open_socket
from tandem.client.core import ClientCore, parse_addresses
from tandem.client.credentials import Credentials
from tandem.client.event_loop import LoopClock
from tandem.client.identity import ClientIdentity, local_identity
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import HARuntimeInfo
from tandem.wire.route import ClusterInfo, TopicRouteData

COMMAND_SECONDS_DEFAULT: Final = 10.0
"""For an operator's order: a node may have to write to its coordinator and its disk for it."""


class Admin:
    """Asks name servers and brokers; use it as an async context manager.

    Orders (`fenced_command`, topics of the system) are taken only from those who give the secret of
    the cluster, `tandem.cluster.read_spec(file).read_secret()`, and under the address that the
    cluster file has.

    Every method raises `ClientError`: `RouteNotFoundError` if no name server or master can be
    asked, `BrokerError` if a broker refuses, `ConnectionLostError` or `RequestTimeoutError`.
    """

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        open_stream: StreamOpener | None = None,
        identity: ClientIdentity | None = None,
        access_key: str = "",
        secret_key: str = "",
        secret: str = "",
    ) -> None:
        """Ask these name servers. `secret` is the cluster's: orders need it, questions do not."""
        core = ClientCore(
            name_servers,
            identity=identity or local_identity(parse_addresses(name_servers)[0]),
            clock=LoopClock(),
            credentials=Credentials.of(access_key, secret_key),
        )
        self._administration = Administration(core, secret)
        self._shell = AsyncShell(core, open_stream)

    async def __aenter__(self) -> Self:
        await self._shell.open()
        return self

    async def __aexit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        await self._shell.close(politely=error_type is None)

    async def create_topic(
        self,
        topic: str,
        *,
        queue_nums: int = DEFAULT_QUEUE_NUMS,
        perm: int = ALL_PERMISSIONS,
        broker_name: str | None = None,
    ) -> None:
        """Create a topic, or change it, at all masters or at that of one broker name.

        `perm` bits: 4 read, 2 write. A route shows it once the broker has registered again, which
        it does at once.
        """
        await self._shell.run(
            self._administration.create_topic(topic, queue_nums, perm, broker_name)
        )

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers that the name servers know."""
        return await self._shell.run(self._administration.cluster_info())

    async def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return await self._shell.run(self._administration.topics())

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return where a topic lives."""
        return await self._shell.run(self._administration.topic_route(topic))

    async def ha_runtime_info(self, address: str) -> HARuntimeInfo:
        """Return what the broker at `address` knows of its slaves or of its master."""
        return await self._shell.run(self._administration.ha_runtime_info(address))

    async def fenced_status(self, address: str) -> FencedStatus:
        """Return how the node at `address` sees its fenced group."""
        return await self._shell.run(self._administration.fenced_status(address))

    async def fenced_command(
        self,
        address: str,
        command: FencedCommand,
        *,
        timeout_seconds: float = COMMAND_SECONDS_DEFAULT,
    ) -> FencedCommandResult:
        """Give an order to the node at `address`. That it refuses is a result, not an error."""
        return await self._shell.run(
            self._administration.fenced_command(address, command, timeout_seconds)
        )

    async def broker_config(self, address: str) -> dict[str, str]:
        """Return the settings of the broker at `address`, under RocketMQ's names."""
        return await self._shell.run(self._administration.broker_config(address))

    async def update_broker_config(self, address: str, settings: dict[str, str]) -> None:
        """Change settings of the broker at `address` until it stops; needs the cluster's secret.

        A broker of ours takes `fileReservedTime`, in hours.

        Raises:
            BrokerError: it does not change them while it runs; nothing was changed.
        """
        await self._shell.run(self._administration.update_broker_config(address, settings))

    async def min_offset(self, address: str, topic: str, queue_id: int) -> int:
        """Return the oldest offset of a queue at the broker at `address`, master or not."""
        return await self._shell.run(
            self._administration.queue_offset(address, topic, queue_id, RequestCode.GET_MIN_OFFSET)
        )

    async def max_offset(self, address: str, topic: str, queue_id: int) -> int:
        """Return the next offset of a queue at the broker at `address`, master or not."""
        return await self._shell.run(
            self._administration.queue_offset(address, topic, queue_id, RequestCode.GET_MAX_OFFSET)
        )


class BlockingAdmin:
    """The same for plain code. Use it as a context manager, from one thread."""

    def __init__(
        self,
        name_servers: str | Sequence[str],
        *,
        opener: SocketOpener = open_socket,
        identity: ClientIdentity | None = None,
        access_key: str = "",
        secret_key: str = "",
        secret: str = "",
    ) -> None:
        """Ask these name servers. `secret` is the cluster's: orders need it, questions do not."""
        core = ClientCore(
            name_servers,
            identity=identity or local_identity(parse_addresses(name_servers)[0]),
            clock=time.monotonic,
            credentials=Credentials.of(access_key, secret_key),
        )
        self._administration = Administration(core, secret)
        self._shell = BlockingShell(core, opener)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.close()

    def create_topic(
        self,
        topic: str,
        *,
        queue_nums: int = DEFAULT_QUEUE_NUMS,
        perm: int = ALL_PERMISSIONS,
        broker_name: str | None = None,
    ) -> None:
        """See `Admin.create_topic`."""
        self._shell.run(self._administration.create_topic(topic, queue_nums, perm, broker_name))

    def cluster_info(self) -> ClusterInfo:
        """See `Admin.cluster_info`."""
        return self._shell.run(self._administration.cluster_info())

    def topics(self) -> list[str]:
        """See `Admin.topics`."""
        return self._shell.run(self._administration.topics())

    def topic_route(self, topic: str) -> TopicRouteData:
        """See `Admin.topic_route`."""
        return self._shell.run(self._administration.topic_route(topic))

    def ha_runtime_info(self, address: str) -> HARuntimeInfo:
        """See `Admin.ha_runtime_info`."""
        return self._shell.run(self._administration.ha_runtime_info(address))

    def fenced_status(self, address: str) -> FencedStatus:
        """See `Admin.fenced_status`."""
        return self._shell.run(self._administration.fenced_status(address))

    def fenced_command(
        self,
        address: str,
        command: FencedCommand,
        *,
        timeout_seconds: float = COMMAND_SECONDS_DEFAULT,
    ) -> FencedCommandResult:
        """See `Admin.fenced_command`."""
        return self._shell.run(
            self._administration.fenced_command(address, command, timeout_seconds)
        )

    def broker_config(self, address: str) -> dict[str, str]:
        """See `Admin.broker_config`."""
        return self._shell.run(self._administration.broker_config(address))

    def update_broker_config(self, address: str, settings: dict[str, str]) -> None:
        """See `Admin.update_broker_config`."""
        self._shell.run(self._administration.update_broker_config(address, settings))

    def min_offset(self, address: str, topic: str, queue_id: int) -> int:
        """See `Admin.min_offset`."""
        return self._shell.run(
            self._administration.queue_offset(address, topic, queue_id, RequestCode.GET_MIN_OFFSET)
        )

    def max_offset(self, address: str, topic: str, queue_id: int) -> int:
        """See `Admin.max_offset`."""
        return self._shell.run(
            self._administration.queue_offset(address, topic, queue_id, RequestCode.GET_MAX_OFFSET)
        )
