"""A slave's copies of what its master keeps outside of the log: topics, groups, their offsets.

While the master is gone the slave serves what it has; the last copy is at most one interval old.

Source: RocketMQ 5.3.3, SlaveSynchronize. Unlike there, a table is replaced in one step and only
when it differs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from node.remoting.peer_link import PeerLink
from node.remoting.remoting_client import RemotingClient, RequestFailedError
from node.tables.consumer_offset_table import ConsumerOffsetTable
from node.tables.replicated_modes import ModesTable
from node.tables.replicated_quotas import QuotasTable, quota_changes
from node.tables.replicated_users import AclsTable, UsersTable, changes_to
from node.tables.subscription_group_table import SubscriptionGroupTable
from node.tables.topic_config_table import TopicConfigTable
from store.machine.network import Network
from tandem.cluster_file.choices import ClientAccess
from tandem.cluster_file.cluster_config import NodeConfig
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.request_headers import TopicConfigSerializeWrapper
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body
from tandem.wire.secret_keys import Purpose, key_of
from tandem.wire.subscription_group import SubscriptionGroupWrapper


class SlaveSynchronize:
    """The copying of one slave."""

    def __init__(
        self,
        config: NodeConfig,
        network: Network,
        topics: TopicConfigTable,
        groups: SubscriptionGroupTable,
        offsets: ConsumerOffsetTable,
        *,
        users: UsersTable,
        acls: AclsTable,
        quotas: QuotasTable,
        modes: ModesTable,
    ) -> None:
        self._key = None
        if config.cluster.security.clients is not ClientAccess.OPEN:
            self._key = key_of(config.cluster.secret, Purpose.REQUEST)
        self._target = config.master.broker_address
        self._users = users
        self._acls = acls
        self._quotas = quotas
        self._modes = modes
        self._interval_seconds = config.cluster.broker.slave_synchronize_interval_ms / 1000
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._link = PeerLink(
            network,
            config.node.address,
            config.master,
            "copying of tables",
            self._copy,
            address=config.address_of(config.master),
        )

    def hurry(self) -> None:
        """Copy soon: something shows that a table is out of date."""
        self._link.hurry()

    async def run(self) -> None:
        """Copy until cancelled."""
        await self._link.run(self._interval_seconds)

    async def _copy(self, client: RemotingClient) -> None:
        if self._key is None:
            await copy_tables(client.request, self._topics, self._groups, self._offsets)
            await copy_modes(client.request, self._modes)
            return
        # A master of RocketMQ's own would not understand this, and cannot be one of those.
        ask = partial(client.request_signed, key=self._key, target=self._target)
        await copy_tables(ask, self._topics, self._groups, self._offsets)
        await copy_modes(ask, self._modes)
        answer = await ask(RequestCode.GET_ALL_USERS)
        for record in changes_to(self._users.part, self._acls.part, answer.body):
            self._users.take_if_concerned(record)
            self._acls.take_if_concerned(record)
            self._quotas.take_if_concerned(record)
        for change in quota_changes(self._quotas.part, answer.body):
            self._quotas.take(change)


async def copy_tables(
    ask: Callable[[RequestCode], Awaitable[RemotingCommand]],
    topics: TopicConfigTable,
    groups: SubscriptionGroupTable,
    offsets: ConsumerOffsetTable,
) -> None:
    """Make our tables like those of the broker that is asked.

    Raises what `ask` raises, and:
        RequestError: a table has no room for them.
    """
    answer = await ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    topics.replace_all(decode_json_body(answer.body, TopicConfigSerializeWrapper))
    answer = await ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
    for _ in offsets.merge_in_steps(answer.body):
        await trio.lowlevel.checkpoint()
    answer = await ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    groups.replace_all(decode_json_body(answer.body, SubscriptionGroupWrapper))


async def copy_modes(
    ask: Callable[[RequestCode], Awaitable[RemotingCommand]], modes: ModesTable
) -> None:
    """Make our modes like those of the broker that is asked; a RocketMQ 4 has none.

    Raises what `ask` raises.
    """
    try:
        answer = await ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    except RequestFailedError as error:
        if error.answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return
        raise
    modes.replace_all(answer.body)
