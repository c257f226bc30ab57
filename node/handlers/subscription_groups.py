"""What is set for consumer groups: UPDATE_AND_CREATE_SUBSCRIPTIONGROUP and its kin.

A change is answered when it is final: on this node's disk, or confirmed by the group of nodes.

Source: RocketMQ 5.3.3, AdminBrokerProcessor.
"""

from __future__ import annotations

import logging

import msgspec
import trio

from ha.replication import Replication
from node.errors import RequestError
from node.handlers.settled import answer_when_settled
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, of_group, of_topic, serves
from node.tables.group_attributes import GroupAttributeError, changed_group_attributes
from node.tables.names import check_group_of_clients, check_name
from node.tables.subscription_group_table import READING
from node.tables.tables import Tables
from tandem.wire.access_control import Right
from tandem.wire.admin_headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetGroupConfigRequestHeader,
    GroupForbidden,
    UpdateGroupForbiddenRequestHeader,
)
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body
from tandem.wire.subscription_group import SubscriptionGroupConfig, SubscriptionGroupList

_log = logging.getLogger(__name__)


class SubscriptionGroups:
    """Serves the table of consumer groups."""

    def __init__(self, tables: Tables, replication: Replication, *, timeout_seconds: float) -> None:
        """Serve what these hold; a change has `timeout_seconds` to be settled."""
        self._tables = tables
        self._replication = replication
        self._timeout_seconds = timeout_seconds

    @serves(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        (Resource.GROUPS, Action.WRITE),
        of_group(lambda command: [_config(command).group_name], Right.CREATE, Right.UPDATE),
    )
    def update(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        self._change(connection, command, [_config(command)])

    @serves(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        (Resource.GROUPS, Action.WRITE),
        of_group(
            lambda command: [each.group_name for each in _configs(command)],
            *(Right.CREATE, Right.UPDATE),
        ),
    )
    def update_list(self, connection: Connection, command: RemotingCommand) -> None:
        """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: all of them, or none."""
        self._change(connection, command, _configs(command))

    def _change(
        self,
        connection: Connection,
        command: RemotingCommand,
        configs: list[SubscriptionGroupConfig],
    ) -> None:
        self._tables.check_change()
        configs = [self._with_attributes(each) for each in configs]
        self._tables.change_groups(*configs)
        names = ", ".join(config.group_name for config in configs[:5])
        _log.info("consumer groups set up by %s: %d, %s", connection.peer, len(configs), names)
        self._answer_when_settled(connection, command)

    def _with_attributes(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """The configuration with its attributes as they will be: it has changes of them.

        Source: SubscriptionGroupManager.updateSubscriptionGroupConfig.
        """
        current = self._tables.groups.get(config.group_name)
        try:
            attributes = changed_group_attributes(
                current.attributes if current is not None else None, config.attributes
            )
        except GroupAttributeError as error:
            raise RequestError(ResponseCode.INVALID_PARAMETER, str(error)) from error
        return msgspec.structs.replace(config, attributes=attributes)

    @serves(
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        (Resource.GROUPS, Action.WRITE),
        of_group("group_name", Right.DELETE),
        header=DeleteSubscriptionGroupRequestHeader,
    )
    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """DELETE_SUBSCRIPTIONGROUP. Consumers that go on bring the group back, with the defaults.

        Tools ask every node. One that is not the master has nothing to do: it follows the master.

        Source: AdminBrokerProcessor.deleteSubscriptionGroup.
        """
        header = command.decode_header(DeleteSubscriptionGroupRequestHeader)
        if not self._replication.is_master:
            return response_to(command, remark="this node follows its master's table of groups")
        self._tables.check_change()
        check_group_of_clients(header.group_name)
        self._tables.delete_group(header.group_name, clean_offsets=bool(header.clean_offset))
        _log.info("consumer group %s deleted by %s", header.group_name, connection.peer)
        self._answer_when_settled(connection, command)
        return None

    @serves(
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        (Resource.GROUPS, Action.READ),
        of_cluster(Right.GET),
    )
    def all(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_SUBSCRIPTIONGROUP_CONFIG: what a slave copies."""
        return response_to(command, body=encode_json_body(self._tables.groups.configs))

    @serves(
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        (Resource.GROUPS, Action.READ),
        of_group("group", Right.GET),
        header=GetGroupConfigRequestHeader,
    )
    def one(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_SUBSCRIPTIONGROUP_CONFIG."""
        group = command.decode_header(GetGroupConfigRequestHeader).group
        config = self._tables.groups.get(group)
        if config is None:
            raise RequestError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker: {group}"
            )
        return response_to(command, body=encode_json_body(config))

    @serves(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        (Resource.GROUPS, Action.WRITE),
        of_topic("topic", Right.UPDATE),
        of_group("group", Right.UPDATE),
        header=UpdateGroupForbiddenRequestHeader,
    )
    def forbid(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """UPDATE_AND_GET_GROUP_FORBIDDEN: whether a group may read a topic, changed if asked for.

        Source: AdminBrokerProcessor.updateAndGetGroupForbidden.
        """
        header = command.decode_header(UpdateGroupForbiddenRequestHeader)
        groups = self._tables.groups
        bits = groups.forbidden(header.group, header.topic)
        if header.readable is not None:
            self._tables.check_change()
            check_name("topic", header.topic)
            wanted = bits & ~READING if header.readable else bits | READING
            if wanted != bits:
                self._tables.forbid(header.group, header.topic, wanted)
            bits = wanted
        body = GroupForbidden(header.group, header.topic, readable=not bits & READING)
        return response_to(command, body=encode_json_body(body))

    def _answer_when_settled(self, connection: Connection, command: RemotingCommand) -> None:
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline)


def _config(command: RemotingCommand) -> SubscriptionGroupConfig:
    return decode_json_body(command.body, SubscriptionGroupConfig)


def _configs(command: RemotingCommand) -> list[SubscriptionGroupConfig]:
    return decode_json_body(command.body, SubscriptionGroupList).group_config_list
