"""Users, with sealed secrets, and what each of them may, as replicated tables.

A change counts once it is confirmed, on the master too: nobody has a right that a change of master
could take back, and no end is reported that it could undo.

Source: RocketMQ 5.3.3, User, Acl; there each broker has its own, and slaves have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

import msgspec

from node.security.users import StoredUser
from node.tables.node_table import PartTable, TableFiles
from node.tables.table_part import Content, Field, FieldKind, P, TablePart
from tandem.wire.access_control import PolicyInfo
from tandem.wire.route import decode_json_body

USERS_VERSION: Final = 3
"""Of the journal's format: nodes of older versions do not read a journal with users."""


class UsersChanged(msgspec.Struct, frozen=True, tag="users"):
    """Users that are new or different."""

    users: list[StoredUser]
    version: int = USERS_VERSION


class UsersDeleted(msgspec.Struct, frozen=True, tag="usersDeleted"):
    """Users that are no more; what they might goes with them."""

    names: list[str]
    version: int = USERS_VERSION


class AclsChanged(msgspec.Struct, frozen=True, tag="acls"):
    """What users may from now on, by name; without policies: nothing."""

    acls: dict[str, list[PolicyInfo]]
    version: int = USERS_VERSION


class AllUsers(msgspec.Struct, frozen=True):
    """Body of the answer to GET_ALL_USERS."""

    users: list[StoredUser]
    acls: dict[str, list[PolicyInfo]]


class UsersPart(TablePart):
    """The users by name."""

    record = UsersChanged
    also = (UsersDeleted,)
    fields: ClassVar = (Field("users", list[StoredUser], FieldKind.ROWS),)
    version = USERS_VERSION

    def __init__(self, users: dict[str, StoredUser] | None = None) -> None:
        self.users = users or {}

    def apply(self, record: UsersChanged | UsersDeleted) -> None:
        """See `TablePart`."""
        if isinstance(record, UsersDeleted):
            for name in record.names:
                self.users.pop(name, None)
        else:
            self.users.update({user.name: user for user in record.users})

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        self.users.update({user.name: user for user in content["users"]})

    def content(self) -> Content:
        """See `TablePart`."""
        return {"users": list(self.users.values())}

    def copy(self) -> UsersPart:
        """See `TablePart`."""
        return UsersPart(dict(self.users))


class AclsPart(TablePart):
    """The policies by the name of their user."""

    record = AclsChanged
    also = (UsersDeleted,)
    fields: ClassVar = (Field("acls", dict[str, list[PolicyInfo]], FieldKind.MAP),)
    version = USERS_VERSION

    def __init__(self, acls: dict[str, list[PolicyInfo]] | None = None) -> None:
        self.acls = acls or {}

    def apply(self, record: AclsChanged | UsersDeleted) -> None:
        """See `TablePart`."""
        if isinstance(record, UsersDeleted):
            for name in record.names:
                self.acls.pop(name, None)
            return
        self.acls.update(record.acls)
        self.acls = {name: policies for name, policies in self.acls.items() if policies}

    def add(self, content: Mapping[str, Any]) -> None:
        """See `TablePart`."""
        self.acls.update(content["acls"])

    def content(self) -> Content:
        """See `TablePart`."""
        return {"acls": self.acls}

    def copy(self) -> AclsPart:
        """See `TablePart`."""
        return AclsPart(dict(self.acls))


class ConfirmedTable(PartTable[P]):
    """A table whose changes show once they are confirmed, on the master too."""

    shows_own_at_once = False

    def take(self, record: Any) -> None:  # noqa: ANN401 - one of the part's records
        """See `NodeTable`. With a journal, `show` says when it counts."""
        if not self._is_copy:
            super().take(record)

    def take_if_concerned(self, record: msgspec.Struct) -> None:
        """Take a change of this table; leave one of another.

        Raises:
            RequestError: see `take`.
        """
        if type(record) in type(self.part).records():
            self.take(record)


class UsersTable(ConfirmedTable[UsersPart]):
    """A node's users: `config/users.json`."""

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        super().__init__(UsersPart, files)


class AclsTable(ConfirmedTable[AclsPart]):
    """What a node's users may: `config/acls.json`."""

    def __init__(self, files: TableFiles) -> None:
        """Read the file.

        Raises:
            TableFileError: it is damaged.
        """
        super().__init__(AclsPart, files)


def changes_to(users: UsersPart, acls: AclsPart, body: bytes) -> Iterator[msgspec.Struct]:
    """Yield what makes tables say what a master's do, by its answer to GET_ALL_USERS.

    Raises:
        MalformedFrameError: that is none.
    """
    wanted = decode_json_body(body, AllUsers)
    names = {user.name for user in wanted.users}
    if gone := [name for name in users.users if name not in names]:
        yield UsersDeleted(gone)
    if changed := [user for user in wanted.users if users.users.get(user.name) != user]:
        yield UsersChanged(changed)
    ended: dict[str, list[PolicyInfo]] = {name: [] for name in acls.acls if name not in wanted.acls}
    other = {name: each for name, each in wanted.acls.items() if acls.acls.get(name) != each}
    if ended or other:
        yield AclsChanged(ended | other)
