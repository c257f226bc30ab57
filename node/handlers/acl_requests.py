"""What users may: AUTH_CREATE_ACL and its kin. A change is answered when it is final.

Creating and changing are one thing, as in RocketMQ: an entry about an equal resource is replaced,
others are added. The order of entries means nothing here; see `tandem.wire.access_control`.

Source: RocketMQ 5.3.3, AdminBrokerProcessor, AuthorizationMetadataManagerImpl.
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
from node.security.request import of_cluster, serves
from node.tables.replicated_users import AclsChanged, AclsPart, UsersPart
from node.tables.tables import Tables
from tandem.wire.access_control import (
    AclError,
    AclFault,
    AclInfo,
    PolicyInfo,
    Right,
    parse_policy_type,
    parse_resource,
    rules_of,
    subject_of,
    user_of,
    with_policies,
    without_resource,
)
from tandem.wire.admin_headers import AclRequestHeader, DeleteAclRequestHeader, ListAclRequestHeader
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body

_log = logging.getLogger(__name__)


class AclRequests:
    """Serves the table of what users may."""

    def __init__(self, tables: Tables, replication: Replication, *, timeout_seconds: float) -> None:
        """Serve what these hold; a change has `timeout_seconds` to be settled."""
        self._tables = tables
        self._replication = replication
        self._timeout_seconds = timeout_seconds

    @serves(
        RequestCode.AUTH_CREATE_ACL,
        (Resource.USERS, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=AclRequestHeader,
    )
    @serves(
        RequestCode.AUTH_UPDATE_ACL,
        (Resource.USERS, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=AclRequestHeader,
    )
    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """AUTH_CREATE_ACL, AUTH_UPDATE_ACL."""
        header = command.decode_header(AclRequestHeader)
        info = decode_json_body(command.body, AclInfo) if command.body else AclInfo()
        if not self._replication.is_master:
            return _follows(command)
        self._tables.check_change()
        name = self._user(header.subject or info.subject)
        before = self._tables.as_written(AclsPart).acls.get(name, [])
        given = [policy for policy in info.policies or [] if policy.entries]
        if not given:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"{AclFault.RESOURCE.value} An ACL needs an entry"
            )
        try:
            policies = with_policies(before, given)
            rules_of(policies)
        except AclError as error:
            raise RequestError(ResponseCode.NO_PERMISSION, str(error)) from error
        self._change(connection, command, name, policies)
        return None

    @serves(
        RequestCode.AUTH_DELETE_ACL,
        (Resource.USERS, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=DeleteAclRequestHeader,
    )
    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """AUTH_DELETE_ACL: one resource of a policy, or all of it."""
        header = command.decode_header(DeleteAclRequestHeader)
        if not self._replication.is_master:
            return _follows(command)
        self._tables.check_change()
        name = self._user(header.subject)
        before = self._tables.as_written(AclsPart).acls.get(name, [])
        try:
            policy_type = parse_policy_type(header.policy_type)
            resource = parse_resource(header.resource) if header.resource else None
        except AclError as error:
            raise RequestError(ResponseCode.NO_PERMISSION, str(error)) from error
        after = without_resource(before, policy_type, resource)
        if after == before:
            raise RequestError(ResponseCode.NO_PERMISSION, "The acl is not exist.")
        self._change(connection, command, name, after)
        return None

    @serves(
        RequestCode.AUTH_GET_ACL,
        (Resource.USERS, Action.READ),
        of_cluster(Right.GET),
        header=AclRequestHeader,
    )
    def one(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_ACL. No body if the user may nothing."""
        name = user_of(command.decode_header(AclRequestHeader).subject or "") or ""
        policies = self._tables.as_confirmed(AclsPart).acls.get(name)
        body = b"" if policies is None else encode_json_body(AclInfo(subject_of(name), policies))
        return response_to(command, body=body)

    @serves(
        RequestCode.AUTH_LIST_ACL,
        (Resource.USERS, Action.READ),
        of_cluster(Right.GET),
        header=ListAclRequestHeader,
    )
    def all(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_ACL: entries whose resource has the filter in it, of users whose name has."""
        header = command.decode_header(ListAclRequestHeader)
        subject_part, resource_part = header.subject_filter or "", header.resource_filter or ""
        acls = self._tables.as_confirmed(AclsPart).acls
        found = []
        for name in sorted(acls):
            if subject_part not in subject_of(name):
                continue
            policies = [_filtered(policy, resource_part) for policy in acls[name]]
            if policies := [policy for policy in policies if policy.entries]:
                found.append(AclInfo(subject_of(name), policies))
        return response_to(command, body=msgspec.json.encode(found))

    def _user(self, subject: str | None) -> str:
        name = user_of(subject or "")
        if name is None or name not in self._tables.as_written(UsersPart).users:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"The subject of {subject} is not exist."
            )
        return name

    def _change(
        self,
        connection: Connection,
        command: RemotingCommand,
        name: str,
        policies: list[PolicyInfo],
    ) -> None:
        self._tables.change(AclsChanged({name: policies}))
        count = sum(len(policy.entries or []) for policy in policies)
        _log.warning("rights of user %s set by %s: %d in all", name, connection.peer, count)
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline)


def _filtered(policy: PolicyInfo, part: str) -> PolicyInfo:
    entries = [each for each in policy.entries or [] if part in (each.resource or "")]
    return msgspec.structs.replace(policy, entries=entries)


def _follows(command: RemotingCommand) -> RemotingCommand:
    return response_to(command, remark="this node follows its master's table of users")
