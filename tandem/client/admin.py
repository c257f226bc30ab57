"""Topics, groups, messages and what a cluster looks like: `Admin`, and `BlockingAdmin`."""

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Self

from tandem.client.admin_flow import ALL_PERMISSIONS, DEFAULT_QUEUE_NUMS, Administration
from tandem.client.admin_results import (
    GroupDescription,
    GroupSummary,
    MessageTrace,
    ResetPlan,
    ResetWay,
    TopicDescription,
)
from tandem.client.async_shell import AsyncShell, StreamOpener
from tandem.client.blocking_shell import BlockingShell, SocketOpener, open_socket
from tandem.client.core import ClientCore, parse_addresses
from tandem.client.credentials import Credentials
from tandem.client.event_loop import LoopClock
from tandem.client.group_admin import ResetTo
from tandem.client.identity import ClientIdentity, local_identity
from tandem.client.message_admin import MESSAGES_MAX_DEFAULT, TIME_MAX_MS
from tandem.wire.ha_status import FencedCommand, FencedCommandResult, FencedStatus
from tandem.wire.message import MessageExt
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

    async def topics(self, *, of_system: bool = True) -> list[str]:
        """Return the names of all topics, sorted; without `of_system` those of users alone."""
        return await self._shell.run(self._administration.topic.names(of_system=of_system))

    async def describe_topic(self, topic: str) -> TopicDescription:
        """Return how a topic is set up, how full its queues are, and which groups read it."""
        return await self._shell.run(self._administration.topic.describe(topic))

    async def alter_topic(
        self,
        topic: str,
        *,
        queue_nums: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        """Change a topic at every master that has it; None leaves what is.

        An attribute that is None is taken away.
        """
        await self._shell.run(
            self._administration.topic.alter(
                topic, queue_nums=queue_nums, perm=perm, attributes=attributes
            )
        )

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic at all masters. Nobody can read its messages any more."""
        await self._shell.run(self._administration.topic.delete(topic))

    async def consumer_groups(self, *, of_system: bool = False) -> list[GroupSummary]:
        """Return all consumer groups with their lag; with `of_system` those of brokers, too."""
        return await self._shell.run(self._administration.group.summaries(of_system=of_system))

    async def describe_group(self, group: str) -> GroupDescription:
        """Return the members of a consumer group, and how far it is in each queue.

        Raises GroupNotFoundError if no broker knows it.
        """
        return await self._shell.run(self._administration.group.describe(group))

    async def plan_reset(self, group: str, topic: str, to: ResetTo, number: int = 0) -> ResetPlan:
        """Return where a group would go on after a reset; changes nothing.

        `number`: with ResetTo.TIME ms since 1970, with ResetTo.OFFSET the offset in every queue.
        """
        return await self._shell.run(
            self._administration.group.plan_reset(group, topic, to, number)
        )

    async def apply_reset(self, plan: ResetPlan) -> ResetWay:
        """Let a group go on where the plan says."""
        return await self._shell.run(self._administration.group.apply_reset(plan))

    async def delete_group(self, group: str, *, with_dead_letters: bool = False) -> None:
        """Forget a group with its offsets and retries. Members that go on bring it back."""
        await self._shell.run(
            self._administration.group.delete(group, with_dead_letters=with_dead_letters)
        )

    async def message(self, message_id: str, topic: str = "") -> MessageExt:
        """Return a message by its offset id or, with its topic, by its unique key.

        Raises MessageNotFoundError if no broker holds it.
        """
        return await self._shell.run(self._administration.message.by_id(message_id, topic))

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = MESSAGES_MAX_DEFAULT,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX_MS,
    ) -> list[MessageExt]:
        """Return the newest messages with a key, oldest first."""
        return await self._shell.run(
            self._administration.message.by_key(
                topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
            )
        )

    async def messages_by_time(
        self, topic: str, *, from_ms: int, to_ms: int, count_max: int = MESSAGES_MAX_DEFAULT
    ) -> list[MessageExt]:
        """Return the first messages stored at `from_ms` or later, and before `to_ms`."""
        return await self._shell.run(
            self._administration.message.by_time(
                topic, from_ms=from_ms, to_ms=to_ms, count_max=count_max
            )
        )

    async def messages_of(
        self, topic: str, *, count_max: int = MESSAGES_MAX_DEFAULT
    ) -> list[MessageExt]:
        """Return the first messages that a topic holds: dead letters of %DLQ%group, say."""
        return await self._shell.run(
            self._administration.message.all_of(topic, count_max=count_max)
        )

    async def trace_message(self, topic: str, message_id: str) -> MessageTrace:
        """Return a message, and what became of it in every group that reads its topic."""
        return await self._shell.run(self._administration.message.trace(topic, message_id))

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

    def topics(self, *, of_system: bool = True) -> list[str]:
        """See `Admin.topics`."""
        return self._shell.run(self._administration.topic.names(of_system=of_system))

    def describe_topic(self, topic: str) -> TopicDescription:
        """See `Admin.describe_topic`."""
        return self._shell.run(self._administration.topic.describe(topic))

    def alter_topic(
        self,
        topic: str,
        *,
        queue_nums: int | None = None,
        perm: int | None = None,
        attributes: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        """See `Admin.alter_topic`."""
        self._shell.run(
            self._administration.topic.alter(
                topic, queue_nums=queue_nums, perm=perm, attributes=attributes
            )
        )

    def delete_topic(self, topic: str) -> None:
        """See `Admin.delete_topic`."""
        self._shell.run(self._administration.topic.delete(topic))

    def consumer_groups(self, *, of_system: bool = False) -> list[GroupSummary]:
        """See `Admin.consumer_groups`."""
        return self._shell.run(self._administration.group.summaries(of_system=of_system))

    def describe_group(self, group: str) -> GroupDescription:
        """See `Admin.describe_group`."""
        return self._shell.run(self._administration.group.describe(group))

    def plan_reset(self, group: str, topic: str, to: ResetTo, number: int = 0) -> ResetPlan:
        """See `Admin.plan_reset`."""
        return self._shell.run(self._administration.group.plan_reset(group, topic, to, number))

    def apply_reset(self, plan: ResetPlan) -> ResetWay:
        """See `Admin.apply_reset`."""
        return self._shell.run(self._administration.group.apply_reset(plan))

    def delete_group(self, group: str, *, with_dead_letters: bool = False) -> None:
        """See `Admin.delete_group`."""
        self._shell.run(
            self._administration.group.delete(group, with_dead_letters=with_dead_letters)
        )

    def message(self, message_id: str, topic: str = "") -> MessageExt:
        """See `Admin.message`."""
        return self._shell.run(self._administration.message.by_id(message_id, topic))

    def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        count_max: int = MESSAGES_MAX_DEFAULT,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX_MS,
    ) -> list[MessageExt]:
        """See `Admin.messages_by_key`."""
        return self._shell.run(
            self._administration.message.by_key(
                topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
            )
        )

    def messages_by_time(
        self, topic: str, *, from_ms: int, to_ms: int, count_max: int = MESSAGES_MAX_DEFAULT
    ) -> list[MessageExt]:
        """See `Admin.messages_by_time`."""
        return self._shell.run(
            self._administration.message.by_time(
                topic, from_ms=from_ms, to_ms=to_ms, count_max=count_max
            )
        )

    def messages_of(self, topic: str, *, count_max: int = MESSAGES_MAX_DEFAULT) -> list[MessageExt]:
        """See `Admin.messages_of`."""
        return self._shell.run(self._administration.message.all_of(topic, count_max=count_max))

    def trace_message(self, topic: str, message_id: str) -> MessageTrace:
        """See `Admin.trace_message`."""
        return self._shell.run(self._administration.message.trace(topic, message_id))

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
