"""Users: AUTH_CREATE_USER and its kin. A change is answered when it is final.

No answer has a secret. RocketMQ's do; its `copyUser` would copy the stars that are there instead,
so they are refused as a secret.

Source: RocketMQ 5.3.3, AdminBrokerProcessor, AuthenticationMetadataManagerImpl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

import msgspec
import trio

from ha.replication import Replication
from node.errors import RequestError
from node.handlers.settled import answer_when_settled
from node.remoting.connection import Connection
from node.remoting.dispatcher import response_to
from node.security.access import Action, Resource
from node.security.request import of_cluster, serves
from node.security.users import USERS_MAX, StoredUser, UserStatus, UserType
from node.tables.names import check_name
from node.tables.replicated_quotas import AllUsersAndQuotas, QuotasChanged, QuotasPart
from node.tables.replicated_users import (
    AclsChanged,
    AclsPart,
    UsersChanged,
    UsersDeleted,
    UsersPart,
)
from node.tables.tables import Tables
from tandem.wire.access_control import Right, UserInfo
from tandem.wire.admin_headers import ListUserRequestHeader, UserRequestHeader
from tandem.wire.remoting_command import RemotingCommand
from tandem.wire.request_code import RequestCode
from tandem.wire.response_code import ResponseCode
from tandem.wire.route import decode_json_body, encode_json_body
from tandem.wire.sealed_secret import NONCE_BYTES, seal
from tandem.wire.secret_keys import OPERATOR_ACCESS_KEY
from tandem.wire.user_quota import OF_THE_FILE

_log = logging.getLogger(__name__)

T = TypeVar("T")

SECRET_CHARACTERS_MIN: Final = 8
"""Of a secret that somebody has chosen. Who can record a signature can try secrets by the billion:
`tandem user create` makes better ones."""

SECRET_CHARACTERS_MAX: Final = 256

HIDDEN: Final = "******"
"""What an answer has in place of a secret."""

_TYPES: Final = {each.value.lower(): each for each in UserType}
_STATUSES: Final = {each.value.lower(): each for each in UserStatus}


class UserRequests:
    """Serves the table of users."""

    def __init__(
        self,
        tables: Tables,
        replication: Replication,
        key: bytes,
        random: Random,
        refused: Callable[[str], dict[str, int]] = lambda _: {},
        *,
        timeout_seconds: float,
    ) -> None:
        """Serve what these hold. `key` seals secrets, `random` makes what is used once.

        `refused` says how many requests of a user were, by the bound.
        """
        self._refused = refused
        self._tables = tables
        self._replication = replication
        self._key = key
        self._random = random
        self._timeout_seconds = timeout_seconds

    @serves(
        RequestCode.AUTH_CREATE_USER,
        (Resource.USERS, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=UserRequestHeader,
    )
    def create(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """AUTH_CREATE_USER: a new user, who may nothing yet unless it is a Super."""
        info = _asked(command)
        if not self._replication.is_master:
            return _follows(command)
        self._tables.check_change()
        users = self._tables.as_written(UsersPart).users
        name = _checked_name(info.username)
        if name in users:
            raise _refused("The user is existed")
        if len(users) >= USERS_MAX:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR, f"there are {USERS_MAX} users, and no more"
            )
        if not (info.password or "").strip():
            raise _refused("password can not be blank")
        user = StoredUser(
            name,
            self._sealed(name, info.password or ""),
            _type(info.user_type) or UserType.NORMAL,
            _status(info.user_status) or UserStatus.ENABLE,
        )
        if name in self._tables.as_written(AclsPart).acls:
            # Of another user of that name, whose end was written only half of the way.
            self._tables.change(AclsChanged({name: []}))
        if info.quota is not None or name in self._tables.as_written(QuotasPart).quotas:
            self._tables.change(QuotasChanged({name: info.quota or OF_THE_FILE}))
        self._change(connection, command, UsersChanged([user]))
        _log.warning("user %s (%s) created by %s", name, user.user_type.value, connection.peer)
        return None

    @serves(
        RequestCode.AUTH_UPDATE_USER,
        (Resource.USERS, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=UserRequestHeader,
    )
    def update(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """AUTH_UPDATE_USER: what is given changes, the rest stays."""
        info = _asked(command)
        if not self._replication.is_master:
            return _follows(command)
        self._tables.check_change()
        user = self._tables.as_written(UsersPart).users.get(info.username or "")
        if user is None:
            raise _refused("The user is not exist")
        sealed = user.sealed if not info.password else self._sealed(user.name, info.password)
        changed = msgspec.structs.replace(
            user,
            sealed=sealed,
            user_type=_type(info.user_type) or user.user_type,
            status=_status(info.user_status) or user.status,
        )
        if info.quota is not None:
            self._tables.change(QuotasChanged({user.name: info.quota}))
        self._change(connection, command, UsersChanged([changed]))
        _log.warning(
            "user %s changed by %s: %s, %s%s%s",
            *(user.name, connection.peer, changed.user_type.value, changed.status.value),
            "" if sealed == user.sealed else ", another secret",
            "" if info.quota is None else f", bounds {msgspec.json.encode(info.quota).decode()}",
        )
        return None

    @serves(
        RequestCode.AUTH_DELETE_USER,
        (Resource.USERS, Action.ORDER),
        of_cluster(Right.UPDATE),
        header=UserRequestHeader,
    )
    def delete(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """AUTH_DELETE_USER, with all that the user might. Nobody of that name is as good."""
        name = command.decode_header(UserRequestHeader).username
        if not self._replication.is_master:
            return _follows(command)
        self._tables.check_change()
        if name is None or name not in self._tables.as_written(UsersPart).users:
            return response_to(command)
        self._change(connection, command, UsersDeleted([name]))
        _log.warning("user %s deleted by %s", name, connection.peer)
        return None

    @serves(
        RequestCode.AUTH_GET_USER,
        (Resource.USERS, Action.READ),
        of_cluster(Right.GET),
        header=UserRequestHeader,
    )
    def one(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_GET_USER. No body if there is none of that name."""
        name = command.decode_header(UserRequestHeader).username or ""
        user = self._tables.as_confirmed(UsersPart).users.get(name)
        body = b"" if user is None else encode_json_body(self._shown(user))
        return response_to(command, body=body)

    @serves(
        RequestCode.AUTH_LIST_USER,
        (Resource.USERS, Action.READ),
        of_cluster(Right.GET),
        header=ListUserRequestHeader,
    )
    def all(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """AUTH_LIST_USER: those whose names have the filter in them."""
        part = command.decode_header(ListUserRequestHeader).filter or ""
        users = self._tables.as_confirmed(UsersPart).users
        found = [self._shown(users[name]) for name in sorted(users) if part in name]
        return response_to(command, body=msgspec.json.encode(found))

    @serves(
        RequestCode.GET_ALL_USERS,
        (Resource.SEALED_USERS, Action.READ),
        of_cluster(Right.GET),
    )
    def sealed(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """GET_ALL_USERS: what a slave of a classic group copies."""
        users = self._tables.as_confirmed(UsersPart).users
        acls = self._tables.as_confirmed(AclsPart).acls
        quotas = self._tables.as_confirmed(QuotasPart).quotas
        found = AllUsersAndQuotas(list(users.values()), acls, quotas)
        return response_to(command, body=msgspec.json.encode(found))

    def _shown(self, user: StoredUser) -> UserInfo:
        quota = self._tables.as_confirmed(QuotasPart).quotas.get(user.name)
        refused = self._refused(user.name) or None
        return UserInfo(HIDDEN, user.status.value, user.user_type.value, user.name, quota, refused)

    def _sealed(self, name: str, secret: str) -> str:
        size = len(secret)
        if secret == HIDDEN:
            raise _refused(f"{HIDDEN} is no secret: answers of this broker have it instead of one")
        if not SECRET_CHARACTERS_MIN <= size <= SECRET_CHARACTERS_MAX:
            raise RequestError(
                ResponseCode.INVALID_PARAMETER,
                f"a secret of {size} characters; it has {SECRET_CHARACTERS_MIN} to"
                f" {SECRET_CHARACTERS_MAX}. `tandem user create {name}` makes a good one",
            )
        nonce = self._random.getrandbits(8 * NONCE_BYTES).to_bytes(NONCE_BYTES, "big")
        return seal(self._key, name, secret, nonce)

    def _change(
        self, connection: Connection, command: RemotingCommand, record: msgspec.Struct
    ) -> None:
        self._tables.change(record)
        deadline = trio.current_time() + self._timeout_seconds
        answer_when_settled(self._tables, connection, command, deadline)


def _asked(command: RemotingCommand) -> UserInfo:
    """Return what is asked for; the name in the header counts, as in RocketMQ."""
    name = command.decode_header(UserRequestHeader).username
    info = decode_json_body(command.body, UserInfo) if command.body else UserInfo()
    return info if not name else msgspec.structs.replace(info, username=name)


def _checked_name(name: str | None) -> str:
    if name is None or not name.strip():
        raise _refused("username can not be blank")
    check_name("user", name)
    if not name.isprintable() or name != name.strip() or name == OPERATOR_ACCESS_KEY:
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"{name!r} cannot be the name of a user: it has blanks around it or signs that are not"
            f" printed, or is {OPERATOR_ACCESS_KEY}, who has the cluster's secret",
        )
    return name


def _type(text: str | None) -> UserType | None:
    return _one_of(_TYPES, "userType", text)


def _status(text: str | None) -> UserStatus | None:
    return _one_of(_STATUSES, "userStatus", text)


def _one_of(choices: dict[str, T], what: str, text: str | None) -> T | None:
    if not text:
        return None
    found = choices.get(text.lower())
    if found is None:
        # RocketMQ takes it for none: then a typing error makes another kind of user.
        raise RequestError(
            ResponseCode.INVALID_PARAMETER,
            f"{what} {text[:20]!r} is none of {', '.join(choices)}",
        )
    return found


def _refused(text: str) -> RequestError:
    return RequestError(ResponseCode.NO_PERMISSION, text)


def _follows(command: RemotingCommand) -> RemotingCommand:
    return response_to(command, remark="this node follows its master's table of users")
